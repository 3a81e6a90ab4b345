"""Curves of sweeps: scores over the size of the training set (``low-shot``), and over hyper-parameters (``sweep``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_doc import Doc

from sentcli.errors import InputError, nearest
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table
from sentcli.verbs.declaration import Flag, verb
from sentcli.verbs.kinds import shared
from sentcli.verbs.kinds.shared import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sentcli.analysis.sweeps import Curve, PublishedCurve, Spread, SweepRun

WIDE = 20.0
"""Ratio of the largest to the smallest value of a setting from which its axis is logarithmic."""
BANDS = "Points are means over seeds, bands one standard deviation."
Sweeps = Annotated[
    list[Path],
    Doc("Folders of train --sweep or --seeds, or their results.jsonl."),
    Flag(metavar="PATH...", show_default=False, positional=True),
]


@verb("low-shot")
def low_shot(
    paths: Sweeps,
    output: shared.Output,
    baseline: Annotated[
        str | None,
        Doc("Also show the distance from this one; default: simcse, if it is there."),
        Flag(metavar="SYSTEM"),
    ] = None,
    published: Annotated[bool, Doc("Draw what miCSE prints (tables 2 to 4) beside it.")] = False,
    overwrite: shared.Overwrite = False,
) -> Analysis:
    """Scores over the size of the training set, from a sweep of --fraction or --limit.

    Means over the seeds with a band of one standard deviation (miCSE, figs. 3,
    4 and 9, tables 2 to 4). What else the sweep varies makes a system of its
    own, such as positives_only or objectives+=ami.

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
    curves = sweeps.low_shot(runs)
    systems = [curve.system for curve in curves]
    if baseline is not None and baseline not in systems:
        hint = nearest(baseline, systems)
        raise InputError(f"--baseline {baseline}: no such system{hint}; there are: {'; '.join(systems)}")
    if baseline is None and "simcse" in systems and len(systems) > 1:
        baseline = "simcse"
    printed = sweeps.published_low_shot() if published else []
    made = []
    for score in _scored(curves):
        title, file = f"Low shot: {_short(score)}", f"low-shot-{_slug(score)}"
        table = _by_size(curves, score)
        made.append(Section(title, figure=_low_shot_figure(curves, score, printed)))
        made.append(Section(f"{title}, by system", table=table, file=f"{file}-table"))
        if baseline is not None:
            over = _distances(table, score, baseline)
            made.append(Section(f"{title}, over {baseline}", table=over, file=f"{file}-over"))
    if printed:
        made.append(Section("Published low-shot scores", table=_published(printed), file="low-shot-published"))
    objects = [_object("low-shot", runs, curves, {"baseline": baseline})]
    return shared.write("low-shot", output, made, objects, _summary(curves, "sentences"))


@verb("sweep")
def sweep(
    paths: Sweeps,
    output: shared.Output,
    x: Annotated[
        list[str] | None,
        Doc("A setting as for train --set, such as learning_rate or ami.weight; default: all that is varied."),
        Flag(metavar="KEY", show_default=False),
    ] = None,
    overwrite: shared.Overwrite = False,
) -> Analysis:
    """Dev and test scores over any hyper-parameter, from sweeps.

    The ablations of the papers (InforMin-CL, tables 5 to 7; InfoCSE, tables 4
    to 9; WhitenedCSE, tables 3 to 6) are sweeps of weights, rates, groups and
    the like. Several sweeps are read as one: the runs at the defaults give the
    point of the default value.

    \b
    Examples:
      sentcli analyze sweep sweep/ -o sweep-figures
      sentcli analyze sweep defaults/results.jsonl rates/results.jsonl --x learning_rate -o rates
      sentcli analyze sweep groups/ --x whitening.num_groups --json -  -o groups-figures
    """  # noqa: D301
    from sentcli.analysis import sweeps

    shared.check(output, overwrite=overwrite)
    runs = sweeps.read_runs(paths)
    every = {key: sweeps.over(runs, key) for key in dict.fromkeys(x or sweeps.varied(runs))}
    if alone := next((key for key in x or [] if not every[key]), None):
        raise InputError(f"--x {alone}: it has one value in all runs that are otherwise alike: nothing to draw")
    drawn = {key: curves for key, curves in every.items() if curves}
    if not drawn:
        raise InputError(f"no setting has several values in the {len(runs)} runs that are otherwise alike")
    made = []
    for key, curves in drawn.items():
        words, name = key.replace("_", " "), f"sweep-{_slug(key)}"
        made.append(Section(f"Sweep of {words}", figure=_sweep_figure(key, curves, name)))
        made.append(Section(f"Scores over {words}", table=_over_setting(key, curves), file=f"{name}-table"))
    objects = [_object("sweep", runs, each, {"x": key}) for key, each in drawn.items()]
    summary = [line for key, curves in drawn.items() for line in _summary(curves, key)]
    return shared.write("sweep", output, made, objects, summary)


def _object(kind: str, runs: Sequence[SweepRun], curves: Sequence[Curve], choices: dict[str, Any]) -> dict[str, Any]:
    from sentcli.machine import environment
    from sentcli.verbs.outcome import Outcome

    models = ", ".join(dict.fromkeys(str(run.record.get("model")) for run in runs))
    protocol = {"kind": kind, **choices, "runs": len(runs)}
    results = {"curves": [curve.to_dict() for curve in curves]}
    return Outcome("analyze", models, protocol, results, environment(None, None)).to_dict()


def _scored(curves: Sequence[Curve]) -> list[str]:
    """Return the scores that some points have, the test score first."""
    from sentcli.analysis.sweeps import SCORES

    return [key for key in SCORES if any(key in spreads for curve in curves for _, spreads in curve.points)]


def _summary(curves: Sequence[Curve], what: str) -> list[str]:
    """Return for each score which system is best, and where."""
    lines = []
    for score in _scored(curves):
        points = [(spread.mean, curve.system, x) for curve in curves for x, spread in curve.values(score)]
        best, system, x = max(points, key=lambda point: point[0])
        lines.append(f"Best {_short(score)}: {best:.2f}, {system} at {what} {_shown(x)}.")
    return lines


def _label(score: str) -> str:
    from sentcli.analysis.sweeps import SCORES

    return SCORES[score]


def _short(score: str) -> str:
    return _label(score).split(" (")[0]


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text.lower()).strip("-")


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _points(panel: str, curve: Curve, score: str) -> pd.DataFrame:
    """Return the points of a curve with a band of one standard deviation."""
    import pandas as pd

    values = curve.values(score)
    several = any(spread.sd is not None for _, spread in values)
    rows = [
        {
            "panel": panel,
            "series": curve.system,
            "x": x,
            "y": spread.mean,
            "low": spread.band[0] if several else None,
            "high": spread.band[1] if several else None,
        }
        for x, spread in values
    ]
    return pd.DataFrame(rows)


def _sweep_figure(key: str, curves: Sequence[Curve], name: str) -> Figure | None:
    """Return a panel for each score; None where no system has a score at several values."""
    import pandas as pd

    parts, words = [], []
    for score in _scored(curves):
        for curve in curves:
            values = curve.values(score)
            if len(values) > 1:
                parts.append(_points(_short(score), curve, score))
                x, best = max(values, key=lambda point: point[1].mean)
                title = f"{curve.system}: best {score.replace('_', ' ')}"
                words.append(f"{title} {best.mean:.2f} at {key} {_shown(x)}")
    if not parts:
        return None
    data = pd.concat(parts)
    every = [x for curve in curves for x, _ in curve.points]
    numeric = all(isinstance(x, int | float) and not isinstance(x, bool) for x in every)
    names = [] if numeric else list(dict.fromkeys(map(_shown, every)))
    if not numeric:
        data["label"] = data["x"].map(_shown)
        data["x"] = data["label"].map(names.index)
    logarithmic = numeric and min(every) > 0 and max(every) / min(every) >= WIDE

    def draw(score: str, axes: Axes) -> None:
        style.lines(axes, data[data["panel"] == _short(score)], [curve.system for curve in curves])
        axes.set(title=_short(score), xlabel=key.replace("_", " "), ylabel=_label(score))
        if names:
            turned: dict[str, Any] = {"rotation": 45, "ha": "right"} if max(map(len, names)) > 4 else {}
            axes.set_xticks(range(len(names)), [style.short(each) for each in names], **turned)
            axes.xaxis.grid(visible=False)
        if logarithmic:
            style.log_axis(axes, "x")

    panels = [partial(draw, score) for score in _scored(curves) if (data["panel"] == _short(score)).any()]
    return Figure(name, f"Scores over {key.replace('_', ' ')}", panels, data, "; ".join(words), BANDS)


def _low_shot_figure(curves: Sequence[Curve], score: str, published: Sequence[PublishedCurve]) -> Figure:
    import pandas as pd

    words = []
    for curve in curves:
        if values := curve.values(score):
            (least, first), (most, last) = values[0], values[-1]
            words.append(f"{curve.system}: {first.mean:.2f} with {least:,} sentences, {last.mean:.2f} with {most:,}")
    measured = pd.concat([_points("Measured", curve, score) for curve in curves])
    printed = [
        pd.DataFrame(
            {"panel": "Published", "series": each.title, "x": [100 * s for s in each.shares], "y": list(each.mean)}
        )
        for each in published
    ]
    data = pd.concat([measured, *printed])

    def draw(title: str, x: str, y: str, names: list[str], axes: Axes) -> None:
        style.lines(axes, data[data["panel"] == title], names)
        axes.set(title=title, xlabel=x, ylabel=y)
        style.log_axis(axes, "x")

    systems = [curve.system for curve in curves]
    panels = [partial(draw, "Measured", "training sentences", _label(score), systems)]
    if published:
        across, titles = "share of 1,000,000 sentences (%)", [each.title for each in published]
        panels.append(partial(draw, "Published", across, _label("sts_average"), titles))  # whatever was measured
    title = "Scores over the size of the training set"
    return Figure(f"low-shot-{_slug(score)}", title, panels, data, "; ".join(words), BANDS)


def _by_size(curves: Sequence[Curve], score: str) -> Table:
    """Return a row for each system and a column for each number of sentences."""
    sizes = sorted({x for curve in curves for x, _ in curve.values(score)})
    rows, deviations = [], dict[tuple[int, str], float]()
    for i, curve in enumerate(curves):
        spreads = dict(curve.values(score))
        runs = max((spread.runs for spread in spreads.values()), default=0)
        rows.append([curve.system, runs, *(spreads[size].mean if size in spreads else None for size in sizes)])
        deviations |= {(i, f"{x:,}"): spread.sd for x, spread in spreads.items() if spread.sd is not None}
    columns = ["system", "runs", *(f"{size:,}" for size in sizes)]
    return Table(f"{_label(score)}, by number of training sentences", columns, rows, deviations=deviations)


def _distances(table: Table, score: str, baseline: str) -> Table:
    """Return how far every system is from a baseline."""
    base = next(row for row in table.rows if row[0] == baseline)
    rows = [
        [*row[:2], *(None if None in (x, y) else x - y for x, y in zip(row[2:], base[2:], strict=True))]
        for row in table.rows
    ]
    title = f"{_label(score)}, by number of training sentences, over {baseline}"
    return Table(title, table.columns, rows, formats=dict.fromkeys(table.columns[2:], "+.2f"))


def _over_setting(key: str, curves: Sequence[Curve]) -> Table:
    scores = _scored(curves)
    rows: list[list[Any]] = []
    deviations: dict[tuple[int, str], float] = {}
    for curve in curves:
        for x, spreads in curve.points:
            runs = max((spread.runs for spread in spreads.values()), default=0)
            means = [spreads[score].mean if score in spreads else None for score in scores]
            deviations |= {(len(rows), _short(score)): sd for score in scores if (sd := _sd(spreads.get(score)))}
            rows.append([curve.system, _shown(x), runs, *means])
    words = key.replace("_", " ")
    columns = ["system", words, "runs", *map(_short, scores)]
    return Table(f"Scores over {words}", columns, rows, deviations=deviations)


def _sd(spread: Spread | None) -> float | None:
    return None if spread is None else spread.sd


def _published(published: Sequence[PublishedCurve]) -> Table:
    shares = sorted({share for each in published for share in each.shares})
    rows, deviations = [], dict[tuple[int, str], float]()
    for i, each in enumerate(published):
        means = dict(zip(each.shares, each.mean, strict=True))
        rows.append([each.title, *(means.get(share) for share in shares)])
        deviations |= {(i, f"{100 * s:g} %"): sd for s, sd in zip(each.shares, each.sd, strict=False)}
    note = "miCSE (Klein and Nabi, ACL 2023): BERT-base, shares of a million sentences of Wikipedia."
    columns = ["system", *(f"{100 * share:g} %" for share in shares)]
    title = "Published STS averages, by share of the training set"
    return Table(title, columns, rows, deviations=deviations, published=len(rows), notes=(note,))
