"""The figure of a table of scores: a band for each task, a line for each system."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any

from sentcli.pages import protocols, style
from sentcli.pages.page import Figure
from sentcli.pages.score_tables import ScoreTable, published_label, short
from sentcli.pages.systems import System

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def score_figure(table: ScoreTable, *, intervals: bool = True) -> Figure | None:
    """Return a figure with a band for each task, or None if there is no score.

    Whiskers are 95 % intervals. A group of seeds has its standard deviation as whiskers, and the seeds as small dots.
    """
    import pandas as pd

    rows = list(_points(table, intervals=intervals))
    if not rows:
        return None
    data = pd.DataFrame(rows).astype({"low": float, "high": float})
    has_whiskers = data["low"].notna()
    kinds = []
    if (has_whiskers & ~data["grouped"]).any():
        kinds.append("95 % interval")
    if (has_whiskers & data["grouped"]).any():
        kinds.append("mean \N{PLUS-MINUS SIGN} standard deviation of the seeds, which are the small dots")
    note = "The axis does not start at zero"
    if kinds:
        note = f"Whiskers: {'; of grouped models '.join(kinds)}. {note}"
    axis = protocols.axis(table.models[0])
    return Figure(
        name=f"scores-{table.kind.name.replace(' ', '-')}",
        title=f"{table.title}, by task",
        panels={"scores": partial(_draw, data=data, axis=axis)},
        data=data,
        alt=f"{axis}: {'; '.join(data['label'])}",
        note=note,
        columns=1,
        size=(5.2, 0.19 * (data["y"].max() + 2) + 0.6),  # height of the line of one score, in inches
    )


def _points(table: ScoreTable, *, intervals: bool) -> Iterator[dict[str, Any]]:
    """Yield a point for each task and model, with the height of its line."""
    columns = table.columns
    above = 0.0  # the height of the lines of earlier tasks
    for column in columns:
        scores: list[tuple[str, float | None, System | None]] = []
        for row in table.systems:
            scores.append((row.label, row.mean_and_deviation(column, columns)[0], row))
        for against in table.published.values():
            scores.append((published_label(against), against["tasks"].get(column, {}).get("published"), None))
        line = 0
        for number, (label, score, system) in enumerate(scores):
            if score is None:
                continue
            line += 1
            pattern, ends, seeds = table.format, None, list[float]()
            if system is not None:
                pattern = table.format_of(column)
                seeds = system.values(column, columns)
                ends = system.whiskers(column, columns) if intervals else None
            shown = f"{score:{pattern}}"
            words = f"{short(column)}, {label}: {shown}"
            low, high = ends or (None, None)
            if low is not None:
                words += f" ({low:{pattern}} to {high:{pattern}})"
            yield {
                "panel": "scores",
                "series": label,
                "x": score,
                "y": above + line,
                "low": low,
                "high": high,
                "number": number,
                "shown": shown,
                "seeds": seeds if len(seeds) > 1 else [],
                "grouped": system is not None and system.grouped,
                "published": system is None,
                "task": short(column),
                "label": words,
            }
        if line:
            above += line + 1.4  # space between two tasks, in lines


def _draw(axes: Axes, *, data: pd.DataFrame, axis: str) -> None:
    beside = axes.get_yaxis_transform()
    for task, points in data.groupby("task", sort=False):
        above = points["y"].min() - 1
        axes.text(0, above, style.short(str(task)), transform=beside, weight="bold", va="center")
    for point in data.itertuples():
        look = _look(point.number, published=point.published)
        colour = look["color"]
        if not isnan(point.low):
            axes.hlines(point.y, point.low, point.high, color=colour, alpha=0.65, linewidth=1.6)
        axes.plot(point.seeds, [point.y] * len(point.seeds), "o", color=colour, alpha=0.55, markersize=2.5)
        axes.plot(point.x, point.y, **look)
        axes.text(1.02, point.y, point.shown, transform=beside, va="center", fontsize=8)
    for first in data.drop_duplicates("series").itertuples():
        axes.plot([], [], label=first.series, linestyle="", **_look(first.number, published=first.published))
    axes.set(yticks=[], ylim=(data["y"].max() + 0.8, -0.8), xlabel=axis)
    axes.spines["left"].set_visible(False)


def _look(series: int, *, published: bool) -> dict[str, Any]:
    """Return marker and colour of a model; a published score has an open marker."""
    look = {"marker": style.marker(series), "color": style.colour(series), "markersize": 5.5}
    if published:
        look |= {"color": style.INK, "markerfacecolor": "none"}
    return look
