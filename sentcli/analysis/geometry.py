"""Alignment and uniformity of sentence vectors (Wang and Isola, ICML 2020), as SimCSE's fig. 2 measures them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    Floats = npt.NDArray[np.floating[Any]]


def alignment(first: Floats, second: Floats) -> float:
    """Mean squared distance between the unit vectors of positive pairs; lower is closer.

    Args:
        first: ``[n, d]``.
        second: ``[n, d]``; row i is the positive of row i of `first`.

    Raises:
        ValueError: if the shapes differ.
    """
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(f"{first.shape} and {second.shape} must both be [n, d]")
    return float(np.square(unit_rows(first) - unit_rows(second)).sum(axis=1).mean())


def uniformity(vectors: Floats) -> float:
    """Logarithm of the mean of ``exp(-2 |x - y|^2)`` over all pairs of unit vectors; lower is more spread out.

    Args:
        vectors: ``[n, d]``, n at least 2.

    Raises:
        ValueError: for fewer than two vectors.
    """
    from sentcli.analysis.all_pairs import all_pairs

    return all_pairs(vectors, 0).uniformity


def check_rows(vectors: Floats, least: int) -> None:
    """Refuse what is no matrix of enough rows.

    Raises:
        ValueError: if so.
    """
    if vectors.ndim != 2 or len(vectors) < least:
        raise ValueError(f"{vectors.shape} must be [n, d] with n >= {least}")


def unit_rows(vectors: Floats) -> npt.NDArray[np.float64]:
    """Return the rows ``[n, d]`` divided by their lengths; zero rows stay zero."""
    wide = np.asarray(vectors, np.float64)
    unit: npt.NDArray[np.float64] = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    return unit
