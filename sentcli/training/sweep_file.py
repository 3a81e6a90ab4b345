"""Sweep files: the points and the seeds whose combinations are the runs of a sweep."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, StrictInt, field_validator

from sentcli.errors import DataError, InputError, nearest
from sentcli.io.forms import read_toml
from sentcli.methods import refuse_file
from sentcli.zoo import models_folder

_MOST_POINTS = 100_000
OF_REQUEST = ("method", "model", "stage", "pooling", "after")
"""The keys of a sweep that stand for fields of `TrainRequest`."""
OF_DATA = ("text_of", "hold_out", "limit", "fraction", "subset_seed")
"""The keys of a sweep that stand for options of the data."""
NUMERIC_OPTIONS = {"limit": int, "fraction": float, "subset_seed": int}
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
    count = 0
    for grid in grids:
        count += math.prod(len(_as_list(value)) for value in grid.values())
    if count > _MOST_POINTS:
        raise DataError(path, f"its grids have {count:,} points; a sweep may have {_MOST_POINTS:,}")
    points: dict[str, dict[str, Any]] = {}
    for grid in grids:
        for combination in itertools.product(*map(_as_list, grid.values())):
            point = dict(zip(grid, combination, strict=True))
            content = json.dumps(point, sort_keys=True, default=str)
            points[content] = point
    for point in points.values():
        refuse_file(point.get("method"), path)
        refuse_file(point.get("after"), path)
    return list(points.values())
