"""The terms of training runs, their shares of the gradient, and the groups that whitening works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.analysis.loss_terms import thinned
from sentcli.figures.figure import Axis, Figure, Line, Panel
from sentcli.reports.page import MISSING, Cell, Column, Row, Section, Table, number, word

if TYPE_CHECKING:
    import numpy.typing as npt

    from sentcli.analysis.group_spectrum import GroupSpectra
    from sentcli.analysis.loss_terms import LossTerms

    Doubles = npt.NDArray[np.floating[Any]]

STEP = Axis("optimiser step")


def sections(
    runs: Sequence[tuple[str, LossTerms]], spectra: Sequence[tuple[str, GroupSpectra]], chosen: str = ""
) -> list[Section]:
    """Return tables and figures.

    Args:
        runs: names and terms.
        spectra: names of models and their groups.
        chosen: in words, which vectors the groups are of.
    """
    made = []
    if runs:
        made.append(Section("Terms of the loss", table=_terms_table(runs), file="terms"))
        if any(run.measured for _, run in runs):
            made.append(Section("Shares of the gradient", figure=_shares_figure(runs)))
        made.append(Section("Terms over the steps", figure=_terms_figure(runs)))
    if spectra:
        made += [
            Section("Whitening groups", text=(chosen,), table=_groups_table(spectra), file="groups"),
            Section("Eigenvalues of the whitening groups", figure=_groups_figure(spectra)),
            Section("Every group", table=_every_group(spectra), file="every-group", folded=True),
        ]
    return made


def _terms_table(runs: Sequence[tuple[str, LossTerms]]) -> Table:
    columns = [Column("run", "word"), Column("term", "word"), Column("weight"), Column("share %"), Column("least %")]
    columns += [Column(title) for title in ("greatest %", "measured", "term, first steps", "term, last steps")]
    rows = []
    for name, run in runs:
        for term in run.terms:
            shares = [100 * share for share in term.shares]
            cells = [word(name), word(term.name), number(term.weight, "{:g}")]
            cells += [number(pick(shares) if shares else None, "{:.3g}") for pick in (_mean, min, max)]
            tenth = max(1, len(term.values) // 10)
            ends = [_mean(part) if part else None for part in (term.values[:tenth], term.values[-tenth:])]
            rows.append(Row((*cells, number(len(shares), "{:d}"), *(number(end, "{:.4g}") for end in ends))))
    notes = (
        "Share: norm of the weighted term's gradient at the encoder over the sum of these norms, the mean of the steps "
        "where training measured it (--set share_every). Terms are unweighted: means of the first and the last tenth.",
    )
    return Table("Terms of the loss", tuple(columns), tuple(rows), notes)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _shares_figure(runs: Sequence[tuple[str, LossTerms]]) -> Figure:
    several = [(name, run) for name, run in runs if run.measured]
    panels, about = [], []
    for name, run in several:
        lines = []
        for i, term in enumerate(run.terms):
            kept = [(step, 100 * share) for step, share in zip(term.share_steps, term.shares, strict=True) if share > 0]
            if kept:
                lines.append(Line(term.name, [step for step, _ in kept], [share for _, share in kept], series=i))
        panels.append(Panel(name, STEP, Axis("share of the gradient (%)", log=True), tuple(lines)))
        means = ", ".join(f"{term.name} {100 * (term.mean_share or 0):.3g} %" for term in run.terms)
        about.append(f"{name}, mean shares: {means}")
    return Figure("gradient-shares", "Share of each term in the gradient", "; ".join(about), tuple(panels))


def _terms_figure(runs: Sequence[tuple[str, LossTerms]]) -> Figure:
    panels, about = [], []
    for name in dict.fromkeys(term.name for _, run in runs for term in run.terms):
        lines = []
        for i, (label, run) in enumerate(runs):
            for term in run.terms:
                if term.name == name and term.steps:
                    steps, values = thinned(term.steps, term.values)
                    lines.append(Line(label, steps, values, series=i, markers=False))
                    about.append(f"{name} of {label} goes from {values[0]:.3g} to {values[-1]:.3g}")
        positive = all(value > 0 for line in lines for value in line.y)
        title = name if len(lines) > 1 else f"{name} ({lines[0].name})" if lines else name
        panels.append(Panel(title, STEP, Axis(f"{name} (unweighted)", log=positive), tuple(lines)))
    return Figure("loss-terms", "Terms of the loss over the steps", "; ".join(about), tuple(panels))


def _groups_table(spectra: Sequence[tuple[str, GroupSpectra]]) -> Table:
    columns = [Column("model", "word"), Column("groups"), Column("columns"), Column("largest eigenvalue")]
    columns += [Column("smallest"), Column("condition, median"), Column("condition, largest")]
    columns.append(Column("condition of all columns"))
    rows = []
    for name, found in spectra:
        values = (found.eigenvalues.max(), found.eigenvalues.min(), np.median(found.conditions), found.conditions.max())
        whole = found.by_count.get(1)
        cells = [word(name), *(number(size, "{:d}") for size in found.eigenvalues.shape)]
        cells += [_significant(float(value)) for value in values]
        rows.append(Row((*cells, Cell(MISSING) if whole is None else _significant(float(whole[0])))))
    notes = (
        "Condition number: largest over smallest eigenvalue of a group's covariance; 1 is white. Of all columns: as if "
        "they were one group, where there are more texts than columns.",
    )
    return Table("Covariance of the whitening groups", tuple(columns), tuple(rows), notes)


def _significant(value: float) -> Cell:
    return number(value, "{:.3g}") if np.isfinite(value) else Cell("\N{INFINITY}", value)


def _every_group(spectra: Sequence[tuple[str, GroupSpectra]]) -> Table:
    columns = [Column("model", "word"), Column("group"), Column("largest eigenvalue"), Column("smallest")]
    columns.append(Column("condition"))
    rows = []
    for name, found in spectra:
        for i, (values, condition) in enumerate(zip(found.eigenvalues, found.conditions, strict=True), 1):
            ends = (float(values[0]), float(values[-1]), float(condition))
            rows.append(Row((word(name), number(i, "{:d}"), *map(_significant, ends))))
    return Table("Every group", tuple(columns), tuple(rows))


def _groups_figure(spectra: Sequence[tuple[str, GroupSpectra]]) -> Figure:
    values, sizes, about = [], [], []
    for i, (name, found) in enumerate(spectra):
        ranks = range(found.eigenvalues.shape[1])
        values.append(_banded(name, ranks, list(found.eigenvalues.T), i))
        sizes.append(_banded(name, list(found.by_count), list(found.by_count.values()), i))
        about.append(
            f"{name}: the median condition number of {len(found.eigenvalues)} groups is "
            f"{np.median(found.conditions):.3g}, the largest {_significant(float(found.conditions.max())).text}"
        )
    columns = max(found.eigenvalues.shape[1] for _, found in spectra)
    ranked = Axis("eigenvalue of a group, largest first", names=_names(columns))
    axis = Axis("condition number", log=True)
    panels = [
        Panel("Eigenvalues", ranked, Axis("eigenvalue", log=True), tuple(values)),
        Panel("Condition numbers", Axis("group, largest first"), axis, tuple(_sorted(spectra))),
        Panel("Other numbers of groups", Axis("groups", log=True), axis, tuple(sizes)),
    ]
    note = (
        "Lines are medians over the groups, bands reach from the 5th to the 95th percentile; what is singular, or not "
        "positive, is left out"
    )
    title = "Covariance of the whitening groups"
    return Figure("whitening-groups", title, "; ".join(about), tuple(panels), note, columns=3)


def _names(columns: int) -> tuple[str, ...]:
    """Return the numbers from 1, so many of them that there is room for."""
    step = -(-columns // 12)
    return tuple(str(i + 1) if i % step == 0 else "" for i in range(columns))


def _banded(name: str, x: Sequence[int], groups: Sequence[Doubles], series: int) -> Line:
    """Return medians with a band, where they can stand on a logarithmic axis."""
    ends = np.array([np.percentile(values, (50, 5, 95), method="nearest") for values in groups])
    ends[~np.isfinite(ends) | (ends <= 0)] = np.nan
    kept = np.isfinite(ends[:, 0])
    middle, low, high = ends[kept].T
    return Line(name, np.asarray(x)[kept], middle, low, high, series=series)


def _sorted(spectra: Sequence[tuple[str, GroupSpectra]]) -> list[Line]:
    made = []
    for i, (name, found) in enumerate(spectra):
        conditions: Doubles = np.sort(found.conditions[np.isfinite(found.conditions)])[::-1]
        made.append(Line(name, np.arange(1, len(conditions) + 1), conditions, series=i, markers=False))
    return made
