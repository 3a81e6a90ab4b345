"""The terms of training runs, their shares of the gradient, and the groups that whitening works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sentcli.analysis.loss_terms import thinned
from sentcli.figures.figure import Axis, Figure, Line, Panel
from sentcli.reports.page import MISSING, Cell, Column, Row, Section, Table, number, word

if TYPE_CHECKING:
    import numpy.typing as npt

    from sentcli.analysis.group_spectrum import GroupSpectra
    from sentcli.analysis.loss_terms import LossTerms

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
                lines.append(Line(term.name, *zip(*kept, strict=True), series=i))  # type: ignore[misc]
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
        ranks = np.arange(1, found.eigenvalues.shape[1] + 1)
        least, greatest = found.eigenvalues.min(axis=0), found.eigenvalues.max(axis=0)
        values.append(Line(name, ranks, np.median(found.eigenvalues, axis=0), least, greatest, series=i))
        counts = [count for count, conditions in found.by_count.items() if np.isfinite(conditions).all()]
        medians, low, high = (
            [float(pick(found.by_count[count])) for count in counts] for pick in (np.median, np.min, np.max)
        )
        sizes.append(Line(name, counts, medians, low, high, series=i))
        about.append(
            f"{name}: the median condition number of {len(found.eigenvalues)} groups is "
            f"{np.median(found.conditions):.3g}, the largest {found.conditions.max():.3g}"
        )
    axis = Axis("condition number", log=True)
    panels = [
        _ranks(values, max(found.eigenvalues.shape[1] for _, found in spectra)),
        Panel("Condition numbers", Axis("group, largest first"), axis, tuple(_sorted(spectra))),
        Panel("Other numbers of groups", Axis("groups", log=True), axis, tuple(sizes)),
    ]
    note = "Lines are medians over the groups, bands reach from the least to the greatest"
    title = "Covariance of the whitening groups"
    return Figure("whitening-groups", title, "; ".join(about), tuple(panels), note, columns=3)


def _ranks(lines: Sequence[Line], columns: int) -> Panel:
    x = Axis("eigenvalue of a group, largest first", limits=(0.5, columns + 0.5))
    return Panel("Eigenvalues", x, Axis("eigenvalue", log=True), tuple(lines))


def _sorted(spectra: Sequence[tuple[str, GroupSpectra]]) -> list[Line]:
    made = []
    for i, (name, found) in enumerate(spectra):
        conditions: npt.NDArray[np.float64] = np.sort(found.conditions[np.isfinite(found.conditions)])[::-1]
        made.append(Line(name, np.arange(1, len(conditions) + 1), conditions, series=i, markers=False))
    return made
