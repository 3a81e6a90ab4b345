"""``analyze low-shot``: scores over the size of the training set."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Annotated

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
)
from sentcli.bounds import Overwrite
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Result
from sentcli.errors import InputError, nearest
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table

if TYPE_CHECKING:
    import pandas as pd


@verb("low-shot")
def low_shot(
    paths: Sweeps,
    output: Output,
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
    from sentcli.analysis.sweeps import points as numbers

    check_folder(output, overwrite=overwrite)
    runs = numbers.read_runs(paths)
    points = numbers.low_shot(runs)
    baseline = _baseline(baseline, list(points["system"].unique()))
    published_scores = numbers.published_low_shot() if published else None
    sections = []
    for score in measured_scores(points):
        title = f"Low shot: {short_label(score)}"
        file = f"low-shot-{slug(score)}"
        table = _by_size(points, score)
        sections.append(Section(title, figure=_figure(points, score, published_scores)))
        sections.append(Section(f"{title}, by system", table=table, file=f"{file}-table"))
        if baseline is not None:
            over = _over_baseline(table, baseline)
            sections.append(Section(f"{title}, over {baseline}", table=over, file=f"{file}-over"))
    if published_scores is not None:
        table = _published(published_scores)
        sections.append(Section("Published low-shot scores", table=table, file="low-shot-published"))
    reports = [record_of_points("low-shot", runs, points, {"baseline": baseline})]
    return write_folder("low-shot", output, sections, reports, best_points(points, "sentences"))


def _baseline(name: str | None, systems: list[str]) -> str | None:
    """Return the system of ``--baseline``, by default SimCSE, if it is there beside another one.

    Raises:
        InputError: if there is no such system.
    """
    if name is not None and name not in systems:
        hint = nearest(name, systems)
        raise InputError(f"--baseline {name}: no such system{hint}; there are: {'; '.join(systems)}")
    if name is None and "simcse" in systems and len(systems) > 1:
        return "simcse"
    return name


def _over_baseline(table: Table, baseline: str) -> Table:
    """Return the differences of the rows of a table, whose numbers begin in the third column, from one of them."""
    base = next(row for row in table.rows if row[0] == baseline)
    rows = []
    for row in table.rows:
        differences = list(row[:2])
        for value, base_value in zip(row[2:], base[2:], strict=True):
            difference = None
            if value is not None and base_value is not None:
                difference = value - base_value
            differences.append(difference)
        rows.append(differences)
    formats = dict.fromkeys(table.columns[2:], "+.2f")
    return Table(f"{table.title}, over {baseline}", table.columns, rows, formats=formats)


def _figure(points: pd.DataFrame, score: str, published: pd.DataFrame | None) -> Figure:
    """Return a score over the number of sentences, and published scores in a panel of their own."""
    import pandas as pd

    about = []
    for system, part in points[points[score].notna()].groupby("system", sort=False):
        first = part.iloc[0]
        last = part.iloc[-1]
        about.append(
            f"{system}: {first[score]:.2f} with {first['value']:,} sentences, {last[score]:.2f} with {last['value']:,}"
        )
    data = score_lines("Measured", points, score)
    axes = {"Measured": {"xlabel": "training sentences", "ylabel": label(score), "xscale": "log"}}
    if published is not None:  # the published scores are averages, also beside another measured score
        lines = {
            "panel": "Published",
            "series": published["title"],
            "x": 100 * published["share"],
            "y": published["mean"],
        }
        data = pd.concat([data, pd.DataFrame(lines)])
        axes["Published"] = {
            "xlabel": "share of 1,000,000 sentences (%)",
            "ylabel": label("sts_average"),
            "xscale": "log",
        }
    return Figure(
        name=f"low-shot-{slug(score)}",
        title="Scores over the size of the training set",
        panels=style.line_panels(data, axes),
        data=data,
        alt="; ".join(about),
        note=BANDS,
    )


def _by_size(points: pd.DataFrame, score: str) -> Table:
    """Return a row for each system and a column for each number of sentences."""
    scored = points[points[score].notna()]
    sizes = {size: f"{size:,}" for size in sorted(scored["value"].unique())}
    rows = []
    deviations = {}
    for number, system in enumerate(points["system"].unique()):
        of_system = scored[scored["system"] == system]
        runs = 0
        means = dict.fromkeys(sizes)
        for point in of_system.to_dict("records"):
            runs = max(runs, point["runs"])
            means[point["value"]] = point[score]
            if not isnan(point[f"{score}_sd"]):
                deviations[number, sizes[point["value"]]] = point[f"{score}_sd"]
        rows.append([system, runs, *means.values()])
    columns = ["system", "runs", *sizes.values()]
    return Table(f"{label(score)}, by number of training sentences", columns, rows, deviations=deviations)


def _published(published: pd.DataFrame) -> Table:
    shares = sorted(published["share"].unique())
    titles = list(published["title"].unique())
    means = published.pivot(index="title", columns="share", values="mean").reindex(titles)[shares]
    means = means.rename(columns=_percent).rename_axis("system").reset_index()
    deviations = {}
    for row in published.dropna(subset="sd").itertuples():
        deviations[titles.index(row.title), _percent(row.share)] = row.sd
    note = "miCSE (Klein and Nabi, ACL 2023): BERT-base, shares of a million sentences of Wikipedia."
    title = "Published STS averages, by share of the training set"
    return Table.of_frame(title, means, deviations=deviations, published=len(means), notes=(note,))


def _percent(share: float) -> str:
    return f"{100 * share:g} %"
