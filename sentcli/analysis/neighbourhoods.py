"""Neighbours that two views of the same texts share: two models, or the vectors of a model and their map."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sentcli.evaluation.pair_geometry import Floats, all_pairs

Rows = npt.NDArray[np.int64]

SURE = 0.8
"""Weight of each further rank in `sureness` relative to the one before it."""


def nearest_on_map(positions: Floats, k: int) -> Rows:
    """Return the k nearest other points by distance, nearest first ``[n, k]``.

    Args:
        positions: ``[n, 2]``, n above k.
        k: neighbours.
    """
    from sklearn.neighbors import NearestNeighbors

    return np.asarray(NearestNeighbors(n_neighbors=k).fit(positions).kneighbors(return_distance=False))


def shared(first: Rows, second: Rows) -> Rows:
    """Count the neighbours that each row has in both views ``[n]``.

    Args:
        first: numbers of rows, all different in a row ``[n, k]``.
        second: ``[n, k]``.

    Raises:
        ValueError: if the shapes differ.
    """
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(f"{first.shape} and {second.shape} must both be [n, k]")
    both = np.sort(np.concatenate([first, second], axis=1), axis=1)
    return np.asarray((both[:, 1:] == both[:, :-1]).sum(axis=1))


def overlap(first: Rows, second: Rows) -> float:
    """Return the mean share of neighbours that are the same in both views, 0 to 1; see `shared`."""
    return float(shared(first, second).mean() / first.shape[1])


def same_group(neighbours: Rows, groups: Rows) -> float:
    """Return the mean share of neighbours ``[n, k]`` that are in their row's own group ``[n]``, 0 to 1."""
    return float((groups[neighbours] == groups[:, None]).mean())


def sureness(cosines: Floats) -> npt.NDArray[np.float64]:
    """Return how near the neighbours of each row are, in standard deviations over the rows ``[n]``.

    It is the mean of the cosines, where rank r weighs ``SURE ** (r - 1)``, as rank-biased overlap weighs ranks
    (Webber, Moffat and Zobel, TOIS 2010); in standard deviations, since models differ in how large cosines are.

    Args:
        cosines: nearest first ``[n, k]``.
    """
    weights = SURE ** np.arange(cosines.shape[1])
    means = np.asarray(cosines, np.float64) @ weights / weights.sum()
    spread = means.std()
    return np.asarray((means - means.mean()) / spread if spread > 0 else np.zeros(len(means)))


@dataclass(frozen=True)
class NeighbourComparison:
    """Neighbours of n texts in two models, A and B; nearest first."""

    k: int
    neighbours: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
    """Numbers of texts ``[n, k]``."""
    cosines: tuple[Floats, Floats]
    """``[n, k]``."""

    @cached_property
    def shared(self) -> npt.NDArray[np.int64]:
        """Neighbours that a text has in both ``[n]``, 0 to k."""
        return shared(*self.neighbours)

    @property
    def overlap(self) -> float:
        """Mean share of the k neighbours that are the same, 0 to 1."""
        return float(self.shared.mean() / self.k)

    @property
    def jaccard(self) -> float:
        """Mean of shared over all neighbours that a text has in A or B, 0 to 1."""
        return float((self.shared / (2 * self.k - self.shared)).mean())

    @property
    def same_nearest(self) -> float:
        """Share of the texts whose nearest neighbour is the same."""
        first, second = self.neighbours
        return float((first[:, 0] == second[:, 0]).mean())

    @property
    def by_chance(self) -> float:
        """The overlap to expect of neighbours drawn at random: k / (n - 1)."""
        return self.k / (len(self.shared) - 1)

    @property
    def histogram(self) -> npt.NDArray[np.int64]:
        """Texts that share 0, 1, ..., k neighbours ``[k + 1]``."""
        return np.bincount(self.shared, minlength=self.k + 1)

    @cached_property
    def _sure(self) -> npt.NDArray[np.float64]:
        """How near the neighbours are in both models ``[n]``."""
        return np.sum([sureness(cosines) for cosines in self.cosines], axis=0)

    def most_changed(self, count: int) -> list[int]:
        """Return the texts that share the fewest neighbours; of equals those first whose neighbours are nearest.

        A text whose neighbours are far in both models has no neighbours to speak of: that others change says little.
        """
        return [int(i) for i in np.lexsort((-self._sure, self.shared))[:count]]

    def least_changed(self, count: int) -> list[int]:
        """Return the texts that share the most neighbours; of equals those first whose neighbours are nearest."""
        return [int(i) for i in np.lexsort((-self._sure, -self.shared))[:count]]


def compare(first: Floats, second: Floats, k: int = 10) -> NeighbourComparison:
    """Compare the neighbours of the same texts in two models.

    Args:
        first: ``[n, d]``, n at least 2.
        second: ``[n, e]``; row i is the same text as row i of `first`, d and e may differ.
        k: neighbours by cosine; at most n - 1 count.

    Raises:
        ValueError: for fewer than two vectors, or different numbers of them.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} vectors: not those of the same texts")
    both = [all_pairs(vectors, k) for vectors in (first, second)]
    neighbours = both[0].neighbours, both[1].neighbours
    return NeighbourComparison(both[0].k, neighbours, (both[0].cosines, both[1].cosines))
