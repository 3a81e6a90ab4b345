"""A model whose scores are wanted: it is loaded when something has to be encoded that was not encoded before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.evaluation import vectors
from sentcli.evaluation.cache import ScoreStore, VectorStore, digest, model_key
from sentcli.evaluation.vectors import TextVectors
from sentcli.model.encoding import Progress
from sentcli.model.options import LoadOptions
from sentcli.model.spec import EncoderSpec


class Score(Protocol):
    """What a measurement results in."""

    def to_record(self) -> dict[str, Any]:
        """Return everything, as JSON can hold it."""


S = TypeVar("S", bound=Score)
S_co = TypeVar("S_co", bound=Score, covariant=True)
Encoding = Callable[[int], AbstractContextManager[Progress]]
"""Shows the progress of encoding a number of texts."""


class Task(Protocol[S_co]):
    """What can be kept of a measurement."""

    @property
    def name(self) -> str:
        """No other task of a run has it."""

    @property
    def facts(self) -> list[Any]:
        """Everything beside the model that decides the score."""

    @property
    def restore(self) -> Callable[[dict[str, Any]], S_co]:
        """Undoes `Score.to_record`."""


@dataclass(frozen=True)
class Measurement(Generic[S]):
    """A task that a model is to be scored on."""

    name: str
    texts: Sequence[str]
    """Whose vectors it needs; they may repeat."""
    facts: list[Any]
    """Everything beside the model that decides the score."""
    score: Callable[[TextVectors], S]
    restore: Callable[[dict[str, Any]], S]
    """Undoes `Score.to_record`."""


class Candidate:
    """A model, its vectors and its scores, with what is kept of both from earlier runs.

    Args:
        name: of the model.
        spec: what its folder says, with the user's choices.
        options: of loading it.
        load: loads it.
        rerun: measure again what was measured before.
    """

    def __init__(
        self,
        name: str,
        spec: EncoderSpec,
        options: LoadOptions,
        load: Callable[[], SentenceEncoder],
        *,
        rerun: bool = False,
    ) -> None:
        self.name, self.spec, self.rerun = name, spec, rerun
        chosen = [options.backend, options.precision, options.device, options.max_length]
        self.key = model_key(spec, chosen, options.on_cpu)
        self.scores = None if self.key is None else ScoreStore(self.key)
        self.remembered: list[str] = []
        """Tasks whose scores were taken from an earlier run."""
        self._load = load
        self.described: dict[str, Any] = {}
        """How it was loaded, now or when its scores were kept: what `SentenceEncoder.describe` says, and the device."""

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The model, loaded when it is first asked for."""
        encoder = self._load()
        self.described = {**encoder.describe(), "device": encoder.backend.device}
        return encoder

    def release(self) -> None:
        """Let go of the loaded model: there may be many candidates."""
        self.__dict__.pop("encoder", None)

    def measure(self, tasks: Sequence[Measurement[S]], encoding: Encoding) -> list[S]:
        """Score the model on some tasks, or take the scores that are kept; `remembered` then holds their names."""
        kept = self.recall(tasks)
        missing = [task for task in tasks if task.name not in kept]
        if missing:
            texts = list(dict.fromkeys(text for task in missing for text in task.texts))
            with encoding(len(texts)) as progress:
                found = self.encode(texts, progress)
        for task in missing:
            kept[task.name] = task.score(found)
            self.keep(task, kept[task.name])
        return [kept[task.name] for task in tasks]

    def keep(self, task: Task[S], score: S) -> None:
        """Keep a score for `recall`."""
        if self.scores is not None:
            self.scores.write({"encoder": self.described, "score": score.to_record()}, *task.facts)

    def recall(self, tasks: Sequence[Task[S]]) -> dict[str, S]:
        """Return the scores that are kept, all of the same backend: the one that is loaded, if some are missing.

        `remembered` then holds their names.
        """
        if self.scores is None or self.rerun or not tasks:
            return {}
        kept = {task.name: found for task in tasks if (found := self.scores.read(*task.facts)) is not None}
        backends = [found["encoder"] for found in kept.values()]
        if len(kept) == len(tasks) and all(one == (self.described or backends[0]) for one in backends):
            self.described = backends[0]
        elif kept:
            self.encoder  # noqa: B018 - sets `described`
        same = {name: found["score"] for name, found in kept.items() if found["encoder"] == self.described}
        found = {task.name: task.restore(same[task.name]) for task in tasks if task.name in same}
        self.remembered += found
        return found

    def encode(
        self,
        texts: Iterable[str],
        progress: Progress | None = None,
        *,
        prompt: str | None = None,
        length: int | None = None,
    ) -> TextVectors:
        """Return the vectors of some texts; see `vectors.encode`.

        Args:
            texts: may repeat.
            progress: as there.
            prompt: as there.
            length: maximum length in tokens, if it is not to be the model's.
        """
        encoder = self.encoder if length is None else self.encoder.with_max_length(length)
        described = {**self.described, **encoder.describe()}
        store = None if self.key is None else VectorStore(digest([self.key, described]), fresh=self.rerun)
        return vectors.encode(encoder, texts, progress, store, prompt)
