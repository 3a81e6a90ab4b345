"""The figure of a table of scores: dots with whiskers, a band for each task."""

from __future__ import annotations

from typing import Any

from sentcli.pages import protocols
from sentcli.pages.page import Figure
from sentcli.pages.score_tables import ScoreTable, published_label, short

MARKERS = "osD^v"
"""Five shapes and the colours of the style have no common factor, so that many models differ in one of the two."""


def score_figure(table: ScoreTable) -> Figure | None:
    """Return a figure with a band for each task, or None if no score is known.

    Whiskers are 95 % intervals, or of grouped models the standard deviation of the seeds, which are the small dots.
    """
    import pandas as pd

    rows = list(_points(table))
    if not rows:
        return None
    data = pd.DataFrame(rows)
    kinds = []
    if (data["low"].notna() & ~data["grouped"]).any():
        kinds.append("95 % interval")
    if (data["low"].notna() & data["grouped"]).any():
        kinds.append("mean \N{PLUS-MINUS SIGN} standard deviation of the seeds, which are the small dots")
    note = f"Whiskers: {'; of grouped models '.join(kinds)}." if kinds else ""
    return Figure(
        name=f"scores-{table.kind.name.replace(' ', '-')}",
        title=f"{table.title}, by task",
        draw=lambda: _draw(table, data),
        data=data.drop(columns=["seeds", "grouped"]),
        note=note,
        alt="; ".join(f"{row['task']}, {row['model']}: {row['value']:.2f}" for row in rows),
    )


def _points(table: ScoreTable) -> Any:
    """Yield a point for each model and task."""
    for column in table.columns:
        for system in table.systems:
            mean, sd = system.spread(column, table.columns)
            if mean is None:
                continue
            ends = (mean - sd, mean + sd) if sd is not None else system.interval(column, table.columns)
            low, high = ends or (None, None)
            yield {
                "task": short(column),
                "model": system.label,
                "value": mean * table.factor,
                "low": None if low is None else low * table.factor,
                "high": None if high is None else high * table.factor,
                "seeds": [value * table.factor for value in system.values(column, table.columns)],
                "grouped": system.grouped,
            }
        for against in table.published.values():
            if (line := against["tasks"].get(column)) is not None:
                value = line["published"] * table.factor
                point = {"task": short(column), "model": published_label(against), "value": value}
                yield {**point, "low": None, "high": None, "seeds": [], "grouped": False}


def _draw(table: ScoreTable, data: Any) -> Any:
    from matplotlib.figure import Figure as Canvas

    models = list(dict.fromkeys(data["model"]))
    tasks = list(dict.fromkeys(data["task"]))
    height = len(models) + 1.2
    canvas = Canvas(figsize=(7, 0.6 + 0.16 * height * len(tasks) + 0.2 * len(models)))
    axes = canvas.add_subplot()
    for band, task in enumerate(tasks):
        for row in data[data["task"] == task].itertuples():
            i = models.index(row.model)
            y, colour = band * height + i, f"C{i % 6}"
            if row.low == row.low and row.low is not None:
                axes.plot([row.low, row.high], [y, y], color=colour, linewidth=1.2)
            if len(row.seeds) > 1:
                axes.plot(row.seeds, [y] * len(row.seeds), ".", color=colour, markersize=3)
            printed = row.model.startswith("published: ")
            label = row.model if band == 0 else None
            face = "none" if printed else colour
            axes.plot(
                row.value, y, MARKERS[i % len(MARKERS)], color=colour, markerfacecolor=face, markersize=6, label=label
            )
    axes.set_yticks([band * height + (len(models) - 1) / 2 for band in range(len(tasks))], tasks)
    axes.invert_yaxis()
    axes.set_xlabel(protocols.axis(table.models[0]))
    axes.grid(axis="x", alpha=0.3)
    canvas.legend(*axes.get_legend_handles_labels(), loc="outside upper left", frameon=False)
    canvas.set_layout_engine("constrained")
    return canvas
