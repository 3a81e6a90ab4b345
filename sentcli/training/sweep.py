"""A sweep: several runs over seeds, subsets and grids of any setting, resumable, with one file of results.

A sweep file is TOML. Every ``[[grid]]`` gives the combinations of its lists; keys are the settings of ``--set`` and the
options method, model, recipe, stage, pooling, text_of, hold_out, after, limit, fraction and subset_seed:

    seeds = [42, 43]
    [[grid]]
    method = ["simcse", "micse"]
    [[grid]]
    method = "is-bert"
    learning_rate = [1e-5, 1e-4]

Options of the command line hold for all runs, and the grid takes precedence over them. ``subset_seed = "seed"`` draws
the sentences of each run by the seed of its training. ``results.jsonl`` gets a line for each finished run, and a run
that has a line there is not run again, whether or not its folder still exists.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock
from pydantic import BaseModel, Field, StrictInt, field_validator

from sentcli.encoder.loading import read_model
from sentcli.errors import DataError, InputError, SentcliError
from sentcli.evaluation import stores
from sentcli.io.atomic import check_output, regular, replacing
from sentcli.io.forms import read_toml
from sentcli.io.json_files import decode, finite
from sentcli.machine import environment
from sentcli.methods import refuse_file
from sentcli.methods.recipes import load_recipe
from sentcli.model.options import ModelOptions
from sentcli.processes import agree, is_first
from sentcli.training import run as runs
from sentcli.training.observer import Observer
from sentcli.training.prepare import Prepared, prepare
from sentcli.training.request import TrainRequest
from sentcli.training.run_folder import RUN, LockedError

RESULTS = "results.jsonl"
OPTIONS = ("method", "model", "stage", "pooling", "text_of", "hold_out", "after")
SUBSET = ("limit", "fraction", "subset_seed")
MOST_POINTS = 100_000
LONGEST = 200
"""The most characters that the name of a run's folder may have."""


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep, before it starts."""

    name: str
    """The name of its folder."""
    point: dict[str, Any]
    """The values that the sweep varies, without the seed."""
    request: TrainRequest


@dataclass
class SweepResult:
    """The outcome of a sweep."""

    records: list[dict[str, Any]] = field(default_factory=list)
    """The records of the finished runs, in the order of the sweep."""
    failed: dict[str, str] = field(default_factory=dict)
    """The error message of each failed run, by the name of the run."""
    elsewhere: list[str] = field(default_factory=list)
    """The names of runs that another process is running."""


class SweepFile(BaseModel, extra="forbid"):
    """The form of a sweep file."""

    seeds: list[StrictInt] = []
    grid: list[dict[str, Any]] = Field(default=[], validate_default=True)

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"must be different whole numbers, not {seeds!r}")
        return seeds

    @field_validator("grid", mode="before")
    @classmethod
    def _lists_of_values(cls, grids: Any) -> Any:
        if not isinstance(grids, list) or not grids or not all(isinstance(grid, dict) and grid for grid in grids):
            raise ValueError("it needs [[grid]] tables with settings in them")
        for key, value in (pair for grid in grids for pair in grid.items()):
            if isinstance(value, dict):
                raise ValueError(f'write "{key}.{next(iter(value), "")}" = ... with the quotes')
            if value == []:
                raise ValueError(f"{key}: an empty list leaves nothing to run")
        return grids


def read_sweep(path: Path) -> tuple[list[int], list[dict[str, Any]]]:
    """Read a sweep file: its seeds, and the distinct points of its grids."""
    file = read_toml(SweepFile, path)
    grids = [{key: value if isinstance(value, list) else [value] for key, value in grid.items()} for grid in file.grid]
    count = sum(math.prod(map(len, grid.values())) for grid in grids)
    if count > MOST_POINTS:
        raise DataError(path, f"its grids have {count:,} points; a sweep may have {MOST_POINTS:,}")
    points = {
        json.dumps(point, sort_keys=True, default=str): point
        for grid in grids
        for point in (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
    }
    for method in (point.get(key) for point in points.values() for key in ("method", "after")):
        refuse_file(method, path)
    return file.seeds, list(points.values())


def check_sweep_folder(request: TrainRequest, results: Path) -> None:
    """Refuse a folder or a file of results that a sweep must not write to.

    Raises:
        InputError: if the folder exists without ``--resume`` or ``--overwrite`` or holds a single run, or if the file
            of results cannot be written or holds something else.
    """
    if is_first():
        empty = request.output.is_dir() and not any(request.output.iterdir())
        check_output(request.output, overwrite=request.overwrite or empty, resume=request.resume, folder=True)
        if (request.output / RUN).exists():
            raise InputError(f"{request.output} is the folder of one run, not of several; choose another -o")
        check_output(results, resume=True)
        read_results(results)


def plan(request: TrainRequest, points: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[SweepRun]:
    """Return the runs, all points with the first seed and then with the next, so that early results compare."""
    sweep_runs: dict[str, SweepRun] = {}
    seeds_or_none: list[int | None] = [*seeds] or [None]
    for seed in seeds_or_none:
        for point in points:
            settings = {**point, **({} if seed is None else {"seed": seed})}
            name = _name(settings)
            if name in sweep_runs:  # it has no characters that tell the two apart
                name += f"-{hashlib.sha256(repr(settings).encode()).hexdigest()[:8]}"
            run_request = _request_at(request, settings, request.output / name)
            try:  # what is wrong is said now, not after hours
                run_request.configured()
                read_model(run_request.model, ModelOptions())
            except SentcliError as error:
                raise InputError(f"{name}: {error}") from error
            sweep_runs[name] = SweepRun(name, dict(point), run_request)
    return list(sweep_runs.values())


def _name(settings: Mapping[str, Any]) -> str:
    text = ",".join(f"{key}={value}" for key, value in settings.items())
    name = "".join(c if c.isalnum() or c in "=,.-_+" else "_" for c in text) or "run"
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _request_at(request: TrainRequest, settings: Mapping[str, Any], output: Path) -> TrainRequest:
    """Return the request of one run, given the settings of its point of the sweep."""
    recipe = request.recipe
    if "recipe" in settings:
        recipe = load_recipe(str(settings["recipe"]))
        options = {"method": recipe.method, "model": recipe.model, "stage": recipe.stage, "pooling": recipe.pooling}
        settings = {**{key: value for key, value in options.items() if value is not None}, **settings}
    subset = request.subset
    for key in SUBSET:
        if key in settings:
            subset = replace(subset, **{key.removeprefix("subset_"): settings[key]})
    assignments = [(k, v) for k, v in settings.items() if k not in (*OPTIONS, *SUBSET, "recipe")]
    chosen = {key: str(settings[key]) for key in OPTIONS if key in settings}
    return replace(
        request,
        **chosen,  # type: ignore[arg-type]
        output=output,
        subset=subset,
        recipe=recipe,
        resume=not request.overwrite,
        assignments=[*request.assignments, *assignments],
    )


def digest(identity: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a run's identity; see `Prepared.identity`, of which defaults are left out."""
    return stores.digest(finite(dict(identity)))


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a results file by digest, without an incomplete last line."""
    records: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(_whole_lines(path), 1):
        try:
            if line.strip():
                record = decode(line)
                records[record["digest"]] = record
        except (ValueError, TypeError, KeyError) as error:
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


class SweepObserver(Protocol):
    """Is told which runs of a sweep start, are skipped and fail."""

    def starts(self, run: SweepRun, prepared: Prepared) -> Observer | None:
        """Is called before a run, and returns the observer of its steps."""

    def finished(self, run: SweepRun) -> None:
        """Is called after a run that another process has made."""

    def skipped(self, run: SweepRun) -> None:
        """Is called for a run that had finished before."""

    def failed(self, run: SweepRun, message: str) -> None:
        """Is called for a run that has failed; the sweep continues."""


def run_all(planned: Iterable[SweepRun], results: Path, observer: SweepObserver) -> SweepResult:
    """Run what has not been run yet, and add a line to the file `results` for each finished run.

    Raises:
        InputError: if the first run refuses its input; an error of a later run is kept in the outcome.
    """
    outcome = SweepResult()
    for run in planned:
        gc.collect()  # the model of the previous run is part of a reference cycle
        try:
            record = _run(run, results, observer)
        except LockedError:
            outcome.elsewhere.append(run.name)
        except SentcliError as error:
            if isinstance(error, InputError) and outcome == SweepResult():
                raise  # most likely wrong for all of them, and seen at once
            outcome.failed[run.name] = str(error)
            observer.failed(run, str(error))
        else:
            outcome.records.append({**record, "run": run.name, "point": run.point})  # another sweep may have run it
    return outcome


def _run(run: SweepRun, results: Path, observer: SweepObserver) -> dict[str, Any]:
    """Return the record of a run from the file of results, or run it and add its record."""
    record, is_new = make_record(run, lambda key: agree(read_results(results).get(key)), partial(observer.starts, run))
    if is_new:
        append_record(results, record)
    else:
        observer.skipped(run)
    return record


def make_record(
    run: SweepRun, find: Callable[[str], dict[str, Any] | None], starts: Callable[[Prepared], Observer | None]
) -> tuple[dict[str, Any], bool]:
    """Make a run, unless it has a record.

    Args:
        run: the run.
        find: returns the record with a digest, if there is one.
        starts: called before the first step; returns the observer of the training.

    Returns:
        The record, and whether it is new.
    """
    prepared = prepare(runs.after_first_stage(run.request, starts))
    key = digest(prepared.identity(changed_only=True))
    record = None if run.request.overwrite else find(key)
    if record is not None and not (run.request.sts and record["results"].get("sts") is None):
        return record, False
    result = runs.run(prepared, starts(prepared))
    settings = prepared.method.settings
    new_record: dict[str, Any] = finite(
        {
            "run": run.name,
            "point": run.point,
            "seed": settings.seed,
            "method": prepared.method.name,
            "model": run.request.model,
            "digest": key,
            "identity": prepared.identity(),
            "results": result.to_dict(),
            "environment": environment(prepared.encoder.backend.device, settings.precision, settings.seed),
        }
    )
    return new_record, True


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Add a line to the file, replacing an incomplete last line; a lock protects it from other sweeps."""
    if not is_first():
        return
    with FileLock(path.with_name(f".{path.name}.lock")):
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


@dataclass(frozen=True)
class HeldOutMean:
    """The mean over the topics or folds that were held out in turn."""

    point: dict[str, Any]
    """The other values that the sweep varies."""
    held_out: list[str]
    spearman: float
    pearson: float

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dict(vars(self))


def held_out_means(summaries: Iterable[Summary]) -> list[HeldOutMean]:
    """Return the means over points that differ only in `hold_out`."""
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        if summary.mean.get("held_out_spearman") is not None and "hold_out" in summary.point:
            rest = {key: value for key, value in summary.point.items() if key != "hold_out"}
            groups.setdefault(json.dumps(rest, sort_keys=True), []).append(summary)
    return [
        HeldOutMean(
            {key: value for key, value in group[0].point.items() if key != "hold_out"},
            [summary.point["hold_out"] for summary in group],
            statistics.fmean(summary.mean["held_out_spearman"] for summary in group),
            statistics.fmean(summary.mean["held_out_pearson"] for summary in group),
        )
        for group in groups.values()
        if len(group) > 1
    ]


def over_runs(results: Sequence[Any], function: Callable[[list[float]], Any]) -> Any:
    """Apply a function to the values of each number that all results have, also in nested dicts."""
    if all(isinstance(result, dict) for result in results):
        keys = [key for key in results[0] if all(key in result for result in results)]
        return {key: over_runs([result[key] for result in results], function) for key in keys}
    if all(isinstance(result, (int, float)) for result in results):
        return function([float(result) for result in results])
    return None
