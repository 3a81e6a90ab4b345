"""A sweep: several runs over seeds, subsets and grids of any setting, resumable.

``results.jsonl`` gets a line for each finished run, and a run that has a line there is not run again, whether or not
its folder still exists.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sentcli.bounds import check_value
from sentcli.encoder.loading import read_model
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import check_output
from sentcli.io.digests import json_digest
from sentcli.io.forms import finite
from sentcli.machine import environment
from sentcli.methods.recipes import load_recipe
from sentcli.model.options import ModelOptions
from sentcli.processes import agree, is_first
from sentcli.training import run as runs
from sentcli.training.observer import Observer
from sentcli.training.prepare import Prepared, prepare
from sentcli.training.records import IDENTITY_FILE, append_record, read_results
from sentcli.training.request import AUTO, TrainRequest
from sentcli.training.run_folder import LockedError
from sentcli.training.sweep_file import NUMERIC_OPTIONS, OF_DATA, OF_REQUEST

if TYPE_CHECKING:
    from sentcli.methods.recipes import Recipe


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
        if request.output.is_dir() and not (empty or request.log.overwrite or request.log.resume):
            raise InputError(
                f"{request.output} exists; --resume makes the runs that it lacks, --overwrite all of them anew; or "
                "choose another -o"
            )
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
    for seed_setting, point in itertools.product(seed_settings, points):
        settings = {**point, **seed_setting}
        name = _name(settings)
        while name in sweep_runs:  # it has no characters that tell the two apart, or a short hash that is the same
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
    of_request: dict[str, Any] = {}
    of_data: dict[str, Any] = {}
    assignments = list(request.assignments)
    for key, value in settings.items():
        if key in OF_REQUEST:
            of_request[key] = str(value)
        elif key in NUMERIC_OPTIONS:
            of_data[key] = value
            if value != "seed":
                check_value(key, value, NUMERIC_OPTIONS[key])
        elif key in OF_DATA:
            of_data[key] = str(value)
        elif key != "recipe":
            assignments.append((key, value))
    is_drawn_by_seed = of_data.get("subset_seed") == "seed"
    if is_drawn_by_seed:
        of_data["subset_seed"] = None
    run_request = replace(
        request,
        **of_request,
        output=output,
        data=replace(request.data, **of_data),
        recipe=recipe,
        log=replace(request.log, resume=request.log.resume or not request.log.overwrite),
        assignments=assignments,
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
    if first is not None:
        record["after"] = first.method.name
    return finite(record), True
