"""The nearest rows of queries: positions and similarities, taken apart, put together and merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
AnyVectors = npt.NDArray[np.generic]
"""Vectors ``[n, dim]`` in any type of numbers."""
Mask = npt.NDArray[np.bool_]
"""Which rows of a corpus may be found, or which of some queries are meant ``[n]``."""


@dataclass(frozen=True)
class Neighbours:
    """The positions and similarities of the nearest rows of each query, both ``[queries, k]``, best first.

    Where rows are still gathered they are in the order of their positions.
    """

    positions: Integers
    scores: Floats

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

    def of_queries(self, queries: slice | Integers | Mask) -> Neighbours:
        """Return the neighbours of some of the queries."""
        return Neighbours(self.positions[queries], self.scores[queries])

    def reordered(self, order: Integers) -> Neighbours:
        """Return the neighbours in another order ``[queries, n]``, the numbers of their columns."""
        positions = np.take_along_axis(self.positions, order, 1)
        scores = np.take_along_axis(self.scores, order, 1)
        return Neighbours(positions, scores)

    def best_first(self) -> Neighbours:
        """Return the neighbours with the largest similarity first; of equal ones the first stays first."""
        return self.reordered(np.argsort(-self.scores, axis=1, kind="stable"))

    def overwrite(self, queries: Integers | Mask, neighbours: Neighbours) -> None:
        """Write in place the neighbours of some of the queries."""
        self.positions[queries] = neighbours.positions
        self.scores[queries] = neighbours.scores


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


def _sorted(scores: npt.NDArray[np.floating]) -> Mask:
    """Tell which rows are strictly decreasing from left to right."""
    return np.all(scores[:, 1:] < scores[:, :-1], axis=1)
