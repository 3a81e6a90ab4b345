"""What both analyses of sweeps need: the paths, the names of scores, lines of a figure and the JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_doc import Doc

from sentcli.analysis.folder import analysis_record
from sentcli.command.declaration import Flag
from sentcli.command.result import Clock, Record
from sentcli.pages import style

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.analysis.sweeps.points import FinishedRun

TEST_SCORE = "sts_average"
BANDS = "Points are means over seeds, bands one standard deviation."
Sweeps = Annotated[
    list[Path],
    Doc("Folders of train --sweep or --seeds, or their results.jsonl."),
    Flag(metavar="PATH...", positional=True),
]


def record_of_points(kind: str, runs: Sequence[FinishedRun], points: pd.DataFrame, choices: dict[str, Any]) -> Record:
    """Return the JSON object of an analysis: the curve of each system, with the choices of the analysis."""
    curves: dict[str, dict[str, Any]] = {}
    scores = measured_scores(points)
    for point in points.to_dict("records"):
        entry = {"value": point["value"]}
        for score in scores:
            if not isnan(point[score]):
                deviation = point[f"{score}_sd"]
                if isnan(deviation):
                    deviation = None
                entry[score] = {"mean": point[score], "sd": deviation, "runs": point["runs"]}
        system = point["system"]
        curves.setdefault(system, {"system": system, "points": []})["points"].append(entry)
    models = dict.fromkeys(str(run.record.get("model")) for run in runs)
    protocol = {"kind": kind, **choices, "runs": len(runs)}
    return analysis_record(", ".join(models), protocol, {"curves": list(curves.values())}, Clock())


def measured_scores(points: pd.DataFrame) -> list[str]:
    """Return the scores that some points have, the test score first."""
    from sentcli.analysis.sweeps.points import SCORE_TITLES

    return [score for score in SCORE_TITLES if points[score].notna().any()]


def best_points(points: pd.DataFrame, setting: str) -> list[str]:
    """Return a sentence for each score that names the highest one, with its system and its value of a setting.

    A dev set chooses; the highest test score was chosen by the test itself.
    """
    sentences = []
    for score in measured_scores(points):
        best = points.loc[points[score].idxmax()]
        value = f"{setting} {value_text(best['value'])}"
        sentence = f"Highest {short_label(score)}: {best[score]:.2f}, {best['system']} at {value}"
        if score == TEST_SCORE:
            sentence += ", by the test tasks themselves; whether it is better than the next one was not tested"
        sentences.append(f"{sentence}.")
    return sentences


def label(score: str) -> str:
    """Return the name of a score with its unit."""
    from sentcli.analysis.sweeps.points import SCORE_TITLES

    return SCORE_TITLES[score]


def short_label(score: str) -> str:
    """Return the name of a score without its unit."""
    return label(score).split(" (")[0]


def slug(text: str) -> str:
    """Return a text as a part of a file's name."""
    return re.sub(r"\W|_", "-", text.lower()).strip("-")


def value_text(value: Any) -> str:
    """Return the value of a setting as people read it."""
    if isinstance(value, float):
        return style.plain(value)
    return str(value)


def score_lines(panel: str, points: pd.DataFrame, score: str) -> pd.DataFrame:
    """Return the lines of a score, with a band of one standard deviation for systems that have several runs."""
    import pandas as pd

    scored = points[points[score].notna()]
    mean = scored[score]
    deviation = scored[f"{score}_sd"]
    several = deviation.notna().groupby(scored["system"]).transform("any")
    half = deviation.fillna(0)
    return pd.DataFrame(
        {
            "panel": panel,
            "series": scored["system"],
            "x": scored["value"],
            "y": mean,
            "low": (mean - half).where(several),
            "high": (mean + half).where(several),
        }
    )
