"""The nearest neighbours of the same texts in two models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sentcli.analysis.neighbours import count_shared
from sentcli.arrays import Float64Array, FloatArray, Int64Array
from sentcli.evaluation.pair_geometry import all_pairs

_RANK_DECAY = 0.8
"""The weight of a rank divided by that of the rank before it."""


def sureness(cosines: FloatArray) -> Float64Array:
    """Return how near the neighbours of each text are, in standard deviations over the texts ``[n]``.

    It is the mean of the cosines with the weight ``SURE ** (r - 1)`` of rank r, as in rank-biased overlap (Webber,
    Moffat and Zobel, TOIS 2010). It is standardised because cosines of different models have different ranges.

    Args:
        cosines: nearest first ``[n, k]``.
    """
    weights = _RANK_DECAY ** np.arange(cosines.shape[1])
    means = np.asarray(cosines, np.float64) @ weights / weights.sum()
    deviation = means.std()
    if not deviation > 0:
        return np.zeros(len(means))
    return np.asarray((means - means.mean()) / deviation)


@dataclass(frozen=True)
class NeighbourComparison:
    """The neighbours of n texts in two models."""

    k: int
    neighbours: tuple[Int64Array, Int64Array]
    """For each model, the numbers of the texts nearest to each text, nearest first ``[n, k]``."""
    cosines: tuple[FloatArray, FloatArray]
    """For each model, the cosines of the neighbours ``[n, k]``."""

    @cached_property
    def shared(self) -> Int64Array:
        """The number of neighbours of each text that are the same in both models ``[n]``, 0 to k."""
        return count_shared(*self.neighbours)

    @property
    def overlap(self) -> float:
        """Mean share of the k neighbours that are the same, 0 to 1."""
        return float(self.shared.mean() / self.k)

    @property
    def jaccard(self) -> float:
        """Mean over texts of shared neighbours divided by neighbours in either model, 0 to 1."""
        return float((self.shared / (2 * self.k - self.shared)).mean())

    @property
    def same_nearest(self) -> float:
        """Share of the texts whose nearest neighbour is the same in both models."""
        first, second = self.neighbours
        same = first[:, 0] == second[:, 0]
        return float(same.mean())

    @property
    def by_chance(self) -> float:
        """The expected overlap of neighbours that are drawn at random: k / (n - 1)."""
        return self.k / (len(self.shared) - 1)

    @property
    def histogram(self) -> Int64Array:
        """The number of texts that share 0, 1, ..., k neighbours ``[k + 1]``."""
        return np.bincount(self.shared, minlength=self.k + 1)

    @cached_property
    def _sure(self) -> Float64Array:
        """The sum of `sureness` in both models ``[n]``."""
        return np.sum([sureness(cosines) for cosines in self.cosines], axis=0)

    def most_changed(self, count: int) -> list[int]:
        """Return the texts that share the fewest neighbours; of equal ones, those with the nearest neighbours first.

        If the neighbours of a text are far in both models, it means little that they are different ones.
        """
        return np.lexsort((-self._sure, self.shared))[:count].tolist()

    def least_changed(self, count: int) -> list[int]:
        """Return the texts that share the most neighbours; of equal ones, those with the nearest neighbours first."""
        return np.lexsort((-self._sure, -self.shared))[:count].tolist()


def compare_neighbours(first: FloatArray, second: FloatArray, k: int = 10) -> NeighbourComparison:
    """Compare the neighbours of the same texts in two models.

    Args:
        first: ``[n, d]``, n at least 2.
        second: ``[n, e]``; row i is the same text as row i of `first`, d and e may differ.
        k: neighbours by cosine; a k above n - 1 is lowered to it.

    Raises:
        ValueError: for fewer than two vectors, or different numbers of them.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} vectors: not those of the same texts")
    one = all_pairs(first, k)
    two = all_pairs(second, k)
    return NeighbourComparison(
        k=one.k,
        neighbours=(one.neighbours, two.neighbours),
        cosines=(one.cosines, two.cosines),
    )
