"""How far from white the groups of columns are that WhitenedCSE (Zhuo et al., ACL 2023, sec. 3.2) whitens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.analysis.spectrum import covariance
from sentcli.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.floating[Any]]
    Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GroupSpectra:
    """Eigenvalues of the covariance of each group of columns."""

    eigenvalues: Doubles
    """Largest first ``[groups, columns]``."""
    rows: int
    """Vectors that the covariance is of."""
    by_count: dict[int, Doubles]
    """Number of groups, as table 4 varies it, to the condition number of each group ``[groups]``."""

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
    """Shuffle the columns, cut them into groups, and take the eigenvalues of each group's covariance.

    Args:
        vectors: ``[n, d]``, which the head would whiten: before a normalisation to length 1.
        groups: how many; d / groups columns each.
        seed: of the order of the columns.

    Raises:
        InputError: if the groups do not divide d, or n rows make their covariance singular.
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
    """Return the eigenvalues of each group, largest first; those that are rounding errors are 0."""
    columns = order.reshape(groups, -1)
    blocks = second[columns[:, :, None], columns[:, None, :]]
    values: Doubles = np.asarray(np.linalg.eigvalsh(blocks)[:, ::-1], np.float64)
    values[values < values[:, :1] * values.shape[1] * np.finfo(float).eps] = 0
    return values


def _conditions(eigenvalues: Doubles) -> Doubles:
    largest, smallest = eigenvalues[:, 0], eigenvalues[:, -1]
    made: Doubles = np.divide(largest, smallest, out=np.full(len(eigenvalues), np.inf), where=smallest > 0)
    return made
