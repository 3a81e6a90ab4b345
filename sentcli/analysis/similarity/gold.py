"""Cosines of sentence pairs against gold scores: bins, densities and rank differences."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sentcli.arrays import Float64Array, Int64Array

_BINS = 5
DENSITY_POINTS = 200
"""The number of points at which a density is computed."""


def edges(gold: Float64Array) -> Float64Array:
    """Return the ends of the bins ``[6]``: 0, 1, ..., 5 for the scale of STS, else five bins of the same width.

    Args:
        gold: at least two different scores ``[n]``.
    """
    low, high = float(gold.min()), float(gold.max())
    if low >= 0 and 1 < high <= _BINS:
        return np.arange(_BINS + 1, dtype=np.float64)
    return np.linspace(low, high, _BINS + 1)


def bin_numbers(gold: Float64Array, ends: Float64Array) -> Int64Array:
    """Return the number of the bin of each score ``[n]``; only the last bin includes its upper end."""
    numbers = np.searchsorted(ends, gold, side="right") - 1
    return np.asarray(np.clip(numbers, 0, len(ends) - 2))


def bins(cosines: Float64Array, gold: Float64Array, ends: Float64Array) -> pd.DataFrame:
    """Return mean and standard deviation of the cosines in each bin of gold scores.

    Args:
        cosines: of the pairs ``[n]``.
        gold: ``[n]``.
        ends: of the bins.

    Returns:
        A row for each bin with the columns low, high, pairs (their number), mean, and deviation (divided by n - 1);
        these two are missing in bins with too few pairs.
    """
    frame = pd.DataFrame({"low": ends[:-1], "high": ends[1:]})
    inside = pd.Series(np.asarray(cosines, np.float64)).groupby(bin_numbers(gold, ends))
    frame["pairs"] = inside.size().reindex(frame.index, fill_value=0)
    frame["mean"] = inside.mean()
    frame["deviation"] = inside.std()
    return frame


def density(values: Float64Array, at: Float64Array) -> Float64Array:
    """Return SciPy's Gaussian kernel density with Scott's bandwidth ``[m]``; zeros if all values are the same.

    Args:
        values: ``[n]``.
        at: points ``[m]``.
    """
    from scipy.stats import gaussian_kde

    if len(values) < 2 or np.ptp(values) < 1e-6:
        return np.zeros(len(at))
    return np.asarray(gaussian_kde(values)(at))


def rank_difference(cosines: Float64Array, gold: Float64Array) -> Float64Array:
    """Return the rank of each pair's cosine minus the rank of its gold score, both from 0 to 1 ``[n]``.

    Equal values have their mean rank. A difference above 0 means that the model ranks a pair higher than people do.

    Args:
        cosines: ``[n]``, n at least 2.
        gold: ``[n]``.
    """
    from scipy.stats import rankdata

    differences = rankdata(cosines) - rankdata(gold)
    return np.asarray(differences / (len(gold) - 1))


def disagreements(differences: Float64Array, count: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the pairs with the greatest and of those with the smallest rank difference.

    Args:
        differences: see `rank_difference`.
        count: number of pairs in each list.
    """
    order = np.argsort(np.abs(differences), kind="stable").tolist()
    return order[::-1][:count], order[:count]
