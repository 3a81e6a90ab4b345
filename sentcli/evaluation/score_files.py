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
    record = {**vars(score), "parts": [record_of(part) for part in score.parts]}
    record |= {name: {key: array.tolist() for key, array in record[name].items()} for name in ARRAY_FIELDS}
    return record | {"correct": None if score.correct is None else score.correct.tolist()}


def score_of(record: Mapping[str, Any]) -> TaskScore:
    """Return the score that `record_of` was called on."""
    fields: dict[str, Any] = {name: {key: np.array(v) for key, v in record[name].items()} for name in ARRAY_FIELDS}
    fields |= {name: tuple(record[name]) for name in ("headline", "items")}
    fields["intervals"] = {key: (low, high) for key, (low, high) in record["intervals"].items()}
    fields["correct"] = None if record["correct"] is None else np.array(record["correct"], bool)
    fields["parts"] = tuple(map(score_of, record["parts"]))
    return TaskScore(**{**record, **fields})


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
    intervals: dict[str, Any] = {}
    if len(score.headline) > 1:
        intervals = {"intervals": score.intervals}
    elif score.headline[0] in score.intervals:
        intervals = {"interval": score.intervals[score.headline[0]]}
    parts = {part.task: task_json(part, samples=False) for part in score.parts}
    by_metric = {metric: score.samples(metric) for metric in score.headline} if samples else {}
    draws = {metric: pack(values) for metric, values in by_metric.items() if values is not None}
    more = {"forums": parts, "draws": draws}
    return {**score.metrics, **score.details, **intervals} | {key: value for key, value in more.items() if value}


def model_json(scores: ModelScores) -> dict[str, Any]:
    """Return the JSON object of a command, without averages and comparisons that there are not."""
    kind = next((kind for kind in scores.kinds if kind is not TRAINED_HEAD), TRAINED_HEAD)
    tasks = scores.of_kind(kind) if kind is not TRAINED_HEAD else []
    if scores.command == "evaluate" and (len(scores.kinds) > 1 or len(tasks) < 2):
        tasks = []  # a mean over kinds says nothing
    pearson = [round(task.metrics["pearson"], 2) for task in tasks if "pearson" in task.metrics]
    has_draws = not scores.draws_file
    more = {
        "average": average(tasks, kind, least=1),
        "average_pearson": round(float(np.mean(pearson)), 2) if pearson else None,
        "average_interval": average_interval(tasks, kind),
        "compared": scores.compared or None,
        "cached": list(scores.cached) or None,
        "against": scores.against or None,
        "cost": scores.cost or None,
        "draws": scores.draws_file or None,
        **scores.entries,
    }
    return {
        "command": scores.command,
        "model": scores.model,
        "protocol": scores.protocol,
        "results": {task.task: task_json(task, samples=has_draws) for task in scores.tasks},
        "scores": {task.task: {"kind": task.kind, "metrics": list(task.headline)} for task in scores.tasks},
        "environment": scores.environment,
        "elapsed_seconds": round(scores.seconds or 0.0, 3),
    } | {key: value for key, value in more.items() if value is not None}


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
        fields = self.model_extra or {}
        # Numbers of a task that are no metrics of their own
        own = {key for key in fields if isinstance(fields[key], float) and key not in ("value", "majority")}
        numbers = {key: _number(fields[key]) for key in fields if key in own or key in headline}
        intervals = {**({headline[0]: self.interval} if self.interval else {}), **self.intervals}
        return TaskScore(
            task=task,
            kind=kind,
            metrics={key: value for key, value in numbers.items() if value is not None},
            headline=headline,
            details={
                **({"subsets": self.subsets} if self.subsets else {}),
                **{key: value for key, value in fields.items() if key not in numbers},
            },
            intervals={
                key: (ends[0], ends[1])
                for key, ends in intervals.items()
                if ends and ends[0] is not None and ends[1] is not None
            },
            draws=self.draws,
            parts=tuple(part.score(name, kind, headline) for name, part in self.forums.items()),
        )


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
        low, high = self.average_interval or (None, None)
        tasks = []
        for name, task in self.results.items():
            entry = self.metrics_of_tasks.get(name)
            earlier = _of_earlier_version(self.command, name, self.protocol, task)
            kind, headline = (entry.kind, entry.metrics) if entry is not None else earlier
            for key in headline:
                value = (task.model_extra or {}).get(key)
                if isinstance(value, bool) or not isinstance(value, int | float | None):
                    raise DataError(source, f"{name} {key}: expected a number, found {json.dumps(value)[:40]}")
            tasks += [task.score(name, kind, headline)] if headline else []
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
            average_interval=None if low is None or high is None else (low, high),
            seconds=self.elapsed_seconds,
            draws_file=self.draws,
        )


def _of_earlier_version(
    command: str, name: str, protocol: Mapping[str, Any], task: TaskResult
) -> tuple[str, tuple[str, ...]]:
    """Tell kind and metrics of a task in a file of an earlier version, which has no entry ``scores``; or no metrics."""
    fields = task.model_extra or {}
    if command == "evaluate":
        kind = next((kind for table, kind in OWN_KINDS.items() if table == fields.get("kind")), None)
        return ("", ()) if kind is None else (kind.name, (str(fields.get("metric")),))
    if command == "senteval":
        kind = TRANSFER if TRANSFER.main in fields else TRAINED_HEAD
        return kind.name, (kind.main,)
    if command == "sts-eval":
        metrics = {each.title: each.metric for each in AGGREGATIONS.values()}
        return SIMILARITY.name, (metrics.get(str(protocol.get("aggregation")), SIMILARITY.main),)
    if name == "in-domain":
        return IN_DOMAIN.name, tuple(key for key in fields if key.startswith("recall@"))
    cutoffs = [whole_number(key.removeprefix("ndcg@")) for key in fields if key.startswith("ndcg@")]
    return RETRIEVAL.name, (f"ndcg@{max((k for k in cutoffs if k is not None and k <= 10), default=10)}",)


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
            scores += read_mteb(item, file) if is_mteb(item) else [read_object(item, str(file))]
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
        return float(value) if value is not None and math.isfinite(value) else None
    except OverflowError:
        return None
