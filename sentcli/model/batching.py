"""Which texts go into one forward pass.

Texts of one length packed to a token budget need nearly no padding, and a small budget keeps the activations in
cache: on two CPU cores 1,024 tokens a batch ran MiniLM 1.3 times as fast as 32 sentences a batch in file order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.intp]


def distinct(texts: Sequence[str]) -> tuple[list[str], Index]:
    """Return the distinct texts in order of first appearance, and for every text the position of its twin."""
    positions: dict[str, int] = {}
    where = np.fromiter((positions.setdefault(text, len(positions)) for text in texts), np.intp, len(texts))
    return list(positions), where


def longest_first(lengths: npt.NDArray[np.int64]) -> Index:
    """Order by length, longest first, ties in their given order (so that the result does not depend on the sort)."""
    return np.argsort(-lengths, kind="stable")


def pack(lengths: npt.NDArray[np.int64], budget: int) -> Iterator[Index]:
    """Cut the texts, longest first, into batches of at most `budget` tokens with padding.

    Args:
        lengths: tokens of each text ``[n]``.
        budget: rows times the longest row's length in a batch; one text that is longer is a batch by itself.

    Yields:
        Positions into `lengths`; every position is in exactly one batch.
    """
    order = longest_first(lengths)
    start = 0
    while start < len(order):
        width = max(int(lengths[order[start]]), 1)
        end = start + max(budget // width, 1)
        yield order[start:end]
        start = end
