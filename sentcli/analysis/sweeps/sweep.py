"""``analyze sweep``: scores over the hyper-parameters that sweeps have varied."""

from __future__ import annotations

from functools import partial
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
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Result
from sentcli.errors import InputError
from sentcli.io.options import Overwrite
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


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
    points_by_key = {key: numbers.over(runs, key) for key in dict.fromkeys(x or numbers.varied(runs))}
    if constant := next((key for key in x or [] if points_by_key[key].empty), None):
        raise InputError(f"--x {constant}: it has one value in all runs that are otherwise alike: nothing to draw")
    points_by_key = {key: points for key, points in points_by_key.items() if not points.empty}
    if not points_by_key:
        raise InputError(f"no setting has several values in the {len(runs)} runs that are otherwise alike")
    sections = []
    for key, points in points_by_key.items():
        words, name, scores = key.replace("_", " "), f"sweep-{slug(key)}", measured_scores(points)
        sections.append(Section(f"Sweep of {words}", figure=_sweep_figure(key, points, name)))
        frame = points[["system", "value", "runs", *scores]].assign(value=points["value"].map(value_text))
        frame["runs"] = frame["runs"].where(points[scores].notna().any(axis=1), 0)
        deviations = {
            (i, short_label(score)): float(sd)
            for score in scores
            for i, sd in enumerate(points[f"{score}_sd"])
            if sd == sd  # not NaN
        }
        frame = frame.rename(columns={"value": words, **{score: short_label(score) for score in scores}})
        table = Table.of_frame(f"Scores over {words}", frame, deviations=deviations)
        sections.append(Section(table.title, table=table, file=f"{name}-table"))
    reports = [record_of_points("sweep", runs, points, {"x": key}) for key, points in points_by_key.items()]
    summary = [line for key, points in points_by_key.items() for line in best_points(points, key)]
    return write_folder("sweep", output, sections, reports, summary)


def _sweep_figure(key: str, points: pd.DataFrame, name: str) -> Figure | None:
    """Return a figure with a panel for each score; None if no system has a score at several values."""
    import pandas as pd

    data = pd.concat(
        [score_lines(short_label(score), points, score) for score in measured_scores(points)] or [pd.DataFrame()]
    )
    if data.empty or not data.duplicated(["panel", "series"]).any():
        return None
    data = data[data.duplicated(["panel", "series"], keep=False)].reset_index(drop=True)
    values = list(points["value"])
    numeric = all(isinstance(x, int | float) and not isinstance(x, bool) for x in values)
    names = [] if numeric else list(dict.fromkeys(map(value_text, values)))
    best = data.loc[data.groupby(["panel", "series"], sort=False)["y"].idxmax()]
    about = [f"{row.series}: best {row.panel} {row.y:.2f} at {key} {value_text(row.x)}" for row in best.itertuples()]
    if not numeric:
        data = data.assign(x=data["x"].map(value_text))
    # the ratio of the largest to the smallest value of a setting from which on its axis is logarithmic
    logarithmic = numeric and min(values) > 0 and max(values) / min(values) >= 8.0

    def draw(score: str, axes: Axes) -> None:
        if names:
            axes.xaxis.update_units(names)  # type: ignore[no-untyped-call]  # the order, where a panel lacks some
        style.lines(axes, data[data["panel"] == short_label(score)], list(points["system"].unique()))
        axes.set(title=short_label(score), xlabel=key.replace("_", " "), ylabel=label(score))
        if names:
            turned: dict[str, Any] = {"rotation": 45, "ha": "right"} if max(map(len, names)) > 4 else {}
            axes.set_xticks(range(len(names)), [style.short(text) for text in names], **turned)
            axes.xaxis.grid(visible=False)
        if logarithmic:
            axes.set_xscale("log")
            style.plain_log_ticks(axes.xaxis, values)

    score_by_title = {short_label(score): score for score in measured_scores(points)}
    panels = {title: partial(draw, score) for title, score in score_by_title.items() if (data["panel"] == title).any()}
    return Figure(name, f"Scores over {key.replace('_', ' ')}", panels, data, "; ".join(about), BANDS)
