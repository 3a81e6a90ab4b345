"""Neighbours that two views of the same texts share: two models, or the vectors of a model and their map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    Floats = npt.NDArray[np.floating[Any]]
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

    nearest: Rows = NearestNeighbors(n_neighbors=k).fit(positions).kneighbors(return_distance=False)
    return nearest


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
    counts: Rows = (both[:, 1:] == both[:, :-1]).sum(axis=1)
    return counts


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
    sure: npt.NDArray[np.float64] = (means - means.mean()) / spread if spread > 0 else np.zeros(len(means))
    return sure
