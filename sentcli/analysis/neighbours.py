"""Neighbours that the same texts share in two models, or in the vectors of a model and on their map."""

from __future__ import annotations

import numpy as np

from sentcli.arrays import Int64Array


def count_shared(first: Int64Array, second: Int64Array) -> Int64Array:
    """Count the neighbours of each text that are the same in both ``[n]``.

    Args:
        first: numbers of the neighbours of each text ``[n, k]``.
        second: ``[n, k]``.

    Raises:
        ValueError: if the shapes differ.
    """
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(f"{first.shape} and {second.shape} must both be [n, k]")
    both = np.sort(np.concatenate([first, second], axis=1), axis=1)
    twice = both[:, 1:] == both[:, :-1]
    return np.asarray(twice.sum(axis=1))


def overlap(first: Int64Array, second: Int64Array) -> float:
    """Return the mean share of neighbours that are the same in both, 0 to 1; see `count_shared`."""
    return float(count_shared(first, second).mean() / first.shape[1])
