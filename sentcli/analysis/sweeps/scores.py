"""What both analyses of sweeps need: the paths, the names of scores, lines of a figure and the JSON."""

from __future__ import annotations

from collections.abc import Sequence
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

BANDS = "Points are means over seeds, bands one standard deviation."
Sweeps = Annotated[
    list[Path],
    Doc("Folders of train --sweep or --seeds, or their results.jsonl."),
    Flag(metavar="PATH...", positional=True),
]


def record_of_points(kind: str, runs: Sequence[FinishedRun], points: pd.DataFrame, choices: dict[str, Any]) -> Record:
    """Return the JSON object of an analysis: the curve of each system, with the choices of the analysis."""
    import pandas as pd

    curves: dict[str, list[dict[str, Any]]] = {}
    for point in points.to_dict("records"):
        scores = {}
        for score in measured_scores(points):
            if pd.notna(point[score]):
                deviation = point[f"{score}_sd"]
                deviation = None if pd.isna(deviation) else deviation
                scores[score] = {"mean": point[score], "sd": deviation, "runs": point["runs"]}
        curves.setdefault(point["system"], []).append({"value": point["value"], **scores})
    models = ", ".join(dict.fromkeys(str(run.record.get("model")) for run in runs))
    results = {"curves": [{"system": system, "points": each} for system, each in curves.items()]}
    return analysis_record(models, {"kind": kind, **choices, "runs": len(runs)}, results, Clock())


def measured_scores(points: pd.DataFrame) -> list[str]:
    """Return the scores that some points have, the test score first."""
    from sentcli.analysis.sweeps.points import SCORE_TITLES

    return [score for score in SCORE_TITLES if points[score].notna().any()]


def best_points(points: pd.DataFrame, setting: str) -> list[str]:
    """Return a sentence for each score that names the best system and its value of a setting."""
    best = {score: points.loc[points[score].idxmax()] for score in measured_scores(points)}
    return [
        f"Best {short_label(score)}: {point[score]:.2f}, {point['system']} at {setting} {value_text(point['value'])}."
        for score, point in best.items()
    ]


def label(score: str) -> str:
    """Return the name of a score with its unit."""
    from sentcli.analysis.sweeps.points import SCORE_TITLES

    return SCORE_TITLES[score]


def short_label(score: str) -> str:
    """Return the name of a score without its unit."""
    return label(score).split(" (")[0]


def slug(text: str) -> str:
    """Return a text as a part of a file's name."""
    return "".join(c if c.isalnum() else "-" for c in text.lower()).strip("-")


def value_text(value: Any) -> str:
    """Return the value of a setting as people read it."""
    return style.plain(value) if isinstance(value, float) else str(value)


def score_lines(panel: str, points: pd.DataFrame, score: str) -> pd.DataFrame:
    """Return the lines of a score, with a band of one standard deviation for systems that have several runs."""
    import pandas as pd

    scored = points[points[score].notna()]
    mean, deviation = scored[score], scored[f"{score}_sd"]
    banded = deviation.notna().groupby(scored["system"]).transform("any")
    low, high = (mean + sign * deviation.fillna(0) for sign in (-1, 1))
    columns = {"series": scored["system"], "x": scored["value"], "y": mean}
    return pd.DataFrame({"panel": panel, **columns, "low": low.where(banded), "high": high.where(banded)})
