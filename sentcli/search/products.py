"""The best rows of each query by inner products, for rows that come block by block, at the rate of matrix products.

A product of a group of queries with some thousand rows stays in the processor's cache. Of it only the numbers above the
query's k-th best so far are looked at, which are few after the first rows; they are gathered until there are enough to
choose the best again. Groups of queries are worked on in threads, each of which runs its products alone, so that
choosing is as parallel as multiplying.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]
GROUP = 512
"""The most queries of a group."""
LEAST_GROUP = 64
"""The fewest queries of a group in a thread of its own; the products of fewer are threaded by the BLAS."""
TILE = 2**21
"""About how many products a group has at a time: 8 MiB."""
LEAST_ROWS, MOST_ROWS = 2048, 131_072
"""The bounds of the rows of a product."""
WAITING = 0.5
"""How many numbers for each of the `k` best are gathered before the best ones are chosen again."""


class BestRows:
    """The rows with the largest inner products with each query.

    Args:
        queries: ``[queries, dim]``.
        k: how many rows.
    """

    def __init__(self, queries: Floats, k: int) -> None:
        threads, count = _threads(), max(len(queries), 1)
        groups = max(min(threads, count // LEAST_GROUP), 1)
        size = min(GROUP, -(-count // groups))
        self.threads = threads if groups > 1 else 1
        self.groups = [_Group(queries[start : start + size], k) for start in range(0, count, size)]

    def add(self, rows: Floats, first: int) -> None:
        """Compare further rows ``[n, dim]``, the first of which has this position; no earlier call had a later one."""
        if self.threads == 1 or not len(rows):
            for group in self.groups:
                group.add(rows, first)
            return
        with _alone(), ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(lambda group: group.add(rows, first), self.groups))

    def best(self) -> tuple[Positions, Floats]:
        """Return positions and products of the best rows so far, both ``[queries, k]`` or with fewer rows.

        The best row is first; of equal ones the first row is.
        """
        positions, scores = zip(*(group.sorted() for group in self.groups), strict=True)
        return np.concatenate(positions), np.concatenate(scores)


class _Group:
    """Some queries and their best rows so far, in the order of the rows."""

    def __init__(self, queries: Floats, k: int) -> None:
        self.queries, self.k = queries, k
        self.scores = np.empty((len(queries), 0), np.float32)
        self.positions = np.empty((len(queries), 0), np.int64)
        self.least: Floats | None = None
        """The product of each query's k-th best row ``[queries, 1]``; None while there are fewer rows."""
        self.gathered: list[tuple[Positions, Positions, Floats]] = []
        """Query, position and product of rows that are better than the k-th best, by position."""
        self.waiting = 0
        size = min(max(TILE // max(len(queries), 1), LEAST_ROWS), MOST_ROWS)
        self.rows = max(size, min(2 * k, MOST_ROWS))
        self.seen = 0
        """How many rows have been compared."""
        self.products = np.empty((len(queries), 0), np.float32)
        self.above = np.empty((len(queries), 0), bool)

    def add(self, rows: Floats, first: int) -> None:
        """Compare further rows, few at first and then as many as before, so that most of them are below the best."""
        start = 0
        while start < len(rows):
            count = min(self.rows, max(LEAST_ROWS, 2 * self.k, self.seen))
            part = rows[start : start + count]
            self._add(part, first + start)
            start, self.seen = start + count, self.seen + len(part)

    def _add(self, rows: Floats, first: int) -> None:
        if self.products.shape[1] < len(rows):
            self.products = np.empty((len(self.queries), len(rows)), np.float32)
            self.above = np.empty(self.products.shape, bool)
        if self.products.shape[1] == len(rows):
            products, above = self.products, self.above
        else:
            products, above = np.empty((len(self.queries), len(rows)), np.float32), None
        np.matmul(self.queries, rows.T, out=products)
        if self.least is None:
            self._begin(products, first)
            return
        flat = np.flatnonzero(np.greater(products, self.least, out=above))
        if not len(flat):
            return
        query = flat // len(rows)
        column = flat - query * len(rows)
        self.gathered.append((query, column + first, products.ravel()[flat]))
        self.waiting += len(flat)
        if self.waiting > WAITING * self.k * len(self.queries):
            self._choose()

    def _begin(self, products: Floats, first: int) -> None:
        """Take the best of all products; what is no number is no product."""
        products = np.where(np.isnan(products), -np.inf, products)
        positions = np.broadcast_to(np.arange(first, first + products.shape[1]), products.shape)
        self.scores = np.concatenate([self.scores, products], axis=1)
        self.positions = np.concatenate([self.positions, positions], axis=1)
        self._keep()

    def _choose(self) -> None:
        """Choose the best again from them and what has been gathered."""
        query, position, product = (np.concatenate(parts) for parts in zip(*self.gathered, strict=True))
        # the positions of a query stay in order; 16 bits are sorted by their digits
        order = np.argsort(query.astype(np.uint16), kind="stable")
        query, position, product = query[order], position[order], product[order]
        counts = np.bincount(query, minlength=len(self.queries))
        column = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts) + self.scores.shape[1]
        width = (0, int(counts.max()))
        self.scores = np.pad(self.scores, ((0, 0), width), constant_values=-np.inf)
        self.positions = np.pad(self.positions, ((0, 0), width), constant_values=-1)
        self.scores[query, column], self.positions[query, column] = product, position
        self.gathered, self.waiting = [], 0
        self._keep()

    def _keep(self) -> None:
        """Keep the `k` best; of equal ones those that come first."""
        width = self.scores.shape[1]
        if width < self.k:
            return
        if width > self.k:
            least = np.partition(self.scores, width - self.k, axis=1)[:, width - self.k, None]
            is_best = self.scores > least
            is_last = self.scores == least
            lacking = self.k - is_best.sum(axis=1, keepdims=True)
            surplus = is_last.sum(axis=1, keepdims=True) > lacking
            is_best |= is_last
            for tied in np.flatnonzero(surplus):
                last = np.flatnonzero(is_last[tied])
                is_best[tied, last[lacking[tied, 0] :]] = False
            self.scores = self.scores[is_best].reshape(len(self.queries), self.k)
            self.positions = self.positions[is_best].reshape(len(self.queries), self.k)
        self.least = self.scores.min(axis=1, keepdims=True)

    def sorted(self) -> tuple[Positions, Floats]:
        """Return positions and products, the best first."""
        if self.gathered:
            self._choose()
        order = np.argsort(-self.scores, axis=1, kind="stable")
        return np.take_along_axis(self.positions, order, 1), np.take_along_axis(self.scores, order, 1)


def _threads() -> int:
    """Return how many threads products may take: those of NumPy's BLAS, which the user's environment sets."""
    return max((pool["num_threads"] for pool in _pools().info() if pool["user_api"] == "blas"), default=1)


@cache
def _pools() -> Any:
    """Return what sets the threads of the libraries of products that are loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def _alone() -> Iterator[None]:
    """Let each product inside take one thread."""
    with _pools().limit(limits=1, user_api="blas"):
        yield
