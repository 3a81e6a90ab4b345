"""Files of scores: what `sts-eval`, `senteval`, `retrieve` and `evaluate` wrote as JSON, read back and checked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from sentcli.bounds import whole_number
from sentcli.errors import DataError, InputError, one_line
from sentcli.evaluation.mteb_results import is_mteb, read_mteb, read_mteb_folder
from sentcli.evaluation.score_json import unpack_values
from sentcli.evaluation.score_kinds import (
    AGGREGATIONS,
    IN_DOMAIN,
    OWN_KINDS,
    RETRIEVAL,
    SCORE_KINDS,
    SIMILARITY,
    TRAINED_HEAD,
    TRANSFER,
)
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.evaluation.thresholds import Threshold
from sentcli.io.forms import checked, contents, decode

SCORING = ("sts-eval", "senteval", "retrieve", "evaluate")
"""The commands whose JSON has scores."""


def _both_ends(ends: Ends) -> tuple[float, float] | None:
    """Return the ends of an interval; None if one of them is missing."""
    if ends is None:
        return None
    low, high = ends
    if low is None or high is None:
        return None
    return low, high


def _is_metric(key: str, value: Any) -> bool:
    """Tell whether an entry of a task is a metric: a fraction, and none that repeats a metric or describes the data."""
    return isinstance(value, float) and key not in ("value", "majority")


def _known_kind(name: str) -> str:
    if name not in SCORE_KINDS:
        raise ValueError(f"expected one of {', '.join(SCORE_KINDS)}")
    return name


_OptionalNumber = float | None
Ends = tuple[_OptionalNumber, _OptionalNumber] | None
Samples = Annotated[Any, BeforeValidator(lambda text: unpack_values(str(text)))]
KindName = Annotated[str, AfterValidator(_known_kind)]


class TaskMetrics(BaseModel):
    """The kind of the scores on a task, and the metrics that tables show."""

    kind: KindName
    metrics: Annotated[tuple[str, ...], Field(min_length=1)]


class TaskDifference(BaseModel):
    """The difference of a model's score from that of the first model, on one task."""

    model_config = ConfigDict(extra="allow")
    difference: float
    p: _OptionalNumber


class Comparison(BaseModel):
    """The comparison of a model with the first one of its run."""

    model_config = ConfigDict(populate_by_name=True, extra="allow")
    tasks: dict[str, TaskDifference]


class PublishedLine(BaseModel):
    """A measured score beside a published one."""

    model_config = ConfigDict(extra="allow")
    measured: float
    published: float
    difference: float
    range: Ends = None
    within: bool | None = None
    runs: int = 1


class Against(BaseModel):
    """A comparison with a published system."""

    model_config = ConfigDict(extra="allow")
    name: str = ""
    tasks: dict[str, PublishedLine]


class TaskResult(BaseModel):
    """The results of one task; all other fields are metrics, counts and details."""

    model_config = ConfigDict(extra="allow")
    interval: Ends = None
    intervals: dict[str, Ends] = {}
    forums: dict[str, TaskResult] = {}
    subsets: dict[str, _OptionalNumber] = {}
    """The scores of the years or domains of a task."""
    draws: dict[str, Samples] = {}
    """Samples of metrics; files of earlier versions have none."""
    threshold: Threshold | _OptionalNumber = None
    """A threshold that was asked for has that of the best F1 in it."""

    def score(self, task: str, kind: str, shown_metrics: tuple[str, ...]) -> TaskScore:
        """Return the score of the task."""
        metrics: dict[str, float] = {}
        details: dict[str, Any] = {}
        if self.subsets:
            details["subsets"] = self.subsets
        of_best_f1 = self.threshold
        if isinstance(self.threshold, Threshold):
            details["threshold"] = asdict(self.threshold)
            of_best_f1 = self.threshold.f1_threshold
        if isinstance(of_best_f1, float):
            metrics["threshold"] = of_best_f1
        for key, value in (self.model_extra or {}).items():
            if key not in shown_metrics and not _is_metric(key, value):
                details[key] = value
                continue
            number = _number(value)
            if number is not None:
                metrics[key] = number
        whole_intervals = {}
        for metric, ends in {shown_metrics[0]: self.interval, **self.intervals}.items():
            both_ends = _both_ends(ends)
            if both_ends is not None:
                whole_intervals[metric] = both_ends
        return TaskScore(
            task=task,
            kind=kind,
            metrics=metrics,
            shown_metrics=shown_metrics,
            details=details,
            intervals=whole_intervals,
            replicates=self.draws,
            parts=tuple(part.score(name, kind, shown_metrics) for name, part in self.forums.items()),
        )

    def check_numbers(self, task: str, metrics: Sequence[str], source: str) -> None:
        """Raise a DataError for a shown metric that is neither a number nor null."""
        for metric in metrics:
            value = (self.model_extra or {}).get(metric)
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                raise DataError(source, f"{task} {metric}: expected a number, found {json.dumps(value)[:40]}")


class Protocol(BaseModel):
    """The parts of a protocol that hold the choices of single kinds and sets."""

    kinds: dict[str, dict[str, Any]] = {}
    sets: dict[str, dict[str, Any] | None] = {}


class ScoreFile(BaseModel):
    """The JSON object of one model that a command wrote with ``--json``."""

    model_config = ConfigDict(extra="ignore")
    command: Literal["sts-eval", "senteval", "retrieve", "evaluate"]
    model: str
    results: dict[str, TaskResult]
    protocol: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    average_interval: Ends = None
    compared: Comparison | None = None
    against: Against | None = None
    cached: list[str] = []
    cost: dict[str, int | float | None] = {}
    draws: str = ""
    elapsed_seconds: _OptionalNumber = None
    command_line: str = ""
    metrics_of_tasks: dict[str, TaskMetrics] = Field({}, alias="scores")

    def model_scores(self, source: str) -> ModelScores:
        """Return the scores of the model, with the name of the file as their source."""
        tasks = []
        for name, task in self.results.items():
            entry = self.metrics_of_tasks.get(name)
            if entry is not None:
                kind, shown_metrics = entry.kind, entry.metrics
            else:
                kind, shown_metrics = _of_earlier_version(self.command, name, self.protocol, task)
            if shown_metrics:
                task.check_numbers(name, shown_metrics, source)
                tasks.append(task.score(name, kind, shown_metrics))
        entries = self.model_dump(include={"compared", "against", "cost"})
        return ModelScores(
            command=self.command,
            model=self.model,
            protocol=self.protocol,
            tasks=tuple(tasks),
            environment=self.environment,
            cached=tuple(self.cached),
            entries={key: entry for key, entry in entries.items() if entry},
            source=source,
            average_interval=_both_ends(self.average_interval),
            seconds=self.elapsed_seconds,
            replicates_file=self.draws,
            command_line=self.command_line,
        )


def _of_earlier_version(
    command: str, name: str, protocol: Mapping[str, Any], task: TaskResult
) -> tuple[str, tuple[str, ...]]:
    """Return the kind and the shown metrics of a task in a file of an earlier version, which has no entry ``scores``.

    Both are empty where they cannot be told.
    """
    fields = task.model_extra or {}
    if command == "evaluate":
        for table, own_kind in OWN_KINDS.items():
            if table == fields.get("kind"):
                return own_kind.name, (str(fields.get("metric")),)
        return "", ()
    if command == "senteval":
        kind = TRANSFER if TRANSFER.main in fields else TRAINED_HEAD
        return kind.name, (kind.main,)
    if command == "sts-eval":
        metrics = {each.title: each.metric for each in AGGREGATIONS.values()}
        main = metrics.get(str(protocol.get("aggregation")), SIMILARITY.main)
        return SIMILARITY.name, (main,)
    if name == "in-domain":
        return IN_DOMAIN.name, tuple(key for key in fields if key.startswith("recall@"))
    cutoffs = []
    for key in fields:
        metric, _, digits = key.partition("@")
        cutoff = whole_number(digits)
        if metric == "ndcg" and cutoff is not None and cutoff <= 10:
            cutoffs.append(cutoff)
    return RETRIEVAL.name, (f"ndcg@{max(cutoffs, default=10)}",)


def read_scores(files: Iterable[Path]) -> list[ModelScores]:
    """Read files that commands wrote with ``--json``, an object or a list of objects each, and results of mteb."""
    scores: list[ModelScores] = []
    for file in files:
        if file.is_dir():
            scores += read_mteb_folder(file)
            continue
        value = _parse(file)
        objects = value if isinstance(value, list) else [value]
        if not objects:
            raise DataError(file, "an empty list; there is nothing to show")
        for item in objects:
            if is_mteb(item):
                scores += read_mteb(item, file)
            else:
                scores.append(read_object(item, str(file)))
    return scores


def _parse(file: Path) -> Any:
    try:
        return decode(contents(file).removeprefix("\ufeff"))
    except FileNotFoundError as error:
        raise InputError(f"no such file: {file}") from error
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise DataError(file, f"not JSON ({error.msg}); is the file torn?", line=error.lineno) from error
    except ValueError as error:
        raise DataError(file, f"not JSON ({one_line(error)})") from error


def read_object(value: Any, file: str = "") -> ModelScores:
    """Read one object that a command wrote with ``--json``; `file` is named in messages and tells models apart."""
    if not isinstance(value, dict) or not {"command", "model", "results"} <= value.keys():
        raise DataError(file, "not a report of sentcli: no object with command, model and results")
    if value["command"] not in SCORING:
        raise DataError(file, f"a report of {value['command']}; only {' and '.join(SCORING)} have scores to show")
    if isinstance(value["results"], list):
        raise DataError(file, "hits of retrieve --query, not scores of a set")
    form = checked(ScoreFile, value, file)
    checked(Protocol, form.protocol, f"{file}: protocol")
    scores = form.model_scores(file)
    if not scores.tasks:
        raise DataError(file, f"the results of {scores.model} are not scores by task")
    return scores


def _number(value: Any) -> float | None:
    """Return a number as float; None for null and for numbers that are not finite."""
    try:
        if value is None or not math.isfinite(value):
            return None
        return float(value)
    except OverflowError:
        return None
