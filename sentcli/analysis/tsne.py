"""A map of vectors: t-SNE (van der Maaten and Hinton, JMLR 2008)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import MissingExtraError
from sentcli.evaluation.all_pairs import check_rows, unit_rows

if TYPE_CHECKING:
    Floats = npt.NDArray[np.floating[Any]]

MANY = 20_000
"""Rows beyond which openTSNE takes over: scikit-learn's time grows with n log n, openTSNE's with n."""


@dataclass(frozen=True)
class Layout:
    """Where texts lie on a map."""

    positions: npt.NDArray[np.float64]
    """``[n, 2]``; distances have no unit."""
    perplexity: float
    """That was used."""
    divergence: float
    """Kullback-Leibler, of the map from the vectors: what t-SNE makes small."""
    library: str
    seconds: float


def fitting_perplexity(rows: int, perplexity: float) -> float:
    """Return a perplexity that so many rows allow: at most a third of the others."""
    return min(perplexity, (rows - 1) / 3)


def require(rows: int) -> None:
    """Refuse to start where what so many rows need is missing.

    Raises:
        MissingExtraError: saying what to install.
    """
    if rows > MANY:
        try:
            import openTSNE  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("openTSNE", "maps", f"a map of more than {MANY:,} texts") from error


def tsne(vectors: Floats, perplexity: float = 30, seed: int = 0) -> Layout:
    """Place vectors on a plane so that neighbours by cosine stay neighbours; the same seed gives the same map.

    t-SNE compares squared distances; those of unit vectors are ``2 - 2 cos``. It starts from the two principal
    components, so that the large-scale order means something, and needs no other reduction of the dimensions first.

    Args:
        vectors: ``[n, d]``, n at least 4, not all the same.
        perplexity: effective number of neighbours that each point attends to; see `fitting_perplexity`.
        seed: of what is random.

    Raises:
        ValueError: for too few vectors; MissingExtraError for more than `MANY` without openTSNE.
    """
    check_rows(vectors, 4)
    require(len(vectors))
    unit = unit_rows(vectors)
    perplexity = fitting_perplexity(len(unit), perplexity)
    started = time.perf_counter()
    positions, divergence, library = (_large if len(unit) > MANY else _small)(unit, perplexity, seed)
    return Layout(positions.astype(np.float64), perplexity, divergence, library, time.perf_counter() - started)


def _small(unit: npt.NDArray[np.float64], perplexity: float, seed: int) -> tuple[Floats, float, str]:
    from sklearn.manifold import TSNE

    fitted = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit(unit)
    return fitted.embedding_, float(fitted.kl_divergence_), "scikit-learn"


def _large(unit: npt.NDArray[np.float64], perplexity: float, seed: int) -> tuple[Floats, float, str]:
    from openTSNE import TSNE

    fitted = TSNE(perplexity=perplexity, initialization="pca", random_state=seed).fit(unit)
    return np.asarray(fitted), float(fitted.kl_divergence), "openTSNE"
