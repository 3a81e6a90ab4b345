"""The model under evaluation, which is loaded only to encode texts whose vectors are not in the cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.encoder.announce import load_encoder, warn_truncated
from sentcli.encoder.loading import read_model
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.evaluation.significance import require_finite
from sentcli.evaluation.stores import ScoreStore, VectorStore, digest, library_key, model_key
from sentcli.machine import environment
from sentcli.model.encoding import Encoded, Progress
from sentcli.model.options import LoadOptions

Floats = npt.NDArray[Any]


@dataclass(frozen=True)
class TextVectors:
    """The vectors of distinct texts."""

    rows: dict[str, int]
    """The row of each text in `vectors`."""
    vectors: Floats
    """``[texts, dim]``."""
    beyond: npt.NDArray[np.int64]
    """The number of tokens of each text beyond the model's maximum length ``[texts]``."""

    def __post_init__(self) -> None:
        require_finite(self.vectors)

    def of(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, which may repeat ``[n, dim]``."""
        return self.vectors[[self.rows[text] for text in texts]]

    def truncated(self, texts: Iterable[str]) -> int:
        """Count the distinct texts that are longer than the model's maximum length."""
        return sum(bool(self.beyond[self.rows[text]]) for text in set(texts))

    def zero(self, texts: Sequence[str]) -> int:
        """Count the texts, with repetitions, whose vector is zero; their similarity to any other is 0."""
        return int((~self.of(texts).any(axis=1)).sum())


class Task(Protocol):
    """A data set with a metric, on which models are scored."""

    @property
    def name(self) -> str:
        """The name, which is unique in a command."""

    @property
    def texts(self) -> Sequence[str]:
        """Texts to encode before `score` is called, with repetitions; empty for a task that encodes by itself."""

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""

    def score(self, model: EvaluatedModel, vectors: TextVectors) -> TaskScore:
        """Score a model, given the vectors of `texts`."""


class EvaluatedModel:
    """A model whose vectors and scores are cached from run to run.

    Args:
        name: of the model; None for BM25, which needs none.
        options: for loading it.
        rerun: encode and score again instead of reading the cache.
    """

    def __init__(self, name: str | None, options: LoadOptions | None = None, *, rerun: bool = False) -> None:
        self.name, self.options, self.rerun = name or "bm25", options or LoadOptions(), rerun
        self.cached: list[str] = []
        """Tasks whose scores were read from the cache."""
        self.description: dict[str, Any] = {}
        """The result of `SentenceEncoder.describe` and the device, now or when the cached scores were measured."""
        self.was_loaded = False
        """Whether `encoder` has been loaded since this object was made."""
        self.key: str | None = library_key()
        if name is not None:
            self.spec = read_model(name, self.options)
            self.key = model_key(self.spec, list(vars(self.options).values()), self.options.on_cpu)
        self._scores = None if self.key is None else ScoreStore(self.key)

    @classmethod
    def of(cls, encoder: SentenceEncoder, options: LoadOptions | None = None) -> EvaluatedModel:
        """Return a loaded encoder as a model.

        Args:
            encoder: loaded.
            options: with which it was loaded by its name. Without them its vectors and scores are measured each time
                and never kept: its weights may change between two calls of `measure`, as they do while it is trained.
        """
        model = cls(None if options is None else encoder.model, options)
        model.name, model.spec, model.encoder, model.description = encoder.model, encoder.spec, encoder, _facts(encoder)
        if options is None:
            model.key = model._scores = None
        return model

    @property
    def is_trained_run(self) -> bool:
        """Whether the model is the folder of a run of ``train``, known by its log."""
        return hasattr(self, "spec") and (self.spec.folder / "metrics.jsonl").is_file()

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The model, loaded when it is first asked for."""
        encoder = load_encoder(self.name, self.options)
        self.description, self.was_loaded = _facts(encoder), True
        return encoder

    def release(self) -> None:
        """Free the memory of the loaded model."""
        self.__dict__.pop("encoder", None)

    def encode(
        self,
        texts: Iterable[str],
        progress: Progress | None = None,
        *,
        prompt: str | None = None,
        length: int | None = None,
    ) -> TextVectors:
        """Encode every distinct text once, or read its vector from the cache.

        Args:
            texts: may repeat.
            progress: as in `SentenceEncoder.encode`.
            prompt: text in front of each text; None is the model's default prompt, if it has one.
            length: maximum length in tokens; None is the model's.
        """
        encoder = self.encoder if length is None else self.encoder.with_max_length(length)
        distinct = list(dict.fromkeys(texts))
        store = self._vectors(encoder)
        if store is None:
            return encode(encoder, distinct, progress, prompt)
        encoded = store.encode(encoder, distinct, progress, prompt)
        return TextVectors({text: row for row, text in enumerate(distinct)}, encoded.vectors, encoded.beyond)

    def _vectors(self, encoder: SentenceEncoder) -> VectorStore | None:
        """Return the cache of the vectors of `encoder`, or None if they are not kept."""
        if self.key is None:
            return None
        return VectorStore(digest([self.key, {**self.description, **encoder.describe()}]), fresh=self.rerun)

    def encode_distinct(self, texts: Sequence[str], prompt: str = "", **options: Any) -> Encoded:
        """Encode as `SentenceEncoder.encode_distinct` but for texts in the cache, to which nothing is added."""
        store = self._vectors(self.encoder)
        if store is None:
            return self.encoder.encode_distinct(texts, prompt, **options)
        return store.encode(self.encoder, texts, prompt=prompt, keep=False, **options)

    def measure(self, tasks: Sequence[Task], *, read_cache: bool = True) -> list[TaskScore]:
        """Score the model on tasks, or read their scores from the cache and add the names of the tasks to `cached`.

        Args:
            tasks: every distinct text of the tasks without cached scores is encoded once.
            read_cache: take scores from the cache.
        """
        scores = self._cached_scores(tasks) if read_cache else {}
        missing = [task for task in tasks if task.name not in scores]
        vectors = TextVectors({}, np.empty((0, 0)), np.empty(0, np.int64))
        if texts := list(dict.fromkeys(text for task in missing for text in task.texts)):
            with console.encoding("encoding", len(texts)) as progress:
                vectors = self.encode(texts, progress)
        for task in missing:
            scores[task.name] = task.score(self, vectors)
            if self._scores is not None:
                record = {"encoder": self.description, "score": scores[task.name].to_record()}
                self._scores.write(record, *task.identity)
        return [scores[task.name] for task in tasks]

    def _cached_scores(self, tasks: Sequence[Task]) -> dict[str, TaskScore]:
        """Return the cached scores of one and the same backend, which is the loaded one if some scores are missing."""
        if self._scores is None or self.rerun:
            return {}
        records = {task.name: record for task in tasks if (record := self._scores.read(*task.identity)) is not None}
        encoders = [record["encoder"] for record in records.values()]
        if records and len(records) == len(tasks) and all(e == (self.description or encoders[0]) for e in encoders):
            self.description = encoders[0]
        elif records and hasattr(self, "spec"):
            self.encoder  # noqa: B018 - sets `description`
        scores = {name: record["score"] for name, record in records.items() if record["encoder"] == self.description}
        self.cached += scores
        return {name: TaskScore.from_record(score) for name, score in scores.items()}


def _facts(encoder: SentenceEncoder) -> dict[str, Any]:
    return {**encoder.describe(), "device": encoder.backend.device}


def encode(
    encoder: SentenceEncoder, texts: Iterable[str], progress: Progress | None = None, prompt: str | None = None
) -> TextVectors:
    """Encode every distinct text once; the arguments are those of `EvaluatedModel.encode`."""
    distinct = list(dict.fromkeys(texts))
    encoded = encoder.encode_distinct(distinct, encoder.prompt_text(prompt=prompt), progress=progress)
    return TextVectors({text: row for row, text in enumerate(distinct)}, encoded.vectors, encoded.beyond)


def score_model(
    model: EvaluatedModel,
    tasks: Sequence[Task],
    command: str,
    protocol: dict[str, Any],
    *,
    seed: int | None = None,
    read_cache: bool = True,
) -> ModelScores:
    """Score a model on tasks, print warnings about its texts and vectors, and release it.

    Args:
        model: the model.
        tasks: in the order of the results.
        command: of the JSON of the scores.
        protocol: every choice that moves a score, except those of the model.
        seed: of the classifiers that are trained, if any.
        read_cache: take scores from the cache.
    """
    scores = ModelScores(command, model.name, protocol, [])
    before = len(model.cached)
    scores.tasks = model.measure(tasks, read_cache=read_cache)
    description = model.description
    truncated = sum(task.facts.get("truncated", 0) for task in scores.tasks)
    zero = [task.facts["zero_vectors"] for task in scores.tasks if "zero_vectors" in task.facts]
    settings = {key: value for key, value in description.items() if key != "device"}
    counts = {"truncated_texts": truncated} | ({"zero_vectors": sum(zero)} if zero else {})
    scores.protocol = {**protocol, **settings, **counts}
    scores.environment = environment(description.get("device", "cpu"), description.get("precision"), seed)
    scores.environment["trained_run"] = model.is_trained_run
    scores.cached = model.cached[before:]
    warn_truncated(description.get("max_length"), truncated, what="texts (each counted once for each task)")
    if any(zero):
        console.warn(f"the vectors of {sum(zero)} sentences are zero; their similarities count as 0")
    if scores.cached:
        console.note(f"{len(scores.cached)} of {len(tasks)} tasks were measured before (--rerun measures again)")
    model.release()
    scores.finish()
    return scores
