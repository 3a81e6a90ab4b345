"""``analyze low-shot`` and ``analyze sweep``: scores over the size of the training set, and over hyper-parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_doc import Doc

from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError, nearest
from sentcli.io.options import Overwrite
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table
from sentcli.verbs.kinds import shared

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sentcli.analysis.sweeps import FinishedRun

BANDS = "Points are means over seeds, bands one standard deviation."
Sweeps = Annotated[
    list[Path],
    Doc("Folders of train --sweep or --seeds, or their results.jsonl."),
    Flag(metavar="PATH...", positional=True),
]


@verb("low-shot")
def low_shot(
    paths: Sweeps,
    output: shared.Output,
    baseline: Annotated[str | None, Flag(metavar="SYSTEM")] = None,
    published: bool = False,
    overwrite: Overwrite = False,
) -> Result:
    """Scores over the size of the training set, from a sweep of --fraction or --limit.

    Means over the seeds with a band of one standard deviation (miCSE, figs. 3,
    4 and 9, tables 2 to 4). What else the sweep varies makes a system of its
    own, such as positives_only or objectives+=ami.

    Args:
        baseline: Also show the distance from this one; default: simcse, if it is there.
        published: Draw what miCSE prints (tables 2 to 4) beside it.

    \b
    Examples:
      sentcli train --sweep low-shot.toml -m bert-base --data wiki.txt --max-steps 8000 --eval-data downstream \\
        --sts -o sweep
      sentcli analyze low-shot sweep -o low-shot --published
      sentcli analyze low-shot a/results.jsonl b/results.jsonl --baseline simcse -o low-shot
    """  # noqa: D301
    from sentcli.analysis import sweeps

    shared.check(output, overwrite=overwrite)
    runs = sweeps.read_runs(paths)
    points = sweeps.low_shot(runs)
    systems = list(points["system"].unique())
    if baseline is not None and baseline not in systems:
        hint = nearest(baseline, systems)
        raise InputError(f"--baseline {baseline}: no such system{hint}; there are: {'; '.join(systems)}")
    if baseline is None and "simcse" in systems and len(systems) > 1:
        baseline = "simcse"
    published_scores = sweeps.published_low_shot() if published else None
    sections = []
    for score in _scored(points):
        title, file = f"Low shot: {_short(score)}", f"low-shot-{_slug(score)}"
        table = _by_size(points, score)
        sections.append(Section(title, figure=_low_shot_figure(points, score, published_scores)))
        sections.append(Section(f"{title}, by system", table=table, file=f"{file}-table"))
        if baseline is not None:
            base = next(row for row in table.rows if row[0] == baseline)
            differences = [
                [*row[:2], *(None if None in (x, y) else x - y for x, y in zip(row[2:], base[2:], strict=True))]
                for row in table.rows
            ]
            formats = dict.fromkeys(table.columns[2:], "+.2f")
            over = Table(f"{table.title}, over {baseline}", table.columns, differences, formats=formats)
            sections.append(Section(f"{title}, over {baseline}", table=over, file=f"{file}-over"))
    if published_scores is not None:
        table = _published(published_scores)
        sections.append(Section("Published low-shot scores", table=table, file="low-shot-published"))
    reports = [_report("low-shot", runs, points, {"baseline": baseline})]
    return shared.write("low-shot", output, sections, reports, _summary(points, "sentences"))


@verb("sweep")
def sweep(
    paths: Sweeps,
    output: shared.Output,
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
    from sentcli.analysis import sweeps

    shared.check(output, overwrite=overwrite)
    runs = sweeps.read_runs(paths)
    points_by_key = {key: sweeps.over(runs, key) for key in dict.fromkeys(x or sweeps.varied(runs))}
    if constant := next((key for key in x or [] if points_by_key[key].empty), None):
        raise InputError(f"--x {constant}: it has one value in all runs that are otherwise alike: nothing to draw")
    points_by_key = {key: points for key, points in points_by_key.items() if not points.empty}
    if not points_by_key:
        raise InputError(f"no setting has several values in the {len(runs)} runs that are otherwise alike")
    sections = []
    for key, points in points_by_key.items():
        words, name, scores = key.replace("_", " "), f"sweep-{_slug(key)}", _scored(points)
        sections.append(Section(f"Sweep of {words}", figure=_sweep_figure(key, points, name)))
        frame = points[["system", "value", "runs", *scores]].assign(value=points["value"].map(_value_text))
        frame["runs"] = frame["runs"].where(points[scores].notna().any(axis=1), 0)
        deviations = {
            (i, _short(score)): float(sd)
            for score in scores
            for i, sd in enumerate(points[f"{score}_sd"])
            if sd == sd  # not NaN
        }
        frame = frame.rename(columns={"value": words, **{score: _short(score) for score in scores}})
        table = Table.of_frame(f"Scores over {words}", frame, deviations=deviations)
        sections.append(Section(table.title, table=table, file=f"{name}-table"))
    reports = [_report("sweep", runs, points, {"x": key}) for key, points in points_by_key.items()]
    summary = [line for key, points in points_by_key.items() for line in _summary(points, key)]
    return shared.write("sweep", output, sections, reports, summary)


def _report(kind: str, runs: Sequence[FinishedRun], points: pd.DataFrame, choices: dict[str, Any]) -> Record:
    import pandas as pd

    curves: dict[str, list[dict[str, Any]]] = {}
    for point in points.to_dict("records"):
        scores = {}
        for score in _scored(points):
            if pd.notna(point[score]):
                deviation = point[f"{score}_sd"]
                deviation = None if pd.isna(deviation) else deviation
                scores[score] = {"mean": point[score], "sd": deviation, "runs": point["runs"]}
        curves.setdefault(point["system"], []).append({"value": point["value"], **scores})
    models = ", ".join(dict.fromkeys(str(run.record.get("model")) for run in runs))
    results = {"curves": [{"system": system, "points": each} for system, each in curves.items()]}
    return shared.record(models, {"kind": kind, **choices, "runs": len(runs)}, results, Clock())


def _scored(points: pd.DataFrame) -> list[str]:
    """Return the scores that some points have, the test score first."""
    from sentcli.analysis.sweeps import SCORE_TITLES

    return [score for score in SCORE_TITLES if points[score].notna().any()]


def _summary(points: pd.DataFrame, setting: str) -> list[str]:
    """Return a sentence for each score that names the best system and its value of a setting."""
    best = {score: points.loc[points[score].idxmax()] for score in _scored(points)}
    return [
        f"Best {_short(score)}: {point[score]:.2f}, {point['system']} at {setting} {_value_text(point['value'])}."
        for score, point in best.items()
    ]


def _label(score: str) -> str:
    from sentcli.analysis.sweeps import SCORE_TITLES

    return SCORE_TITLES[score]


def _short(score: str) -> str:
    return _label(score).split(" (")[0]


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text.lower()).strip("-")


def _value_text(value: Any) -> str:
    return style.plain(value) if isinstance(value, float) else str(value)


def _lines(panel: str, points: pd.DataFrame, score: str) -> pd.DataFrame:
    """Return the lines of a score, with a band of one standard deviation for systems that have several runs."""
    import pandas as pd

    scored = points[points[score].notna()]
    mean, deviation = scored[score], scored[f"{score}_sd"]
    banded = deviation.notna().groupby(scored["system"]).transform("any")
    low, high = (mean + sign * deviation.fillna(0) for sign in (-1, 1))
    columns = {"series": scored["system"], "x": scored["value"], "y": mean}
    return pd.DataFrame({"panel": panel, **columns, "low": low.where(banded), "high": high.where(banded)})


def _sweep_figure(key: str, points: pd.DataFrame, name: str) -> Figure | None:
    """Return a figure with a panel for each score; None if no system has a score at several values."""
    import pandas as pd

    data = pd.concat([_lines(_short(score), points, score) for score in _scored(points)] or [pd.DataFrame()])
    if data.empty or not data.duplicated(["panel", "series"]).any():
        return None
    data = data[data.duplicated(["panel", "series"], keep=False)].reset_index(drop=True)
    values = list(points["value"])
    numeric = all(isinstance(x, int | float) and not isinstance(x, bool) for x in values)
    names = [] if numeric else list(dict.fromkeys(map(_value_text, values)))
    best = data.loc[data.groupby(["panel", "series"], sort=False)["y"].idxmax()]
    about = [f"{row.series}: best {row.panel} {row.y:.2f} at {key} {_value_text(row.x)}" for row in best.itertuples()]
    if not numeric:
        data = data.assign(x=data["x"].map(_value_text))
    # the ratio of the largest to the smallest value of a setting from which on its axis is logarithmic
    logarithmic = numeric and min(values) > 0 and max(values) / min(values) >= 8.0

    def draw(score: str, axes: Axes) -> None:
        if names:
            axes.xaxis.update_units(names)  # type: ignore[no-untyped-call]  # the order, where a panel lacks some
        style.lines(axes, data[data["panel"] == _short(score)], list(points["system"].unique()))
        axes.set(title=_short(score), xlabel=key.replace("_", " "), ylabel=_label(score))
        if names:
            turned: dict[str, Any] = {"rotation": 45, "ha": "right"} if max(map(len, names)) > 4 else {}
            axes.set_xticks(range(len(names)), [style.short(text) for text in names], **turned)
            axes.xaxis.grid(visible=False)
        if logarithmic:
            axes.set_xscale("log")
            style.plain_log_ticks(axes.xaxis, values)

    score_by_title = {_short(score): score for score in _scored(points)}
    panels = {title: partial(draw, score) for title, score in score_by_title.items() if (data["panel"] == title).any()}
    return Figure(name, f"Scores over {key.replace('_', ' ')}", panels, data, "; ".join(about), BANDS)


def _low_shot_figure(points: pd.DataFrame, score: str, published: pd.DataFrame | None) -> Figure:
    import pandas as pd

    about = []
    for system, part in points[points[score].notna()].groupby("system", sort=False):
        (least, first), (most, last) = (part[["value", score]].iloc[i] for i in (0, -1))
        about.append(f"{system}: {first:.2f} with {least:,} sentences, {last:.2f} with {most:,}")
    data = _lines("Measured", points, score)
    if published is not None:
        columns = {"series": published["title"], "x": 100 * published["share"], "y": published["mean"]}
        data = pd.concat([data, pd.DataFrame({"panel": "Published", **columns})])

    axes = {"Measured": {"xlabel": "training sentences", "ylabel": _label(score), "xscale": "log"}}
    if published is not None:  # the published scores are averages, also beside another measured score
        share = "share of 1,000,000 sentences (%)"
        axes["Published"] = {"xlabel": share, "ylabel": _label("sts_average"), "xscale": "log"}
    panels = style.line_panels(data, axes)
    title = "Scores over the size of the training set"
    return Figure(f"low-shot-{_slug(score)}", title, panels, data, "; ".join(about), BANDS)


def _by_size(points: pd.DataFrame, score: str) -> Table:
    """Return a row for each system and a column for each number of sentences."""
    scored = points[points[score].notna()]
    sizes = sorted(scored["value"].unique())
    rows: list[list[Any]] = []
    deviations: dict[tuple[int, str], float] = {}
    for i, system in enumerate(points["system"].unique()):
        own = scored[scored["system"] == system].set_index("value")
        runs = int(own["runs"].max()) if len(own) else 0
        rows.append([system, runs, *(float(own.loc[size, score]) if size in own.index else None for size in sizes)])
        deviations |= {(i, f"{size:,}"): float(sd) for size, sd in own[f"{score}_sd"].dropna().items()}
    columns = ["system", "runs", *(f"{size:,}" for size in sizes)]
    return Table(f"{_label(score)}, by number of training sentences", columns, rows, deviations=deviations)


def _published(published: pd.DataFrame) -> Table:
    shares, titles = sorted(published["share"].unique()), list(published["title"].unique())
    means = published.pivot(index="title", columns="share", values="mean").reindex(titles)[shares]
    means = means.rename(columns=lambda share: f"{100 * share:g} %").rename_axis("system").reset_index()
    deviations = {
        (titles.index(row.title), f"{100 * row.share:g} %"): row.sd
        for row in published.dropna(subset="sd").itertuples()
    }
    note = "miCSE (Klein and Nabi, ACL 2023): BERT-base, shares of a million sentences of Wikipedia."
    title = "Published STS averages, by share of the training set"
    return Table.of_frame(title, means, deviations=deviations, published=len(means), notes=(note,))
