"""The files of a training run: the log (``metrics.jsonl``) and the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from sentcli.errors import InputError
from sentcli.io.atomic import regular
from sentcli.io.forms import Plain, checked, read_json
from sentcli.training.records import CONFIG_FILE, IDENTITY_FILE, METRICS_FILE, parsed


@dataclass(frozen=True)
class RunMetrics:
    """The lines of the log of one run, in order."""

    name: str
    steps: tuple[dict[str, Any], ...]
    """Lines of optimiser steps."""
    evaluations: tuple[dict[str, Any], ...]
    """Lines of evaluations on the dev set and on held-out text."""

    def column(self, key: str, lines: tuple[dict[str, Any], ...] | None = None) -> tuple[list[int], list[float]]:
        """Return the steps and the values of a key, of those evaluations (or other lines) that have a number for it."""
        if lines is None:
            lines = self.evaluations
        steps = []
        values = []
        for line in lines:
            value = line.get(key)
            if isinstance(value, int | float):
                steps.append(line["step"])
                values.append(value)
        return steps, values


def is_run(path: Path) -> bool:
    """Tell whether a folder is that of a training run, finished or not."""
    return (path / METRICS_FILE).is_file() or (path / IDENTITY_FILE).is_file()


def read_metrics(folder: Path) -> RunMetrics:
    """Read the log of a run; an incomplete last line is ignored.

    Raises:
        InputError: if the folder has no log, or it is empty; DataError for a damaged line.
    """
    path = folder / METRICS_FILE
    try:
        regular(path)
        records = parsed(path.read_bytes(), path)
    except OSError as error:
        raise InputError(f"{folder} has no {METRICS_FILE}: it is not the folder of a training run") from error
    if not records:
        raise InputError(f"{path} is empty: the run has not made a step")
    steps = []
    evaluations = []
    for line in records:
        if "loss" in line:
            steps.append(line)
        else:
            evaluations.append(line)
    return RunMetrics(folder.name or str(folder), tuple(steps), tuple(evaluations))


class RunMethod(BaseModel):
    """The part of the identity of an unfinished run that is read."""

    method: dict[str, Plain] = {}


class RunConfig(RunMethod):
    """The parts of the configuration of a run that are read; each is a table of values by name."""

    settings: dict[str, Plain] = {}
    results: dict[str, Plain] = {}
    start_model: dict[str, Plain] = {}
    encoder: dict[str, Plain] = {}
    environment: dict[str, Plain] = {}
    data: list[dict[str, Plain]] = []


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a finished run; empty if the run has not finished.

    Raises:
        InputError: if it is no JSON, or of another form.
    """
    path = folder / CONFIG_FILE
    config = read_json(path, default={})
    checked(RunConfig, config, path)
    return dict(config)


def thinned(
    steps: tuple[int, ...], values: tuple[float, ...], most: int = 300
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the points of a curve with at most `most` points, each the mean of adjacent steps, at the last of them."""
    passed = 0
    last_steps = []
    means = []
    for part in np.array_split(np.array(values), min(most, len(steps))):
        means.append(float(np.mean(part)))
        passed += len(part)
        last_steps.append(steps[passed - 1])
    return tuple(last_steps), tuple(means)
