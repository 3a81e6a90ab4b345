"""The groups of columns that whitening works on: eigenvalues and condition numbers of their covariance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sentcli.analysis.directions import covariance
from sentcli.arrays import Float64Array, FloatArray, Int64Array
from sentcli.errors import InputError
from sentcli.pages import style
from sentcli.pages.page import Figure
from sentcli.table import Table


@dataclass(frozen=True)
class GroupSpectra:
    """Eigenvalues of the covariance of each group of columns."""

    eigenvalues: Float64Array
    """Largest first ``[groups, columns]``."""
    rows: int
    """The number of vectors."""
    by_count: dict[int, Float64Array]
    """The condition number of each group ``[groups]`` for other numbers of groups, as in WhitenedCSE's table 4."""

    @property
    def conditions(self) -> Float64Array:
        """Largest over smallest eigenvalue of each group ``[groups]``; infinite if the covariance is singular."""
        return _conditions(self.eigenvalues)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        medians = {str(count): float(np.median(values)) for count, values in self.by_count.items()}
        return {
            "groups": len(self.eigenvalues),
            "columns": self.eigenvalues.shape[1],
            "rows": self.rows,
            "largest_eigenvalue": float(self.eigenvalues.max()),
            "smallest_eigenvalue": float(self.eigenvalues.min()),
            "condition_median": float(np.median(self.conditions)),
            "condition_largest": float(self.conditions.max()),
            "conditions": self.conditions.tolist(),
            "condition_median_by_groups": medians,
        }


def group_spectra(vectors: FloatArray, groups: int, seed: int = 0) -> GroupSpectra:
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
        divisors = ", ".join(map(str, divisors_of(width)))
        raise InputError(f"--groups {groups} does not divide {width} dimensions; these do: {divisors}")
    if rows <= width // groups:
        raise InputError(
            f"--groups {groups} makes groups of {width // groups} columns, whose covariance over {rows:,} texts is "
            "singular: more texts, or more groups"
        )
    _, second = covariance(vectors)
    order = np.random.default_rng(seed).permutation(width)
    by_count = {}
    for count in divisors_of(width):
        if count < width and rows > width // count:
            by_count[count] = _conditions(_eigenvalues(second, order, count))
    return GroupSpectra(_eigenvalues(second, order, groups), rows, by_count)


def divisors_of(width: int) -> list[int]:
    """Return the numbers of groups that divide a width, ascending."""
    return [count for count in range(1, width + 1) if width % count == 0]


def _eigenvalues(second: Float64Array, order: Int64Array, groups: int) -> Float64Array:
    """Return the eigenvalues of each group, largest first; those below the rounding error are set to 0."""
    columns = order.reshape(groups, -1)
    blocks = second[columns[:, :, None], columns[:, None, :]]
    values = np.asarray(np.linalg.eigvalsh(blocks)[:, ::-1], np.float64)
    rounding = values[:, :1] * values.shape[1] * np.finfo(float).eps
    values[values < rounding] = 0
    return values


def _conditions(eigenvalues: Float64Array) -> Float64Array:
    largest = eigenvalues[:, 0]
    smallest = eigenvalues[:, -1]
    infinite = np.full(len(eigenvalues), np.inf)
    return np.asarray(np.divide(largest, smallest, out=infinite, where=smallest > 0))


PERCENTILES = {"y": 50, "low": 5, "high": 95}


def groups_table(spectra: dict[str, GroupSpectra]) -> Table:
    """Return a row for each model, by its short name, on the groups of its columns."""
    rows = []
    for name, spectrum in spectra.items():
        numbers = spectrum.to_dict()
        rows.append(
            {
                "model": name,
                "groups": numbers["groups"],
                "columns": numbers["columns"],
                "largest eigenvalue": numbers["largest_eigenvalue"],
                "smallest": numbers["smallest_eigenvalue"],
                "condition, median": numbers["condition_median"],
                "condition, largest": numbers["condition_largest"],
                "condition of all columns": numbers["condition_median_by_groups"].get("1"),
            }
        )
    note = (
        "Condition number: largest over smallest eigenvalue of a group's covariance; 1 is white. Of all columns: as if "
        "they were one group, where there are more texts than columns."
    )
    return Table.of_rows("Covariance of the whitening groups", rows, number=".3g", notes=(note,))


def every_group_table(title: str, spectra: dict[str, GroupSpectra]) -> Table:
    """Return a row for each group of each model."""
    rows = []
    for name, spectrum in spectra.items():
        conditions = spectrum.conditions.tolist()
        for number, values in enumerate(spectrum.eigenvalues.tolist()):
            rows.append([name, number + 1, values[0], values[-1], conditions[number]])
    columns = ("model", "group", "largest eigenvalue", "smallest", "condition")
    return Table(title, columns, rows, number=".3g")


def groups_figure(spectra: dict[str, GroupSpectra]) -> Figure:
    """Return eigenvalues and condition numbers of the groups of each model, and those of other numbers of groups."""
    by_rank = "Eigenvalues"
    by_group = "Condition numbers"
    by_count = "Other numbers of groups"
    parts = []
    about = []
    for name, spectrum in spectra.items():
        conditions = spectrum.conditions
        finite = np.sort(conditions[np.isfinite(conditions)])[::-1]
        frames = {
            by_rank: _banded(range(1, spectrum.eigenvalues.shape[1] + 1), list(spectrum.eigenvalues.T)),
            by_group: pd.DataFrame({"x": np.arange(1, len(finite) + 1), "y": finite}),
            by_count: _banded(list(spectrum.by_count), list(spectrum.by_count.values())),
        }
        for title, frame in frames.items():
            parts.append(frame.assign(panel=title, series=name))
        about.append(
            f"{name}: the median condition number of {len(conditions)} groups is "
            f"{np.median(conditions):.3g}, the largest {conditions.max():.3g}"
        )
    data = pd.concat(parts)[["panel", "series", "x", "y", "low", "high"]]
    axes = {
        by_rank: {"xlabel": "eigenvalue of a group, largest first", "ylabel": "eigenvalue", "yscale": "log"},
        by_group: {"xlabel": "group, largest first", "ylabel": "condition number", "yscale": "log"},
        by_count: {"xlabel": "groups", "ylabel": "condition number", "yscale": "log", "xscale": "log"},
    }
    note = (
        "Lines are medians over the groups, bands reach from the 5th to the 95th percentile; what is singular, or not "
        "positive, is left out"
    )
    return Figure(
        name="whitening-groups",
        title="Covariance of the whitening groups",
        panels=style.line_panels(data, axes, list(spectra), whole=True),
        data=data,
        about=about,
        note=note,
        columns=3,
    )


def _banded(x: Sequence[int], groups: Sequence[FloatArray]) -> pd.DataFrame:
    """Return the median and the band of each group of values, without those that a logarithmic axis cannot show.

    Args:
        x: of each group.
        groups: the values of each.
    """
    percentiles = list(PERCENTILES.values())
    rows = [np.percentile(values, percentiles, method="nearest") for values in groups]
    frame = pd.DataFrame(rows, columns=list(PERCENTILES))
    drawable = np.isfinite(frame) & (frame > 0)
    frame = frame.where(drawable)
    return frame.assign(x=list(x))[frame["y"].notna()]
