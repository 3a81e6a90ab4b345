"""Decide which texts go into one forward pass.

Texts of similar length that are packed to a token budget need nearly no padding, and a small budget keeps the
activations in the cache: on two CPU cores, 1,024 tokens a batch ran MiniLM 1.3 times as fast as 32 sentences a batch in
file order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.intp]
Item = TypeVar("Item")
Result = TypeVar("Result")


def distinct(texts: Sequence[str]) -> tuple[list[str], Index]:
    """Return the distinct texts in order of first appearance, and the position of every text among them."""
    positions: dict[str, int] = {}
    index = np.fromiter((positions.setdefault(text, len(positions)) for text in texts), np.intp, len(texts))
    return list(positions), index


def one_ahead(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield `work(item)` of each item in order; a second thread computes the next one while the caller uses one."""
    with ThreadPoolExecutor(1, thread_name_prefix="tokenise") as pool:
        ahead = [pool.submit(work, item) for item in items[:1]]
        for i in range(len(items)):
            result = ahead.pop().result()
            ahead += [pool.submit(work, item) for item in items[i + 1 : i + 2]]
            yield result


def longest_first(lengths: npt.NDArray[np.int64]) -> Index:
    """Return the order by falling length; equal lengths stay in their given order."""
    return np.argsort(-lengths, kind="stable")


def pack(lengths: npt.NDArray[np.int64], budget: int) -> Iterator[Index]:
    """Cut the texts, longest first, into batches of at most `budget` tokens with padding.

    Args:
        lengths: the number of tokens of each text ``[n]``.
        budget: the most tokens of a batch, padding included; a longer text is a batch by itself.

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
