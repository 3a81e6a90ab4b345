"""Tables of labelled text as tasks: how well a model tells what their labels say.

Every score has the entries ``kind``, ``metric``, ``value`` and ``items`` beside its metrics. Anchors are encoded with
the model's prompt for queries, positives and negatives with that for documents, all other texts with the usual prompt.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.evaluation import significance
from sentcli.evaluation.evaluated import EvaluatedModel, Task, TextVectors
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.stores import digest
from sentcli.io.labelled import Kind, LabelledTable

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


class LabelledTask(Task, Protocol):
    """A task that was read from a table of labelled text, or from a retrieval set."""

    @property
    def kind(self) -> Kind:
        """The kind of the table."""

    @property
    def described(self) -> str:
        """What it holds, in words."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Rows with an empty cell that were left out, and contradictions, as `LabelledTable.counts`."""

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""

    @property
    def all_texts(self) -> Sequence[str]:
        """Texts that the model has to encode, with repetitions; of a retrieval set its first documents."""


def told(score: TaskScore, kind: Kind, items: int) -> TaskScore:
    """Return a score with the entries of the JSON that all kinds have, before its own ones."""
    facts = {"kind": kind, "metric": score.headline[0], "value": score.value, "items": items}
    return replace(score, facts=facts | score.facts)


def role_vectors(model: EvaluatedModel, texts: Sequence[str], role: str, name: str) -> TextVectors:
    """Encode texts with the model's prompt for the role ``query`` or ``document``."""
    model.encoder  # noqa: B018 - loads the model before there is a bar
    distinct = list(dict.fromkeys(texts))
    with console.encoding(f"{name}: encoding", len(distinct)) as progress:
        return model.encode(distinct, progress, prompt=model.spec.role_prompt(role))


@dataclass(frozen=True)
class TableTask:
    """What tasks of tables have in common."""

    name: str
    table: LabelledTable
    draws: int = significance.DRAWS
    """Samples of the items, for intervals and comparisons; 0 leaves them out."""

    @property
    def kind(self) -> Kind:
        """The kind of the table."""
        return self.table.kind

    @property
    def counts(self) -> Mapping[str, int]:
        """The numbers of rows left out for an empty cell, and of equal texts with different labels, by name."""
        return self.table.counts

    @property
    def texts(self) -> Sequence[str]:
        """Texts that are encoded with the usual prompt."""
        return ()

    @property
    def all_texts(self) -> Sequence[str]:
        """Every text of every column."""
        return [text for column in self.table.texts for text in column]

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""
        content = digest([self.table.texts, self.table.values])
        return ["evaluate", self.kind, self.name, self.draws, self.protocol, content]

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        return {"similarity": "cosine"}

    @property
    def stream(self) -> int:
        """The number of the samples, which are the same for all models."""
        return zlib.crc32(self.name.encode())

    def mean(self, metric: str, by_item: Floats) -> dict[str, Any]:
        """Return samples and interval of the mean of the items' values ``[items]``."""
        return self.sampled(
            metric, significance.mean_draws(by_item, self.draws, stream=self.stream) if self.draws else None
        )

    def sampled(self, metric: str, draws: Floats | None) -> dict[str, Any]:
        """Return samples of a metric ``[draws]`` and its interval, as arguments of a `TaskScore`."""
        if draws is None:
            return {}
        return {"draws": {metric: draws}, "intervals": {metric: significance.interval(draws)}}

    def answered(self, correct: npt.NDArray[np.bool_]) -> dict[str, Any]:
        """Return the interval of an accuracy between 0 and 1, and which items are right ``[items]``."""
        if not self.draws:
            return {}
        low, high = significance.accuracy_interval(correct)
        return {"correct": correct, "intervals": {"accuracy": (low / 100, high / 100)}}
