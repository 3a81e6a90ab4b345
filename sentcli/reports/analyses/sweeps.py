"""Curves of sweeps: scores over shares of the training set, and over hyper-parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sentcli.analysis.sweeps import SCORES, Curve, PublishedCurve, Spread
from sentcli.figures.figure import Axis, Figure, Line, Panel
from sentcli.reports.page import MISSING, Cell, Column, Row, Section, Table, number, word

WIDE = 20.0
"""Ratio of the largest to the smallest value of a setting from which its axis is logarithmic."""
BANDS = "Points are means over seeds, bands one standard deviation."


def low_shot_sections(
    curves: Sequence[Curve], baseline: str | None = None, published: Sequence[PublishedCurve] = ()
) -> list[Section]:
    """Return curves and tables of scores over the number of training sentences.

    Args:
        curves: of the systems.
        baseline: a system whose distance from the others is wanted too.
        published: what a paper prints, as shares of its training set.
    """
    made = []
    for score in _scored(curves):
        title = f"Low shot: {SCORES[score].split(' (')[0]}"
        made.append(Section(title, figure=_low_shot_figure(curves, score, published)))
        made.append(
            Section(title + ", by system", table=_by_size(curves, score), file=f"low-shot-{_slug(score)}-table")
        )
        if baseline is not None:
            table = _by_size(curves, score, next(curve for curve in curves if curve.system == baseline))
            made.append(Section(f"{title}, over {baseline}", table=table, file=f"low-shot-{_slug(score)}-over"))
    if published:
        made.append(Section("Published low-shot scores", table=_published_table(published), file="low-shot-published"))
    return made


def sweep_sections(key: str, curves: Sequence[Curve]) -> list[Section]:
    """Return curves and a table of scores over a setting."""
    values = [x for curve in curves for x, _ in curve.points]
    numeric = all(isinstance(x, int | float) and not isinstance(x, bool) for x in values)
    names = () if numeric else tuple(dict.fromkeys(map(_shown, values)))
    logarithmic = numeric and min(values) > 0 and max(values) / min(values) >= WIDE
    panels, words = [], []
    for score in _scored(curves):
        lines = []
        for i, curve in enumerate(curves):
            found = curve.values(score)
            if len(found) > 1:
                across = [x if numeric else names.index(_shown(x)) for x, _ in found]
                lines.append(_line(curve.system, across, [spread for _, spread in found], i))
                words.append(_best(curve.system, key, score, found))
        if lines:
            axes = Axis(key.replace("_", " "), log=logarithmic, names=names), Axis(SCORES[score])
            panels.append(Panel(SCORES[score].split(" (")[0], *axes, tuple(lines)))
    name = f"sweep-{_slug(key)}"
    figure = Figure(name, f"Scores over {key.replace('_', ' ')}", "; ".join(words), tuple(panels), BANDS)
    return [
        Section(f"Sweep of {key.replace('_', ' ')}", figure=figure if panels else None),
        Section(f"Scores over {key.replace('_', ' ')}", table=_over_table(key, curves), file=f"{name}-table"),
    ]


def _scored(curves: Sequence[Curve]) -> list[str]:
    """Return the scores that some points have, the test score first."""
    return [key for key in SCORES if any(key in spreads for curve in curves for _, spreads in curve.points)]


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text.lower()).strip("-")


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _line(name: str, x: list[Any], spreads: list[Spread], series: int) -> Line:
    bands = [spread.band for spread in spreads] if any(spread.sd is not None for spread in spreads) else []
    low, high = [band[0] for band in bands], [band[1] for band in bands]
    return Line(name, x, [spread.mean for spread in spreads], low, high, series)


def _best(system: str, key: str, score: str, found: Sequence[tuple[Any, Spread]]) -> str:
    x, best = max(found, key=lambda point: point[1].mean)
    return f"{system}: best {score.replace('_', ' ')} {best.mean:.2f} at {key} {_shown(x)}"


def _low_shot_figure(curves: Sequence[Curve], score: str, published: Sequence[PublishedCurve]) -> Figure:
    lines, words = [], []
    for i, curve in enumerate(curves):
        found = curve.values(score)
        if found:
            lines.append(_line(curve.system, [x for x, _ in found], [spread for _, spread in found], i))
            first, last = found[0], found[-1]
            words.append(
                f"{curve.system}: {first[1].mean:.2f} with {first[0]:,} sentences, {last[1].mean:.2f} with {last[0]:,}"
            )
    label = SCORES[score]
    panels = [Panel("Measured", Axis("training sentences", log=True), Axis(label), tuple(lines))]
    if published:
        printed = [
            Line(one.title, [100 * share for share in one.shares], one.mean, series=i)
            for i, one in enumerate(published)
        ]
        axes = Axis("share of 1,000,000 sentences (%)", log=True), Axis(SCORES["sts_average"])  # whatever was measured
        panels.append(Panel("Published", *axes, tuple(printed)))
    title = "Scores over the size of the training set"
    return Figure(f"low-shot-{_slug(score)}", title, "; ".join(words), tuple(panels), BANDS)


def _spread_cell(spread: Spread | None, base: Spread | None = None) -> Cell:
    if spread is None:
        return Cell(MISSING)
    if base is not None:
        return number(spread.mean - base.mean, "{:+.2f}")
    cell = number(spread.mean)
    return cell if spread.sd is None else Cell(f"{cell.text} ± {spread.sd:.2f}", spread.mean)


def _by_size(curves: Sequence[Curve], score: str, baseline: Curve | None = None) -> Table:
    """Return a row for each system and a column for each number of sentences."""
    sizes = sorted({x for curve in curves for x, _ in curve.values(score)})
    base = dict(baseline.values(score)) if baseline is not None else {}
    rows = []
    for curve in curves:
        found = dict(curve.values(score))
        cells = []
        for size in sizes:
            lacks = baseline is not None and size not in base
            cells.append(_spread_cell(None if lacks else found.get(size), base.get(size)))
        seeds = max(spread.runs for spread in found.values()) if found else 0
        rows.append(Row((word(curve.system), word(seeds), *cells)))
    columns = (Column("system", "word"), Column("runs", "word"), *(Column(f"{size:,}") for size in sizes))
    over = f", over {baseline.system}" if baseline is not None else ""
    return Table(f"{SCORES[score]}, by number of training sentences{over}", columns, tuple(rows))


def _over_table(key: str, curves: Sequence[Curve]) -> Table:
    scores = _scored(curves)
    rows = [
        Row(
            (
                word(curve.system),
                word(_shown(x)),
                word(max(spread.runs for spread in spreads.values()) if spreads else 0),
                *(_spread_cell(spreads.get(score)) for score in scores),
            )
        )
        for curve in curves
        for x, spreads in curve.points
    ]
    heads = (Column("system", "word"), Column(key.replace("_", " "), "word"), Column("runs", "word"))
    return Table(
        f"Scores over {key.replace('_', ' ')}",
        (*heads, *(Column(SCORES[s].split(" (")[0]) for s in scores)),
        tuple(rows),
    )


def _published_table(published: Sequence[PublishedCurve]) -> Table:
    shares = sorted({share for one in published for share in one.shares})
    rows = []
    for one in published:
        means, sds = dict(zip(one.shares, one.mean, strict=True)), dict(zip(one.shares, one.sd, strict=False))
        cells = [
            Cell(f"{means[share]:.2f}" + (f" ± {sds[share]:.2f}" if share in sds else ""), means[share])
            if share in means
            else Cell(MISSING)
            for share in shares
        ]
        rows.append(Row((word(one.title), *cells), printed=True))
    columns = (Column("system", "word"), *(Column(f"{100 * share:g} %") for share in shares))
    note = "miCSE (Klein and Nabi, ACL 2023): BERT-base, shares of a million sentences of Wikipedia."
    return Table("Published STS averages, by share of the training set", columns, tuple(rows), (note,))
