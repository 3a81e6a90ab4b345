"""The scores of a model on a task, and of a model on all tasks under one protocol.

Every evaluation returns these two. A `TaskScore` is what a task returns and what the cache keeps; a `ModelScores` is a
row of a paper's table. Averages, intervals, comparisons, JSON, console and pages are made of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.evaluation import significance
from sentcli.evaluation.score_kinds import SCORE_KINDS, ScoreKind
from sentcli.evaluation.significance import Difference, Discordance, Floats

AVERAGE = "average"


@dataclass(frozen=True)
class TaskScore:
    """The metrics of one model on one task."""

    task: str
    kind: str
    """A key of `SCORE_KINDS`."""
    metrics: dict[str, float]
    headline: tuple[str, ...]
    """The metrics that tables show; the first is the main one, which averages are taken of."""
    details: dict[str, Any] = field(default_factory=dict)
    """Counts and further entries of the JSON of the task."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """95 % intervals by metric."""
    draws: dict[str, Floats] = field(default_factory=dict, repr=False)
    """The values of metrics on random samples of the task's items ``[draws]``, the same samples for every model."""
    correct: npt.NDArray[np.bool_] | None = field(default=None, repr=False)
    """Whether a classifier is right on each test example ``[examples]``."""
    items: tuple[str, ...] = field(default=(), repr=False)
    """Ids of the queries of `item_values`."""
    item_values: dict[str, Floats] = field(default_factory=dict, repr=False)
    """The values of metrics for each query ``[items]``."""
    hits: dict[str, list[str]] = field(default_factory=dict, repr=False)
    """Ids of the first documents of each query of one's own retrieval set, best first."""
    parts: tuple[TaskScore, ...] = ()
    """The scores of the sets whose mean this is."""

    @property
    def value(self) -> float:
        """The value of the main metric."""
        return self.metrics[self.headline[0]]

    def samples(self, metric: str) -> Floats | None:
        """Return `draws` of a metric; of an accuracy they are drawn from the right and wrong answers now."""
        if self.correct is None or metric in self.draws:
            return self.draws.get(metric)
        draws = significance.mean_draws(self.correct.astype(np.float64), stream=zlib.crc32(self.task.encode()))
        return SCORE_KINDS[self.kind].highest * draws

    def with_details(self, details: Mapping[str, Any]) -> TaskScore:
        """Return the score with further entries of the JSON of the task."""
        return replace(self, details={**self.details, **details}) if details else self

    def of_own_data(self, items: int) -> TaskScore:
        """Return the score with the entries of the JSON that all scores on the user's own data have, in front."""
        entries = {
            "kind": SCORE_KINDS[self.kind].table,
            "metric": self.headline[0],
            "value": self.value,
            "items": items,
        }
        return replace(self, details=entries | self.details)


def compare(score: TaskScore, other: TaskScore, metric: str) -> Difference | Discordance | None:
    """Compare the scores of two models on the same task.

    Returns:
        A paired bootstrap if there are samples of the metric, McNemar's test if there are right and wrong answers, or
        None.
    """
    if metric in score.draws and metric in other.draws:
        return significance.compare_draws(
            score.metrics[metric], other.metrics[metric], score.draws[metric], other.draws[metric]
        )
    if score.correct is not None and other.correct is not None:
        discordance = significance.mcnemar(score.correct, other.correct)
        return replace(discordance, difference=discordance.difference / 100 * SCORE_KINDS[score.kind].highest)
    return None


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
    """What was found beside the scores, by its key in the JSON: ``cost``, ``compared``, ``against``, ``verdict``."""
    label: str = ""
    """The label of the model in tables; by default its name."""
    source: str = ""
    """The file that the scores were read from."""
    average_interval: tuple[float, float] | None = None
    """The 95 % interval of the average, if it was read from a file."""
    draws_file: str = ""
    """The file that has the samples, if they are not in the JSON."""
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.model)

    @property
    def cost(self) -> Mapping[str, Any]:
        """What the model costs on this machine; empty where that was not measured."""
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
        return [SCORE_KINDS[name] for name in dict.fromkeys(task.kind for task in self.tasks)]

    def of_kind(self, kind: ScoreKind) -> list[TaskScore]:
        """Return the tasks of one kind."""
        return [task for task in self.tasks if task.kind == kind.name]

    def columns(self, kind: ScoreKind) -> Iterator[tuple[str, TaskScore, str]]:
        """Yield title, task and metric of each column of a table: one for each task, or one for each of its metrics."""
        for task in self.of_kind(kind):
            for metric in task.headline:
                yield (metric if len(task.headline) > 1 else task.task), task, metric

    def values(self, kind: ScoreKind) -> dict[str, float]:
        """Return the scores of the tasks of one kind by column, and their average if there is one."""
        values = {title: t.metrics[metric] for title, t, metric in self.columns(kind) if metric in t.metrics}
        mean = average(self.of_kind(kind), kind)
        return values if mean is None else {**values, AVERAGE: mean}

    def intervals(self, kind: ScoreKind) -> dict[str, tuple[float, float]]:
        """Return the 95 % intervals of those `values` that have one."""
        intervals = {t: task.intervals[metric] for t, task, metric in self.columns(kind) if metric in task.intervals}
        of_average = self.average_interval or average_interval(self.of_kind(kind), kind)
        return intervals if of_average is None else {**intervals, AVERAGE: of_average}

    def samples(self, kind: ScoreKind) -> dict[str, Floats]:
        """Return those `values` that have samples on each of them ``[draws]``."""
        by_column = {title: task.samples(metric) for title, task, metric in self.columns(kind)}
        samples = {title: draws for title, draws in by_column.items() if draws is not None}
        whole = len(samples) == len(by_column) and len({len(draws) for draws in samples.values()}) == 1
        if whole and average(self.of_kind(kind), kind) is not None:
            samples[AVERAGE] = np.mean(list(samples.values()), axis=0)
        return samples

    def joined(self, other: ModelScores) -> ModelScores:
        """Return the scores of the same model on the tasks of both."""
        joint = {key: _merged(self.entries.get(key, {}), other.entries.get(key, {})) for key in ("compared", "against")}
        scores = replace(self, tasks=(*self.tasks, *other.tasks), average_interval=None)
        return scores.with_entries(joint)

    def compare(self, other: ModelScores) -> dict[str, dict[str, Any]]:
        """Return the JSON of the comparison with another model, by column."""
        differences: dict[str, Difference | Discordance] = {}
        for kind in self.kinds:
            for (title, task, metric), (_, other_task, _) in zip(self.columns(kind), other.columns(kind), strict=True):
                if (difference := compare(task, other_task, metric)) is not None:
                    differences[title] = difference
            tasks, other_tasks = self.of_kind(kind), other.of_kind(kind)
            mean, other_mean = average(tasks, kind), average(other_tasks, kind)
            draws, other_draws = average_draws(tasks), average_draws(other_tasks)
            if mean is not None and other_mean is not None and draws is not None and other_draws is not None:
                differences[AVERAGE] = significance.compare_draws(mean, other_mean, draws, other_draws)
        return {title: asdict(difference) for title, difference in differences.items()}

    @property
    def fixed(self) -> bool:
        """Whether the model is no run of ``train``, which other seeds would have made otherwise."""
        return self.environment.get("trained_run") is False

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row of the long table for every metric of every task."""
        for task in self.tasks:
            for metric, value in task.metrics.items():
                low, high = task.intervals.get(metric, (None, None))
                row = {"model": self.label, "seed": self.environment.get("seed"), "task": task.task, "metric": metric}
                yield {**row, "value": value, "low": low, "high": high}


def long_rows(scores: Iterable[ModelScores]) -> list[dict[str, Any]]:
    """Return a row for each metric of each task of each model."""
    rows: list[dict[str, Any]] = []
    for of_model in scores:
        rows += of_model.rows()
    return rows


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return a comparison with the tasks of both."""
    tasks = {**first.get("tasks", {}), **second.get("tasks", {})}
    return {**first, **second, "tasks": tasks} if tasks else {}


def average(tasks: Sequence[TaskScore], kind: ScoreKind, least: int = 2) -> float | None:
    """Return the mean of the tasks' main metrics as papers print it; None for fewer than `least` tasks."""
    if not kind.average or not tasks or len(tasks) < (2 if kind.average == "plain" else least):
        return None
    if any(task.headline[0] not in task.metrics for task in tasks):
        return None  # a file of results may lack a score
    if kind.average == "plain":
        return float(np.mean([task.value for task in tasks]))
    return round(float(np.mean([round(task.value, 2) for task in tasks])), 2)


def average_draws(tasks: Iterable[TaskScore]) -> Floats | None:
    """Return the mean over tasks of the samples of their main metrics ``[draws]``; None if a task has no samples."""
    draws = [task.draws.get(task.headline[0]) for task in tasks]
    present = [samples for samples in draws if samples is not None]
    return np.mean(present, axis=0) if present and len(present) == len(draws) else None


def average_interval(tasks: Sequence[TaskScore], kind: ScoreKind) -> tuple[float, float] | None:
    """Return the 95 % interval of the average, from samples, or from accuracies by normal approximation."""
    mean = average(tasks, kind)
    if mean is None:
        return None
    draws = average_draws(tasks)
    if draws is not None:
        return significance.interval(draws)
    answers = [task.correct for task in tasks if task.correct is not None]
    if len(answers) < len(tasks):
        return None
    variance = np.sum([np.var(correct) / len(correct) for correct in answers])
    spread = 1.96 * kind.highest * float(np.sqrt(variance)) / len(answers)
    return mean - spread, mean + spread
