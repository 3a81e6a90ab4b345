"""Measures of the directions that vectors use: spectrum, effective rank, anisotropy, isotropy, hubs, groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError
from sentcli.evaluation.pair_geometry import AllPairs, Floats, all_pairs, check_rows, unit_rows

Doubles = npt.NDArray[np.float64]

FLOAT64_ROWS = 8192
"""Rows that are converted to float64 at a time."""


def anisotropy(vectors: Floats) -> float:
    """Mean cosine similarity of all pairs of different rows (Ethayarajh, EMNLP 2019, takes a sample of them).

    It is 0 for uniform directions, and 1 if all vectors have the same direction. The squared length of the sum of n
    unit vectors is n plus twice the sum of the cosines, which makes it linear in n. Zero vectors have cosine 0 with all
    others.

    Args:
        vectors: ``[n, d]``, n at least 2.

    Raises:
        ValueError: for fewer than two vectors.
    """
    check_rows(vectors, 2)
    total, nonzero = np.zeros(vectors.shape[1]), 0
    for start in range(0, len(vectors), FLOAT64_ROWS):
        unit = unit_rows(vectors[start : start + FLOAT64_ROWS])
        total += unit.sum(axis=0)
        nonzero += int(np.count_nonzero(unit.any(axis=1)))
    return float((total @ total - nonzero) / (len(vectors) * (len(vectors) - 1)))


def covariance(vectors: Floats) -> tuple[Doubles, Doubles]:
    """Return the mean ``[d]`` and the covariance ``[d, d]`` of the rows (divided by n).

    Args:
        vectors: ``[n, d]``, n at least 1; read in blocks.

    Raises:
        ValueError: for no vectors.
    """
    check_rows(vectors, 1)
    mean: Doubles = np.asarray(np.mean(vectors, axis=0, dtype=np.float64))
    products = np.zeros((len(mean), len(mean)))
    for start in range(0, len(vectors), FLOAT64_ROWS):
        block = np.asarray(vectors[start : start + FLOAT64_ROWS], np.float64) - mean
        products += block.T @ block
    return mean, products / len(vectors)


def singular_values(vectors: Floats, *, centred: bool = True) -> Doubles:
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


def effective_rank(values: Doubles) -> float:
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


def isotropy(vectors: Floats) -> float:
    """Smallest over largest partition function over the principal directions (Mu and Viswanath, ICLR 2018).

    The partition function Z(a) is the sum of ``exp(a . v)`` over all unit vectors v; the directions a are the
    eigenvectors of the second moment of the vectors, and their opposites. The measure is 1 for isotropic vectors.

    Args:
        vectors: ``[n, d]``, n at least 1; they are divided by their lengths.

    Raises:
        ValueError: for no vectors.
    """
    check_rows(vectors, 1)
    d = vectors.shape[1]
    second = np.zeros((d, d))
    for start in range(0, len(vectors), FLOAT64_ROWS):
        block = unit_rows(vectors[start : start + FLOAT64_ROWS])
        second += block.T @ block
    directions = np.linalg.eigh(second)[1]
    positive, negative = np.zeros(d), np.zeros(d)
    for start in range(0, len(vectors), FLOAT64_ROWS):
        along = unit_rows(vectors[start : start + FLOAT64_ROWS]) @ directions
        positive += np.exp(along).sum(axis=0)
        negative += np.exp(-along).sum(axis=0)
    both = np.concatenate([positive, negative])
    return float(both.min() / both.max())


def whitened(vectors: Floats) -> Doubles:
    """Return the centred vectors times ``U diag(1 / sqrt(S)) U^T`` of their covariance (ZCA).

    Directions with less than `LEAST_VARIANCE` are left out as noise.

    Args:
        vectors: ``[n, d]``, n at least 1.

    Raises:
        ValueError: for no vectors.
    """
    mean, second = covariance(vectors)
    values, directions = np.linalg.eigh(second)
    # the least variance of a direction that is whitened, as a share of the largest variance
    kept = values > 1e-6 * max(float(values[-1]), np.finfo(float).tiny)
    basis = directions[:, kept]
    matrix = (basis / np.sqrt(values[kept])) @ basis.T
    return np.asarray((np.asarray(vectors, np.float64) - mean) @ matrix)


def geometry(vectors: Floats, neighbours: int = 10) -> dict[str, Any]:
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
    squares = float(np.square(values).sum())
    return {
        "rows": len(vectors),
        "dimension": vectors.shape[1],
        "uniformity": pairs.uniformity,
        "anisotropy": anisotropy(vectors),
        "isotropy": isotropy(vectors),
        "isotropy_whitened": isotropy(whitened(vectors)),
        "effective_rank": effective_rank(values),
        "first_direction": float(values[0] ** 2 / squares) if squares else 0.0,
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
    same = bool((counts == counts[0]).all())
    return {
        "k": pairs.k,
        "skewness": 0.0 if same else float(skew(counts)),
        "antihubs": float((counts == 0).mean()),
        "largest": int(counts.max()),
    }


@dataclass(frozen=True)
class GroupSpectra:
    """Eigenvalues of the covariance of each group of columns."""

    eigenvalues: Doubles
    """Largest first ``[groups, columns]``."""
    rows: int
    """The number of vectors."""
    by_count: dict[int, Doubles]
    """The condition number of each group ``[groups]`` for other numbers of groups, as in WhitenedCSE's table 4."""

    @property
    def conditions(self) -> Doubles:
        """Largest over smallest eigenvalue of each group ``[groups]``; infinite if the covariance is singular."""
        return _conditions(self.eigenvalues)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "groups": len(self.eigenvalues),
            "columns": self.eigenvalues.shape[1],
            "rows": self.rows,
            "largest_eigenvalue": float(self.eigenvalues.max()),
            "smallest_eigenvalue": float(self.eigenvalues.min()),
            "condition_median": float(np.median(self.conditions)),
            "condition_largest": float(self.conditions.max()),
            "conditions": self.conditions.tolist(),
            "condition_median_by_groups": {
                str(count): float(np.median(values)) for count, values in self.by_count.items()
            },
        }


def group_spectra(vectors: Floats, groups: int, seed: int = 0) -> GroupSpectra:
    """Shuffle the columns, split them into groups, and return the eigenvalues of each group's covariance.

    Args:
        vectors: ``[n, d]``, as the head would whiten them, before a normalisation to length 1.
        groups: number of groups; each has d / groups columns.
        seed: of the order of the columns.

    Raises:
        InputError: if the groups do not divide d, or n rows are so few that the covariance of a group is singular.
    """
    rows, width = vectors.shape
    if groups < 1 or width % groups:
        divisors = ", ".join(str(count) for count in divisors_of(width))
        raise InputError(f"--groups {groups} does not divide {width} dimensions; these do: {divisors}")
    if rows <= width // groups:
        raise InputError(
            f"--groups {groups} makes groups of {width // groups} columns, whose covariance over {rows:,} texts is "
            "singular: more texts, or more groups"
        )
    _, second = covariance(vectors)
    order = np.random.default_rng(seed).permutation(width)
    counts = [count for count in divisors_of(width) if count < width and rows > width // count]
    by_count = {count: _conditions(_eigenvalues(second, order, count)) for count in counts}
    return GroupSpectra(_eigenvalues(second, order, groups), rows, by_count)


def divisors_of(width: int) -> list[int]:
    """Return the numbers of groups that divide a width, ascending."""
    return [count for count in range(1, width + 1) if width % count == 0]


def _eigenvalues(second: Doubles, order: npt.NDArray[np.int64], groups: int) -> Doubles:
    """Return the eigenvalues of each group, largest first; those below the rounding error are set to 0."""
    columns = order.reshape(groups, -1)
    blocks = second[columns[:, :, None], columns[:, None, :]]
    values: Doubles = np.asarray(np.linalg.eigvalsh(blocks)[:, ::-1], np.float64)
    values[values < values[:, :1] * values.shape[1] * np.finfo(float).eps] = 0
    return values


def _conditions(eigenvalues: Doubles) -> Doubles:
    largest, smallest = eigenvalues[:, 0], eigenvalues[:, -1]
    return np.asarray(np.divide(largest, smallest, out=np.full(len(eigenvalues), np.inf), where=smallest > 0))
