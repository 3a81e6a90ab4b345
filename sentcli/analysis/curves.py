"""Curves of training runs and of sweeps: means over the seeds of a system, with their deviation as a band."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.analysis.runs import DEV, TrainingRun, read_runs
from sentcli.errors import InputError
from sentcli.pages import style
from sentcli.pages.page import Figure
from sentcli.training.observer import STSB_DEV, dev_scores, dev_title

if TYPE_CHECKING:
    import pandas as pd

BANDS = "Points are means over seeds, bands one standard deviation."
ALIGNMENT = "alignment (lower: positives closer)"
UNIFORMITY = "uniformity (lower: more spread out)"
PERPLEXITY = "perplexity of held-out text"
LOGGED = {"alignment": ALIGNMENT, "uniformity": UNIFORMITY, "held_out_perplexity": PERPLEXITY}
UNDRAWN = ("step", "best", "fitted")
"""Keys in the lines of evaluations that are no scores."""
STEP = "optimiser step"
LINE = ["panel", "series", "x"]
_MOST_POINTS = 300
"""A line with more points is drawn with so many, each the mean of adjacent ones."""


def mean_lines(values: pd.DataFrame, most: int = _MOST_POINTS) -> pd.DataFrame:
    """Return the lines of means over runs, with a band of one standard deviation.

    Args:
        values: a row for each run at each place, with the columns panel, series, x and value; NaN stands for what a
            run does not have.
        most: the greatest number of points of a line; of more, each point is the mean of adjacent ones, at the last.

    Returns:
        A row for each place where all runs have a value: panel, series, x, the mean y, the sample standard deviation
        sd, the number of runs, and low and high, the ends of the band. sd is missing for a single run, low and high
        for a line without any.
    """
    import pandas as pd

    # pandas has the statistics of `seeds.mean_and_deviation` ten times as fast, equal but for the last bits of a float
    places = values.groupby(LINE, sort=False, dropna=False)["value"]
    means = places.agg(y="mean", sd="std", runs="size", known="count").reset_index()
    is_known = means["known"] == means["runs"]
    means = means[is_known].drop(columns="known")
    lines = []
    for _, line in means.groupby(LINE[:2], sort=False):
        if len(line) > most:
            parts = line.groupby(np.arange(len(line)) * most // len(line))
            thinned = parts[["y", "sd"]].mean()
            line = parts.tail(1).reset_index(drop=True).assign(y=thinned["y"], sd=thinned["sd"])
        half = line["sd"]
        if half.notna().any():
            half = half.fillna(0)
        lines.append(line.assign(low=line["y"] - half, high=line["y"] + half))
    if not lines:
        return means.assign(low=None, high=None)
    return pd.concat(lines, ignore_index=True)


def logged_values(runs: Sequence[TrainingRun], panels: Mapping[str, str]) -> pd.DataFrame:
    """Return what runs logged as a row for each value: panel, series (the label of the run), x (the step), value.

    Args:
        runs: of which those without a log are left out.
        panels: the panel of each key of the log.
    """
    import pandas as pd

    columns: dict[str, list[Any]] = {name: [] for name in (*LINE, "value")}
    for run in runs:
        if run.metrics is None:
            continue
        for key, panel in panels.items():
            steps, values = run.metrics.column(key)
            columns["panel"] += [panel] * len(steps)
            columns["series"] += [run.label] * len(steps)
            columns["x"] += steps
            columns["value"] += values
    return pd.DataFrame(columns)


def run_figure(
    name: str,
    title: str,
    runs: Sequence[TrainingRun],
    labels: Mapping[str, str],
    logarithmic: Collection[str] = (PERPLEXITY,),
) -> Figure | None:
    """Return what runs logged over the steps, as means over the seeds of a system; None if they logged nothing of it.

    Args:
        name: of the files of the figure.
        title: of the figure.
        runs: those of one label are one line.
        labels: the keys of the log that are drawn, each in a panel, with the titles of their axes.
        logarithmic: titles of axes that are logarithmic where all values are above 0.
    """
    panels = {key: label.split(" (")[0] for key, label in labels.items()}
    values = logged_values(runs, panels)
    if values.empty:
        return None
    # a line ends where the first of its runs ends
    runs_there = values.groupby(LINE, sort=False)["value"].transform("size")
    most = runs_there.groupby([values["panel"], values["series"]]).transform("max")
    data = mean_lines(values[runs_there == most])
    systems = list(data["series"].unique())
    axes = {}
    for key, label in labels.items():
        own = data[data["panel"] == panels[key]]
        if own.empty:
            continue
        look = {"xlabel": STEP, "ylabel": label}
        if label in logarithmic and own["y"].min() > 0:
            look["yscale"] = "log"
        if own["series"].nunique() == 1 and len(systems) > 1:
            look["title"] = f"{panels[key]} ({own['series'].iloc[0]})"
        axes[panels[key]] = look
    about = []
    for system, of_system in data.groupby("series", sort=False):
        changes = []
        for panel, line in of_system.groupby("panel", sort=False):
            first, last = line["y"].iloc[[0, -1]]
            changes.append(f"{panel} from {first:.4g} to {last:.4g}")
        all_changes = ", ".join(changes)
        about.append(f"{system}: {all_changes}")
    note = ""
    if data["sd"].notna().any():
        note = BANDS
    drawn = style.line_panels(data, axes, systems, whole=True)
    return Figure(name, title, drawn, data, about, note)


def training_curves(runs: Sequence[TrainingRun]) -> Figure | None:
    """Return what runs logged at evaluations (WhitenedCSE, fig. 3); None if they logged no evaluation."""
    return run_figure("training-curves", "Evaluations of the training runs", runs, logged(runs))


def logged(runs: Sequence[TrainingRun]) -> dict[str, str]:
    """Return the keys of what runs logged at evaluations, each with the title of its axis, which names the task."""
    names = set()
    keys: dict[str, None] = {}
    for run in runs:
        dev = dev_scores(run.record["results"])
        if dev is not None:
            names.add(dev.name)
        if run.metrics is not None:
            keys |= dict.fromkeys(chain.from_iterable(run.metrics.evaluations))
    name = "dev"
    if len(names) == 1:
        (name,) = names
    labels = {}
    for key in keys:
        if key.startswith(DEV):
            labels[key] = dev_label(name, key.removeprefix(DEV))
        elif key not in UNDRAWN:
            labels[key] = LOGGED.get(key, key.replace("_", " "))
    return labels


def dev_label(name: str, metric: str) -> str:
    """Return what an axis or a note calls the score on a dev set: ``STS-B dev (Spearman × 100)``."""
    words = dev_title(name, metric).replace("_", " ")
    if metric == STSB_DEV[1]:
        return f"{words.removesuffix(' spearman')} (Spearman × 100)"
    return words


def curve(folder: Path) -> Figure | None:
    """Return loss and evaluations of a run by step; None if its log has not two points of any."""
    try:
        runs = [replace(run, label=folder.name) for run in read_runs([folder])]
        figure = run_figure("training-curve", "Loss and dev scores", runs, {"loss": "loss", **logged(runs)})
    except InputError:  # nothing was trained by steps
        return None
    if figure is None or not figure.data["panel"].duplicated().any():
        return None
    return figure
