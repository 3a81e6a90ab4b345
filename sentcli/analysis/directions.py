"""The directions that vectors use: mean cosine, covariance, whitening."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sentcli.arrays import Float64Array, FloatArray
from sentcli.evaluation.pair_geometry import check_matrix, unit_rows

FLOAT64_ROWS = 8192
"""Rows that are converted to float64 at a time."""
LEAST_VARIANCE = 1e-6
"""The least variance of a direction that is whitened, as a share of the largest variance."""


def blocks_of(vectors: FloatArray) -> Iterator[FloatArray]:
    """Yield the rows of vectors ``[n, d]`` in blocks of `FLOAT64_ROWS`."""
    for start in range(0, len(vectors), FLOAT64_ROWS):
        yield vectors[start : start + FLOAT64_ROWS]


def anisotropy(vectors: FloatArray) -> float:
    """Mean cosine similarity of all pairs of different rows (Ethayarajh, EMNLP 2019, takes a sample of them).

    It is 0 for uniform directions, and 1 if all vectors have the same direction. The squared length of the sum of n
    unit vectors is n plus twice the sum of the cosines, which makes it linear in n. Zero vectors have cosine 0 with all
    others.

    Args:
        vectors: ``[n, d]``, n at least 2.

    Raises:
        ValueError: for fewer than two vectors.
    """
    check_matrix(vectors, 2)
    rows, dimension = vectors.shape
    total = np.zeros(dimension)
    nonzero = 0
    for block in blocks_of(vectors):
        unit = unit_rows(block)
        total += unit.sum(axis=0)
        nonzero += int(np.count_nonzero(unit.any(axis=1)))
    return float((total @ total - nonzero) / (rows * (rows - 1)))


def covariance(vectors: FloatArray) -> tuple[Float64Array, Float64Array]:
    """Return the mean ``[d]`` and the covariance ``[d, d]`` of the rows (divided by n).

    Args:
        vectors: ``[n, d]``, n at least 1; read in blocks.

    Raises:
        ValueError: for no vectors.
    """
    check_matrix(vectors, 1)
    mean = np.asarray(np.mean(vectors, axis=0, dtype=np.float64))
    products = np.zeros((len(mean), len(mean)))
    for block in blocks_of(vectors):
        centred = np.asarray(block, np.float64) - mean
        products += centred.T @ centred
    return mean, products / len(vectors)


def whitened(vectors: FloatArray) -> Float64Array:
    """Return the centred vectors times ``U diag(1 / sqrt(S)) U^T`` of their covariance (ZCA).

    Directions with less than `LEAST_VARIANCE` are left out as noise.

    Args:
        vectors: ``[n, d]``, n at least 1.

    Raises:
        ValueError: for no vectors.
    """
    mean, second = covariance(vectors)
    values, directions = np.linalg.eigh(second)
    largest = max(float(values[-1]), np.finfo(float).tiny)
    spread = values > LEAST_VARIANCE * largest
    basis = directions[:, spread]
    matrix = (basis / np.sqrt(values[spread])) @ basis.T
    centred = np.asarray(vectors, np.float64) - mean
    return np.asarray(centred @ matrix)
