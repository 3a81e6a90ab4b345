"""The best rows of each query by inner products, for rows that come block by block, at the rate of matrix products.

A product of a group of queries with some thousand rows stays in the processor's cache. Of it only the numbers above a
bound are looked at: the query's k-th best so far or, at first, what the k-th best is likely to exceed by a sample of
the rows. Each thread looks at rows of its own, so that choosing is as parallel as multiplying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from sentcli.arrays import AnyArray, Float32Array, Int64Array
from sentcli.search.neighbours import Neighbours

Task = TypeVar("Task")
Done = TypeVar("Done")
Prepare = Callable[[AnyArray], Float32Array]
GROUP = 512
"""The most queries of a group."""
FEW = 2**20
"""Fewer products than these are left to the threads of the BLAS, and no rows are drawn for a first bound."""
TILE = 2**22
"""About how many products a thread has at a time: 16 MiB."""
LEAST_ROWS = 2048
"""The least rows of a product."""
CACHED = 2**20
"""The most numbers of the rows of a product, 4 MiB: they stay in the processor's cache from the look at their lengths
to the product, which is what a search for one query consists of."""
NARROW = 32
"""So many queries or fewer stand on the right of a product: a BLAS then copies them and not the rows for its kernel."""
A_THREAD = 2**22
"""Fewer numbers than these are not worth another thread, however few the queries are."""
SAMPLED = 64
"""One of so many rows is drawn for the sample that gives the first bound."""
SURE = 4.0
"""How many standard deviations the first bound lies below the k-th best product that the sample lets expect."""
UNIT_ERROR = 4e-6
"""How far the squared length of a vector of float32 may be from 1 to count as 1, so that products are cosines."""
SPACE = 2
"""How many times `k` products above the bound are gathered for a query before the best ones are chosen."""


def _as_they_are(rows: Float32Array) -> Float32Array:
    """Return rows that are prepared."""
    return rows


class BestRows:
    """The rows with the largest inner products with each query.

    Args:
        queries: ``[queries, dim]``.
        k: how many rows.
        prepare: makes of rows ``[n, dim]`` those whose inner products are the similarity.
    """

    def __init__(self, queries: Float32Array, k: int, prepare: Prepare = _as_they_are) -> None:
        self.count = len(queries)
        self.prepare = prepare
        groups = max(-(-self.count // GROUP), 1)
        self.groups = [_Group(part, k) for part in np.array_split(queries, groups)]

    def add(self, rows: AnyArray, first: int) -> None:
        """Compare further rows ``[n, dim]``, the first of which has this position; no earlier call had a later one."""
        if not len(rows):
            return
        tiles = _PreparedRows(rows, self.prepare)
        if len(self.groups) > 1:
            tiles = _PreparedRows(self.prepare(rows), _as_they_are)
        threads = min(_threads(), max(2 * self.count * len(rows) // FEW, rows.size // A_THREAD, 1))
        with _workers(threads) as workers:
            if len(self.groups) > 1 and len(self.groups) % threads == 0:
                alone = _Workers(1, map)
                workers.each(lambda group: group.add(tiles, first, alone), self.groups)
                return
            for group in self.groups:
                group.add(tiles, first, workers)

    def best(self) -> Neighbours:
        """Return the best rows so far, `k` for each query or fewer; of equal ones the first row is first."""
        with _workers(min(_threads(), len(self.groups))) as workers:
            return Neighbours.concatenated(workers.each(lambda group: group.best.best_first(), self.groups))


@dataclass(frozen=True)
class _PreparedRows:
    """Rows ``[n, dim]`` that are prepared some at a time, when they are multiplied."""

    given: AnyArray
    prepare: Prepare

    def __len__(self) -> int:
        return len(self.given)

    def __getitem__(self, chosen: slice | Int64Array) -> Float32Array:
        return self.prepare(self.given[chosen])


class _Group:
    """Some queries and their best rows so far."""

    def __init__(self, queries: Float32Array, k: int, *, samples: bool = True) -> None:
        self.queries = queries
        self.k = k
        self.samples = samples
        self.best = Neighbours.none(len(queries))

    def add(self, rows: _PreparedRows, first: int, workers: _Workers) -> None:
        """Compare further rows."""
        before = self.best
        slices = workers.shares(len(rows))
        least, is_sure = self._least(rows, slices, workers)

        def look(part: slice) -> _Gathered:
            gathered = _Gathered(self.queries, self.k, least, workers.count)
            gathered.look(rows, part, first)
            return gathered

        parts = [before]
        counts = np.zeros(len(self.queries), np.int64)
        for gathered in workers.each(look, slices):
            parts.append(gathered.best())
            counts += gathered.filled
        self._choose(parts, workers)
        if is_sure:
            return
        lacking = np.flatnonzero(counts < self.k)
        if not len(lacking):
            return
        again = _Group(self.queries[lacking], self.k, samples=False)
        again.best = before.of_queries(lacking)
        again.add(rows, first, workers)
        if len(lacking) == len(self.queries):
            self.best = again.best  # what was found above the bounds may be narrower than `k`
        else:
            self.best.overwrite(lacking, again.best)

    def _least(self, rows: _PreparedRows, slices: list[slice], workers: _Workers) -> tuple[Float32Array | None, bool]:
        """Return a bound for each query ``[queries]`` above which the best of the rows lie, and whether that is sure.

        It is the k-th best product so far, or by a sample so low that some more than `k` products are likely above it.
        """
        if self.best.scores.shape[1] == self.k:
            return self.best.scores.min(axis=1), True
        expected = self.k / SAMPLED
        rank = int(np.ceil(expected + SURE * np.sqrt(expected) + 1))
        products_of_all = len(rows) * len(self.queries)
        if not self.samples or len(rows) < 2 * SAMPLED * rank or products_of_all < FEW:
            return None, True

        def sampled(part: slice) -> Float32Array:
            starts = np.arange(part.start, part.stop - SAMPLED, SAMPLED)
            random = np.random.default_rng(part.start)
            drawn = starts + random.integers(0, SAMPLED, len(starts))
            products = self.queries @ rows[drawn].T
            products[np.isnan(products)] = -np.inf
            return _largest(products, rank)

        products: Float32Array = np.concatenate(workers.each(sampled, slices), axis=1)
        if products.shape[1] < rank:  # the shares of many threads have hardly a row to draw from
            return None, True
        least = _largest(products, rank).min(axis=1)
        return np.nextafter(least, np.float32(-np.inf)), False  # products equal to it are above the bound

    def _choose(self, parts: list[Neighbours], workers: _Workers) -> None:
        """Choose the best of several parts, each thread those of some queries."""

        def chosen(queries: slice) -> Neighbours:
            return _kept(Neighbours.side_by_side(part.of_queries(queries) for part in parts), self.k)

        self.best = Neighbours.concatenated(workers.each(chosen, workers.shares(len(self.queries))))


class _Gathered:
    """The products of some rows above a bound, in a table with places for each query that are filled from the left.

    Args:
        queries: ``[queries, dim]``.
        k: how many rows are wanted.
        least: the bound of each query ``[queries]``; None for none.
        threads: how many threads share the rows.
    """

    def __init__(self, queries: Float32Array, k: int, least: Float32Array | None, threads: int) -> None:
        self.queries = queries
        self.k = k
        self.least = least
        width = 0 if least is None else 64 + SPACE * k // threads
        self.table = self._empty(width)
        self.filled = np.zeros(len(queries), np.int64)
        """How many places are filled ``[queries]``."""

    def _empty(self, width: int) -> Neighbours:
        shape = len(self.queries), width
        return Neighbours(np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32))

    def best(self) -> Neighbours:
        """Return what was gathered; where a query has fewer rows than others, position -1 and -inf are at the end."""
        if not len(self.filled):
            return self.table
        width = int(self.filled.max())
        return Neighbours(self.table.positions[:, :width], self.table.scores[:, :width])

    def look(self, rows: _PreparedRows, share: slice, first: int) -> None:
        """Compare some of the rows, of which without a bound few come at first and then as many as before.

        Args:
            rows: all of them.
            share: those that are compared.
            first: the position of the first of all rows.
        """
        queries, dimension = self.queries.shape
        few = max(LEAST_ROWS, 2 * self.k)
        size = min(TILE // max(queries, 1), CACHED // max(dimension, 1))
        size = min(max(size, few), share.stop - share.start)
        products = np.empty(queries * size, np.float32)
        above = np.empty(products.shape, bool)
        is_sampled = self.least is not None
        start = share.start
        while start < share.stop:
            count = size if is_sampled else min(size, max(few, start - share.start))
            part = rows[start : min(start + count, share.stop)]
            shape = queries, len(part)
            used = queries * len(part)
            product = products[:used].reshape(shape)
            _multiply(self.queries, part, product)
            if self.least is None:
                self._take_all(product, first + start)
            else:
                is_above = np.greater(product, self.least[:, None], out=above[:used].reshape(shape))
                self._take(np.flatnonzero(is_above), product, first + start)
            start += len(part)

    def _take_all(self, products: Float32Array, first: int) -> None:
        """Take all rows; what is no number is no product."""
        positions = np.broadcast_to(np.arange(first, first + products.shape[1]), products.shape)
        further = Neighbours(positions, np.where(np.isnan(products), -np.inf, products))
        self._choose(Neighbours.side_by_side([self.table, further]))

    def _choose(self, rows: Neighbours) -> None:
        """Keep the best rows; the worst of `k` is the bound of the next ones."""
        self.table = _kept(rows, self.k)
        width = self.table.scores.shape[1]
        if self.least is None:
            self.filled[:] = width
        else:
            self.filled = np.minimum(self.filled, width)
        if width == self.k:
            worst = self.table.scores.min(axis=1)
            self.least = worst if self.least is None else np.maximum(worst, self.least)

    def _take(self, flat: Int64Array, products: Float32Array, first: int) -> None:
        """Take the rows above the bounds, which stand at these places of the flattened products."""
        if not len(flat):
            return
        rows = products.shape[1]
        queries = np.arange(len(self.queries) + 1)
        starts = np.searchsorted(flat, queries * rows)
        counts = np.diff(starts)
        self._make_room(counts)
        queries = queries[:-1]
        width = self.table.scores.shape[1]
        shifts = queries * width + self.filled - starts[:-1]  # from the places in `flat` to those in the table
        place = np.repeat(shifts, counts) + np.arange(len(flat))
        self.table.scores.ravel()[place] = products.ravel()[flat]
        self.table.positions.ravel()[place] = flat + np.repeat(first - queries * rows, counts)
        self.filled += counts

    def _make_room(self, counts: Int64Array) -> None:
        """Choose the best when there is no place for so many further rows of each query, or make places."""
        width = self.table.scores.shape[1]
        limit = 64 + SPACE * self.k
        needed = int((self.filled + counts).max())
        if needed > max(width, limit):
            self._choose(self.best())
            needed = max(int((self.filled + counts).max()), limit)
            width = self.table.scores.shape[1]
        if needed > width:
            wider = max(needed, min(2 * width, limit))
            further = self._empty(wider - width)
            self.table = Neighbours.side_by_side([self.table, further])


def _multiply(queries: Float32Array, rows: Float32Array, products: Float32Array) -> None:
    """Multiply queries ``[queries, dim]`` with rows ``[n, dim]`` into products ``[queries, n]``, as is fastest."""
    if len(queries) == 1:
        np.einsum("d,nd->n", queries[0], rows, out=products[0])
    elif len(queries) <= NARROW:
        products[:] = np.matmul(rows, queries.T).T
    else:
        np.matmul(queries, rows.T, out=products)


def _kept(rows: Neighbours, k: int) -> Neighbours:
    """Return the `k` rows with the largest products; of equal ones those that come first."""
    count, width = rows.scores.shape
    if width <= k:
        return rows
    least = np.partition(rows.scores, width - k, axis=1)[:, width - k, None]
    is_best = rows.scores >= least
    surplus = np.count_nonzero(is_best, axis=1) - k
    for query in np.flatnonzero(surplus):
        last = np.flatnonzero(rows.scores[query] == least[query])
        is_best[query, last[-surplus[query] :]] = False
    flat = np.flatnonzero(is_best)
    positions = rows.positions.ravel()[flat]
    scores = rows.scores.ravel()[flat]
    return Neighbours(positions.reshape(count, k), scores.reshape(count, k))


def _largest(products: Float32Array, count: int) -> Float32Array:
    """Return the largest products of each query ``[queries, count]``, or all if there are fewer."""
    first = products.shape[1] - count
    if first <= 0:
        return products
    return np.partition(products, first, axis=1)[:, first:]


def _threads() -> int:
    """Return how many threads products may take: those of NumPy's BLAS, which the user's environment sets."""
    threads = 1
    for pool in _pools().info():
        if pool["user_api"] == "blas":
            threads = max(threads, pool["num_threads"])
    return threads


@cache
def _pools() -> Any:
    """Return what sets the threads of the libraries of products that are loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@dataclass(frozen=True)
class _Workers:
    """Some threads, each of which multiplies alone."""

    count: int
    map: Callable[..., Iterable[Any]]

    def each(self, work: Callable[[Task], Done], tasks: Iterable[Task]) -> list[Done]:
        """Return what the work makes of each task."""
        return list(self.map(work, tasks))

    def shares(self, total: int) -> list[slice]:
        """Return a share for each thread, one after the other."""
        bounds = [total * number // self.count for number in range(self.count + 1)]
        return [slice(start, end) for start, end in pairwise(bounds)]


@contextmanager
def _workers(count: int) -> Iterator[_Workers]:
    """Start some threads; one leaves the products to the threads of the BLAS."""
    if count == 1:
        yield _Workers(1, map)
        return
    with _pools().limit(limits=1, user_api="blas"), ThreadPoolExecutor(count) as pool:
        yield _Workers(count, pool.map)
