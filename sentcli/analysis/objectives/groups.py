"""The groups of columns that whitening works on: eigenvalues and condition numbers of their covariance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.analysis.directions import Doubles, covariance
from sentcli.errors import InputError
from sentcli.evaluation.pair_geometry import Floats
from sentcli.pages import style
from sentcli.pages.page import Figure
from sentcli.table import Table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd


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


PERCENTILES = {"y": 50, "low": 5, "high": 95}


def groups_table(spectra: dict[str, GroupSpectra]) -> Table:
    """Return a row for each model, by its short name, on the groups of its columns."""
    import numpy as np

    rows = [
        {
            "model": name,
            "groups": len(spectrum.eigenvalues),
            "columns": spectrum.eigenvalues.shape[1],
            "largest eigenvalue": float(spectrum.eigenvalues.max()),
            "smallest": float(spectrum.eigenvalues.min()),
            "condition, median": float(np.median(spectrum.conditions)),
            "condition, largest": float(spectrum.conditions.max()),
            "condition of all columns": float(spectrum.by_count[1][0]) if 1 in spectrum.by_count else None,
        }
        for name, spectrum in spectra.items()
    ]
    note = (
        "Condition number: largest over smallest eigenvalue of a group's covariance; 1 is white. Of all columns: as if "
        "they were one group, where there are more texts than columns."
    )
    return Table.of_rows("Covariance of the whitening groups", rows, number=".3g", notes=(note,))


def groups_figure(spectra: dict[str, GroupSpectra]) -> Figure:
    """Return eigenvalues and condition numbers of the groups of each model, and those of other numbers of groups."""
    import numpy as np
    import pandas as pd

    titles = ("Eigenvalues", "Condition numbers", "Other numbers of groups")
    parts, about = [], []
    for name, each in spectra.items():
        conditions = np.sort(each.conditions[np.isfinite(each.conditions)])[::-1]
        ranked = pd.DataFrame({"x": np.arange(1, len(conditions) + 1), "y": conditions})
        values = _banded(range(1, each.eigenvalues.shape[1] + 1), list(each.eigenvalues.T))
        sizes = _banded(list(each.by_count), list(each.by_count.values()))
        by_panel = zip(titles, (values, ranked, sizes), strict=True)
        parts += [frame.assign(panel=title, series=name) for title, frame in by_panel]
        about.append(
            f"{name}: the median condition number of {len(each.eigenvalues)} groups is "
            f"{np.median(each.conditions):.3g}, the largest {each.conditions.max():.3g}"
        )
    data = pd.concat(parts)[["panel", "series", "x", "y", "low", "high"]]

    log = {"yscale": "log"}
    axes = (
        {"xlabel": "eigenvalue of a group, largest first", "ylabel": "eigenvalue", **log},
        {"xlabel": "group, largest first", "ylabel": "condition number", **log},
        {"xlabel": "groups", "ylabel": "condition number", **log, "xscale": "log"},
    )
    panels = style.line_panels(data, dict(zip(titles, axes, strict=True)), list(spectra), whole=True)
    note = (
        "Lines are medians over the groups, bands reach from the 5th to the 95th percentile; what is singular, or not "
        "positive, is left out"
    )
    title = "Covariance of the whitening groups"
    return Figure("whitening-groups", title, panels, data, "; ".join(about), note, columns=3)


def _banded(x: Sequence[int], groups: Sequence[npt.NDArray[np.floating[Any]]]) -> pd.DataFrame:
    """Return the median and the band of each group of values, without those that a logarithmic axis cannot show.

    Args:
        x: of each group.
        groups: the values of each.
    """
    import numpy as np
    import pandas as pd

    rows = [np.percentile(values, list(PERCENTILES.values()), method="nearest") for values in groups]
    frame = pd.DataFrame(rows, columns=list(PERCENTILES))
    frame = frame.where(np.isfinite(frame) & (frame > 0))
    return frame.assign(x=list(x))[frame["y"].notna()]
