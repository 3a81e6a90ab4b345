"""``analyze sweep``: scores over the hyper-parameters that sweeps have varied."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Annotated, Any

from sentcli.analysis.folder import check_folder, write_folder
from sentcli.analysis.options import Output
from sentcli.analysis.sweeps.scores import (
    BANDS,
    Sweeps,
    best_points,
    label,
    measured_scores,
    record_of_points,
    score_lines,
    short_label,
    slug,
    value_text,
)
from sentcli.bounds import Overwrite
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Result
from sentcli.errors import InputError
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sentcli.analysis.sweeps.points import FinishedRun

LEAST_RATIO = 8.0
"""The ratio of the largest to the smallest value of a setting from which on its axis is logarithmic."""


@verb("sweep")
def sweep(
    paths: Sweeps,
    output: Output,
    x: Annotated[list[str] | None, Flag(metavar="KEY")] = None,
    overwrite: Overwrite = False,
) -> Result:
    """Dev and test scores over any hyper-parameter, from sweeps.

    The ablations of the papers (InforMin-CL, tables 5 to 7; InfoCSE, tables 4
    to 9; WhitenedCSE, tables 3 to 6) are sweeps of weights, rates, groups and
    the like. Several sweeps are read as one: the runs at the defaults give the
    point of the default value.

    Args:
        x: A setting as for train --set, such as learning_rate or ami.weight; default: all that is varied.

    \b
    Examples:
      sentcli analyze sweep sweep/ -o sweep-figures
      sentcli analyze sweep defaults/results.jsonl rates/results.jsonl --x learning_rate -o rates
      sentcli analyze sweep groups/ --x whitening.num_groups --json -  -o groups-figures
    """  # noqa: D301
    from sentcli.analysis.sweeps import points as numbers

    check_folder(output, overwrite=overwrite)
    runs = numbers.read_runs(paths)
    points_by_key = _points_by_key(runs, x)
    sections = []
    reports = []
    summary = []
    for key, points in points_by_key.items():
        table = _table(key, points)
        name = f"sweep-{slug(key)}"
        sections.append(Section(f"Sweep of {_words(key)}", figure=_figure(key, points, name)))
        sections.append(Section(table.title, table=table, file=f"{name}-table"))
        reports.append(record_of_points("sweep", runs, points, {"x": key}))
        summary += best_points(points, key)
    return write_folder("sweep", output, sections, reports, summary)


def _points_by_key(runs: Sequence[FinishedRun], keys: Sequence[str] | None) -> dict[str, pd.DataFrame]:
    """Return the points over each of some settings, by default over all that are varied.

    Raises:
        InputError: if there are none; if a setting that was asked for has one value in all runs.
    """
    from sentcli.analysis.sweeps import points as numbers

    points_by_key = {}
    constant = []
    for key in dict.fromkeys(keys or numbers.varied(runs)):
        points = numbers.over(runs, key)
        if points.empty:
            constant.append(key)
        else:
            points_by_key[key] = points
    if keys and constant:
        raise InputError(f"--x {constant[0]}: it has one value in all runs that are otherwise alike: nothing to draw")
    if not points_by_key:
        raise InputError(f"no setting has several values in the {len(runs)} runs that are otherwise alike")
    return points_by_key


def _words(key: str) -> str:
    return key.replace("_", " ")


def _table(key: str, points: pd.DataFrame) -> Table:
    """Return a row for each system and value of a setting."""
    scores = measured_scores(points)
    frame = points[["system", "value", "runs", *scores]].assign(value=points["value"].map(value_text))
    frame["runs"] = frame["runs"].where(points[scores].notna().any(axis=1), 0)
    heads = {"value": _words(key)}
    deviations = {}
    for score in scores:
        heads[score] = short_label(score)
        for row, deviation in enumerate(points[f"{score}_sd"]):
            if not isnan(deviation):
                deviations[row, heads[score]] = float(deviation)
    frame = frame.rename(columns=heads)
    return Table.of_frame(f"Scores over {_words(key)}", frame, deviations=deviations)


def _names(values: Sequence[Any]) -> list[str]:
    """Return the distinct values of a setting as words; empty if all are numbers."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return []
    return list(dict.fromkeys(map(value_text, values)))


def _set_name_ticks(axes: Axes, names: Sequence[str]) -> None:
    """Write a name at each of the first places of the x axis, turned where one is long."""
    turned: dict[str, Any] = {}
    if max(map(len, names)) > 4:
        turned = {"rotation": 45, "ha": "right"}
    axes.set_xticks(range(len(names)), list(map(style.short, names)), **turned)
    axes.xaxis.grid(visible=False)


def _figure(key: str, points: pd.DataFrame, name: str) -> Figure | None:
    """Return a figure with a panel for each score; None if no system has a score at several values."""
    import pandas as pd

    by_score = [score_lines(short_label(score), points, score) for score in measured_scores(points)]
    if not by_score:
        return None
    data = pd.concat(by_score)
    data = data[data.duplicated(["panel", "series"], keep=False)].reset_index(drop=True)
    if data.empty:
        return None
    about = []
    best = data.groupby(["panel", "series"], sort=False)["y"].idxmax()
    for row in data.loc[best].itertuples():
        about.append(f"{row.series}: best {row.panel} {row.y:.2f} at {key} {value_text(row.x)}")
    values = list(points["value"])
    names = _names(values)
    if names:
        data = data.assign(x=data["x"].map(value_text))
    logarithmic = not names and min(values) > 0 and max(values) / min(values) >= LEAST_RATIO
    systems = list(points["system"].unique())

    def draw(score: str, axes: Axes) -> None:
        title = short_label(score)
        if names:
            axes.xaxis.update_units(names)  # type: ignore[no-untyped-call]  # the order, where a panel lacks some
        style.lines(axes, data[data["panel"] == title], systems)
        axes.set(title=title, xlabel=_words(key), ylabel=label(score))
        if names:
            _set_name_ticks(axes, names)
        if logarithmic:
            axes.set_xscale("log")
            style.plain_log_ticks(axes.xaxis, values)

    drawn = set(data["panel"])
    scores = [score for score in measured_scores(points) if short_label(score) in drawn]
    return Figure(
        name=name,
        title=f"Scores over {_words(key)}",
        panels={short_label(score): partial(draw, score) for score in scores},
        data=data,
        alt="; ".join(about),
        note=BANDS,
    )
