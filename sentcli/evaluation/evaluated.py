"""The model under evaluation: loaded when something has to be encoded that was not encoded before."""

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
from sentcli.evaluation.stores import ScoreStore, VectorStore, digest, library_key, model_key
from sentcli.machine import environment
from sentcli.model.encoding import Progress
from sentcli.model.options import LoadOptions

Floats = npt.NDArray[Any]


@dataclass(frozen=True)
class TextVectors:
    """The vectors of some texts."""

    rows: dict[str, int]
    """Text to row of `vectors`."""
    vectors: Floats
    """``[texts, dim]``."""
    beyond: npt.NDArray[np.int64]
    """Tokens of each text beyond the model's maximum length ``[texts]``."""

    def of(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, which may repeat ``[n, dim]``."""
        return self.vectors[[self.rows[text] for text in texts]]

    def truncated(self, texts: Iterable[str]) -> int:
        """Count the distinct texts that are longer than the model's maximum length."""
        return sum(bool(self.beyond[self.rows[text]]) for text in set(texts))

    def zero(self, texts: Sequence[str]) -> int:
        """Count the texts whose vector is zero, as often as they occur; their similarity to any other is 0."""
        return int((~self.of(texts).any(axis=1)).sum())


class Task(Protocol):
    """What models are scored on."""

    @property
    def name(self) -> str:
        """No other task of a run has it."""

    @property
    def texts(self) -> Sequence[str]:
        """What is encoded before `score` is called; may repeat, and be empty for a task that encodes by itself."""

    @property
    def identity(self) -> list[Any]:
        """Everything beside the model that decides the score."""

    def score(self, model: EvaluatedModel, vectors: TextVectors) -> TaskScore:
        """Score a model, given the vectors of `texts`."""


class EvaluatedModel:
    """A model, its vectors and its scores, with what is kept of both from earlier runs.

    Args:
        name: of the model; None for searches that need none, such as BM25.
        options: of loading it.
        rerun: measure again what was measured before.
    """

    def __init__(self, name: str | None, options: LoadOptions | None = None, *, rerun: bool = False) -> None:
        self.name, self.options, self.rerun = name or "bm25", options or LoadOptions(), rerun
        self.remembered: list[str] = []
        """Tasks whose scores were taken from an earlier run."""
        self.described: dict[str, Any] = {}
        """How it was loaded, now or when its scores were kept: what `SentenceEncoder.describe` says, and the device."""
        self.key: str | None = library_key()
        if name is not None:
            self.spec = read_model(name, self.options)
            self.key = model_key(self.spec, list(vars(self.options).values()), self.options.on_cpu)
        self._scores = None if self.key is None else ScoreStore(self.key)

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The model, loaded when it is first asked for."""
        encoder = load_encoder(self.name, self.options)
        self.described = {**encoder.describe(), "device": encoder.backend.device}
        return encoder

    def release(self) -> None:
        """Let go of the loaded model: there may be many."""
        self.__dict__.pop("encoder", None)

    def encode(
        self,
        texts: Iterable[str],
        progress: Progress | None = None,
        *,
        prompt: str | None = None,
        length: int | None = None,
    ) -> TextVectors:
        """Encode every distinct text once; what was encoded before is taken from the cache.

        Args:
            texts: may repeat.
            progress: as in `SentenceEncoder.encode`.
            prompt: text in front of each; None is the model's default one, if it has one.
            length: maximum length in tokens, if it is not to be the model's.
        """
        encoder = self.encoder if length is None else self.encoder.with_max_length(length)
        distinct = list(dict.fromkeys(texts))
        if self.key is None:
            return encode(encoder, distinct, progress, prompt)
        store = VectorStore(digest([self.key, {**self.described, **encoder.describe()}]), fresh=self.rerun)
        encoded = store.encode(encoder, distinct, progress, prompt)
        return TextVectors({text: row for row, text in enumerate(distinct)}, encoded.vectors, encoded.beyond)

    def measure(self, tasks: Sequence[Task], *, keep: bool = True) -> list[TaskScore]:
        """Score the model on tasks, or take the scores that are kept; `remembered` then holds their names.

        Args:
            tasks: every distinct text of those that are missing is encoded once.
            keep: take scores of earlier runs.
        """
        scores = self._recall(tasks) if keep else {}
        missing = [task for task in tasks if task.name not in scores]
        vectors = TextVectors({}, np.empty((0, 0)), np.empty(0, np.int64))
        if texts := list(dict.fromkeys(text for task in missing for text in task.texts)):
            with console.encoding("encoding", len(texts)) as progress:
                vectors = self.encode(texts, progress)
        for task in missing:
            scores[task.name] = task.score(self, vectors)
            if self._scores is not None:
                record = {"encoder": self.described, "score": scores[task.name].to_record()}
                self._scores.write(record, *task.identity)
        return [scores[task.name] for task in tasks]

    def _recall(self, tasks: Sequence[Task]) -> dict[str, TaskScore]:
        """Return the scores that are kept, all of the same backend: the one that is loaded, if some are missing."""
        if self._scores is None or self.rerun:
            return {}
        kept = {task.name: record for task in tasks if (record := self._scores.read(*task.identity)) is not None}
        backends = [record["encoder"] for record in kept.values()]
        if kept and len(kept) == len(tasks) and all(each == (self.described or backends[0]) for each in backends):
            self.described = backends[0]
        elif kept and hasattr(self, "spec"):
            self.encoder  # noqa: B018 - sets `described`
        same = {name: record["score"] for name, record in kept.items() if record["encoder"] == self.described}
        self.remembered += same
        return {name: TaskScore.from_record(record) for name, record in same.items()}


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
    keep: bool = True,
) -> ModelScores:
    """Score a model on tasks, say what the user should know, and let go of it.

    Args:
        model: the model.
        tasks: in the order of the results.
        command: whose JSON the scores become.
        protocol: every choice that moves a number, but those of the model.
        seed: of what was trained.
        keep: take scores of earlier runs.
    """
    scores = ModelScores(command, model.name, protocol, [])
    before = len(model.remembered)
    scores.tasks = model.measure(tasks, keep=keep)
    described = model.described
    facts = [task.facts for task in scores.tasks]
    truncated = sum(each.get("truncated", 0) for each in facts)
    zero = [each["zero_vectors"] for each in facts if "zero_vectors" in each]  # not every task counts them
    settings = {key: value for key, value in described.items() if key != "device"}
    counts = {"truncated_texts": truncated} | ({"zero_vectors": sum(zero)} if zero else {})
    scores.protocol = {**protocol, **settings, **counts}
    scores.environment = environment(described.get("device", "cpu"), described.get("precision"), seed)
    scores.cached = model.remembered[before:]
    warn_truncated(described.get("max_length"), truncated, what="texts (each counted once for each task)")
    if any(zero):
        console.warn(f"the vectors of {sum(zero)} sentences are zero; their similarities count as 0")
    if scores.cached:
        console.note(f"{len(scores.cached)} of {len(tasks)} tasks were measured before (--rerun measures again)")
    model.release()
    scores.finish()
    return scores
