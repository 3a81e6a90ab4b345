"""The files that a run or a sweep leaves, and what the results of several runs say together.

``metrics.jsonl`` is the log of a run, with a line for each optimiser step and for each evaluation; ``results.jsonl``
has a line for each finished run of a sweep.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from filelock import FileLock
from pydantic import BaseModel, Field, StrictInt, ValidationError

from sentcli.errors import DataError
from sentcli.io.atomic import regular, replacing
from sentcli.io.forms import Number, Plain, Setting, checked, decode, problem_of
from sentcli.processes import is_first

METRICS_FILE, CONFIG_FILE, IDENTITY_FILE = "metrics.jsonl", "sentcli.json", "run.json"
"""The files in the folder of a run: its log, its configuration with the results, and what decides its weights."""
RESULTS_FILE = "results.jsonl"
"""The file of results in the folder of a sweep."""


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
    records, lines = [], data.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                record = decode(line.decode())
                MetricsLine.model_validate(record)
                records.append(record)
        except ValueError as error:
            if number == len(lines):
                break
            problem = problem_of(MetricsLine, error) if isinstance(error, ValidationError) else error
            raise DataError(path, f"not a line of a training run: {problem}", line=number) from error
    return records


class DataFile(BaseModel, extra="allow"):
    """What is read of a file of the training data."""

    sentences: Annotated[StrictInt, Ge(0), Le(2**53)]


class Identity(BaseModel, extra="allow"):
    """What is read of the identity of a run."""

    data: list[DataFile] = []
    settings: dict[str, Setting] = {}
    subset: dict[str, Setting] = {}
    method: dict[str, Setting | dict[str, Setting]] = {}


class DevResult(BaseModel, extra="allow"):
    """The score on the dev set that decides."""

    __pydantic_extra__: dict[str, Plain]
    metric: str
    best: Number | None = None


class Results(BaseModel, extra="allow"):
    """The results of a run."""

    __pydantic_extra__: dict[str, Plain]
    sts_average: Number | None = None
    best_dev_spearman: Number | None = None
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
    """Return the records of a results file by digest, without an incomplete last line."""
    records: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(_whole_lines(path), 1):
        try:
            if line.strip():
                record = decode(line)
                records[checked(RunRecord, record, path).digest] = record
        except DataError as error:
            raise DataError(path, f"not a record of a run: {error.problem}", line=number) from error
        except ValueError as error:
            raise DataError(path, f"not a record of a run: {error}", line=number) from error
    return records


def _whole_lines(path: Path) -> list[bytes]:
    """Return the lines of a file, without an incomplete record at its end."""
    if path.exists():
        regular(path)
    *lines, last = path.read_bytes().split(b"\n") if path.exists() else [b""]
    try:
        decode(last)  # only its line feed is missing
    except ValueError:
        return lines if last[:1] in (b"", b"{") else [*lines, last]
    return [*lines, last]


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Add a line to the file, replacing an incomplete last line; a lock protects it from other sweeps.

    Of a run that another sweep has finished meanwhile there is a line already.
    """
    if not is_first():
        return
    with FileLock(path.with_name(f".{path.name}.lock")):
        known = read_results(path).get(record["digest"])
        if known is not None and known.get("results") == record.get("results"):
            return
        lines = [*_whole_lines(path), json.dumps(record, ensure_ascii=False).encode()]
        with replacing(path) as temporary:
            temporary.write_bytes(b"\n".join(lines) + b"\n")


@dataclass(frozen=True)
class Summary:
    """The runs that differ only in their seed."""

    point: dict[str, Any]
    runs: list[dict[str, Any]]
    """The results of the run with each seed."""
    seeds: list[int]
    mean: dict[str, Any]
    sd: dict[str, Any]
    """The sample standard deviations; None where there is a single run."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dict(vars(self))


def summarize(records: Iterable[Mapping[str, Any]]) -> list[Summary]:
    """Return a summary of the runs of each point, in the order of the points."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(json.dumps(record["point"], sort_keys=True), []).append(record)
    return [
        Summary(
            dict(group[0]["point"]),
            [record["results"] for record in group],
            [record["seed"] for record in group],
            over_runs([record["results"] for record in group], statistics.fmean),
            over_runs([r["results"] for r in group], lambda v: statistics.stdev(v) if len(v) > 1 else None),
        )
        for group in groups.values()
    ]


def warmup_notes(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each method of which runs ended before their learning rate had risen to what was set."""
    ended: dict[str, set[str]] = {}
    for record in records:
        settings = record.get("identity", {}).get("settings", {})
        steps, warmup = record["results"].get("steps") or 0, settings.get("warmup_steps") or 0
        if 0 < steps <= warmup:
            share = (steps - 1) / warmup
            ended.setdefault(record["method"], set()).add(f"after {steps} steps it had {share:.0%} of it")
    return [
        f"{method}: the learning rate rises for longer than runs lasted: {' or '.join(sorted(reached))}."
        for method, reached in ended.items()
    ]


IN_TURN = {"hold_out": ("held_out_spearman", "held_out_pearson"), "text_of": ("senteval_average",)}
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
        own = key != "text_of" or ",".join(summary.mean.get("senteval") or {}) == summary.point.get(key)
        if key in summary.point and own and all(summary.mean.get(name) is not None for name in IN_TURN[key]):
            rest = {name: value for name, value in summary.point.items() if name != key}
            groups.setdefault(json.dumps(rest, sort_keys=True), []).append(summary)
    return [
        PartsMean(
            {name: value for name, value in group[0].point.items() if name != key},
            [summary.point[key] for summary in group],
            {name: statistics.fmean(summary.mean[name] for summary in group) for name in IN_TURN[key]},
        )
        for group in groups.values()
        if len(group) > 1
    ]


def over_runs(results: Sequence[Any], function: Callable[[list[float]], Any]) -> Any:
    """Apply a function to the values of each number that all results have, also in nested dicts."""
    if all(isinstance(result, dict) for result in results):
        keys = [key for key in results[0] if all(key in result for result in results)]
        return {key: over_runs([result[key] for result in results], function) for key in keys}
    if all(isinstance(result, (int, float)) and not isinstance(result, bool) for result in results):
        return function([float(result) for result in results])
    return None
