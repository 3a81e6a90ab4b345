"""Scores as JSON: what `sts-eval`, `senteval`, `retrieve` and `evaluate` write, and what the cache keeps.

The entry ``scores`` of a command's object says of each task which kind its scores are of and which metrics tables show.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from sentcli.arrays import Float64Array
from sentcli.evaluation.score_kinds import TRAINED_HEAD
from sentcli.evaluation.scores import ModelScores, TaskScore, average, average_interval


def score_record(score: TaskScore) -> dict[str, Any]:
    """Return all fields of a score as JSON, for the cache."""
    record = dict(vars(score))
    # the keys of these two are older than the names of the fields
    record["headline"] = record.pop("shown_metrics")
    record["draws"] = _lists(record.pop("replicates"))
    record["item_values"] = _lists(score.item_values)
    record["parts"] = list(map(score_record, score.parts))
    if score.correct is not None:
        record["correct"] = score.correct.tolist()
    return record


def score_of(record: Mapping[str, Any]) -> TaskScore:
    """Return the score that `score_record` was called on."""
    fields = dict(record)
    fields["shown_metrics"] = tuple(fields.pop("headline"))
    fields["replicates"] = _arrays(fields.pop("draws"))
    fields["item_values"] = _arrays(record["item_values"])
    fields["items"] = tuple(record["items"])
    fields["intervals"] = {metric: tuple(ends) for metric, ends in record["intervals"].items()}
    if record["correct"] is not None:
        fields["correct"] = np.array(record["correct"], bool)
    fields["parts"] = tuple(map(score_of, record["parts"]))
    return TaskScore(**fields)


def _lists(arrays: Mapping[str, Float64Array]) -> dict[str, list[float]]:
    return {metric: array.tolist() for metric, array in arrays.items()}


def _arrays(lists: Mapping[str, list[float]]) -> dict[str, Float64Array]:
    return {metric: np.array(values) for metric, values in lists.items()}


def pack_values(replicates: Float64Array) -> str:
    """Return values on samples as one line of JSON: their 32-bit floats in base64."""
    return base64.b64encode(replicates.astype("<f4").tobytes()).decode("ascii")


def unpack_values(text: str) -> Float64Array:
    """Return the values that `pack_values` was called on.

    Raises:
        ValueError: if `text` is not base64 of finite 32-bit floats.
    """
    replicates = np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float64)
    if len(replicates) < 2 or not np.isfinite(replicates).all():
        raise ValueError("expected at least two finite numbers")
    return replicates


def task_json(score: TaskScore, *, with_replicates: bool = True) -> dict[str, Any]:
    """Return the entry of a task in the JSON of a command.

    Args:
        score: of the task.
        with_replicates: with the shown metrics on samples, where there are any.
    """
    entry: dict[str, Any] = {**score.metrics, **score.details}
    if len(score.shown_metrics) > 1:
        entry["intervals"] = score.intervals
    elif score.main_metric in score.intervals:
        entry["interval"] = score.intervals[score.main_metric]
    if score.parts:
        entry["forums"] = {part.task: task_json(part, with_replicates=False) for part in score.parts}
    packed = {}
    if with_replicates:
        for metric in score.shown_metrics:
            replicates = score.replicates_of(metric)
            if replicates is not None:
                packed[metric] = pack_values(replicates)
    if packed:
        entry["draws"] = packed
    return entry


def model_json(scores: ModelScores) -> dict[str, Any]:
    """Return the JSON object of a command, without averages and comparisons that there are not."""
    results = {}
    kinds = {}
    for task in scores.tasks:
        results[task.task] = task_json(task, with_replicates=not scores.replicates_file)
        kinds[task.task] = {"kind": task.kind, "metrics": list(task.shown_metrics)}
    required = {
        "command": scores.command,
        "model": scores.model,
        "protocol": scores.protocol,
        "results": results,
        "scores": kinds,
        "environment": scores.environment,
        "elapsed_seconds": round(scores.seconds or 0.0, 3),
    }
    optional = {
        **_averages(scores),
        "compared": scores.compared or None,
        "cached": list(scores.cached) or None,
        "against": scores.against or None,
        "cost": scores.cost or None,
        "draws": scores.replicates_file or None,
        "command_line": scores.command_line or None,
        **scores.entries,
    }
    shown = required | {key: value for key, value in optional.items() if value is not None}
    if "average_lacks" in shown:
        shown["average"] = None
    return shown


def _averages(scores: ModelScores) -> dict[str, Any]:
    """Return the averages of the first kind that has some; empty where a mean says nothing."""
    averaged_kinds = [kind for kind in scores.kinds if kind is not TRAINED_HEAD]
    if not averaged_kinds:
        return {}
    kind = averaged_kinds[0]
    tasks = scores.of_kind(kind)
    has_one_kind = len(scores.kinds) == 1 and len(tasks) > 1
    if scores.command == "evaluate" and not has_one_kind:
        return {}
    averages: dict[str, Any] = {"average": average(tasks, kind, least=1)}
    lacking = [task.task for task in tasks if task.reason]
    if lacking:
        averages["average_lacks"] = lacking
    pearson = []
    for task in tasks:
        if "pearson" in task.metrics:
            pearson.append(round(task.metrics["pearson"], 2))
    if pearson:
        averages["average_pearson"] = round(float(np.mean(pearson)), 2)
    averages["average_interval"] = average_interval(tasks, kind)
    return averages
