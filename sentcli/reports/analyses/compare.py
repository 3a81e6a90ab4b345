"""Texts whose neighbours differ between two models, with the neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sentcli.figures.figure import Axis, Dots, Figure, Line, Panel
from sentcli.reports.page import Column, Row, Section, Table, number, word

if TYPE_CHECKING:
    from sentcli.analysis.compare import Compared

LONGEST = 120
"""Characters of a text in a table."""


def sections(found: Compared, names: tuple[str, str], texts: Sequence[str], top: int, chosen: str) -> list[Section]:
    """Return figure and tables.

    Args:
        found: the comparison.
        names: of the two models.
        texts: ``[n]``.
        top: texts to list, of the most and of the least changed.
        chosen: in words, which texts.
    """
    made = [
        Section("Shared neighbours", text=(chosen,), table=_numbers(found, names), file="overlap"),
        Section("How many neighbours texts share", figure=_figure(found, names, texts)),
    ]
    for title, rows in (("Most", found.most_changed(top)), ("Least", found.least_changed(top))):
        table = _listed(f"{title} changed", found, names, texts, rows)
        made.append(Section(table.caption, table=table, file=f"{title.lower()}-changed"))
        if title == "Most":
            made += [_neighbours(found, names, texts, row) for row in rows]
    return made


def _numbers(found: Compared, names: tuple[str, str]) -> Table:
    counts, n = found.histogram, len(found.shared)
    titles = ("texts", "neighbours", "overlap %", "Jaccard %", "same nearest %", "none shared %", "all shared %")
    cells = [
        word(" and ".join(names)),
        number(n, "{:,.0f}"),
        number(found.k, "{:.0f}"),
        *(number(100 * share, "{:.1f}") for share in (found.overlap, found.jaccard, found.same_nearest)),
        *(number(100 * float(count) / n, "{:.1f}") for count in (counts[0], counts[-1])),
    ]
    note = (
        f"Overlap: mean share of a text's {found.k} nearest texts by cosine that are the same in both models; "
        f"{100 * found.by_chance:.1f} % if they were drawn at random. Jaccard: the same, of all that it has in either."
    )
    return Table(
        "Neighbours that both models find",
        (Column("models", "word"), *map(Column, titles)),
        (Row(tuple(cells)),),
        (note,),
    )


def _figure(found: Compared, names: tuple[str, str], texts: Sequence[str]) -> Figure:
    counts, n, k = found.histogram, len(found.shared), found.k
    shares = 100 * counts / n
    line = Line("texts", range(k + 1), shares)
    x = Axis(f"of {k} neighbours, those that both models find")
    histogram = Panel(
        "Texts by shared neighbours", x, Axis("texts (%)", limits=(0, 1.08 * float(shares.max()))), (line,)
    )
    means = [cosines.mean(axis=1) for cosines in found.cosines]
    dots = Dots("texts", means[0], means[1], values=found.shared, labels=list(texts))
    x, y = (Axis(f"cosine in {short(name, 36)}") for name in names)
    where = Panel("Mean cosine of the neighbours", x, y, (dots,), "shared neighbours", (0, k), legend=False)
    sizes = (float(counts[0]) / n, float(counts[-1]) / n)
    few = found.shared <= k // 3
    near = ", ".join(
        f"{mean[few].mean():.2f} against {mean[~few].mean():.2f} in {name}"
        for mean, name in zip(means, names, strict=True)
        if few.any() and not few.all()
    )
    words = (
        f"{names[0]} and {names[1]} share {found.overlap * k:.1f} of {k} neighbours on average; "
        f"{100 * sizes[0]:.1f} % of the texts share none, {100 * sizes[1]:.1f} % all"
        + (f". Mean cosine of the neighbours where at most {k // 3} are shared, and elsewhere: {near}" if near else "")
    )
    return Figure("compare", "Neighbours shared by two models", words, (histogram, where))


def _listed(title: str, found: Compared, names: tuple[str, str], texts: Sequence[str], rows: Sequence[int]) -> Table:
    made = []
    for row in rows:
        cells = [word(short(texts[row]))]
        cells += [word(short(texts[neighbours[row, 0]])) for neighbours in found.neighbours]
        cells += [number(int(found.shared[row]), "{:.0f}")]
        cells += [number(float(cosines[row, 0]), "{:.2f}") for cosines in found.cosines]
        made.append(Row(tuple(cells)))
    columns = [Column("text", "text"), *(Column(f"nearest in {name}", "text") for name in names)]
    columns += [Column("shared"), *(Column(f"cosine in {name}") for name in names)]
    note = (
        f"Shared: of {found.k} neighbours. Of texts that share as many, those come first whose neighbours are nearest "
        "in both models: mean cosine, where each rank weighs 0.8 of the one before, in standard deviations over texts."
    )
    return Table(title, tuple(columns), tuple(made), (note,))


def _neighbours(found: Compared, names: tuple[str, str], texts: Sequence[str], row: int) -> Section:
    """Return both lists of neighbours of one text, side by side; those in both are marked."""
    both = set(found.neighbours[0][row].tolist()) & set(found.neighbours[1][row].tolist())
    made = []
    for rank in range(found.k):
        cells = [number(rank + 1, "{:.0f}")]
        for neighbours, cosines in zip(found.neighbours, found.cosines, strict=True):
            other = int(neighbours[row, rank])
            cells += [
                word(short(texts[other]) + (" (in both)" if other in both else "")),
                number(float(cosines[row, rank]), "{:.2f}"),
            ]
        made.append(Row(tuple(cells)))
    columns = [Column("rank")]
    for name in names:
        columns += [Column(name, "text"), Column("cosine")]
    title = f"Neighbours of: {short(texts[row], 90)}"
    return Section(title, table=Table(title, tuple(columns), tuple(made)), level=3, folded=True)


def short(text: str, longest: int = LONGEST) -> str:
    """Return the beginning of a text, cut at a word where there is one."""
    text = " ".join(text.split())
    if len(text) <= longest:
        return text
    head = text[: longest - 1]
    return f"{head.rsplit(' ', 1)[0] if ' ' in head else head}\N{HORIZONTAL ELLIPSIS}"
