"""A sweep: several runs over seeds, subsets and grids of any setting, resumable.

``results.jsonl`` gets a line for each finished run, and a run that has a line there is not run again, whether or not
its folder still exists.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, Field, StrictInt, field_validator

from sentcli.bounds import check
from sentcli.encoder.loading import read_model
from sentcli.errors import DataError, InputError, SentcliError, nearest
from sentcli.io.atomic import check_output
from sentcli.io.digests import json_digest
from sentcli.io.forms import finite, read_toml
from sentcli.machine import environment
from sentcli.methods import refuse_file
from sentcli.methods.recipes import load_recipe
from sentcli.model.options import ModelOptions
from sentcli.processes import agree, is_first
from sentcli.training import run as runs
from sentcli.training.observer import Observer
from sentcli.training.prepare import Prepared, prepare
from sentcli.training.records import IDENTITY_FILE, append_record, read_results
from sentcli.training.request import AUTO, TrainRequest
from sentcli.training.run_folder import LockedError
from sentcli.zoo import models_folder

if TYPE_CHECKING:
    from sentcli.methods.recipes import Recipe

MOST_POINTS = 100_000
OF_REQUEST = ("method", "model", "stage", "pooling", "after")
"""The keys of a sweep that stand for fields of `TrainRequest`."""
OF_DATA = ("text_of", "hold_out", "limit", "fraction", "subset_seed")
"""The keys of a sweep that stand for options of the data."""
NUMBERS = {"limit": int, "fraction": float, "subset_seed": int}
"""The options of the data whose values are numbers."""


class Asha(BaseModel, extra="forbid", frozen=True):
    """When runs that are behind end early: asynchronous successive halving (Li et al., MLSys 2020, algorithm 2)."""

    grace_period: StrictInt = Field(ge=1)
    """The first step at which runs are compared, by their score on the dev set."""
    reduction_factor: float = Field(default=4, gt=1)
    """Runs are compared again after this many times as many steps, and each time one run in this many goes on."""


@dataclass(frozen=True)
class Sweep:
    """The points and the seeds whose combinations are the runs."""

    points: list[dict[str, Any]]
    """The values that vary, for each run of a seed; a single run has no points."""
    seeds: list[int]
    asha: Asha | None = None
    file: Path | None = None
    """The file that says them, if there is one."""


NO_GRID = "it needs [[grid]] tables with settings in them"


class SweepFile(BaseModel, extra="forbid"):
    """The form of a sweep file."""

    seeds: list[StrictInt] = []
    grid: list[dict[str, Any]] = Field(default=[], validate_default=True)
    asha: Asha | None = None

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"must be different whole numbers, not {seeds!r}")
        return seeds

    @field_validator("grid", mode="before")
    @classmethod
    def _lists_of_values(cls, grids: Any) -> Any:
        if not isinstance(grids, list) or not grids:
            raise ValueError(NO_GRID)
        for grid in grids:
            if not isinstance(grid, dict) or not grid:
                raise ValueError(NO_GRID)
        for grid in grids:
            for key, value in grid.items():
                _check_values(key, value)
        return grids


def _check_values(key: str, value: Any) -> None:
    """Refuse a value of a grid that is neither a value of the key nor a list of its values."""
    if isinstance(value, dict):
        raise ValueError(f'write "{key}.{next(iter(value), "")}" = ... with the quotes')
    if value == []:
        raise ValueError(f"{key}: an empty list leaves nothing to run")
    if key not in (*OF_REQUEST, *OF_DATA, "recipe"):
        return
    for item in _as_list(value):
        if isinstance(item, list | dict):
            raise ValueError(f"{key}: {item!r} is a list or table, and each run takes one value of the list")


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [value]


def sweep_names() -> list[str]:
    """Return the names of the sweeps that come with the package: tables of papers."""
    return sorted(path.stem for path in (models_folder() / "sweeps").glob("*.toml"))


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file, or one that comes with the package by its name; equal points of its grids become one.

    It is TOML. Every ``[[grid]]`` gives the combinations of its lists; keys are the settings of ``--set`` and the
    options method, model, recipe, stage, pooling, text_of, hold_out, after, limit, fraction and subset_seed:

        seeds = [42, 43]
        [[grid]]
        method = ["simcse", "micse"]
        [[grid]]
        method = "is-bert"
        learning_rate = [1e-5, 1e-4]

        [asha]
        grace_period = 100

    Options of the command line hold for all runs, and the grid takes precedence over them. ``subset_seed = "seed"``
    draws the sentences of each run by the seed of its training. `Asha` says what the last table means.

    Raises:
        InputError: if there is no such file or name.
        DataError: if it is no sweep, or its grids have too many points.
    """
    if path.suffix != ".toml" and not path.exists():
        names = sweep_names()
        if str(path) not in names:
            raise InputError(
                f"unknown sweep {path}{nearest(str(path), names)}; a .toml file, or one of: {', '.join(names)}"
            )
        path = models_folder() / "sweeps" / f"{path}.toml"
    file = read_toml(SweepFile, path)
    return Sweep(_points(file.grid, path), file.seeds, file.asha, path)


def _points(grids: Sequence[Mapping[str, Any]], path: Path) -> list[dict[str, Any]]:
    """Return the points of some grids without repetitions.

    Raises:
        DataError: if there are too many of them.
        InputError: if one has a method of a file.
    """
    columns = [list(map(_as_list, grid.values())) for grid in grids]
    count = sum(math.prod(map(len, values)) for values in columns)
    if count > MOST_POINTS:
        raise DataError(path, f"its grids have {count:,} points; a sweep may have {MOST_POINTS:,}")
    points: dict[str, dict[str, Any]] = {}
    for grid, values in zip(grids, columns, strict=True):
        for combination in itertools.product(*values):
            point = dict(zip(grid, combination, strict=True))
            points[json.dumps(point, sort_keys=True, default=str)] = point
    for point in points.values():
        refuse_file(point.get("method"), path)
        refuse_file(point.get("after"), path)
    return list(points.values())


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep, before it starts."""

    name: str
    """The name of the folder of the run."""
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
    locked: list[str] = field(default_factory=list)
    """The names of runs that another process is running."""


def check_sweep_folder(request: TrainRequest, results: Path) -> None:
    """Refuse a folder or a file of results that a sweep must not write to.

    Raises:
        InputError: if the folder exists without ``--resume`` or ``--overwrite`` or holds a single run, or if the file
            of results cannot be written or holds something else.
    """
    if is_first():
        empty = request.output.is_dir() and not any(request.output.iterdir())
        check_output(request.output, overwrite=request.log.overwrite or empty, resume=request.log.resume, folder=True)
        if (request.output / IDENTITY_FILE).exists():
            raise InputError(f"{request.output} is the folder of one run, not of several; choose another -o")
        check_output(results, resume=True)
        read_results(results)


def plan(request: TrainRequest, points: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[SweepRun]:
    """Return the runs, all points with the first seed and then with the next, so that early results compare.

    Raises:
        InputError: if a run cannot start; what is wrong is said now, not after hours.
    """
    sweep_runs: dict[str, SweepRun] = {}
    seed_settings = [{"seed": seed} for seed in seeds] or [{}]
    for seed_setting in seed_settings:
        for point in points:
            settings = {**point, **seed_setting}
            name = _name(settings)
            if name in sweep_runs:  # it has no characters that tell the two apart
                name += f"-{_short_hash(repr(settings))}"
            try:
                run_request = request_at(request, settings, request.output / name)
                read_model(run_request.model, ModelOptions(), pairs=True)
            except SentcliError as error:
                raise InputError(f"{name}: {error}") from error
            sweep_runs[name] = SweepRun(name, dict(point), run_request)
    return list(sweep_runs.values())


def _name(settings: Mapping[str, Any]) -> str:
    """Return the name of a run's folder, which may have 255 bytes."""
    text = ",".join(f"{key}={value}" for key, value in settings.items())
    name = re.sub(r"[^\w=,.+-]", "_", text) or "run"
    if len(name) > 200:
        name = f"{name[:191]}-{_short_hash(text)}"
    return name


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def request_at(request: TrainRequest, settings: Mapping[str, Any], output: Path) -> TrainRequest:
    """Return the request of one run, given the settings of its point of the sweep.

    Raises:
        InputError: for a setting that does not exist or a value that is not allowed.
    """
    recipe = request.recipe
    if "recipe" in settings:
        recipe = load_recipe(str(settings["recipe"]))
        settings = {**_of_recipe(recipe, request.pooling), **settings}
    of_request: dict[str, Any] = {key: str(settings[key]) for key in OF_REQUEST if key in settings}
    of_data: dict[str, Any] = {key: settings[key] for key in OF_DATA if key in settings}
    for key, value in of_data.items():
        if key not in NUMBERS:
            of_data[key] = str(value)
        elif value != "seed":
            check(key, value, NUMBERS[key])
    is_drawn_by_seed = of_data.get("subset_seed") == "seed"
    if is_drawn_by_seed:
        of_data["subset_seed"] = None
    others = (*OF_REQUEST, *OF_DATA, "recipe")
    assignments = [(key, value) for key, value in settings.items() if key not in others]
    run_request = replace(
        request,
        **of_request,
        output=output,
        data=replace(request.data, **of_data),
        recipe=recipe,
        log=replace(request.log, resume=request.log.resume or not request.log.overwrite),
        assignments=[*request.assignments, *assignments],
    )
    seed = run_request.configured().settings.seed
    if is_drawn_by_seed:
        run_request = replace(run_request, data=replace(run_request.data, subset_seed=seed))
    run_request.subset(seed)  # raises an error if it is out of bounds
    return run_request


def _of_recipe(recipe: Recipe, pooling: str) -> dict[str, str]:
    """Return what a recipe says of the request, with the value of ``--pooling``, which takes precedence."""
    options = {"method": recipe.method, "model": recipe.model, "stage": recipe.stage}
    if pooling == AUTO:
        options["pooling"] = recipe.pooling
    return {key: value for key, value in options.items() if value is not None}


def run_digest(identity: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a run's identity; see `Prepared.identity`, of which defaults are left out."""
    return json_digest(finite(dict(identity)))


class StartObserver(Protocol):
    """Is told which runs start."""

    def starts(self, run: SweepRun, prepared: Prepared) -> Observer | None:
        """Is called before a run, and returns the observer of its steps."""


class SweepObserver(StartObserver, Protocol):
    """Is told which runs of a sweep start, are skipped and fail."""

    def logged(self, run: SweepRun, line: Mapping[str, Any]) -> None:
        """Is called for each new line in the metrics of a run that another process makes."""

    def finished(self, run: SweepRun, record: Mapping[str, Any]) -> None:
        """Is called after a run that another process has made, with its record."""

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
    for number, run in enumerate(planned):
        if number:
            gc.collect()  # the model of the previous run is part of a reference cycle
        try:
            record, is_new = make_record(run, agree(read_results(results)), observer)
            if is_new:
                append_record(results, record)
            else:
                observer.skipped(run)
        except SentcliError as error:
            keep_error(run, error, outcome, observer, is_first=outcome == SweepResult())
        else:
            outcome.records.append({**record, "run": run.name, "point": run.point})  # another sweep may have run it
    return outcome


def keep_error(
    run: SweepRun, error: SentcliError, outcome: SweepResult, observer: SweepObserver, *, is_first: bool
) -> None:
    """Keep the error of a run in the outcome, and tell the observer.

    Raises:
        InputError: if it is the error of the first run, which is most likely that of all, and is seen at once.
    """
    if isinstance(error, LockedError):
        outcome.locked.append(run.name)
        return
    if isinstance(error, InputError) and is_first:
        raise error
    outcome.failed[run.name] = str(error)
    observer.failed(run, str(error))


def make_record(run: SweepRun, records: Mapping[str, Any], observer: StartObserver) -> tuple[dict[str, Any], bool]:
    """Make a run, unless it has a record.

    Args:
        run: the run.
        records: those of the finished runs, by digest.
        observer: makes the observer of each training.

    Returns:
        The record, and whether it is new.
    """
    request = run.request
    first = runs.first_stage(request)
    if first is not None:
        runs.run(first, observer.starts(run, first))
        request = runs.after_first_stage(request, first)
    prepared = prepare(request)
    key = run_digest(prepared.identity(changed_only=True))
    starts_anew = request.log.overwrite and not request.log.resume
    if key in records and not starts_anew and not prepared.inputs.lacks_scores(records[key]["results"]):
        return records[key], False
    result = runs.run(prepared, observer.starts(run, prepared))
    settings = prepared.method.settings
    device = prepared.encoder.backend.device
    record = {
        "run": run.name,
        "point": run.point,
        "seed": settings.seed,
        "method": prepared.method.name,
        "model": run.request.model,
        "digest": key,
        "identity": prepared.identity(),
        "results": result.to_dict(),
        "environment": environment(device, settings.precision, settings.seed, prepared.revision),
    }
    return finite(record), True
