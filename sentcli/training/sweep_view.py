"""The output of a sweep: which run starts, what the runs log, and the table of their results at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.remaining import duration
from sentcli.table import Table
from sentcli.training.view import LOG_EVERY, kept_start, loss_text, training

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sentcli.training.observer import Observer
    from sentcli.training.prepare import Prepared
    from sentcli.training.records import Summary
    from sentcli.training.sweep import SweepRun

RESULT_COLUMNS = {
    "sts_average": "STS avg",
    "senteval_average": "transfer avg",
    "held_out_pearson": "held-out Pearson",
    "held_out_spearman": "held-out Spearman",
}
"""The columns of results that only some sweeps have."""


class SweepView:
    """Prints which run of a sweep starts, and shows its steps until the next one starts.

    Args:
        runs: of the sweep.
        views: closes the view of the run that is shown.
        finished: the names of the runs that have finished before.
    """

    def __init__(self, runs: list[SweepRun], views: ExitStack, finished: Collection[str]) -> None:
        self.runs = runs
        self.finished_before = finished
        self.views = views
        self.said: dict[str, float] = {}
        self.began: dict[str, float] = {}
        """When each run began that this process has made; one with ``--after`` trains twice."""

    def starts(self, run: SweepRun, prepared: Prepared) -> Observer | None:
        """Print which run starts, and show its steps."""
        now = time.monotonic()
        earlier = [began for name, began in self.began.items() if name != run.name]
        left = ""
        if earlier:
            of_one = (now - earlier[0]) / len(earlier)
            runs_left = 0
            for other in self.runs[self.runs.index(run) :]:
                runs_left += other is run or other.name not in self.finished_before
            time_left = duration(of_one * runs_left)
            left = f"; about {time_left} left, if all take as long as so far"
        self.began.setdefault(run.name, now)
        console.note(f"{self._title(run)}{left}")
        return self.views.enter_context(training(prepared))

    def logged(self, run: SweepRun, line: Mapping[str, Any]) -> None:
        """Print scores and, as often as for one run, the terms of the loss."""
        now = time.monotonic()
        step = line["step"]
        if "loss" in line and step % LOG_EVERY and now - self.said.setdefault(run.name, now) <= console.EVERY:
            return
        self.said[run.name] = now
        hidden = ("step", "best", "spread", "learning_rate", "grad_norm", "sentences_per_second")
        numbers = []
        for key, value in line.items():
            is_shown = key not in hidden and not key.startswith("share_")
            if is_shown and isinstance(value, int | float):
                numbers.append(f"{key} {loss_text(value)}")
        note = f"{self._title(run)}, step {step}: {', '.join(numbers)}"
        if line.get("best") and step:
            note += " (best so far)"
        console.note(note)

    def finished(self, run: SweepRun, record: Mapping[str, Any]) -> None:
        """Print that another process has made a run."""
        note = f"{self._title(run)}: finished"
        if record["results"].get("ended_early"):
            note += f" early, at step {record['results']['steps']}"
        console.note(note)

    def skipped(self, run: SweepRun) -> None:
        """Print that a run has finished before."""
        console.note(f"{self._title(run)}: finished before")

    def failed(self, run: SweepRun, message: str) -> None:
        """Print why a run ended."""
        console.warn(f"{self._title(run)}: {message}")

    def _title(self, run: SweepRun) -> str:
        """Close the view of the last run, and return the number and the name of this one."""
        self.views.close()
        number = self.runs.index(run) + 1
        return f"run {number} of {len(self.runs)}, {run.name}"


def sweep_table(title: str, summaries: Sequence[Summary], notes: Sequence[str] = ()) -> Table:
    """Return a table with mean and standard deviation of each point, and the step of each run's best weights."""
    from sentcli.training.records import AVERAGED_OVER, parts_means

    points_with = Counter(chain.from_iterable(summary.point for summary in summaries))
    keys = []
    others = []  # these share a column, since a run has few of them
    for key, count in points_with.items():
        if count == len(summaries):
            keys.append(key)
        else:
            others.append(key)
    head = list(keys)
    if others:
        head.append("settings")
    columns = {"start": "start", "best": "best dev", "best_step": "at step", "final": "last dev"}
    for key, name in RESULT_COLUMNS.items():
        if any(summary.mean.get(key) is not None for summary in summaries):
            columns[key] = name
    rows = []
    for summary in summaries:
        seeds = []
        for seed, results in zip(summary.seeds, summary.runs, strict=True):
            seeds.append(f"{seed}{_mark(results)}")
        settings = _setting_cells(summary.point, keys, others)
        numbers = [_mean_and_sd(summary, key) for key in columns]
        rows.append([*settings, ", ".join(seeds), *numbers])
    for part in AVERAGED_OVER:
        for mean in parts_means(summaries, part):
            settings = _setting_cells({**mean.point, part: "mean"}, keys, others)
            texts = {key: f"{number:.2f}" for key, number in mean.numbers.items()}
            numbers = [texts.get(key, "") for key in columns]
            rows.append([*settings, "", *numbers])
    head = head or ["run"]
    return Table(title, [*head, "seeds", *columns.values()], rows, notes=list(notes))


def _setting_cells(point: Mapping[str, Any], keys: Sequence[str], others: Sequence[str]) -> list[Any]:
    """Return the cells of a point of a sweep: one for each of `keys`, and one for those of `others` that it has."""
    cells: list[Any] = []
    for key in keys:
        value = point[key]
        if isinstance(value, float):
            value = f"{value:g}"
        cells.append(value)
    if others:
        named = [f"{key} {point[key]}" for key in others if key in point]
        cells.append(", ".join(named))
    return cells or ["all"]


def _mark(results: Mapping[str, Any]) -> str:
    """Return what a table of runs says behind the seed of a run that did not end as others do."""
    if results.get("collapsed_step") is not None:
        return " (collapsed)"
    if kept_start(results):
        return " (start kept)"
    if results.get("ended_early"):
        return " (ended early)"
    return ""


def _mean_and_sd(summary: Summary, key: str) -> str:
    """Return ``84.02 ± 0.13``; a dash where there is no number."""
    from sentcli.training.observer import STSB_DEV, dev_scores, score_text, with_dev_scores

    mean = with_dev_scores(summary.mean).get(key)
    if mean is None:
        return "-"
    if key == "best_step":
        steps = [str(with_dev_scores(run)["best_step"]) for run in summary.runs]
        return ", ".join(steps)
    dev = dev_scores(summary.runs[0])
    metric = STSB_DEV[1]
    if dev is not None and key in vars(dev):
        metric = dev.metric
    text = score_text(metric, mean)
    deviation = with_dev_scores(summary.sd).get(key)
    if deviation is not None and key != "start":
        text += f" ± {score_text(metric, deviation)}"
    return text
