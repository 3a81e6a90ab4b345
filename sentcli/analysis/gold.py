"""Cosine against gold score: how it is spread within bins of gold, and which pairs a model sees otherwise."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    Values = npt.NDArray[np.float64]

BINS = 5
GRID = 200
"""Points of a density."""


@dataclass(frozen=True)
class Bin:
    """The pairs with a gold score from `low` on, below `high` (the last bin: up to it)."""

    low: float
    high: float
    pairs: int
    mean: float | None
    """Of the cosines; None for an empty bin."""
    deviation: float | None
    """Standard deviation of the cosines (n - 1); None for fewer than two pairs."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


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
    found: npt.NDArray[np.int64] = np.clip(np.searchsorted(ends, gold, side="right") - 1, 0, len(ends) - 2)
    return found


def bins(cosines: Values, gold: Values, ends: Values) -> list[Bin]:
    """Return what each bin of gold scores holds.

    Args:
        cosines: of the pairs ``[n]``.
        gold: ``[n]``.
        ends: of the bins.
    """
    numbers, found = bin_numbers(gold, ends), []
    for i, (low, high) in enumerate(pairwise(ends)):
        inside = cosines[numbers == i]
        found.append(
            Bin(
                float(low),
                float(high),
                len(inside),
                float(inside.mean()) if len(inside) else None,
                float(inside.std(ddof=1)) if len(inside) > 1 else None,
            )
        )
    return found


def density(values: Values, at: Values) -> Values:
    """Return a Gaussian kernel density (Scott's bandwidth, as SciPy's) at some points; zeros if there is no spread.

    Args:
        values: ``[n]``.
        at: ``[m]``.
    """
    from scipy.stats import gaussian_kde

    if len(values) < 2 or np.ptp(values) < 1e-6:
        return np.zeros(len(at))
    found: Values = gaussian_kde(values)(at)
    return found


def rank_difference(cosines: Values, gold: Values) -> Values:
    """Return the rank of each pair's cosine less that of its gold score, both from 0 to 1 ``[n]``.

    Equal values have their mean rank. Above 0: the model holds a pair for more alike than people do.

    Args:
        cosines: ``[n]``, n at least 2.
        gold: ``[n]``.
    """
    from scipy.stats import rankdata

    found: Values = (rankdata(cosines) - rankdata(gold)) / (len(gold) - 1)
    return found


def disagreements(differences: Values, count: int) -> tuple[list[int], list[int]]:
    """Return the pairs that are least and most agreed with, those of the greatest and of the smallest difference.

    Args:
        differences: see `rank_difference`.
        count: of each.
    """
    order = np.argsort(np.abs(differences), kind="stable")
    return [int(i) for i in order[::-1][:count]], [int(i) for i in order[:count]]
