"""Cosine against gold score: how it is spread within bins of gold, and which pairs a model sees otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

    Values = npt.NDArray[np.float64]

BINS = 5
GRID = 200
"""Points of a density."""


def edges(gold: Values) -> Values:
    """Return the ends of the bins ``[6]``: 0, 1, ..., 5 for STS's scale, else five equal parts of the range.

    Args:
        gold: at least two different scores ``[n]``.
    """
    low, high = float(gold.min()), float(gold.max())
    if low >= 0 and 1 < high <= BINS:
        return np.arange(BINS + 1, dtype=np.float64)
    return np.linspace(low, high, BINS + 1)


def bin_numbers(gold: Values, ends: Values) -> npt.NDArray[np.int64]:
    """Return the bin of each score ``[n]``; the last one has both its ends."""
    numbers: npt.NDArray[np.int64] = np.clip(np.searchsorted(ends, gold, side="right") - 1, 0, len(ends) - 2)
    return numbers


def bins(cosines: Values, gold: Values, ends: Values) -> pd.DataFrame:
    """Return what each bin of gold scores holds.

    Args:
        cosines: of the pairs ``[n]``.
        gold: ``[n]``.
        ends: of the bins.

    Returns:
        A row for each bin: low, high, pairs, and of the cosines mean and deviation (n - 1), which are missing where
        there are too few pairs.
    """
    import pandas as pd

    frame = pd.DataFrame({"low": ends[:-1], "high": ends[1:]})
    inside = pd.Series(np.asarray(cosines, np.float64)).groupby(bin_numbers(gold, ends))
    frame["pairs"] = inside.size().reindex(frame.index, fill_value=0)
    frame["mean"], frame["deviation"] = inside.mean(), inside.std()
    return frame


def density(values: Values, at: Values) -> Values:
    """Return a Gaussian kernel density (Scott's bandwidth, as SciPy's) at some points; zeros if there is no spread.

    Args:
        values: ``[n]``.
        at: ``[m]``.
    """
    from scipy.stats import gaussian_kde

    if len(values) < 2 or np.ptp(values) < 1e-6:
        return np.zeros(len(at))
    heights: Values = gaussian_kde(values)(at)
    return heights


def rank_difference(cosines: Values, gold: Values) -> Values:
    """Return the rank of each pair's cosine less that of its gold score, both from 0 to 1 ``[n]``.

    Equal values have their mean rank. Above 0: the model holds a pair for more alike than people do.

    Args:
        cosines: ``[n]``, n at least 2.
        gold: ``[n]``.
    """
    from scipy.stats import rankdata

    differences: Values = (rankdata(cosines) - rankdata(gold)) / (len(gold) - 1)
    return differences


def disagreements(differences: Values, count: int) -> tuple[list[int], list[int]]:
    """Return the pairs that are least and most agreed with, those of the greatest and of the smallest difference.

    Args:
        differences: see `rank_difference`.
        count: of each.
    """
    order = np.argsort(np.abs(differences), kind="stable")
    return [int(i) for i in order[::-1][:count]], [int(i) for i in order[:count]]
