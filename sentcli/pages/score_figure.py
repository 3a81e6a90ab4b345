"""The figure of a table of scores: a band of dots with whiskers for each task."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from sentcli.pages import protocols, style
from sentcli.pages.page import Figure
from sentcli.pages.score_tables import ScoreTable, published_label, short

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LINE = 0.19
"""Height of the line of one score, in inches."""
GAP = 1.4
"""Space between two tasks, in lines."""


def score_figure(table: ScoreTable, *, intervals: bool = True) -> Figure | None:
    """Return a figure with a band for each task, or None if there is no score.

    Whiskers are 95 % intervals. A group of seeds has its standard deviation as whiskers, and the seeds as small dots.
    """
    import pandas as pd

    rows = list(_points(table, intervals=intervals))
    if not rows:
        return None
    data = pd.DataFrame(rows)
    has_whiskers = data["low"].notna()
    kinds = ["95 % interval"] if (has_whiskers & ~data["grouped"]).any() else []
    if (has_whiskers & data["grouped"]).any():
        kinds.append("mean \N{PLUS-MINUS SIGN} standard deviation of the seeds, which are the small dots")
    whiskers = f"Whiskers: {'; of grouped models '.join(kinds)}. " if kinds else ""
    axis = protocols.axis(table.models[0])
    return Figure(
        name=f"scores-{table.kind.name.replace(' ', '-')}",
        title=f"{table.title}, by task",
        panels=(partial(_draw, data=data, axis=axis),),
        data=data.drop(columns=["seeds", "grouped", "series", "published"]),
        alt=f"{axis}: {'; '.join(data['text'])}",
        note=f"{whiskers}The axis does not start at zero",
        points=data.rename(columns={"value": "x"})[["x", "y", "text"]].assign(panel=0, group=data["model"]),
        columns=1,
        size=(5.2, LINE * (data["y"].max() + 2) + 0.6),
    )


def _points(table: ScoreTable, *, intervals: bool) -> Iterator[dict[str, Any]]:
    """Yield a point for each task and model, with the height of its line."""
    y = 0.0
    for column in table.columns:
        points: list[dict[str, Any]] = []
        for series, system in enumerate(table.systems):
            mean, sd = system.spread(column, table.columns)
            if mean is not None:
                whiskers = (mean - sd, mean + sd) if sd is not None else system.interval(column, table.columns)
                seeds = system.values(column, table.columns) if sd is not None else []
                point: dict[str, Any] = {"model": system.label, "value": mean, "whiskers": whiskers, "seeds": seeds}
                points.append({**point, "series": series, "grouped": system.grouped, "published": False})
        for series, against in enumerate(table.published.values(), len(table.systems)):
            if (line := against["tasks"].get(column)) is not None:
                point = {"model": published_label(against), "value": line["published"], "whiskers": None, "seeds": []}
                points.append({**point, "series": series, "grouped": False, "published": True})
        for i, point in enumerate(points, 1):
            whiskers = point.pop("whiskers")
            low, high = whiskers if intervals and whiskers else (None, None)
            whisker = "" if low is None or high is None else f" ({low:{table.format}} to {high:{table.format}})"
            text = f"{short(column)}, {point['model']}: {point['value']:{table.format}}{whisker}"
            yield {"task": short(column), **point, "low": low, "high": high, "y": y + i, "text": text}
        y += len(points) + GAP if points else 0


def _draw(axes: Axes, *, data: pd.DataFrame, axis: str) -> None:
    beside = axes.get_yaxis_transform()
    for task, points in data.groupby("task", sort=False):
        axes.text(0, points["y"].min() - 1, style.short(str(task)), transform=beside, weight="bold", va="center")
    for point in data.to_dict("records"):
        look = _look(point["series"], published=point["published"])
        if point["low"] is not None and point["low"] == point["low"]:
            axes.hlines(point["y"], point["low"], point["high"], color=look["color"], alpha=0.65, linewidth=1.6)
        seeds = point["seeds"]
        axes.plot(seeds, [point["y"]] * len(seeds), "o", color=look["color"], alpha=0.55, markersize=2.5)
        axes.plot(point["value"], point["y"], **look)
        axes.text(1.02, point["y"], f"{point['value']:.2f}", transform=beside, va="center", fontsize=8)
    for _, first in data.drop_duplicates("model").iterrows():
        axes.plot([], [], label=first["model"], linestyle="", **_look(first["series"], published=first["published"]))
    axes.set(yticks=[], ylim=(data["y"].max() + 0.8, -0.8), xlabel=axis)
    axes.spines["left"].set_visible(False)


def _look(series: int, *, published: bool) -> dict[str, Any]:
    """Return marker and colour of a model; a published score has an open marker."""
    if published:
        return {"marker": style.marker(series), "color": style.INK, "markerfacecolor": "none", "markersize": 5.5}
    return {"marker": style.marker(series), "color": style.colour(series), "markersize": 5.5}
