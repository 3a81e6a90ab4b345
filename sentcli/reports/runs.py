"""The JSON of `sts-eval`, `senteval` and `retrieve` as plain records."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli.errors import DataError, InputError, one_line
from sentcli.evaluation.sts import AGGREGATIONS

COMMANDS = ("sts-eval", "senteval", "retrieve")
NDCG_CUTOFF = 10
"""That of BEIR's tables; a search that went less deep shows its deepest."""
SIZES = ("pairs", "test", "queries", "documents")
"""Keys that tell how large a task is: rows of different sizes are of different data."""

SETTINGS = ("pooling", "normalize", "max_length", "precision", "backend", "query_prompt", "document_prompt")
"""Of the model in a protocol: these may differ between the rows of a table, and are told with the row."""
SEARCH_SETTINGS = (
    *("search", "similarity", "index", "query_length", "bm25", "rank_constant", "dense_weight", "fused", "depth"),
    *SETTINGS,
)
"""Of the model and the way of searching, in a protocol of retrieve."""
SET_FACTS = ("split", "own_document", "forums")
"""Of each set in a protocol of retrieve; under ``sets``, where sets differ."""
POINTS = ("difference", "low", "high", "measured", "published", "range")
"""Numbers of a comparison that are on the scale of the scores."""


@dataclass(frozen=True)
class Run:
    """One model's results under one protocol."""

    source: str
    """The file that it was read from; empty if the command itself shows it."""
    command: str
    model: str
    protocol: dict[str, Any]
    tasks: dict[str, dict[str, Any]]
    """What is known of each task."""
    measure: str
    """What the main score is called."""
    scores: dict[str, float | None]
    """The main score of each task, times 100."""
    intervals: dict[str, tuple[float, float]]
    """95 % of the main score, where it is known."""
    sizes: dict[str, tuple[Any, ...]]
    """What has to be equal for a task to be the same one: its size, and what is scored of it."""
    average: float | None
    average_interval: tuple[float, float] | None
    averaged: bool
    """Whether a mean over the scores makes sense."""
    compared: dict[str, Any] | None
    against: dict[str, Any] | None
    environment: dict[str, Any]
    seconds: float | None


def read_runs(files: Iterable[Path]) -> list[Run]:
    """Read the reports that commands wrote with ``--json``.

    Args:
        files: each holds an object, or a list of them.

    Raises:
        InputError: if a file is missing; DataError if it is torn, or holds something else.
    """
    found = []
    for file in files:
        value = _parse(file)
        objects = value if isinstance(value, list) else [value]
        if not objects:
            raise DataError(file, "an empty list; there is nothing to show")
        found += [run for one in objects for run in read_object(one, str(file))]
    return found


def _parse(file: Path) -> Any:
    if not file.is_file():
        raise InputError(f"{file} is a folder; name JSON files" if file.is_dir() else f"no such file: {file}")
    try:
        return json.loads(file.read_text("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise DataError(file, f"not JSON ({error.msg}); is the file torn?", line=error.lineno) from error
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise DataError(file, f"not JSON ({one_line(error)})") from error


def read_object(value: Any, source: str = "") -> list[Run]:
    """Read one object: accuracies and correlations of senteval are two runs, since no table holds both.

    The arguments and errors are those of `read_run`.
    """
    tasks = value.get("results") if isinstance(value, dict) and value.get("command") == "senteval" else None
    if not isinstance(tasks, dict):
        return [read_run(value, source)]
    graded = {name: task for name, task in tasks.items() if isinstance(task, dict) and "accuracy" not in task}
    parts = []
    if graded.keys() != tasks.keys():
        rest = {name: task for name, task in tasks.items() if name not in graded}
        parts.append({**value, "results": rest})
    if graded:
        protocol = value.get("protocol") or {}
        regression = {key: one for key, one in protocol.items() if key in SETTINGS or key == "regression"}
        parts.append({**value, "results": graded, "protocol": regression, "average": None, "average_interval": None})
    return [read_run(part, source) for part in parts]


def read_run(value: Any, source: str = "") -> Run:
    """Read one object.

    Args:
        value: as `Report.to_dict` gives it.
        source: the file, for messages and for telling runs apart.

    Raises:
        DataError: if it is no report, that of another command, or a score is no number.
    """
    place = source or "the results"
    if not isinstance(value, dict) or not {"command", "model", "results"} <= value.keys():
        raise DataError(place, "not a report of sentcli: no object with command, model and results")
    command, model = str(value["command"]), str(value["model"])
    if command not in COMMANDS:
        raise DataError(place, f"a report of {command}; only {', '.join(COMMANDS)} have scores to show")
    tasks = value["results"]
    if command == "retrieve" and isinstance(tasks, list):
        raise DataError(place, "hits of retrieve --query, not scores of a set")
    if not isinstance(tasks, dict) or not tasks or not all(isinstance(one, dict) for one in tasks.values()):
        raise DataError(place, f"the results of {model} are not scores by task")
    protocol = _object(value, "protocol", place)
    main = _main_scores(command, protocol, tasks)
    shown = main.tasks
    return Run(
        source=source,
        command=command,
        model=model,
        protocol=protocol,
        tasks=tasks,
        measure=main.measure,
        scores={name: _score(task, main, f"{place}: {name}") for name, task in shown.items()},
        intervals=_intervals(shown, main, place),
        sizes={name: _sizes(name, task, command, protocol) for name, task in shown.items()},
        average=_times(number_of(value.get("average"), f"{place}: average"), main.scale),
        average_interval=_times(ends_of(value.get("average_interval"), f"{place}: average_interval"), main.scale),
        averaged=main.averaged,
        compared=_in_points(_object(value, "compared", place), main.scale) or None,
        against=_in_points(_object(value, "against", place), main.scale) or None,
        environment=_object(value, "environment", place),
        seconds=number_of(value.get("elapsed_seconds"), f"{place}: elapsed_seconds"),
    )


@dataclass(frozen=True)
class _Main:
    """Where the scores are that papers print."""

    key: str
    measure: str
    tasks: Mapping[str, Mapping[str, Any]]
    scale: float = 1.0
    """Makes the score a percentage."""
    averaged: bool = True


def _main_scores(command: str, protocol: Mapping[str, Any], tasks: Mapping[str, Mapping[str, Any]]) -> _Main:
    if command == "senteval" and any("accuracy" in task for task in tasks.values()):
        return _Main("accuracy", "accuracy", tasks)
    if command == "senteval":
        return _Main("spearman", "spearman", tasks)
    if command == "sts-eval":
        keys = {each.title: each.score for each in AGGREGATIONS.values()}
        return _Main(keys.get(str(protocol.get("aggregation")), "spearman"), "spearman", tasks)
    if "in-domain" in tasks:  # one set, whose measures stand side by side
        found = {key: {"value": value} for key, value in tasks["in-domain"].items() if key.startswith("recall@")}
        return _Main("value", "recall", found, averaged=False)
    cutoffs = [int(key[5:]) for key in next(iter(tasks.values())) if key.startswith("ndcg@") and key[5:].isdigit()]
    cutoff = max((k for k in cutoffs if k <= NDCG_CUTOFF), default=NDCG_CUTOFF)
    return _Main(f"ndcg@{cutoff}", f"nDCG@{cutoff}", tasks, scale=100)


def _object(value: Mapping[str, Any], key: str, place: str) -> dict[str, Any]:
    found = value.get(key)
    if found is not None and not isinstance(found, dict):
        raise DataError(place, f"{key} is no object")
    return found or {}


def number_of(value: Any, place: str) -> float | None:
    """Return a number of a report; None for null and for what is not finite.

    Raises:
        DataError: if it is something else.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(place, f"expected a number, found {json.dumps(value)[:40]}")
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def ends_of(value: Any, place: str) -> tuple[float, float] | None:
    """Return the ends of an interval of a report; None if one is not known.

    Raises:
        DataError: if it is something else.
    """
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise DataError(place, f"expected the two ends of an interval, found {json.dumps(value)[:40]}")
    low, high = (number_of(end, place) for end in value)
    return None if low is None or high is None else (low, high)


def _score(task: Mapping[str, Any], main: _Main, place: str) -> float | None:
    found = number_of(task.get(main.key), f"{place} {main.key}")
    return None if found is None else found * main.scale


def _intervals(tasks: Mapping[str, Mapping[str, Any]], main: _Main, place: str) -> dict[str, tuple[float, float]]:
    """Return the intervals of the main scores, times 100; those of sts-eval are of the concatenated subsets only."""
    if main.measure == "spearman" and main.key != "spearman":
        return {}
    found = {name: ends_of(task.get("interval"), f"{place}: {name} interval") for name, task in tasks.items()}
    return {name: scaled for name, ends in found.items() if (scaled := _times(ends, main.scale)) is not None}


def _times(value: Any, scale: float) -> Any:
    """Return a number, or each of several, times 100 where it is not; what is neither stays as it is."""
    if isinstance(value, list | tuple):
        return type(value)(_times(item, scale) for item in value)
    return value * scale if isinstance(value, int | float) and not isinstance(value, bool) else value


def _in_points(comparison: dict[str, Any], scale: float) -> dict[str, Any]:
    """Return a comparison with its scores and differences times 100."""
    tasks = comparison.get("tasks")
    if not isinstance(tasks, dict):
        return comparison
    scaled = {
        name: {key: _times(value, scale) if key in POINTS else value for key, value in one.items()}
        if isinstance(one, dict)
        else one
        for name, one in tasks.items()
    }
    return {**comparison, "tasks": scaled}


def _sizes(name: str, task: Mapping[str, Any], command: str, protocol: Mapping[str, Any]) -> tuple[Any, ...]:
    sizes = tuple(_size(task, size) for size in SIZES)
    if command != "retrieve":
        return sizes
    own = protocol.get("sets")
    facts = {**protocol, **(own.get(name) or {} if isinstance(own, dict) else {})}
    return (*sizes, *(facts.get(key) for key in SET_FACTS))


def _size(task: Mapping[str, Any], key: str) -> int | None:
    size = task.get(key)
    return size if isinstance(size, int) else None
