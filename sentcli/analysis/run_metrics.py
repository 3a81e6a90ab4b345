"""What a training run logged: ``metrics.jsonl`` of its folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli.errors import DataError, InputError

METRICS, CONFIG, RUN = "metrics.jsonl", "sentcli.json", "run.json"
"""As in `training.run_folder`, which needs torch."""


@dataclass(frozen=True)
class RunMetrics:
    """The lines of one run, in order."""

    name: str
    steps: tuple[dict[str, Any], ...]
    """Of optimiser steps."""
    evaluations: tuple[dict[str, Any], ...]
    """Of the dev set, and of held-out text."""

    def column(self, key: str, lines: tuple[dict[str, Any], ...] | None = None) -> tuple[list[int], list[float]]:
        """Return the steps and values of the evaluations (or other lines) that have a number under a key."""
        chosen = self.evaluations if lines is None else lines
        points = [(line["step"], line[key]) for line in chosen if isinstance(line.get(key), int | float)]
        return [step for step, _ in points], [value for _, value in points]


def is_run(path: Path) -> bool:
    """Say whether a folder is that of a training run, finished or not."""
    return (path / METRICS).is_file() or (path / RUN).is_file()


def read_metrics(folder: Path) -> RunMetrics:
    """Read what a run logged; a line that was torn at the end is left out.

    Raises:
        InputError: if the folder has no metrics, or they are empty; DataError for a line that is no record.
    """
    path = folder / METRICS
    try:
        lines = path.read_text("utf-8").split("\n")
    except OSError as error:
        raise InputError(f"{folder} has no {METRICS}: it is not the folder of a training run") from error
    except UnicodeDecodeError as error:
        raise DataError(path, "not UTF-8 text") from error
    records = []
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                records.append(_record(line))
        except ValueError as error:
            if number == len(lines):
                break
            raise DataError(path, f"not a line of a training run: {error}", line=number) from error
    if not records:
        raise InputError(f"{path} is empty: the run has not made a step")
    steps, evaluations = (tuple(r for r in records if ("loss" in r) is step) for step in (True, False))
    return RunMetrics(folder.name or str(folder), steps, evaluations)


def _record(line: str) -> dict[str, Any]:
    record = json.loads(line)
    if not isinstance(record, dict) or type(record.get("step")) is not int:
        raise ValueError("it has no step")
    return record


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a finished run; empty if the run has not finished.

    Raises:
        DataError: if it is no JSON object.
    """
    path = folder / CONFIG
    if not path.exists():
        return {}
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DataError(path, "not valid JSON") from error
    if not isinstance(config, dict):
        raise DataError(path, "not a JSON object")
    return config
