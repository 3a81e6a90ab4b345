"""Whether a model's vectors depend on the padding of their batch, which is tried when it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from sentcli.arrays import Int64Array, Vectors
from sentcli.model.encoding import Batches

TRIED_LENGTHS = (5, 12)
"""The lengths of two texts in tokens, of which the shorter is run alone and with padding."""
PADDING_DRIFT: Final = {"fp32": 1e-3, "bf16": 0.1, "fp16": 0.02}
"""By how much of its largest component padding may move a vector by rounding alone."""
PADDING_COUNTS = ("nystromformer", "yoso", "mra", "reformer", "fnet")
"""Architectures whose vectors depend on padding, some of them in long texts only."""
_RunGraph = Callable[[dict[str, Int64Array], int], Vectors]


def try_padding(run: _RunGraph, kind: str, precision: str) -> tuple[int, Batches]:
    """Return the dimension of a model's vectors, and which texts may be run together.

    Args:
        run: makes vectors of a batch, without a prompt.
        kind: the ``model_type`` of its config.json.
        precision: in which it computes.
    """
    shorter, longer = TRIED_LENGTHS
    ids = np.ones((2, longer), np.int64)
    alone = ids[:1, :shorter]
    vector = run({"input_ids": alone, "attention_mask": np.ones_like(alone)}, 0)
    mask = np.ones_like(ids)
    mask[0, shorter:] = 0
    padded = run({"input_ids": ids, "attention_mask": mask}, 0)
    drift = float(np.abs(padded[0] - vector[0]).max())
    largest = float(np.abs(vector).max())
    batches: Batches = "padded"
    if drift > PADDING_DRIFT[precision] * largest or kind in PADDING_COUNTS:
        batches = "one length"
    return vector.shape[1], batches
