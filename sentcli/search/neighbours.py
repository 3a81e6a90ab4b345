"""The nearest rows of queries: positions and similarities, taken apart, put together and merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sentcli.arrays import AnyArray, BoolArray, Float32Array, FloatArray, Int64Array
from sentcli.errors import DegenerateVectorsError

ROUNDING = 2.0**-21
"""By how much the scores of equal vectors may differ, as a share of the best one, where they are computed in blocks."""
MORE_HITS = 8
"""How many hits more than wanted are asked for at first, since the last of them may be equal to more rows."""


def require_finite(values: AnyArray) -> None:
    """Check numbers before a comparison with NaN, which is never true, could turn them into a perfect score.

    Raises:
        DegenerateVectorsError: if a number is NaN or infinite.
    """
    if not np.isfinite(values).all():
        raise DegenerateVectorsError("some similarities or vectors are not finite, so there is no score")


@dataclass(frozen=True)
class Neighbours:
    """The positions and similarities of the nearest rows of each query, both ``[queries, k]``, best first.

    Where rows are still gathered they are in the order of their positions.
    """

    positions: Int64Array
    scores: Float32Array

    @classmethod
    def none(cls, queries: int) -> Neighbours:
        """Return no neighbours for each query ``[queries, 0]``."""
        return cls(np.empty((queries, 0), np.int64), np.empty((queries, 0), np.float32))

    @classmethod
    def concatenated(cls, parts: Sequence[Neighbours]) -> Neighbours:
        """Return the neighbours of all queries, of at least one part with those of some, each with the same `k`."""
        return cls._joined(parts, axis=0)

    @classmethod
    def side_by_side(cls, parts: Iterable[Neighbours]) -> Neighbours:
        """Return the neighbours of all parts, at least one, which are of the same queries and follow each other."""
        return cls._joined(parts, axis=1)

    @classmethod
    def _joined(cls, parts: Iterable[Neighbours], axis: int) -> Neighbours:
        positions = []
        scores = []
        for part in parts:
            positions.append(part.positions)
            scores.append(part.scores)
        return cls(np.concatenate(positions, axis), np.concatenate(scores, axis))

    def of_queries(self, queries: slice | Int64Array | BoolArray) -> Neighbours:
        """Return the neighbours of some of the queries."""
        return Neighbours(self.positions[queries], self.scores[queries])

    def reordered(self, order: Int64Array) -> Neighbours:
        """Return the neighbours in another order ``[queries, n]``, the numbers of their columns."""
        positions = np.take_along_axis(self.positions, order, 1)
        scores = np.take_along_axis(self.scores, order, 1)
        return Neighbours(positions, scores)

    def best_first(self) -> Neighbours:
        """Return the neighbours with the largest similarity first; of equal ones the first stays first."""
        return self.reordered(np.argsort(-self.scores, axis=1, kind="stable"))

    def in_order_of_rows(self) -> Neighbours:
        """Return the neighbours with those in the order of the corpus whose scores differ by rounding alone."""
        order, scores = order_of_rows(self.positions, self.scores)
        return Neighbours(np.take_along_axis(self.positions, order, 1), scores)

    def overwrite(self, queries: Int64Array | BoolArray, neighbours: Neighbours) -> None:
        """Write in place the neighbours of some of the queries."""
        self.positions[queries] = neighbours.positions
        self.scores[queries] = neighbours.scores


def order_of_rows(positions: Int64Array, scores: Float32Array) -> tuple[Int64Array, Float32Array]:
    """Return the order in which rows stand whose scores are equal but for rounding, and one score for equal rows.

    Equal vectors stand at different places of a product of matrices, which a processor may sum in another order.

    Args:
        positions: of the rows in the corpus ``[queries, n]``, -1 for none.
        scores: falling ``[queries, n]``.

    Returns:
        The numbers of the columns in order, and the scores in this order, both ``[queries, n]``.
    """
    comparable = np.where(positions < 0, -np.inf, scores)
    allowed = ROUNDING * np.abs(scores).max(axis=1, initial=0, keepdims=True)
    is_lower = comparable[:, 1:] < comparable[:, :-1] - allowed
    groups = np.zeros(scores.shape, np.int64)
    groups[:, 1:] = np.cumsum(is_lower, axis=1)
    begins = np.zeros(scores.shape, np.int64)
    begins[:, 1:] = np.where(is_lower, np.arange(1, scores.shape[1]), 0)
    firsts = np.maximum.accumulate(begins, axis=1)
    order = np.lexsort((positions, groups), axis=1)
    return order, np.take_along_axis(scores, firsts, 1)


def merge(parts: Sequence[Neighbours], k: int) -> Neighbours:
    """Return the `k` best of several lists of neighbours; of equal similarities the first row comes first.

    Args:
        parts: at least one list, with positions in the whole corpus; -1 stands for no row, as in faiss.
        k: the number of neighbours; if the lists have fewer together, all are returned.
    """
    hits = Neighbours.side_by_side(parts)
    is_none = hits.positions < 0
    if is_none.any():
        scores = np.where(is_none, -np.inf, hits.scores)
        hits = Neighbours(hits.positions, scores)
    if len(parts) > 1 or not _sorted(hits.scores).all():
        hits = hits.best_first()
        with_equal = ~_sorted(hits.scores)  # queries with equal similarities
        some = hits.of_queries(with_equal)
        by_position = np.lexsort((some.positions, -some.scores), axis=1)
        hits.overwrite(with_equal, some.reordered(by_position))
    best = hits.scores[:, :k].astype(np.float32, copy=False)
    return Neighbours(hits.positions[:, :k], best)


def _sorted(scores: FloatArray) -> BoolArray:
    """Tell which rows are strictly decreasing from left to right."""
    return np.all(scores[:, 1:] < scores[:, :-1], axis=1)
