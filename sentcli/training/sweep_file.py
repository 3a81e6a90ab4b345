"""The file of ``train --sweep``.

A sweep file is TOML. Every ``[[grid]]`` gives the combinations of its lists; keys are the settings of ``--set`` and the
options method, model, recipe, stage, pooling, text_of, hold_out, after, limit, fraction and subset_seed:

    seeds = [42, 43]
    [[grid]]
    method = ["simcse", "micse"]
    [[grid]]
    method = "is-bert"
    learning_rate = [1e-5, 1e-4]

    [asha]
    grace_period = 100

Options of the command line hold for all runs, and the grid takes precedence over them. ``subset_seed = "seed"`` draws
the sentences of each run by the seed of its training. `Asha` says what the last table means.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, StrictInt, field_validator

from sentcli.errors import DataError
from sentcli.io.forms import read_toml
from sentcli.methods import refuse_file

MOST_POINTS = 100_000


class Asha(BaseModel, extra="forbid", frozen=True):
    """When runs that are behind end early: asynchronous successive halving (Li et al., MLSys 2020, algorithm 2)."""

    grace_period: StrictInt = Field(ge=1)
    """The first step at which runs are compared, by their score on the dev set."""
    reduction_factor: float = Field(default=4, gt=1)
    """They are compared again after this many times as many steps, and each time one in this many goes on."""


@dataclass(frozen=True)
class Sweep:
    """What makes several runs."""

    points: list[dict[str, Any]]
    """The values that vary, for each run of a seed; a single run has no points."""
    seeds: list[int]
    asha: Asha | None = None
    file: Path | None = None
    """Where they are written, if not on the command line."""


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
        if not isinstance(grids, list) or not grids or not all(isinstance(grid, dict) and grid for grid in grids):
            raise ValueError("it needs [[grid]] tables with settings in them")
        for key, value in (pair for grid in grids for pair in grid.items()):
            if isinstance(value, dict):
                raise ValueError(f'write "{key}.{next(iter(value), "")}" = ... with the quotes')
            if value == []:
                raise ValueError(f"{key}: an empty list leaves nothing to run")
        return grids


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file; equal points of its grids become one.

    Raises:
        DataError: if it is no such file, or its grids have too many points.
    """
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
    return Sweep(list(points.values()), file.seeds, file.asha, path)
