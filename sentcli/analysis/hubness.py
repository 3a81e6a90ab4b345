"""Hubs: rows that are among the nearest neighbours of very many others (Radovanovic et al., JMLR 2010)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.analysis.geometry import check_rows
from sentcli.search.exact import search
from sentcli.search.neighbours import not_own

if TYPE_CHECKING:
    Floats = npt.NDArray[np.floating[Any]]

TOGETHER = 4096
"""Rows whose neighbours are looked for at once."""


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


def occurrences(vectors: Floats, k: int = 10) -> npt.NDArray[np.int64]:
    """Return of how many other rows each row is one of the `k` nearest by cosine ``[n]``.

    Args:
        vectors: ``[n, d]``, n at least 2.
        k: neighbours; at most n - 1 count.

    Raises:
        ValueError: for fewer than two vectors.
    """
    check_rows(vectors, 2)
    found = np.zeros(len(vectors), np.int64)
    k = min(k, len(vectors) - 1)
    for start in range(0, len(vectors), TOGETHER):
        rows = np.arange(start, min(start + TOGETHER, len(vectors)))
        positions = search(vectors[start : start + TOGETHER], [vectors], k + 1).positions
        found += np.bincount(positions[not_own(positions, rows)], minlength=len(vectors))
    return found


def hubness(vectors: Floats, k: int = 10) -> Hubness:
    """Return how unevenly rows are among the `k` nearest of others; arguments and errors are those of `occurrences`."""
    from scipy.stats import skew

    counts = occurrences(vectors, k)
    same = bool((counts == counts[0]).all())
    return Hubness(
        k=min(k, len(vectors) - 1),
        skewness=0.0 if same else float(skew(counts)),
        antihubs=float((counts == 0).mean()),
        largest=int(counts.max()),
    )
