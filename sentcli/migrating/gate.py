"""Whether a corpus is searched as well with another model: both serve the same set, and are compared query by query.

Both models serve the documents as the corpus does: with its passages, its way with long texts, and vectors made as
small as its own. A loss beyond what is allowed has to be excluded at 95 %, as in `sentcli.evaluation.baseline`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sentcli import console
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError
from sentcli.evaluation.baseline import BaselineComparison, compare_scores
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.retrieval_metrics import Run
from sentcli.evaluation.retrieval_tasks import SHOWN_HITS, score_run
from sentcli.evaluation.scores import TaskScore
from sentcli.io.readers import ReadOptions
from sentcli.model.options import LoadOptions
from sentcli.model.passages import PassageRows
from sentcli.model.spec import Similarity
from sentcli.search.asking import CorpusSearch, Query, most_per_document
from sentcli.search.local_corpus import LocalCorpus
from sentcli.search.options import SearchOptions
from sentcli.search.vector_directory import VectorDirectory
from sentcli.stores.inputs import read_inputs
from sentcli.stores.row_vectors import EncodedVectors, EncodeSettings
from sentcli.stores.writing import write_rows
from sentcli.table import Table

TOP_K = 100
"""Hits of each query that are scored."""


@dataclass(frozen=True)
class Serving:
    """A model, and how a corpus is served with it."""

    encoder: SentenceEncoder
    settings: EncodeSettings
    """How documents are encoded: prompt, long texts, size of the vectors."""
    query_prompt: str | None = None
    """The text in front of each query; None is the model's own."""
    similarity: Similarity | None = None
    """None is what the model's folder says."""
    load: LoadOptions = field(default_factory=LoadOptions)

    def score(self, data: RetrievalSet, cut: PassageRows | None, folder: Path) -> TaskScore:
        """Encode the documents of a set, search for its queries and score the hits.

        Args:
            data: the set.
            cut: cuts documents into passages, as those of the corpus were cut.
            folder: is made, and gets the vectors of the documents.
        """
        folder.mkdir()
        documents = folder / "documents.jsonl"
        with documents.open("w", encoding="utf-8", newline="\n") as handle:
            for record in _records(data, with_titles=cut is not None):
                handle.write(json.dumps(record, ensure_ascii=False) + "\n")
        output = folder / "vectors"
        try:
            self._encode(documents, cut, output)
        except InputError as error:  # of a document, which is one of the set
            raise InputError(str(error).replace(str(documents), data.name)) from error
        return self._searched(data, VectorDirectory.open(output))

    def _encode(self, documents: Path, cut: PassageRows | None, output: Path) -> None:
        inputs = read_inputs([str(documents)], ReadOptions("text", "id", cut=cut))
        settings = self.settings
        if settings.on_long == "truncate":  # a vector in the cache is that of the beginning of a text
            model = EvaluatedModel.of(self.encoder, self.load)
            settings = replace(settings, encode=partial(model.encode_distinct, keep=True))
        with console.encoding(f"comparing: {self.encoder.model}", inputs.survey.rows) as bar:
            write_rows(inputs, EncodedVectors(self.encoder, settings), str(output), progress=bar)

    def _searched(self, data: RetrievalSet, store: VectorDirectory) -> TaskScore:
        options = SearchOptions(
            index="flat",
            top_k=min(TOP_K + bool(data.own_rows), len(data.ids)),
            similarity=self.similarity,
            query_prompt=self.query_prompt,
            doc_prompt=self.settings.prompt,
        )
        corpus, facts = LocalCorpus(data.name, store.rows, store).prepare(options, self.encoder)
        per_document = most_per_document(corpus, None)
        prompt = facts["query_prompt"]
        search = CorpusSearch(corpus, options, self.encoder, self.encoder, facts, prompt, per_document=per_document)
        queries: list[Query] = list(data.queries.items())
        run: Run = {}
        for (key, _), by_mode in search.hits(queries):
            assert key is not None
            run[key] = {}
            for hit in by_mode["dense"]:
                document = hit.row.id if per_document is None else hit.row.columns["document"]
                if key in data.own_rows and document == key:  # its own document is no hit
                    continue
                run[key][document] = hit.score
        hits = {key: list(documents)[:SHOWN_HITS] for key, documents in run.items()}
        return replace(score_run(data, run, TOP_K), hits=hits)


def _records(data: RetrievalSet, *, with_titles: bool) -> list[dict[str, str]]:
    """Return the documents of a set; titles stand in front of their texts, or in a column where passages are cut."""
    records = []
    if with_titles:
        for key, (title, text) in zip(data.ids, data.titled_texts(), strict=True):
            records.append({"id": key, "text": text, "title": title})
        return records
    for key, text in zip(data.ids, data.texts(), strict=True):
        records.append({"id": key, "text": text})
    return records


@dataclass(frozen=True)
class MoveComparison:
    """The search of a set with the model of a corpus and with another one."""

    models: tuple[str, str]
    """The model of the corpus, and the other one."""
    data: RetrievalSet
    compared: BaselineComparison
    same_hits: float
    """The share of the first 10 hits with the old model that are among those with the new one, in the mean."""

    @property
    def passed(self) -> bool:
        """Whether a loss beyond what is allowed is excluded."""
        return self.compared.passed

    @property
    def is_worse(self) -> bool:
        """Whether a loss is proven, which more queries would show again."""
        return not self.passed and self.compared.difference.is_loss

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        compared = self.compared
        return {
            "metric": compared.metric,
            "old": compared.before,
            "new": compared.after,
            "difference": compared.difference.difference,
            "interval": list(compared.interval),
            "allow": compared.allow,
            "passed": compared.passed,
            "same_hits": self.same_hits,
            "queries": len(self.data.queries),
            "set_documents": len(self.data.ids),
            "trust": self.data.trust,
        }

    @property
    def sentence(self) -> str:
        """What the comparison says."""
        compared = self.compared
        judgement = "as good as"
        if not self.passed:
            judgement = "worse than" if self.is_worse else "not shown to be as good as"
        old, new = self.models
        sentence = (
            f"On {len(self.data.queries):,} queries for {len(self.data.ids):,} documents, {new} is {judgement} {old}: "
            f"{compared.metric} {compared.words}; {100 * self.same_hits:.0f} % of the first 10 hits stay."
        )
        if self.data.trust:
            sentence += f" {self.data.trust}"
        return sentence

    def tables(self) -> list[Table]:
        """Return both scores, and the queries that lost the most where the other model is not as good."""
        compared = self.compared
        rows = [
            [self.models[0], compared.before, None, None, None],
            [self.models[1], compared.after, compared.difference.difference, *compared.interval],
        ]
        numbers = ("difference", "low", "high")
        formats = dict.fromkeys((compared.metric, *numbers), ".4f")
        notes = ["Low and high: the 95 % interval of the difference, over the same queries."]
        tables = [Table("The models compared", ["model", compared.metric, *numbers], rows, formats, notes=notes)]
        if compared.worst and not self.passed:
            tables.append(compared.worst_table("The queries that lost the most", self.data.queries))
        return tables


def compare_models(
    old: Serving, new: Serving, data: RetrievalSet, cut: PassageRows | None, allow: float, folder: Path
) -> MoveComparison:
    """Compare how two models serve a set.

    Args:
        old: the model of the corpus.
        new: the other one.
        data: the set.
        cut: cuts documents into passages, as those of the corpus were cut.
        allow: the loss that is allowed, in units of the metric.
        folder: for temporary files.
    """
    before = old.score(data, cut, folder / "old")
    now = new.score(data, cut, folder / "new")
    compared = compare_scores(before, now, allow)
    models = (old.encoder.model, new.encoder.model)
    return MoveComparison(models, data, compared, _same_hits(before.hits, now.hits))


def _same_hits(before: Mapping[str, list[str]], now: Mapping[str, list[str]]) -> float:
    """Return the share of the first hits before that are among those now, in the mean over the queries with hits."""
    shares = []
    for query, hits in before.items():
        if hits:
            kept = set(hits).intersection(now.get(query, []))
            shares.append(len(kept) / len(hits))
    return float(np.mean(shares)) if shares else 1.0
