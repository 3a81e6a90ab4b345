"""What both analyses of sweeps need: the paths, the names of scores and the JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_doc import Doc

from sentcli.analysis.folder import analysis_record
from sentcli.command.declaration import Flag
from sentcli.command.result import Clock, Record
from sentcli.pages import style
from sentcli.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.analysis.runs import TrainingRun

TEST_SCORE = "sts_average"
Sweeps = Annotated[
    list[Path],
    Doc("Folders of train --sweep or --seeds, of runs side by side, or results.jsonl."),
    Flag(metavar="PATH...", positional=True),
]


def record_of_points(kind: str, runs: Sequence[TrainingRun], points: pd.DataFrame, choices: dict[str, Any]) -> Record:
    """Return the JSON object of an analysis: the curve of each system, with the choices of the analysis."""
    curves = []
    for system, of_system in points.groupby("series", sort=False):
        entries = []
        for value, scores in of_system.groupby("x", sort=False):
            entry: dict[str, Any] = {"value": value}
            for score in scores.to_dict("records"):
                deviation = score["sd"]
                if isnan(deviation):
                    deviation = None
                entry[score["panel"]] = {"mean": score["y"], "sd": deviation, "runs": score["runs"]}
            entries.append(entry)
        curves.append({"system": system, "points": entries})
    models = dict.fromkeys(str(run.record.get("model")) for run in runs)
    protocol = {"kind": kind, **choices, "runs": len(runs)}
    return analysis_record(", ".join(models), protocol, {"curves": curves}, Clock())


def best_points(points: pd.DataFrame, setting: str, titles: Mapping[str, str]) -> list[str]:
    """Return a sentence for each score that names the highest one, with its system and its value of a setting.

    A dev set chooses; the highest test score was chosen by the test itself.

    Args:
        points: the means of each score.
        setting: over which they are.
        titles: of the scores.
    """
    sentences = []
    for score, of_score in points.groupby("panel", sort=False):
        best = of_score.loc[of_score["y"].idxmax()]
        value = f"{setting} {value_text(best['x'])}"
        sentence = f"Highest {without_unit(titles[score])}: {best['y']:.2f}, {best['series']} at {value}"
        if score == TEST_SCORE:
            sentence += ", by the test tasks themselves; whether it is better than the next one was not tested"
        sentences.append(f"{sentence}.")
    return sentences


def without_unit(title: str) -> str:
    """Return the title of a score without its unit."""
    return title.split(" (")[0]


def slug(text: str) -> str:
    """Return a text as a part of a file's name."""
    return re.sub(r"\W|_", "-", text.lower()).strip("-")


def value_text(value: Any) -> str:
    """Return the value of a setting as people read it."""
    if isinstance(value, float):
        return style.plain_number(value)
    return str(value)


def mean_table(
    title: str, points: pd.DataFrame, rows: Mapping[str, str], columns: str, heads: Mapping[Any, str], **more: Any
) -> Table:
    """Return the table of means with their deviations, and the number of runs where it is known.

    Args:
        title: of the table.
        points: with y and sd.
        rows: the columns of the points whose combinations have a row each, with their heads.
        columns: the column of the points whose values have a column each.
        heads: the heads of these, by value.
        more: further arguments of `Table`.
    """
    table_rows = []
    deviations = {}
    for number, (values, of_row) in enumerate(points.groupby(list(rows), sort=False)):
        row: dict[str, Any] = dict(zip(rows.values(), map(value_text, values), strict=True))
        if "runs" in of_row:
            row["runs"] = int(of_row["runs"].max())
        row |= dict.fromkeys(heads.values())
        for point in of_row.to_dict("records"):
            head = heads[point[columns]]
            row[head] = point["y"]
            if not isnan(point["sd"]):
                deviations[number, head] = point["sd"]
        table_rows.append(row)
    return Table.of_rows(title, table_rows, deviations=deviations, **more)
