"""The file of ``evaluate --draws``: the samples behind intervals and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

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
    names = []
    draws = []
    for of_model in scores:
        for task in of_model.tasks:
            for metric in task.shown_metrics:
                replicates = task.replicates_of(metric)
                if replicates is not None:
                    names.append((of_model.model, task.task, metric))
                    draws.append(replicates)
    models, tasks, metrics = np.array(names, np.str_).reshape(-1, 3).T
    with replacing(path) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, model=models, task=tasks, metric=metrics, draws=np.array(draws, np.float32))
