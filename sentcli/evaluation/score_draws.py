"""The file of ``evaluate --draws``: the samples behind intervals and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sentcli.errors import InputError
from sentcli.evaluation.scores import ModelScores
from sentcli.io.atomic import check_output, replacing


def check_draws_file(path: Path, *, overwrite: bool) -> None:
    """Check before the work that the samples can be written.

    Raises:
        InputError: if the file is no ``.npz``, exists, or cannot be made.
    """
    if path.suffix != ".npz":
        raise InputError(f"--draws {path}: the samples are written as .npz")
    check_output(path, overwrite=overwrite)


def write_draws(path: Path, scores: Sequence[ModelScores]) -> None:
    """Write the samples as arrays ``model``, ``task`` and ``metric`` ``[rows]``, and ``draws`` ``[rows, draws]``."""
    types: dict[str, Any] = {"model": np.str_, "task": np.str_, "metric": np.str_, "draws": np.float32}
    columns: dict[str, list[Any]] = {name: [] for name in types}
    for of_model in scores:
        for task in of_model.tasks:
            for metric in task.headline:
                samples = task.samples(metric)
                if samples is None:
                    continue
                for name, value in zip(columns, (of_model.model, task.task, metric, samples), strict=True):
                    columns[name].append(value)
    arrays: dict[str, Any] = {name: np.array(values, types[name]) for name, values in columns.items()}
    with replacing(path) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, **arrays)
