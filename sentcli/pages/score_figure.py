"""The figure of a table of scores: a band of dots with whiskers for each task."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from sentcli.pages import protocols, style
from sentcli.pages.page import Figure
from sentcli.pages.score_tables import ScoreTable, published_label, short
from sentcli.pages.systems import System

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LINE = 0.19
"""Height of the line of one score, in inches."""
GAP = 1.4
"""Space between two tasks, in lines."""
PANEL = "scores"
"""The name of the only panel."""


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
    kinds = ["95 % interval"] if (has_whiskers & ~data["grouped"]).any() else []
    if (has_whiskers & data["grouped"]).any():
        kinds.append("mean \N{PLUS-MINUS SIGN} standard deviation of the seeds, which are the small dots")
    whiskers = f"Whiskers: {'; of grouped models '.join(kinds)}. " if kinds else ""
    axis = protocols.axis(table.models[0])
    return Figure(
        name=f"scores-{table.kind.name.replace(' ', '-')}",
        title=f"{table.title}, by task",
        panels={PANEL: partial(_draw, data=data, axis=axis)},
        data=data,
        alt=f"{axis}: {'; '.join(data['label'])}",
        note=f"{whiskers}The axis does not start at zero",
        columns=1,
        size=(5.2, LINE * (data["y"].max() + 2) + 0.6),
    )


def _points(table: ScoreTable, *, intervals: bool) -> Iterator[dict[str, Any]]:
    """Yield a point for each task and model, with the height of its line."""
    y, columns = 0.0, table.columns
    for column in columns:
        scores: list[tuple[str, float | None, System | None]] = []
        scores += [(system.label, system.spread(column, columns)[0], system) for system in table.systems]
        for against in table.published.values():
            scores.append((published_label(against), against["tasks"].get(column, {}).get("published"), None))
        known = [(number, *score) for number, score in enumerate(scores) if score[1] is not None]
        for line, (number, label, score, system) in enumerate(known, 1):
            pattern = table.format if system is None else table.format_of(column)
            low, high = (system and intervals and system.whiskers(column, columns)) or (None, None)
            whisker = "" if low is None else f" ({low:{pattern}} to {high:{pattern}})"
            values = system.values(column, columns) if system else []
            yield {
                **{"panel": PANEL, "series": label, "x": score, "y": y + line, "low": low, "high": high},
                **{"number": number, "shown": f"{score:{pattern}}", "seeds": values if len(values) > 1 else []},
                **{"grouped": system is not None and system.grouped, "published": system is None},
                **{"task": short(column), "label": f"{short(column)}, {label}: {score:{pattern}}{whisker}"},
            }
        y += len(known) + GAP if known else 0


def _draw(axes: Axes, *, data: pd.DataFrame, axis: str) -> None:
    beside = axes.get_yaxis_transform()
    for task, points in data.groupby("task", sort=False):
        axes.text(0, points["y"].min() - 1, style.short(str(task)), transform=beside, weight="bold", va="center")
    for point in data.itertuples():
        look = _look(point.number, published=point.published)
        if point.low == point.low:
            axes.hlines(point.y, point.low, point.high, color=look["color"], alpha=0.65, linewidth=1.6)
        axes.plot(point.seeds, [point.y] * len(point.seeds), "o", color=look["color"], alpha=0.55, markersize=2.5)
        axes.plot(point.x, point.y, **look)
        axes.text(1.02, point.y, point.shown, transform=beside, va="center", fontsize=8)
    for first in data.drop_duplicates("series").itertuples():
        axes.plot([], [], label=first.series, linestyle="", **_look(first.number, published=first.published))
    axes.set(yticks=[], ylim=(data["y"].max() + 0.8, -0.8), xlabel=axis)
    axes.spines["left"].set_visible(False)


def _look(series: int, *, published: bool) -> dict[str, Any]:
    """Return marker and colour of a model; a published score has an open marker."""
    if published:
        return {"marker": style.marker(series), "color": style.INK, "markerfacecolor": "none", "markersize": 5.5}
    return {"marker": style.marker(series), "color": style.colour(series), "markersize": 5.5}
