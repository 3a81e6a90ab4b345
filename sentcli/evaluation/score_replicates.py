"""The file of ``evaluate --draws``: the samples behind intervals and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sentcli.arrays import Float64Array
from sentcli.errors import InputError
from sentcli.evaluation.scores import ModelScores
from sentcli.io.atomic import check_output, replacing


def check_replicates_file(path: Path, *, overwrite: bool) -> None:
    """Check before the work that the samples can be written.

    Raises:
        InputError: if the file is no ``.npz``, exists, or cannot be made.
    """
    if path.suffix != ".npz":
        raise InputError(f"--draws {path}: the samples are written as .npz")
    check_output(path, overwrite=overwrite)


def write_replicates(path: Path, scores: Sequence[ModelScores]) -> None:
    """Write arrays ``model``, ``task`` and ``metric`` ``[rows]``, and ``draws``, the samples ``[rows, resamples]``."""
    models: list[str] = []
    tasks: list[str] = []
    metrics: list[str] = []
    rows: list[Float64Array] = []
    for of_model in scores:
        for task in of_model.tasks:
            for metric in task.shown_metrics:
                replicates = task.replicates_of(metric)
                if replicates is None:
                    continue
                models.append(of_model.model)
                tasks.append(task.task)
                metrics.append(metric)
                rows.append(replicates)
    with replacing(path) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(
            handle,
            model=np.array(models, np.str_),
            task=np.array(tasks, np.str_),
            metric=np.array(metrics, np.str_),
            draws=np.array(rows, np.float32),
        )
