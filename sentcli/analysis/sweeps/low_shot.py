"""``analyze low-shot``: scores over the size of the training set."""

from __future__ import annotations

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
)
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Result
from sentcli.errors import InputError, nearest
from sentcli.io.options import Overwrite
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
    systems = list(points["system"].unique())
    if baseline is not None and baseline not in systems:
        hint = nearest(baseline, systems)
        raise InputError(f"--baseline {baseline}: no such system{hint}; there are: {'; '.join(systems)}")
    if baseline is None and "simcse" in systems and len(systems) > 1:
        baseline = "simcse"
    published_scores = numbers.published_low_shot() if published else None
    sections = []
    for score in measured_scores(points):
        title, file = f"Low shot: {short_label(score)}", f"low-shot-{slug(score)}"
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
    reports = [record_of_points("low-shot", runs, points, {"baseline": baseline})]
    return write_folder("low-shot", output, sections, reports, best_points(points, "sentences"))


def _low_shot_figure(points: pd.DataFrame, score: str, published: pd.DataFrame | None) -> Figure:
    import pandas as pd

    about = []
    for system, part in points[points[score].notna()].groupby("system", sort=False):
        (least, first), (most, last) = (part[["value", score]].iloc[i] for i in (0, -1))
        about.append(f"{system}: {first:.2f} with {least:,} sentences, {last:.2f} with {most:,}")
    data = score_lines("Measured", points, score)
    if published is not None:
        columns = {"series": published["title"], "x": 100 * published["share"], "y": published["mean"]}
        data = pd.concat([data, pd.DataFrame({"panel": "Published", **columns})])

    axes = {"Measured": {"xlabel": "training sentences", "ylabel": label(score), "xscale": "log"}}
    if published is not None:  # the published scores are averages, also beside another measured score
        share = "share of 1,000,000 sentences (%)"
        axes["Published"] = {"xlabel": share, "ylabel": label("sts_average"), "xscale": "log"}
    panels = style.line_panels(data, axes)
    title = "Scores over the size of the training set"
    return Figure(f"low-shot-{slug(score)}", title, panels, data, "; ".join(about), BANDS)


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
    return Table(f"{label(score)}, by number of training sentences", columns, rows, deviations=deviations)


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
