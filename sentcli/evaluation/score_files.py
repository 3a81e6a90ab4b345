"""Scores as JSON: what `sts-eval`, `senteval`, `retrieve` and `evaluate` write, read back and checked; and the cache's.

The entry ``scores`` of a command's object says of each task which kind its scores are of and which metrics tables show.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from sentcli.bounds import whole_number
from sentcli.errors import DataError, InputError, one_line
from sentcli.evaluation.mteb_results import is_mteb, read_mteb, read_mteb_folder
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
from sentcli.evaluation.scores import ModelScores, TaskScore, average, average_interval
from sentcli.evaluation.significance import Floats
from sentcli.io.forms import checked, contents, decode

SCORING = ("sts-eval", "senteval", "retrieve", "evaluate")
"""The commands whose JSON has scores."""
ARRAY_FIELDS = ("draws", "item_values")
"""Fields of a `TaskScore` that hold arrays by metric."""


def record_of(score: TaskScore) -> dict[str, Any]:
    """Return all fields of a score as JSON, for the cache."""
    record = dict(vars(score))
    record["parts"] = [record_of(part) for part in score.parts]
    for name in ARRAY_FIELDS:
        record[name] = {metric: array.tolist() for metric, array in record[name].items()}
    if score.correct is not None:
        record["correct"] = score.correct.tolist()
    return record


def score_of(record: Mapping[str, Any]) -> TaskScore:
    """Return the score that `record_of` was called on."""
    fields = dict(record)
    for name in ARRAY_FIELDS:
        fields[name] = {metric: np.array(values) for metric, values in record[name].items()}
    fields["headline"] = tuple(record["headline"])
    fields["items"] = tuple(record["items"])
    fields["intervals"] = {metric: (low, high) for metric, (low, high) in record["intervals"].items()}
    if record["correct"] is not None:
        fields["correct"] = np.array(record["correct"], bool)
    fields["parts"] = tuple(map(score_of, record["parts"]))
    return TaskScore(**fields)


def pack(draws: Floats) -> str:
    """Return samples as one line of JSON: their 32-bit floats in base64."""
    return base64.b64encode(draws.astype("<f4").tobytes()).decode("ascii")


def unpack(text: str) -> Floats:
    """Return the samples that `pack` was called on.

    Raises:
        ValueError: if `text` is not base64 of finite 32-bit floats.
    """
    draws = np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float64)
    if len(draws) < 2 or not np.isfinite(draws).all():
        raise ValueError("expected at least two finite numbers")
    return draws


def task_json(score: TaskScore, *, samples: bool = True) -> dict[str, Any]:
    """Return the entry of a task in the JSON of a command, with the samples of the shown metrics if there are any."""
    entry: dict[str, Any] = {**score.metrics, **score.details}
    if len(score.headline) > 1:
        entry["intervals"] = score.intervals
    elif score.headline[0] in score.intervals:
        entry["interval"] = score.intervals[score.headline[0]]
    if score.parts:
        entry["forums"] = {part.task: task_json(part, samples=False) for part in score.parts}
    if not samples:
        return entry
    draws = {}
    for metric in score.headline:
        values = score.samples(metric)
        if values is not None:
            draws[metric] = pack(values)
    if draws:
        entry["draws"] = draws
    return entry


def model_json(scores: ModelScores) -> dict[str, Any]:
    """Return the JSON object of a command, without averages and comparisons that there are not."""
    has_draws = not scores.draws_file
    required = {
        "command": scores.command,
        "model": scores.model,
        "protocol": scores.protocol,
        "results": {task.task: task_json(task, samples=has_draws) for task in scores.tasks},
        "scores": {task.task: {"kind": task.kind, "metrics": list(task.headline)} for task in scores.tasks},
        "environment": scores.environment,
        "elapsed_seconds": round(scores.seconds or 0.0, 3),
    }
    optional = {
        **_averages(scores),
        "compared": scores.compared or None,
        "cached": list(scores.cached) or None,
        "against": scores.against or None,
        "cost": scores.cost or None,
        "draws": scores.draws_file or None,
        **scores.entries,
    }
    return required | {key: value for key, value in optional.items() if value is not None}


def _averages(scores: ModelScores) -> dict[str, Any]:
    """Return the averages of the first kind that has some; each is None where there is none."""
    kind = next((kind for kind in scores.kinds if kind is not TRAINED_HEAD), TRAINED_HEAD)
    tasks = [] if kind is TRAINED_HEAD else scores.of_kind(kind)
    if scores.command == "evaluate" and (len(scores.kinds) > 1 or len(tasks) < 2):
        tasks = []  # a mean over kinds says nothing
    pearson = [round(task.metrics["pearson"], 2) for task in tasks if "pearson" in task.metrics]
    return {
        "average": average(tasks, kind, least=1),
        "average_pearson": round(float(np.mean(pearson)), 2) if pearson else None,
        "average_interval": average_interval(tasks, kind),
    }


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


Number = float | None
Ends = tuple[Number, Number] | None
Samples = Annotated[Any, BeforeValidator(lambda text: unpack(str(text)))]
KindName = Annotated[str, AfterValidator(_known_kind)]


class TaskMetrics(BaseModel):
    """The kind of the scores on a task, and the metrics that tables show."""

    kind: KindName
    metrics: Annotated[tuple[str, ...], Field(min_length=1)]


class TaskDifference(BaseModel):
    """The difference of a model's score from that of the first model, on one task."""

    model_config = ConfigDict(extra="allow")
    difference: float
    p: Number


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
    subsets: dict[str, Number] = {}
    """The scores of the years or domains of a task."""
    draws: dict[str, Samples] = {}
    """Samples of metrics; files of earlier versions have none."""

    def score(self, task: str, kind: str, headline: tuple[str, ...]) -> TaskScore:
        """Return the score of the task."""
        metrics: dict[str, float] = {}
        details: dict[str, Any] = {}
        if self.subsets:
            details["subsets"] = self.subsets
        for key, value in (self.model_extra or {}).items():
            if key not in headline and not _is_metric(key, value):
                details[key] = value
                continue
            number = _number(value)
            if number is not None:
                metrics[key] = number
        return TaskScore(
            task=task,
            kind=kind,
            metrics=metrics,
            headline=headline,
            details=details,
            intervals=self._whole_intervals(headline[0]),
            draws=self.draws,
            parts=tuple(part.score(name, kind, headline) for name, part in self.forums.items()),
        )

    def _whole_intervals(self, main: str) -> dict[str, tuple[float, float]]:
        """Return the intervals that have both ends, by metric; `interval` is that of the main metric."""
        intervals = self.intervals
        if self.interval is not None:
            intervals = {main: self.interval, **intervals}
        pairs = {metric: _both_ends(ends) for metric, ends in intervals.items()}
        return {metric: ends for metric, ends in pairs.items() if ends is not None}


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
    elapsed_seconds: Number = None
    metrics_of_tasks: dict[str, TaskMetrics] = Field({}, alias="scores")

    def model_scores(self, source: str) -> ModelScores:
        """Return the scores of the model, with the name of the file as their source."""
        tasks = []
        for name, task in self.results.items():
            entry = self.metrics_of_tasks.get(name)
            if entry is not None:
                kind, headline = entry.kind, entry.metrics
            else:
                kind, headline = _of_earlier_version(self.command, name, self.protocol, task)
            if not headline:
                continue
            for metric in headline:
                value = (task.model_extra or {}).get(metric)
                if isinstance(value, bool) or not isinstance(value, int | float | None):
                    raise DataError(source, f"{name} {metric}: expected a number, found {json.dumps(value)[:40]}")
            tasks.append(task.score(name, kind, headline))
        entries: dict[str, Any] = {}
        if self.compared is not None:
            entries["compared"] = self.compared.model_dump()
        if self.against is not None:
            entries["against"] = self.against.model_dump()
        if self.cost:
            entries["cost"] = self.cost
        return ModelScores(
            command=self.command,
            model=self.model,
            protocol=self.protocol,
            tasks=tuple(tasks),
            environment=self.environment,
            cached=tuple(self.cached),
            entries=entries,
            source=source,
            average_interval=_both_ends(self.average_interval),
            seconds=self.elapsed_seconds,
            draws_file=self.draws,
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
        cutoff = whole_number(key.removeprefix("ndcg@")) if key.startswith("ndcg@") else None
        if cutoff is not None and cutoff <= 10:
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
