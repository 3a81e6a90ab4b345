"""The scores of a model on a task, and of a model on all tasks under one protocol.

Every evaluation returns these two. A `TaskScore` is what a task returns and what the cache keeps; a `ModelScores` is a
row of a paper's table. Averages, intervals, comparisons, JSON, console and pages are made of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from sentcli import console
from sentcli.arrays import BoolArray, Float64Array
from sentcli.errors import DegenerateVectorsError
from sentcli.evaluation import significance
from sentcli.evaluation.score_kinds import SCORE_KINDS, ScoreKind

AVERAGE = "average"


@dataclass(frozen=True)
class TaskScore:
    """The metrics of one model on one task."""

    task: str
    kind: str
    """A key of `SCORE_KINDS`."""
    metrics: dict[str, float]
    shown_metrics: tuple[str, ...]
    """The metrics that tables show; the first is the main one, which averages are taken of."""
    details: dict[str, Any] = field(default_factory=dict)
    """Counts and further entries of the JSON of the task."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """95 % intervals by metric."""
    replicates: dict[str, Float64Array] = field(default_factory=dict, repr=False)
    """The values of metrics on random samples of the task's items ``[resamples]``; all models have the same samples."""
    correct: BoolArray | None = field(default=None, repr=False)
    """Whether a classifier is right on each test example ``[examples]``."""
    items: tuple[str, ...] = field(default=(), repr=False)
    """Ids of the queries of `item_values`."""
    item_values: dict[str, Float64Array] = field(default_factory=dict, repr=False)
    """The values of metrics for each query ``[items]``."""
    hits: dict[str, list[str]] = field(default_factory=dict, repr=False)
    """Ids of the first documents of each query of one's own retrieval set, best first."""
    parts: tuple[TaskScore, ...] = ()
    """The scores of the sets whose mean this is."""

    @classmethod
    def undefined(cls, task: str, kind: str, metric: str, reason: str) -> TaskScore:
        """Return the score of a task on which a model has none, whose main metric is null in the JSON."""
        return cls(task, kind, {}, (metric,), {metric: None, "reason": reason})

    @property
    def reason(self) -> str:
        """Why the model has no score on the task; empty where it has one, or where that is not known."""
        if self.main_metric in self.metrics:
            return ""
        return str(self.details.get("reason") or "")

    @property
    def main_metric(self) -> str:
        """The metric that averages and comparisons are of."""
        return self.shown_metrics[0]

    @property
    def value(self) -> float:
        """The value of the main metric.

        Raises:
            DegenerateVectorsError: if the model has none, which `reason` tells beforehand.
        """
        if self.reason:
            raise DegenerateVectorsError(f"{self.task}: {self.reason}")
        return self.metrics[self.main_metric]

    @property
    def size(self) -> int | None:
        """The number of items that samples are drawn of; None if it is not known or there are fewer than two."""
        for key in ("items", "queries", "pairs", "test"):  # of one's own data the first, else that of the kind
            count = self.details.get(key)
            if isinstance(count, int) and count > 1:
                return count
        return None

    def replicates_of(self, metric: str) -> Float64Array | None:
        """Return the values of a metric on the samples ``[resamples]``, or None if there are none.

        Those of an accuracy are drawn here, from the right and wrong answers.
        """
        if self.correct is None or metric in self.replicates:
            return self.replicates.get(metric)
        return SCORE_KINDS[self.kind].highest * _shares_right(self.correct.tobytes(), zlib.crc32(self.task.encode()))

    def with_details(self, details: Mapping[str, Any]) -> TaskScore:
        """Return the score with further entries of the JSON of the task."""
        if not details:
            return self
        return replace(self, details={**self.details, **details})

    def with_replicates(self, replicates: Float64Array) -> TaskScore:
        """Return the score with its main metric on samples ``[resamples]``, and the interval that they give.

        It has neither where the metric is not defined on a sample, which is NaN. That happens with few items, or few
        that differ from all others; an interval of the other samples misses far more often than it says.
        """
        metric = self.main_metric
        undefined = int(np.isnan(replicates).sum())
        if undefined:
            console.note(
                f"{self.task}: {undefined} of {len(replicates):,} samples have no {metric}, so it has no interval"
            )
            return self.with_details({"interval": None})
        interval = significance.interval(replicates)
        return replace(self, replicates={metric: replicates}, intervals={metric: interval})

    def of_own_data(self, items: int | None) -> TaskScore:
        """Return the score with the entries of the JSON that all scores on the user's own data have, in front.

        Args:
            items: their number; None where nothing was scored.
        """
        entries = {
            "kind": SCORE_KINDS[self.kind].table,
            "metric": self.main_metric,
            "value": self.metrics.get(self.main_metric),
            "items": items,
        }
        return replace(self, details=entries | self.details)


@lru_cache(maxsize=512)  # JSON, console and page ask for the same
def _shares_right(answers: bytes, stream: int) -> Float64Array:
    """Return the share of right answers on samples of the examples ``[resamples]``, given the bytes of the answers."""
    correct = np.frombuffer(answers, np.bool_)
    return significance.mean_replicates(correct.astype(np.float64), stream=stream)


@dataclass(frozen=True)
class ModelScores:
    """The scores of one model under one protocol."""

    command: str
    model: str
    protocol: Mapping[str, Any]
    tasks: tuple[TaskScore, ...]
    environment: Mapping[str, Any] = field(default_factory=dict)
    cached: tuple[str, ...] = ()
    """Tasks whose scores were read from the cache."""
    entries: Mapping[str, Any] = field(default_factory=dict)
    """Results beside the scores, by their keys in the JSON: ``cost``, ``compared``, ``against``, ``verdict``."""
    label: str = ""
    """The label of the model in tables; by default its name."""
    source: str = ""
    """The file that the scores were read from."""
    average_interval: tuple[float, float] | None = None
    """The 95 % interval of the average, if it was read from a file."""
    replicates_file: str = ""
    """The file that has the samples, if they are not in the JSON."""
    seconds: float | None = None
    number: int = 0
    """The place of the model among those that are shown together."""
    command_line: str = ""
    """The command that measured the scores; empty if none did, or if it is not known."""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.model)

    @property
    def names(self) -> tuple[str, str]:
        """The names by which ``--group`` and ``--name`` find the model: its own, and that of its file, or nothing."""
        return self.model, self.source

    @property
    def cost(self) -> Mapping[str, Any]:
        """The speed and the size of the model on this machine; empty where they were not measured."""
        return self.entries.get("cost", {})

    @property
    def compared(self) -> Mapping[str, Any]:
        """The JSON of the comparison with the first model of the command."""
        return self.entries.get("compared", {})

    @property
    def against(self) -> Mapping[str, Any]:
        """The JSON of the comparison with a published system."""
        return self.entries.get("against", {})

    def with_entries(self, entries: Mapping[str, Any]) -> ModelScores:
        """Return the scores with further entries of the JSON."""
        return replace(self, entries={**self.entries, **entries})

    @property
    def kinds(self) -> list[ScoreKind]:
        """The kinds of the tasks."""
        names = dict.fromkeys(task.kind for task in self.tasks)
        return [SCORE_KINDS[name] for name in names]

    def of_kind(self, kind: ScoreKind) -> list[TaskScore]:
        """Return the tasks of one kind."""
        return [task for task in self.tasks if task.kind == kind.name]

    @property
    def lacking(self) -> dict[str, str]:
        """The tasks on which the model has no score, without which there is no average, and why."""
        return {task.task: task.reason for task in self.tasks if task.reason}

    def columns(self, kind: ScoreKind) -> Iterator[tuple[str, TaskScore, str]]:
        """Yield title, task and metric of each column of a table: one for each task, or one for each of its metrics."""
        for task in self.of_kind(kind):
            for metric in task.shown_metrics:
                title = metric if len(task.shown_metrics) > 1 else task.task
                yield title, task, metric

    def values(self, kind: ScoreKind) -> dict[str, float]:
        """Return the scores of the tasks of one kind by column, and their average if there is one."""
        values = {}
        for title, task, metric in self.columns(kind):
            if metric in task.metrics:
                values[title] = task.metrics[metric]
        mean = average(self.of_kind(kind), kind)
        if mean is not None:
            values[AVERAGE] = mean
        return values

    def intervals(self, kind: ScoreKind) -> dict[str, tuple[float, float]]:
        """Return the 95 % intervals of those `values` that have one."""
        intervals = {}
        for title, task, metric in self.columns(kind):
            if metric in task.intervals:
                intervals[title] = task.intervals[metric]
        of_average = self.average_interval or average_interval(self.of_kind(kind), kind)
        if of_average is not None:
            intervals[AVERAGE] = of_average
        return intervals

    def replicates(self, kind: ScoreKind) -> dict[str, Float64Array]:
        """Return those `values` that have samples on each of them ``[resamples]``."""
        by_title: dict[str, Float64Array] = {}
        complete = True
        for title, task, metric in self.columns(kind):
            replicates = task.replicates_of(metric)
            if replicates is None:
                complete = False
            else:
                by_title[title] = replicates
        sizes = set(map(len, by_title.values()))
        if complete and len(sizes) == 1 and average(self.of_kind(kind), kind) is not None:
            by_title[AVERAGE] = np.mean(list(by_title.values()), axis=0)
        return by_title

    def joined(self, other: ModelScores) -> ModelScores:
        """Return the scores of the same model on the tasks of both."""
        scores = replace(self, tasks=(*self.tasks, *other.tasks), average_interval=None)
        compared = _merged(self.compared, other.compared)
        against = _merged(self.against, other.against)
        return scores.with_entries({"compared": compared, "against": against})

    @property
    def fixed(self) -> bool:
        """Whether the model is no run of ``train``, which other seeds would have made otherwise."""
        return self.environment.get("trained_run") is False

    @property
    def training(self) -> str:
        """What decided the training of the model besides its seed, as a hash; empty if it is no run, or not known."""
        return str(self.environment.get("training") or "")

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row of the long table for every metric of every task."""
        for task in self.tasks:
            for metric, value in task.metrics.items():
                low, high = task.intervals.get(metric, (None, None))
                yield {
                    "model": self.label,
                    "seed": self.environment.get("seed"),
                    "task": task.task,
                    "metric": metric,
                    "value": value,
                    "low": low,
                    "high": high,
                }


def long_rows(scores: Iterable[ModelScores]) -> list[dict[str, Any]]:
    """Return a row for each metric of each task of each model."""
    rows: list[dict[str, Any]] = []
    for of_model in scores:
        rows += of_model.rows()
    return rows


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return a comparison with the tasks of both."""
    tasks = {**first.get("tasks", {}), **second.get("tasks", {})}
    if not tasks:
        return {}
    return {**first, **second, "tasks": tasks}


def average(tasks: Sequence[TaskScore], kind: ScoreKind, least: int = 2) -> float | None:
    """Return the mean of the tasks' main metrics as papers print it; None for fewer than `least` tasks."""
    is_plain = kind.average == "plain"
    if is_plain:
        least = 2
    if not kind.average or not tasks or len(tasks) < least:
        return None
    values = []
    for task in tasks:
        if task.main_metric not in task.metrics:
            return None  # a file of results may lack a score
        values.append(task.value if is_plain else round(task.value, 2))
    mean = float(np.mean(values))
    return mean if is_plain else round(mean, 2)


def average_replicates(tasks: Iterable[TaskScore]) -> Float64Array | None:
    """Return the mean over tasks of their main metrics on samples ``[resamples]``; None if a task has no samples."""
    of_tasks = []
    for task in tasks:
        replicates = task.replicates.get(task.main_metric)
        if replicates is None:
            return None
        of_tasks.append(replicates)
    if not of_tasks:
        return None
    return np.mean(of_tasks, axis=0)


def average_interval(tasks: Sequence[TaskScore], kind: ScoreKind) -> tuple[float, float] | None:
    """Return the 95 % interval of the average, from samples, or from accuracies by normal approximation.

    It is None where there is no average, or a task has neither samples nor right and wrong answers.
    """
    mean = average(tasks, kind)
    if mean is None:
        return None
    replicates = average_replicates(tasks)
    if replicates is not None:
        return significance.interval(replicates)
    variances = []
    for task in tasks:
        if task.correct is None:
            return None
        variances.append(np.var(task.correct) / len(task.correct))
    deviation_of_sum = float(np.sqrt(np.sum(variances)))
    spread = 1.96 * kind.highest * deviation_of_sum / len(tasks)
    return mean - spread, mean + spread
