"""Rows of a batch in parts of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

CPU_ROWS = 32
"""Rows that a CPU encodes at a time: what a layer makes of them stays in its cache, and little is padded."""


def by_length(batch: Mapping[str, Tensor], size: int | None = None) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Yield rows of similar length together, the longest first: their numbers ``[P]``, and what they hold.

    Args:
        batch: each ``[B, T]``, with an ``attention_mask`` that is 1 for real tokens, padded at the end.
        size: rows of a part; None takes all. A CPU never gets more than `CPU_ROWS`.
    """
    mask = batch["attention_mask"]
    size = size or len(mask)
    size = min(size, CPU_ROWS) if mask.device.type == "cpu" else size
    lengths = mask.sum(dim=1)
    for rows in torch.split(lengths.argsort(descending=True, stable=True), size):
        longest = int(lengths[rows].max())
        yield rows, {name: values[rows, :longest] for name, values in batch.items()}
