"""Measures of the directions that vectors use: spectrum, effective rank, isotropy, hubs."""

from __future__ import annotations

from typing import Any

import numpy as np

from sentcli.analysis.directions import anisotropy, blocks_of, covariance, whitened
from sentcli.arrays import Float64Array, FloatArray
from sentcli.evaluation.pair_geometry import AllPairs, all_pairs, check_matrix, unit_rows


def singular_values(vectors: FloatArray, *, centred: bool = True) -> Float64Array:
    """Return the singular values of the matrix of the rows, largest first ``[d]``.

    Args:
        vectors: ``[n, d]``, n at least 1.
        centred: subtract the mean of the rows first.

    Raises:
        ValueError: for no vectors.
    """
    mean, second = covariance(vectors)
    if not centred:
        second = second + np.outer(mean, mean)
    eigenvalues = np.linalg.eigvalsh(second)[::-1]
    return np.asarray(np.sqrt(np.clip(eigenvalues, 0, None) * len(vectors)))


def effective_rank(values: Float64Array) -> float:
    """Return the exponential of the entropy of the singular values' shares (Roy and Vetterli, EUSIPCO 2007).

    Args:
        values: singular values ``[d]``.

    Returns:
        1 for a single direction, d if all values are equal, and 0 if all are 0.
    """
    total = float(values.sum())
    if total == 0:
        return 0.0
    shares = values[values > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


def isotropy(vectors: FloatArray) -> float:
    """Smallest over largest partition function over the principal directions (Mu and Viswanath, ICLR 2018).

    The partition function Z(a) is the sum of ``exp(a . v)`` over all unit vectors v; the directions a are the
    eigenvectors of the second moment of the vectors, and their opposites. The measure is 1 for isotropic vectors.

    Args:
        vectors: ``[n, d]``, n at least 1; they are divided by their lengths.

    Raises:
        ValueError: for no vectors.
    """
    check_matrix(vectors, 1)
    dimension = vectors.shape[1]
    second = np.zeros((dimension, dimension))
    for block in blocks_of(vectors):
        unit = unit_rows(block)
        second += unit.T @ unit
    directions = np.linalg.eigh(second)[1]
    positive = np.zeros(dimension)
    negative = np.zeros(dimension)
    for block in blocks_of(vectors):
        along = unit_rows(block) @ directions
        positive += np.exp(along).sum(axis=0)
        negative += np.exp(-along).sum(axis=0)
    both = np.concatenate([positive, negative])
    return float(both.min() / both.max())


def measure_geometry(vectors: FloatArray, neighbours: int = 10) -> dict[str, Any]:
    """Return all measures of vectors; the memory it takes does not grow with the square of their number.

    Args:
        vectors: ``[n, d]``, n at least 2.
        neighbours: k of hubness.

    Returns:
        The measures by name, as ``analyze geometry`` writes them: ``anisotropy`` is the mean cosine of all pairs,
        ``isotropy_whitened`` the isotropy after ZCA whitening of the same vectors, ``first_direction`` the share of the
        variance along the first principal direction, and ``singular_values`` are those of the centred vectors, largest
        first.

    Raises:
        ValueError: for fewer than two vectors.
    """
    pairs = all_pairs(vectors, neighbours)
    values = singular_values(vectors)
    variance = float(np.square(values).sum())
    first_direction = 0.0
    if variance:
        first_direction = float(values[0] ** 2 / variance)
    return {
        "rows": len(vectors),
        "dimension": vectors.shape[1],
        "uniformity": pairs.uniformity,
        "anisotropy": anisotropy(vectors),
        "isotropy": isotropy(vectors),
        "isotropy_whitened": isotropy(whitened(vectors)),
        "effective_rank": effective_rank(values),
        "first_direction": first_direction,
        "hubness": hubness(pairs),
        "singular_values": list(map(float, values)),
    }


def hubness(pairs: AllPairs) -> dict[str, Any]:
    """Return how unevenly rows occur among the nearest neighbours of others (Radovanovic et al., JMLR 2010).

    Returns:
        ``skewness`` of the k-occurrences, which is 0 if they are symmetric around k and greater if there are hubs;
        ``antihubs``, the share of the rows that are a neighbour of no other; ``largest``, the number of rows that have
        the greatest hub as a neighbour.
    """
    from scipy.stats import skew

    counts = pairs.occurrences
    skewness = 0.0
    if (counts != counts[0]).any():
        skewness = float(skew(counts))
    return {
        "k": pairs.k,
        "skewness": skewness,
        "antihubs": float((counts == 0).mean()),
        "largest": int(counts.max()),
    }
