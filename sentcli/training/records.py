"""The files that a run or a sweep leaves, and what the results of several runs say together.

``metrics.jsonl`` is the log of a run, with a line for each optimiser step and for each evaluation; ``results.jsonl``
has a line for each finished run of a sweep.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from filelock import FileLock
from pydantic import BaseModel, Field, StrictBool, StrictInt, ValidationError

from sentcli.errors import DataError, InputError
from sentcli.io.atomic import regular, replacing
from sentcli.io.forms import Number, Plain, checked, contents, decode, problem_of
from sentcli.processes import is_first
from sentcli.seeds import by_training, mean_and_deviation, told_apart, training_facts

METRICS_FILE = "metrics.jsonl"
"""The log in the folder of a run."""
CONFIG_FILE = "sentcli.json"
"""The configuration of a run with its results."""
IDENTITY_FILE = "run.json"
"""The file with everything that decides the weights of a run."""
RESULTS_FILE = "results.jsonl"
"""The file of results in the folder of a sweep."""
Scalar = StrictBool | StrictInt | Number | str | None
Setting = Scalar | list[Scalar]
"""A value of a setting."""


class RunFile(BaseModel, extra="allow"):
    """The parts of the JSON files of a run that are read; all others are only compared with those of another run."""

    environment: dict[str, Any] = {}
    results: dict[str, Any] = {}


def read_run_file(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file of a run.

    Raises:
        InputError: if it is missing or damaged.
    """
    try:
        content = decode(contents(path))
        checked(RunFile, content, path)
        return dict(content)
    except (OSError, ValueError, InputError) as error:
        message = f"{path} is missing or damaged, so --resume cannot go on; choose another -o, or --overwrite"
        raise InputError(message) from error


def differences_of(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return a sentence for each value that differs between two runs, or between where they ran."""
    old = _flat(old)
    new = _flat(new)
    sentences = []
    for key in dict.fromkeys([*old, *new]):
        before = old.get(key, "nothing")
        now = new.get(key, "nothing")
        if before != now:
            sentences.append(f"{key} is {now!r:.200} and was {before!r:.200}")
    return sentences


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested values by dotted name."""
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        parts = list(enumerate(value))
    else:
        return {prefix.rstrip("."): value}
    values: dict[str, Any] = {}
    for name, part in parts:
        values |= _flat(part, f"{prefix}{name}.")
    return values


class MetricsLine(BaseModel, extra="allow"):
    """A line of the log; all its other values are numbers, texts or null."""

    __pydantic_extra__: dict[str, Plain]
    step: Annotated[StrictInt, Ge(0), Le(2**53)]


def parsed(data: bytes, path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log, or of its end; a last line that is not complete is left out.

    Args:
        data: the bytes of the lines.
        path: of the log, for messages.

    Raises:
        DataError: for a damaged line.
    """
    records = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = decode(line.decode())
            MetricsLine.model_validate(record)
        except ValueError as error:
            if number == len(lines):
                break
            problem = str(error)
            if isinstance(error, ValidationError):
                problem = problem_of(MetricsLine, error)
            raise DataError(path, f"not a line of a training run: {problem}", line=number) from error
        records.append(record)
    return records


class DataFile(BaseModel, extra="allow"):
    """The fact that is read of a file of the training data."""

    sentences: Annotated[StrictInt, Ge(0), Le(2**53)]


class Identity(BaseModel, extra="allow"):
    """The parts of the identity of a run that are read."""

    data: list[DataFile] = []
    settings: dict[str, Setting] = {}
    subset: dict[str, Setting] = {}
    method: dict[str, Setting | dict[str, Setting]] = {}


class DevResult(BaseModel, extra="allow"):
    """The score on the dev set that decides."""

    __pydantic_extra__: dict[str, Plain]
    metric: str
    start: Number | None = None
    best: Number | None = None
    final: Number | None = None


class Results(BaseModel, extra="allow"):
    """The results of a run."""

    __pydantic_extra__: dict[str, Plain]
    sts_average: Number | None = None
    start_dev_spearman: Number | None = None
    best_dev_spearman: Number | None = None
    final_dev_spearman: Number | None = None
    dev: DevResult | None = None


class RunRecord(BaseModel, extra="allow"):
    """A line of the file; whoever reads more than the digest looks whether it is there."""

    digest: str
    run: str = ""
    method: str = ""
    model: str = ""
    seed: StrictInt | None = None
    point: dict[str, Setting] = {}
    identity: Identity = Identity()
    results: Annotated[Results, Field(default_factory=lambda: Results.model_validate({}))]


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a results file by digest, without an incomplete last line.

    Raises:
        DataError: for a damaged line.
    """
    records: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(_whole_lines(path), 1):
        if not line.strip():
            continue
        try:
            record = decode(line)
            digest = checked(RunRecord, record, path).digest
        except (DataError, ValueError) as error:
            problem = error.problem if isinstance(error, DataError) else error
            raise DataError(path, f"not a record of a run: {problem}", line=number) from error
        records[digest] = record
    return records


def _whole_lines(path: Path) -> list[bytes]:
    """Return the lines of a file, without an incomplete record at its end."""
    if not path.exists():
        return []
    regular(path)
    lines = path.read_bytes().split(b"\n")
    last = lines[-1]
    is_unfinished = last == b"" or last.startswith(b"{")
    if is_unfinished and not _is_record(last):
        lines.pop()
    return lines


def _is_record(line: bytes) -> bool:
    try:
        decode(line)
    except ValueError:
        return False
    return True


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Add a line to the file, replacing an incomplete last line; a lock protects it from other sweeps.

    Of a run that another sweep has finished meanwhile there is a line already.
    """
    if not is_first():
        return
    with FileLock(path.with_name(f".{path.name}.lock")):
        earlier = read_results(path).get(record["digest"])
        if earlier is not None and earlier.get("results") == record.get("results"):
            return
        lines = [*_whole_lines(path), json.dumps(record, ensure_ascii=False).encode()]
        with replacing(path) as temporary:
            temporary.write_bytes(b"\n".join(lines) + b"\n")


@dataclass(frozen=True)
class Summary:
    """The runs that differ only in their seed.

    It has the means of all numbers of their JSON, which need not be scores: losses, steps, seconds. A `System` has the
    scores of models with their samples, for comparisons. Both take mean and deviation from `seeds`.
    """

    point: dict[str, Any]
    runs: list[dict[str, Any]]
    """The results of the run with each seed."""
    seeds: list[int]

    @cached_property
    def mean(self) -> dict[str, Any]:
        """The means over the seeds."""
        return dict(map_numbers(self.runs, lambda values: mean_and_deviation(values)[0]))

    @cached_property
    def sd(self) -> dict[str, Any]:
        """The sample standard deviations; None where there is a single run."""
        return dict(map_numbers(self.runs, lambda values: mean_and_deviation(values)[1]))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"point": self.point, "runs": self.runs, "seeds": self.seeds, "mean": self.mean, "sd": self.sd}


def summarize(records: Iterable[Mapping[str, Any]]) -> list[Summary]:
    """Return a summary of the runs of each training, in the order of the points.

    Of trainings that differ although their sweeps gave them the same point, the points say in what.
    """
    points: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        point = json.dumps(record["point"], sort_keys=True)
        points.setdefault(point, []).append(record)
    summaries = []
    for of_point in points.values():
        trainings = list(map(record_facts, of_point))
        apart = told_apart(trainings)
        for group in by_training(trainings):
            runs = [of_point[position] for position in group]
            settings = {**apart[group[0]], **runs[0]["point"]}
            results = [record["results"] for record in runs]
            summaries.append(Summary(settings, results, [record["seed"] for record in runs]))
    return summaries


def record_facts(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the training of a record besides its seed; see `training_facts`."""
    facts = training_facts(record.get("identity", {}))
    after = record.get("after")
    if after is not None:  # the weights that it starts from come from a training with the same seed
        facts |= {"start_model": record.get("model"), "after": after}
    return facts


def warmup_notes(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each method of which runs ended before their learning rate had risen to what was set."""
    ended: dict[str, set[str]] = {}
    for record in records:
        settings = record.get("identity", {}).get("settings", {})
        steps = record["results"].get("steps") or 0
        warmup = settings.get("warmup_steps") or 0
        if 0 < steps <= warmup:
            share = (steps - 1) / warmup
            reached = ended.setdefault(record["method"], set())
            reached.add(f"after {steps} steps it had {share:.0%} of it")
    notes = []
    for method, reached in ended.items():
        all_reached = " or ".join(sorted(reached))
        notes.append(f"{method}: the learning rate rises for longer than runs lasted: {all_reached}.")
    return notes


AVERAGED_OVER = {"hold_out": ("held_out_spearman", "held_out_pearson"), "text_of": ("senteval_average",)}
"""The settings that runs of one experiment differ in, such as the topic that is held out, and the numbers of which the
experiment has the mean."""


@dataclass(frozen=True)
class PartsMean:
    """The mean over the topics or folds that were held out in turn, or over the tasks that were trained on in turn."""

    point: dict[str, Any]
    """The other values that the sweep varies."""
    parts: list[str]
    numbers: dict[str, float]


def parts_means(summaries: Iterable[Summary], key: str) -> list[PartsMean]:
    """Return the means over points that differ only in `key`, one of `IN_TURN`.

    Of the tasks of ``text_of`` there is one where each run was scored on its own, as in IS-BERT's table 3.
    """
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        if _has_numbers(summary, key):
            others = json.dumps(_without(summary.point, key), sort_keys=True)
            groups.setdefault(others, []).append(summary)
    return [_parts_mean(group, key) for group in groups.values() if len(group) > 1]


def _has_numbers(summary: Summary, key: str) -> bool:
    """Tell whether the runs of a point are one part of an experiment, and have the numbers of which it has the mean."""
    if key not in summary.point:
        return False
    for name in AVERAGED_OVER[key]:
        if summary.mean.get(name) is None:
            return False
    if key == "text_of":
        scored_tasks = ",".join(summary.mean.get("senteval") or {})
        return scored_tasks == summary.point[key]
    return True


def _without(point: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in point.items() if name != key}


def _parts_mean(summaries: Sequence[Summary], key: str) -> PartsMean:
    """Return the mean over points that differ only in `key`."""
    numbers = {}
    for name in AVERAGED_OVER[key]:
        numbers[name] = statistics.fmean(summary.mean[name] for summary in summaries)
    parts = [summary.point[key] for summary in summaries]
    return PartsMean(_without(summaries[0].point, key), parts, numbers)


def map_numbers(results: Sequence[Any], function: Callable[[list[float]], Any]) -> Any:
    """Apply a function to the values of each number that all results have, also in nested dicts."""
    if all(isinstance(result, dict) for result in results):
        common = set(results[0]).intersection(*results)
        values = {}
        for key in results[0]:
            if key in common:
                values[key] = map_numbers([result[key] for result in results], function)
        return values
    if all(isinstance(result, int | float) and not isinstance(result, bool) for result in results):
        return function(list(map(float, results)))
    return None
