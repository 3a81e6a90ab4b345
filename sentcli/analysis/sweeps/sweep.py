"""``analyze sweep``: scores over the hyper-parameters that sweeps have varied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from sentcli.analysis.curves import BANDS
from sentcli.analysis.folder import check_folder, write_folder
from sentcli.analysis.options import Output
from sentcli.analysis.sweeps.scores import (
    Sweeps,
    best_points,
    mean_table,
    record_of_points,
    slug,
    value_text,
    without_unit,
)
from sentcli.bounds import Overwrite
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Result
from sentcli.errors import InputError
from sentcli.pages import style
from sentcli.pages.page import Figure, Section

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.analysis.runs import TrainingRun

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
    from sentcli.analysis.runs import read_runs
    from sentcli.analysis.sweeps.points import score_titles

    check_folder(output, overwrite=overwrite)
    runs = read_runs(paths)
    titles = score_titles(runs)
    sections = []
    reports = []
    summary = []
    for key, points in _points_by_key(runs, x).items():
        scores = {score: without_unit(titles[score]) for score in points["panel"].unique()}
        table = mean_table(
            f"Scores over {_words(key)}", points, {"series": "system", "x": _words(key)}, "panel", scores
        )
        name = f"sweep-{slug(key)}"
        sections.append(Section(f"Sweep of {_words(key)}", figure=_figure(key, points, titles, name)))
        sections.append(Section.of(table, file=f"{name}-table"))
        reports.append(record_of_points("sweep", runs, points, {"x": key}))
        summary += best_points(points, key, titles)
    return write_folder("sweep", output, sections, reports, summary)


def _points_by_key(runs: Sequence[TrainingRun], keys: Sequence[str] | None) -> dict[str, pd.DataFrame]:
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


def _figure(key: str, points: pd.DataFrame, titles: Mapping[str, str], name: str) -> Figure | None:
    """Return a figure with a panel for each score; None if no system has a score at several values."""
    data = points[points.duplicated(["panel", "series"], keep=False)].reset_index(drop=True)
    if data.empty:
        return None
    data["panel"] = data["panel"].map(titles)
    about = []
    best = data.groupby(["panel", "series"], sort=False)["y"].idxmax()
    for row in data.loc[best].itertuples():
        about.append(f"{row.series}: best {without_unit(row.panel)} {row.y:.2f} at {key} {value_text(row.x)}")
    values = list(data["x"])
    look = {"xlabel": _words(key)}
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        data["x"] = data["x"].map(value_text)
    elif min(values) > 0 and max(values) / min(values) >= LEAST_RATIO:
        look["xscale"] = "log"
    axes = {}
    for panel in data["panel"].unique():
        axes[without_unit(panel)] = {**look, "ylabel": panel}
    data["panel"] = data["panel"].map(without_unit)
    return Figure(
        name=name,
        title=f"Scores over {_words(key)}",
        panels=style.line_panels(data, axes, list(data["series"].unique())),
        data=data,
        about=about,
        note=BANDS,
    )
