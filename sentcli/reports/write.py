"""Pages of scores in the form of `sentcli.pages`, which writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import pages, table
from sentcli.pages import style
from sentcli.pages import write as files
from sentcli.pages.page import Figure, Style
from sentcli.pages.write import check_suffix
from sentcli.reports.page import DotPlot, Page, Point, Section, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_suffix", "render", "write_page"]

ROW = 0.19
"""Inches of a line of a model in a figure of scores."""


def write_page(page: Page, targets: Sequence[Path], style: Style | None = None) -> None:
    """Write a page to files, each atomically; figures of scores are in HTML only.

    Args:
        page: what is shown.
        targets: files whose suffix is that of a format.
        style: bold, intervals.
    """
    for target in targets:
        files.write_page(converted(page, style or Style(), plots=target.suffix.lower() == ".html"), [target], style)


def render(page: Page, suffix: str, style: Style | None = None) -> str:
    """Return a page as text in the format of a suffix."""
    return files.render(converted(page, style or Style(), plots=suffix == ".html"), suffix, style)


def converted(page: Page, style: Style, *, plots: bool) -> pages.page.Page:
    """Return a page as `sentcli.pages` writes it.

    Args:
        page: with the tables of this package, or those of `sentcli.table`.
        style: whether figures have the intervals.
        plots: whether figures of scores are shown.
    """
    sections = []
    for number, section in enumerate(page.sections):
        figure = section.figure
        if isinstance(figure, DotPlot):
            figure = _plot(figure, f"scores-{number + 1}", intervals=style.intervals is not False) if plots else None
        sections.append(_section(section, figure))
    return pages.page.Page(page.title, sections, (), " ".join(page.text))


def _section(section: Section, figure: Figure | None) -> pages.page.Section:
    shown = section.table
    shown = converted_table(shown) if isinstance(shown, Table) else shown
    more = (section.file, section.code, section.level, section.folded)
    return pages.page.Section(section.title, section.text, shown, figure, *more)


def converted_table(old: Table) -> table.Table:
    """Return a table of this package as one of raw values, whose numbers look as they did."""
    columns = [column.title for column in old.columns]
    rows, texts, intervals, ranked = [], {}, {}, []
    for i, row in enumerate(old.rows):
        values = []
        for j, (column, cell) in enumerate(zip(old.columns, row.cells, strict=True)):
            values.append(cell.value if column.kind == "number" else cell.text)
            texts[i, j] = cell.text
            if cell.interval is not None:
                intervals[i, column.title] = cell.interval
            if cell.rank:
                ranked.append(column.title)
        rows.append(values)
    return table.Table(
        old.caption,
        columns,
        rows,
        ranked=tuple(dict.fromkeys(ranked)),
        intervals=intervals,
        published=sum(row.printed for row in old.rows),
        notes=old.notes,
        interval_note=old.interval_note,
        wide=[column.title for column in old.columns if column.kind == "text"],
        texts=texts,
    )


def _plot(plot: DotPlot, name: str, *, intervals: bool) -> Figure:
    """Return dots with whiskers on a common axis, in a band for each task."""
    import pandas as pd

    places = list(_places(plot))
    rows = [
        {
            "panel": 0,
            "task": band,
            "model": plot.series[point.series].name,
            "x": point.value,
            "low": point.range[0] if point.range and intervals else None,
            "high": point.range[1] if point.range and intervals else None,
            "y": y,
            "text": _about(plot, band, point, intervals=intervals),
        }
        for y, band, point in places
        if point is not None
    ]
    data = pd.DataFrame(rows)

    def draw(axes: Axes) -> None:
        beside = axes.get_yaxis_transform()
        for y, band, point in places:
            if point is None:
                axes.text(0, y, style.short(band), transform=beside, weight="bold", va="center")
            else:
                _draw_point(axes, y, point, printed=plot.series[point.series].printed, intervals=intervals)
                axes.text(1.02, y, point.text, transform=beside, va="center", fontsize=8)
        for i, series in enumerate(plot.series):
            axes.plot([], [], label=series.name, linestyle="", **_look(i, printed=series.printed))
        axes.set(yticks=[], ylim=(places[-1][0] + 0.8, -0.8), xlabel=plot.axis)
        axes.spines["left"].set_visible(False)

    whiskers = f"Whiskers: {plot.whiskers}. " if intervals and plot.whiskers else ""
    alt = f"{plot.axis}: {'; '.join(data['text'])}"
    points = data.assign(group=data["model"])
    size = (5.2, ROW * len(places) + 0.6)
    note = f"{whiskers}The axis does not start at zero"
    return Figure(name, plot.title, (draw,), data, alt, note, points, columns=1, size=size)


def _places(plot: DotPlot) -> Iterator[tuple[float, str, Point | None]]:
    """Yield the height of each line with its task and its point; the first line of a task is its name."""
    y = 0.0
    for band, points in plot.bands:
        yield y, band, None
        for point in points:
            y += 1
            yield y, band, point
        y += 1.4


def _draw_point(axes: Axes, y: float, point: Point, *, printed: bool, intervals: bool) -> None:
    colour = style.INK if printed else style.colour(point.series)
    if point.range and intervals:
        axes.hlines(y, *point.range, color=colour, alpha=0.65, linewidth=1.6)
    if point.seeds:
        axes.plot(point.seeds, [y] * len(point.seeds), "o", color=colour, alpha=0.55, markersize=2.5)
    axes.plot(point.value, y, **_look(point.series, printed=printed))


def _look(series: int, *, printed: bool) -> dict[str, Any]:
    """Return marker and colour of a model; what is printed in a paper is an open mark."""
    if printed:
        return {"marker": style.marker(series), "color": style.INK, "markerfacecolor": "none", "markersize": 5.5}
    return {"marker": style.marker(series), "color": style.colour(series), "markersize": 5.5}


def _about(plot: DotPlot, band: str, point: Point, *, intervals: bool) -> str:
    whisker = " ({:.2f} to {:.2f})".format(*point.range) if point.range and intervals else ""
    return f"{band}, {plot.series[point.series].name}: {point.text}{whisker}"
