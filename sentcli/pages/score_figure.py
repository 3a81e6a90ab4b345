"""The figure of a table of scores: a band for each task, a line for each system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any

from sentcli.evaluation.systems import System
from sentcli.pages import style
from sentcli.pages.page import Figure
from sentcli.pages.score_tables import ScoreTable, published_label, published_value, short_task

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
    whiskers = data[data["low"].notna()]
    kinds = []
    if not whiskers["grouped"].all():
        kinds.append("95 % interval")
    if whiskers["grouped"].any():
        kinds.append("mean \N{PLUS-MINUS SIGN} standard deviation of the seeds, which are the small dots")
    note = "The axis does not start at zero"
    if kinds:
        note = f"Whiskers: {'; of grouped models '.join(kinds)}. {note}"
    return Figure(
        name=f"scores-{table.kind.name.replace(' ', '-')}",
        title=f"{table.title}, by task",
        panels={"scores": partial(_draw, data=data, axis=table.axis)},
        data=data,
        about=[f"{table.axis}: {'; '.join(data['label'])}"],
        note=note,
        columns=1,
        size=(5.2, 0.19 * (data["y"].max() + 2) + 0.6),  # height of the line of one score, in inches
    )


def _points(table: ScoreTable, *, intervals: bool) -> Iterator[dict[str, Any]]:
    """Yield a point for each task and model, with the height of its line."""
    height = 0.0  # of the lines of earlier tasks
    for column in table.columns:
        line = 0
        rows: list[System | Mapping[str, Any]] = [*table.systems, *table.published.values()]
        for number, series in enumerate(rows):
            if isinstance(series, System):
                point = _measured_point(table, series, column, intervals=intervals)
            else:
                point = _point(published_label(series), published_value(series, column), column, table.format)
            if point is None:
                continue
            line += 1
            yield {**point, "panel": "scores", "y": height + line, "number": number, "task": short_task(column)}
        if line:
            height += line + 1.4  # space between two tasks, in lines


def _measured_point(table: ScoreTable, system: System, column: str, *, intervals: bool) -> dict[str, Any] | None:
    """Return the point of a system on a task with its whiskers and seeds, or None if it has no score there."""
    mean, _ = system.mean_and_deviation(column)
    pattern = table.format_of(column)
    point = _point(system.label, mean, column, pattern)
    if point is None:
        return None
    point |= {"grouped": system.grouped, "published": False}
    seeds = system.values(column)
    if len(seeds) > 1:
        point["seeds"] = seeds
    whiskers = system.whiskers(column) if intervals else None
    if whiskers is not None:
        low, high = whiskers
        point |= {"low": low, "high": high}
        point["label"] += f" ({low:{pattern}} to {high:{pattern}})"
    return point


def _point(series: str, score: float | None, column: str, pattern: str) -> dict[str, Any] | None:
    """Return the point of a published score, or None if there is no score."""
    if score is None:
        return None
    shown = format(score, pattern)
    return {
        "series": series,
        "x": score,
        "low": None,
        "high": None,
        "shown": shown,
        "label": f"{short_task(column)}, {series}: {shown}",
        "seeds": [],
        "grouped": False,
        "published": True,
    }


def _draw(axes: Axes, *, data: pd.DataFrame, axis: str) -> None:
    outside = axes.get_yaxis_transform()  # x in shares of the width, y in lines
    for task, points in data.groupby("task", sort=False):
        line = points["y"].min() - 1
        axes.text(0, line, style.short_label(str(task)), transform=outside, weight="bold", va="center")
    for point in data.itertuples():
        y = point.y
        look = _look(point.number, published=point.published)
        colour = look["color"]
        if not isnan(point.low):
            axes.hlines(y, point.low, point.high, color=colour, alpha=0.65, linewidth=1.6)
        seeds = point.seeds
        axes.plot(seeds, [y] * len(seeds), "o", color=colour, alpha=0.55, markersize=2.5)
        axes.plot(point.x, y, **look)
        axes.text(1.02, y, point.shown, transform=outside, va="center", fontsize=8)
    for first in data.drop_duplicates("series").itertuples():
        look = _look(first.number, published=first.published)
        axes.plot([], [], label=first.series, linestyle="", **look)
    axes.set(yticks=[], ylim=(data["y"].max() + 0.8, -0.8), xlabel=axis)
    axes.spines["left"].set_visible(False)


def _look(series: int, *, published: bool) -> dict[str, Any]:
    """Return marker and colour of a model; a published score has an open marker."""
    look = {"marker": style.marker(series), "color": style.colour(series), "markersize": 5.5}
    if published:
        look |= {"color": style.INK, "markerfacecolor": "none"}
    return look
