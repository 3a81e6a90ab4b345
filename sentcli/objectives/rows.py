"""Split a batch into parts whose rows have similar lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

CPU_ROWS = 32
"""How many rows a CPU encodes at a time, so that activations stay in its cache and there is little padding."""


def by_length(batch: Mapping[str, Tensor], size: int | None = None) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Yield the numbers ``[P]`` and the tensors of rows of similar length, the longest first.

    Args:
        batch: tensors ``[B, T]``, padded at the end, with an ``attention_mask`` that is 1 for real tokens.
        size: the number of rows in a part; None takes all. On a CPU it is at most `CPU_ROWS`.
    """
    mask = batch["attention_mask"]
    size = size or len(mask)
    size = min(size, CPU_ROWS) if mask.device.type == "cpu" else size
    lengths = mask.sum(dim=1)
    for rows in torch.split(lengths.argsort(descending=True, stable=True), size):
        longest = int(lengths[rows].max())
        yield rows, {name: values[rows, :longest] for name, values in batch.items()}
