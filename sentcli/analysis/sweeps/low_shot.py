"""``analyze low-shot``: scores over the size of the training set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from sentcli.analysis.curves import BANDS
from sentcli.analysis.folder import check_folder, write_folder
from sentcli.analysis.options import Output
from sentcli.analysis.sweeps.scores import (
    Sweeps,
    best_points,
    mean_table,
    record_of_points,
    slug,
    without_unit,
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
    from sentcli.analysis.runs import read_runs
    from sentcli.analysis.sweeps import points as numbers

    check_folder(output, overwrite=overwrite)
    runs = read_runs(paths)
    titles = numbers.score_titles(runs)
    points = numbers.low_shot_points(runs)
    baseline = _baseline(baseline, list(points["series"].unique()))
    published_scores = numbers.published_low_shot() if published else None
    sections = []
    for score, of_score in points.groupby("panel", sort=False):
        title = f"Low shot: {without_unit(titles[score])}"
        file = f"low-shot-{slug(score)}"
        table = _by_size(f"{titles[score]}, by number of training sentences", of_score, "{:,}".format)
        sections.append(Section(title, figure=_figure(of_score, file, titles[score], published_scores)))
        sections.append(Section(f"{title}, by system", table=table, file=f"{file}-table"))
        if baseline in set(of_score["series"]):
            over = _over_baseline(table, str(baseline))
            sections.append(Section(f"{title}, over {baseline}", table=over, file=f"{file}-over"))
    if published_scores is not None:
        note = "miCSE (Klein and Nabi, ACL 2023): BERT-base, shares of a million sentences of Wikipedia."
        of_paper = {"published": published_scores["series"].nunique(), "notes": (note,)}
        title = "Published STS averages, by share of the training set"
        table = _by_size(title, published_scores, lambda share: f"{100 * share:g} %", **of_paper)
        sections.append(Section("Published low-shot scores", table=table, file="low-shot-published"))
    reports = [record_of_points("low-shot", runs, points, {"baseline": baseline})]
    return write_folder("low-shot", output, sections, reports, best_points(points, "sentences", titles))


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


def _figure(points: pd.DataFrame, name: str, title: str, published: pd.DataFrame | None) -> Figure:
    """Return a score over the number of sentences, and published scores in a panel of their own."""
    import pandas as pd

    about = []
    for system, line in points.groupby("series", sort=False):
        first, last = line[["y", "x"]].iloc[[0, -1]].to_numpy()
        about.append(f"{system}: {first[0]:.2f} with {first[1]:,} sentences, {last[0]:.2f} with {last[1]:,}")
    data = points.assign(panel="Measured")
    axes = {"Measured": {"xlabel": "training sentences", "ylabel": title, "xscale": "log"}}
    if published is not None:  # the published scores are averages, also beside another measured score
        of_paper = published.assign(panel="Published", x=100 * published["x"]).drop(columns="name")
        data = pd.concat([data, of_paper])
        xlabel = "share of 1,000,000 sentences (%)"
        axes["Published"] = {"xlabel": xlabel, "ylabel": "STS average (Spearman × 100)", "xscale": "log"}
    panels = style.line_panels(data, axes)
    return Figure(name, "Scores over the size of the training set", panels, data, about, BANDS)


def _by_size(title: str, points: pd.DataFrame, words: Callable[[Any], str], **more: Any) -> Table:
    """Return a row for each system and a column for each size of the training set, in words."""
    sizes = {size: words(size) for size in sorted(points["x"].unique())}
    return mean_table(title, points, {"series": "system"}, "x", sizes, **more)
