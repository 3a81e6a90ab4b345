"""What is measured: the metrics of a task, and the tasks of a model under one protocol.

Every evaluation ends here. A `TaskScore` is what a scorer returns and what is kept from run to run; a `ModelScores` is
a row of a paper's table. Averages, intervals, comparisons, JSON, console and pages read these two.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sentcli.evaluation import significance
from sentcli.evaluation.significance import Difference, Discordance, Floats

AVERAGE = "average"


@dataclass(frozen=True)
class ScoreKind:
    """What is common to the scores of one kind of task: which may stand in one table, and how people read them."""

    name: str
    command: str
    title: str
    """Of a table of such scores."""
    metric: str
    """What the scores in tables are called."""
    columns: Mapping[str, str]
    """Metrics and counts that a table of all measures shows, and their titles there."""
    sampled: str
    """What intervals and comparisons draw at random."""
    average: Literal["", "rounded", "plain"] = "rounded"
    """How tasks are averaged: papers round each score to two decimals first; empty where no mean makes sense."""
    scale: float = 1
    """What brings a score to points of 100."""
    digits: int = 2
    """After the point, where scores are not in points."""


SIMILARITY = ScoreKind(
    name="similarity",
    command="sts-eval",
    title="Semantic textual similarity",
    metric="Spearman",
    columns={
        "pairs": "pairs",
        "spearman": "Spearman",
        "pearson": "Pearson",
        "spearman_mean": "mean of subsets",
        "spearman_wmean": "weighted mean",
        "dev_pearson": "dev Pearson",
        "mse": "squared error",
    },
    sampled="pairs",
)
TRAINED_HEAD = ScoreKind(
    name="trained head",
    command="senteval",
    title="Similarity with a trained head",
    metric="Spearman",
    columns=SIMILARITY.columns,
    sampled="pairs",
)
TRANSFER = ScoreKind(
    name="transfer",
    command="senteval",
    title="Transfer tasks",
    metric="Accuracy",
    columns={
        "train": "train",
        "test": "test",
        "dev_accuracy": "dev accuracy",
        "accuracy": "accuracy",
        "f1": "F1",
    },
    sampled="test examples",
)
RETRIEVAL = ScoreKind(
    name="retrieval",
    command="retrieve",
    title="Retrieval",
    metric="nDCG",
    columns={
        "queries": "queries",
        "documents": "documents",
        **{
            f"{metric}@{k}": f"{title}@{k}"
            for metric, title, k in (
                ("ndcg", "nDCG", 10),
                ("map", "MAP", 100),
                ("recall", "recall", 10),
                ("recall", "recall", 100),
                ("r_cap", "capped recall", 100),
                ("precision", "precision", 10),
                ("mrr", "MRR", 10),
            )
        },
        "index_recall@10": "index recall@10",
    },
    sampled="queries",
    average="plain",
    scale=100,
    digits=4,
)
IN_DOMAIN = ScoreKind(
    name="in-domain",
    command="retrieve",
    title="In-domain retrieval",
    metric="Recall",
    columns={"queries": "queries", "corpus": "sentences"},
    sampled="queries",
    average="",
)
KINDS = {kind.name: kind for kind in (SIMILARITY, TRAINED_HEAD, TRANSFER, RETRIEVAL, IN_DOMAIN)}


@dataclass(frozen=True)
class TaskScore:
    """The metrics of one model on one task."""

    task: str
    kind: str
    """A key of `KINDS`."""
    metrics: dict[str, float]
    headline: tuple[str, ...]
    """The metrics that tables show and averages are taken of; the first is the main one."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Counts and whatever else the JSON says of the task."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """95 % intervals by metric."""
    draws: dict[str, Floats] = field(default_factory=dict, repr=False)
    """Metrics of random samples of the task's items ``[draws]``, the same samples for every model."""
    correct: npt.NDArray[np.bool_] | None = field(default=None, repr=False)
    """Of a classifier: which test examples it has right ``[items]``."""
    items: tuple[str, ...] = field(default=(), repr=False)
    """Ids of the queries that `item_values` are of."""
    item_values: dict[str, Floats] = field(default_factory=dict, repr=False)
    """Metrics of each query ``[items]``."""
    parts: tuple[TaskScore, ...] = ()
    """The sets that this one is the mean of."""

    @property
    def value(self) -> float:
        """The main metric."""
        return self.metrics[self.headline[0]]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        several = len(self.headline) > 1
        intervals: dict[str, Any] = {"intervals": self.intervals} if several else {}
        if not several and self.headline[0] in self.intervals:
            intervals = {"interval": self.intervals[self.headline[0]]}
        parts = {"forums": {part.task: part.to_dict() for part in self.parts}} if self.parts else {}
        return {**self.metrics, **self.facts, **intervals, **parts}

    def to_record(self) -> dict[str, Any]:
        """Return everything, as JSON can hold it."""
        record = {**vars(self), "parts": [part.to_record() for part in self.parts]}
        record |= {name: {key: array.tolist() for key, array in record[name].items()} for name in ARRAYS}
        return record | {"correct": None if self.correct is None else self.correct.tolist()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> TaskScore:
        """Undo `to_record`."""
        arrays = {name: {key: np.array(values) for key, values in record[name].items()} for name in ARRAYS}
        tuples = {name: tuple(record[name]) for name in ("headline", "items")}
        ends = {"intervals": {key: (low, high) for key, (low, high) in record["intervals"].items()}}
        correct = {"correct": None if record["correct"] is None else np.array(record["correct"], bool)}
        parts = {"parts": tuple(map(cls.from_record, record["parts"]))}
        return cls(**{**record, **arrays, **tuples, **ends, **correct, **parts})


ARRAYS = ("draws", "item_values")


def compare(score: TaskScore, other: TaskScore, metric: str) -> Difference | Discordance | None:
    """Return what sets a model apart from another one on the same task; None if nothing is known of its items.

    Bootstrap where the metric of samples is known, McNemar's test where single answers are right or wrong.
    """
    if metric in score.draws and metric in other.draws:
        return significance.compare_draws(
            score.metrics[metric], other.metrics[metric], score.draws[metric], other.draws[metric]
        )
    if score.correct is not None and other.correct is not None:
        return significance.mcnemar(score.correct, other.correct)
    return None


@dataclass
class ModelScores:
    """What one model scores under one protocol."""

    command: str
    model: str
    protocol: dict[str, Any]
    tasks: list[TaskScore]
    environment: dict[str, Any] = field(default_factory=dict)
    cached: list[str] = field(default_factory=list)
    """Tasks whose scores were kept from an earlier run."""
    compared: dict[str, Any] = field(default_factory=dict)
    """The JSON of what sets this model apart from the first one of the run."""
    against: dict[str, Any] = field(default_factory=dict)
    """The JSON of the comparison with a published system."""
    label: str = ""
    """What tables call the model, if not by its name."""
    source: str = ""
    """The file that the scores were read from."""
    average_interval: tuple[float, float] | None = None
    """The 95 % interval of the average that the file has."""
    seconds: float | None = None
    started: float = field(default_factory=time.perf_counter, repr=False)

    def __post_init__(self) -> None:
        self.label = self.label or self.model

    @property
    def kinds(self) -> list[ScoreKind]:
        """The kinds of the tasks."""
        return [KINDS[name] for name in dict.fromkeys(task.kind for task in self.tasks)]

    def of_kind(self, kind: ScoreKind) -> list[TaskScore]:
        """Return the tasks of one kind."""
        return [task for task in self.tasks if task.kind == kind.name]

    def columns(self, kind: ScoreKind) -> Iterator[tuple[str, TaskScore, str]]:
        """Yield title, task and metric of each score in a table: a task has one, or is shown by its metrics."""
        for task in self.of_kind(kind):
            for metric in task.headline:
                yield (metric if len(task.headline) > 1 else task.task), task, metric

    def values(self, kind: ScoreKind) -> dict[str, float]:
        """Return the scores of the tasks of one kind by column, and their average if there is one."""
        values = {title: t.metrics[metric] for title, t, metric in self.columns(kind) if metric in t.metrics}
        mean = average(self.of_kind(kind), kind)
        return values if mean is None else {**values, AVERAGE: mean}

    def intervals(self, kind: ScoreKind) -> dict[str, tuple[float, float]]:
        """Return the 95 % intervals of `values`, where they are known."""
        known = {t: task.intervals[metric] for t, task, metric in self.columns(kind) if metric in task.intervals}
        ends = self.average_interval or average_interval(self.of_kind(kind), kind)
        return known if ends is None else {**known, AVERAGE: ends}

    def joined(self, other: ModelScores) -> ModelScores:
        """Return the scores of the same model on the tasks of both."""
        return replace(
            self,
            tasks=[*self.tasks, *other.tasks],
            average_interval=None,
            compared=_merged(self.compared, other.compared),
            against=_merged(self.against, other.against),
        )

    def compare(self, other: ModelScores) -> dict[str, dict[str, Any]]:
        """Return the JSON of what sets this model apart from another one, by column."""
        differences: dict[str, Difference | Discordance] = {}
        for kind in self.kinds:
            for (title, task, metric), (_, beside, _) in zip(self.columns(kind), other.columns(kind), strict=True):
                if (difference := compare(task, beside, metric)) is not None:
                    differences[title] = difference
            mine, theirs = self.of_kind(kind), other.of_kind(kind)
            means = average(mine, kind), average(theirs, kind)
            draws = average_draws(mine), average_draws(theirs)
            if None not in means and draws[0] is not None and draws[1] is not None:
                differences[AVERAGE] = significance.compare_draws(means[0] or 0.0, means[1] or 0.0, draws[0], draws[1])
        return {title: difference.to_dict() for title, difference in differences.items()}

    def finish(self) -> None:
        """Stop the clock: what follows belongs to another model."""
        self.seconds = time.perf_counter() - self.started

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of a command; what is not known is left out."""
        kind = next((kind for kind in self.kinds if kind is not TRAINED_HEAD), TRAINED_HEAD)
        tasks = self.of_kind(kind) if kind is not TRAINED_HEAD else []
        mean = average(tasks, kind, least=1)
        pearson = [round(task.metrics["pearson"], 2) for task in tasks if kind is SIMILARITY]
        more = {
            "average": mean,
            "average_pearson": round(float(np.mean(pearson)), 2) if pearson else None,
            "average_interval": average_interval(tasks, kind),
            "compared": self.compared or None,
            "cached": self.cached or None,
            "against": self.against or None,
        }
        return {
            "command": self.command,
            "model": self.model,
            "protocol": self.protocol,
            "results": {task.task: task.to_dict() for task in self.tasks},
            "environment": self.environment,
            "elapsed_seconds": round(self.seconds or 0.0, 3),
        } | {key: value for key, value in more.items() if value is not None}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row of the long table for every metric of every task."""
        for task in self.tasks:
            for metric, value in task.metrics.items():
                low, high = task.intervals.get(metric, (None, None))
                row = {"model": self.label, "seed": self.environment.get("seed"), "task": task.task, "metric": metric}
                yield {**row, "value": value, "low": low, "high": high}


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return a comparison with the tasks of both."""
    tasks = {**first.get("tasks", {}), **second.get("tasks", {})}
    return {**first, **second, "tasks": tasks} if tasks else {}


def average(tasks: Sequence[TaskScore], kind: ScoreKind, least: int = 2) -> float | None:
    """Return the mean of the tasks' main metrics as papers print it; None for fewer than `least` tasks."""
    if not kind.average or not tasks or len(tasks) < (2 if kind.average == "plain" else least):
        return None
    if any(task.headline[0] not in task.metrics for task in tasks):
        return None  # a file of results has a gap there
    if kind.average == "plain":
        return float(np.mean([task.value for task in tasks]))
    return round(float(np.mean([round(task.value, 2) for task in tasks])), 2)


def average_draws(tasks: Iterable[TaskScore]) -> Floats | None:
    """Return the mean over tasks of the samples of their main metrics ``[draws]``; None if one has none."""
    draws = [task.draws.get(task.headline[0]) for task in tasks]
    known = [each for each in draws if each is not None]
    return np.mean(known, axis=0) if known and len(known) == len(draws) else None


def average_interval(tasks: Sequence[TaskScore], kind: ScoreKind) -> tuple[float, float] | None:
    """Return the 95 % interval of the average: from samples, or of independent accuracies by normal approximation."""
    mean = average(tasks, kind)
    if mean is None:
        return None
    draws = average_draws(tasks)
    if draws is not None:
        return significance.interval(draws)
    answers = [task.correct for task in tasks if task.correct is not None]
    if len(answers) < len(tasks):
        return None
    spread = 1.96 * 100 * float(np.sqrt(np.sum([np.var(each) / len(each) for each in answers]))) / len(answers)
    return mean - spread, mean + spread
