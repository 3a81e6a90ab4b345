"""Hubs: rows that are among the nearest neighbours of very many others (Radovanovic et al., JMLR 2010)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.analysis.all_pairs import AllPairs, all_pairs

if TYPE_CHECKING:
    Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Hubness:
    """How unevenly rows are neighbours of others."""

    k: int
    skewness: float
    """Of the k-occurrences: 0 if they are symmetric around k, some units where there are hubs."""
    antihubs: float
    """Share of the rows that are no neighbour of any other."""
    largest: int
    """Rows that the greatest hub is a neighbour of."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def hubness(vectors: Floats, k: int = 10) -> Hubness:
    """Return how unevenly rows are among the `k` nearest of others by cosine; see `of_occurrences`.

    Args:
        vectors: ``[n, d]``, n at least 2.
        k: neighbours; at most n - 1 count.

    Raises:
        ValueError: for fewer than two vectors.
    """
    return of_occurrences(all_pairs(vectors, k))


def of_occurrences(found: AllPairs) -> Hubness:
    """Return the measures of k-occurrences that have been counted."""
    from scipy.stats import skew

    counts = found.occurrences
    same = bool((counts == counts[0]).all())
    return Hubness(
        k=found.k,
        skewness=0.0 if same else float(skew(counts)),
        antihubs=float((counts == 0).mean()),
        largest=int(counts.max()),
    )
