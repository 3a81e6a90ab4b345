"""The work of an adaptation in its own folder: mining, training, scores; what is finished is not done again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.adapting.candidates import BATCH_SIZE, CANDIDATE_SETTINGS, MLM_SETTINGS, Candidate
from sentcli.adapting.mixing import write_between
from sentcli.adapting.token_weights import inverse_document_frequencies, write_weighted
from sentcli.adapting.verdict import START
from sentcli.arrays import Float64Array, Vectors
from sentcli.devices import choose_device
from sentcli.errors import InputError
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.retrieval_tasks import RetrievalTask
from sentcli.io.atomic import replacing
from sentcli.io.forms import read_json, write_json
from sentcli.io.writers import as_json
from sentcli.mining.copies import MiningCorpus
from sentcli.mining.mined import Mined, MiningQueries, mine_negatives
from sentcli.mining.options import MiningOptions
from sentcli.model.options import BackendName, LoadOptions, Precision
from sentcli.model.spec import Similarity
from sentcli.precision import half_precision_supported
from sentcli.search.words import plain
from sentcli.training.options import LogOptions
from sentcli.training.prepare import prepare
from sentcli.training.request import TrainRequest
from sentcli.training.run import run as train_run

if TYPE_CHECKING:
    from sentcli.adapting.material import Material
    from sentcli.evaluation.evaluated import OwnTask
    from sentcli.evaluation.scores import TaskScore

NEGATIVES = 1
"""The hard negatives of a row: each is another document to encode, and the batch has more."""
_LEAST_ROWS = BATCH_SIZE
"""The rows that are trained on at least, which fill one batch."""
SAVE_EVERY = 100
VERDICT_PRECISION: Precision = "fp32"
"""The precision of the scores that decide, which is that of what is written."""
LEAST_SHARE = 0.25
"""The share of the queries that have a hard negative, below which words find them."""
BY_WORDS = MiningOptions(negatives=NEGATIVES, search="bm25", below=1.0, near=1.0, apart=False)
"""Hard negatives by words, for a model whose vectors lie so close together that no share of a score means anything."""


@dataclass
class Work:
    """Trains and scores in a folder that may hold an unfinished adaptation."""

    start: str
    """The name of the start model."""
    material: Material
    folder: Path
    device: str = "auto"
    teacher: str | None = None
    seed: int = 0
    mined: dict[str, Any] = field(default_factory=dict)
    """How many rows were mined, and what fell, by the model that mined."""

    @cached_property
    def precision(self) -> Precision:
        """The precision of what trains, mines and chooses: bf16 where the device computes in it."""
        return "bf16" if half_precision_supported(choose_device(self.device), "bf16") else "fp32"

    def model(self, name: str, precision: Precision) -> EvaluatedModel:
        """Return a model by its name or folder; its vectors and scores are cached.

        All are encoded with torch, since an export of each would take longer than it saves, and an export that rounds
        the start would leave it behind what is trained from its weights.
        """
        return EvaluatedModel(name, LoadOptions(backend="torch", device=self.device, precision=precision))

    def score(self, name: str, tasks: Sequence[OwnTask], precision: Precision = VERDICT_PRECISION) -> list[TaskScore]:
        """Score a model, or read its scores from the cache."""
        model = self.model(name, precision)
        scores = model.measure(tasks)
        model.release()
        return scores

    def dev_score(self, name: str, dev: RetrievalTask) -> float:
        """Return the score of a model on the queries that choose."""
        (score,) = self.score(name, [dev], self.precision)
        return score.value

    def triplets(self, name: str) -> tuple[Path, int]:
        """Mine hard negatives with a model, unless it is done, and return the table of rows and their number.

        Raises:
            InputError: if too few rows have a negative.
        """
        mined_with = START if name == self.start else Path(name).name
        path = self.folder / f"rows-{mined_with}.jsonl"
        facts_file = path.with_suffix(".json")
        if path.is_file():
            facts = read_json(facts_file)
            self.mined[mined_with] = facts
            return path, facts["rows"]
        material = self.material
        self._require_enough()
        model = self.model(name, self.precision)
        spec = model.spec
        query_prompt = spec.role_prompt("query")
        vectors = model.encode_shown("mining: queries", material.queries, prompt=query_prompt)
        documents = model.encode_shown("mining: documents", material.documents, prompt=spec.role_prompt("document"))
        mined = self._mined(
            vectors.vectors_of(material.queries), documents.vectors_of(material.documents), spec.similarity
        )
        model.release()
        if len(mined.rows) < _LEAST_ROWS:
            raise InputError(
                f"{len(mined.rows)} of {mined.queries:,} queries have a document that is a hard negative, too few to "
                "train on: more documents, or queries that a model writes (--write-with), give more"
            )
        facts = {"rows": len(mined.rows), "fell": mined.fell}
        self.mined[mined_with] = facts
        write_json(facts_file, facts)
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as handle:
            for row in mined.rows:
                record = {"anchor": material.queries[row.query], "positive": material.documents[row.positive]}
                record["negative"] = material.documents[row.negatives[0]]
                handle.write(as_json(record) + "\n")
        return path, len(mined.rows)

    def _require_enough(self) -> None:
        """Refuse fewer queries than fill a batch, and fewer documents than mining passes over."""
        queries = len(self.material.queries)
        if queries < _LEAST_ROWS:
            raise InputError(
                f"{queries} queries of the documents are left for training, too few to train on: more documents, or "
                "queries that a model writes (--write-with), give more"
            )
        distinct = len(set(map(plain, self.material.documents)))
        first, _ = MiningOptions().rank_bounds
        if distinct <= first:
            raise InputError(f"the corpus has {distinct} different documents, too few for hard negatives: give more")

    def _mined(self, queries: Vectors, documents: Vectors, similarity: Similarity) -> Mined:
        """Mine by the vectors of a model; by words, if they tell too few documents apart."""
        material = self.material
        known = MiningQueries(material.queries, material.positives)
        corpus = MiningCorpus(material.documents)
        mined = mine_negatives(
            known, queries, corpus, documents, MiningOptions(negatives=NEGATIVES), similarity=similarity
        )
        if len(mined.rows) >= LEAST_SHARE * len(material.queries):
            return mined
        console.note(
            f"the model's vectors tell few documents apart ({len(mined.rows):,} of {len(material.queries):,} queries "
            "have a hard negative by them): hard negatives are found by words"
        )
        return mine_negatives(known, queries, corpus, documents, BY_WORDS, similarity=similarity)

    def request(self, candidate: Candidate, start: str, base: str, data: Path, stage: str, steps: int) -> TrainRequest:
        """Return the training of a candidate.

        Args:
            candidate: how it is trained.
            start: the model whose training goes on.
            base: the model from which all training began, which is the teacher where no other one is.
            data: the rows.
            stage: the name of its folder.
            steps: how many.
        """
        settings: list[tuple[str, Any]] = [
            *candidate.assignments,
            *CANDIDATE_SETTINGS,
            ("settings.precision", self.precision),
        ]
        settings += [("settings.max_steps", steps), ("settings.eval_every", steps), ("settings.seed", self.seed + 1)]
        teachers: tuple[str, ...] = ()
        backend: BackendName = "auto"
        if candidate.taught and self.teacher is not None:
            teachers = (self.teacher,)
        elif candidate.taught:
            teachers = (base,)
            backend = "torch"
        return TrainRequest(
            method=candidate.method,
            model=start,
            files=[str(data)],
            output=self.folder / stage,
            device=self.device,
            log=LogOptions(save_every=SAVE_EVERY, resume=True),
            assignments=settings,
            teachers=teachers,
            teacher_backend=backend,
            learns_from_itself=True,
        )

    def reading_request(self, base: str, steps: int) -> TrainRequest:
        """Return the masked language modelling on the documents that comes before a candidate."""
        data = self.folder / "documents.jsonl"
        if not data.is_file():
            with replacing(data) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as handle:
                for text in self.material.documents:
                    if text.strip():
                        handle.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        settings: list[tuple[str, Any]] = [*MLM_SETTINGS, ("settings.precision", self.precision)]
        settings += [("settings.max_steps", steps), ("settings.seed", self.seed + 1)]
        return TrainRequest(
            method="mlm",
            model=base,
            files=[str(data)],
            output=self.folder / "reading",
            device=self.device,
            log=LogOptions(save_every=SAVE_EVERY, resume=True),
            assignments=settings,
        )

    def train(self, request: TrainRequest, label: str) -> str:
        """Train, unless it is done, and return the folder of the model."""
        with console.working(f"training: {label}"):
            train_run(prepare(request))
        return str(request.output)

    @cached_property
    def rarities(self) -> Float64Array:
        """The idf of each token of the start in the documents."""
        model = self.model(self.start, VERDICT_PRECISION)
        rarities = inverse_document_frequencies(model.load(), self.material.documents)
        model.release()
        return rarities

    def weighted(self, power: float) -> str:
        """Return the folder of the start with weights of its tokens, which is written once."""
        folder = self.folder / f"weighted-{power:g}"
        if not (folder / "modules.json").is_file():
            write_weighted(self.start, self.rarities, power, folder)
        return str(folder)

    def between(self, base: str, trained: str, share: float, stage: str) -> str:
        """Return the folder of the weights between a model and what was trained from it, which is written once."""
        folder = self.folder / f"{stage}-{share:g}"
        if not (folder / "modules.json").is_file():
            write_between(base, trained, share, folder)
        return str(folder)
