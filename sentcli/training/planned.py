"""The runs that ``train`` makes, given what a sweep file, seeds and the parts of the data vary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from sentcli.errors import InputError
from sentcli.evaluation.transfer_data import AVERAGED
from sentcli.training import sweep
from sentcli.training.inputs import EACH
from sentcli.training.options import DataOptions, SweepOptions
from sentcli.training.pairs import every_hold_out
from sentcli.training.request import TrainRequest
from sentcli.training.sweep import SweepRun
from sentcli.training.sweep_file import Sweep, read_sweep


def sweep_of(options: SweepOptions, data: DataOptions, files: Sequence[str]) -> Sweep:
    """Return what several runs vary; for a single run there are no points.

    Args:
        options: the grid and the seeds.
        data: of which ``--hold-out`` topics and 10-fold and ``--text-of`` each make several points.
        files: the data, whose topics are held out.

    Raises:
        InputError: if the seeds are no whole numbers, or one is repeated; as `read_sweep`.
    """
    varied = Sweep([], [])
    if options.sweep is not None:
        varied = read_sweep(options.sweep)
    points = varied.points
    seeds = varied.seeds
    if options.seeds is not None:
        try:
            seeds = [int(seed) for seed in options.seeds.split(",")]
        except ValueError as error:
            raise InputError(f"--seeds {options.seeds}: expected whole numbers, such as 48,49,50") from error
        if len(set(seeds)) < len(seeds):
            raise InputError(f"--seeds {options.seeds}: a seed stands twice")
        points = points or [{}]
    if data.hold_out:
        points = _each(points, "hold_out", every_hold_out(data.hold_out, files))
    if data.text_of == EACH:
        points = _each(points, "text_of", list(AVERAGED))
    return replace(varied, points=points, seeds=seeds)


def _each(points: Sequence[dict[str, Any]], key: str, parts: Sequence[str]) -> list[dict[str, Any]]:
    """Return every point with each of several parts of the data; a single part makes no sweep."""
    if len(parts) < 2:
        return list(points)
    return [{**point, key: part} for point, part in product(points or [{}], parts)]


def planned_runs(request: TrainRequest, varied: Sweep) -> list[SweepRun]:
    """Return the runs of a sweep, each of which has been checked as far as it can be before it starts."""
    try:
        return sweep.plan(request, varied.points, varied.seeds)
    except InputError as error:
        place = f"{varied.file}: " if varied.file else ""
        raise InputError(f"{place}{error}") from error
