"""The output of a sweep: which run starts, what the runs log, and the table of their results at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.remaining import duration
from sentcli.table import Table
from sentcli.training.view import LOG_EVERY, kept_start, loss_text, training

if TYPE_CHECKING:
    from sentcli.training.observer import Observer
    from sentcli.training.prepare import Prepared
    from sentcli.training.records import Summary
    from sentcli.training.sweep import SweepRun

RESULT_COLUMNS = {
    "sts_average": "STS avg",
    "senteval_average": "transfer avg",
    "held_out_pearson": "held-out Pearson",
    "held_out_spearman": "held-out Spearman",
    "held_out_perplexity": "perplexity",
}
"""The columns of results that only some sweeps have."""
_RANKED_COLUMNS = ("best", "sts_average", "senteval_average", "held_out_pearson", "held_out_spearman")
"""Of these columns the highest mean is marked."""
WITHOUT_DEVIATION = ("start", "best_step", "steps")


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


def sweep_table(
    title: str,
    summaries: Sequence[Summary],
    notes: Sequence[str] = (),
    more_columns: Mapping[str, str] = MappingProxyType({}),
) -> Table:
    """Return a table with mean and standard deviation of each point, and the step of each run's best weights.

    The best mean is marked where all runs were measured on the same dev set.

    Args:
        title: of the table.
        summaries: of the points, each a row; means over topics, folds or tasks come last.
        notes: below the table.
        more_columns: the heads of further columns, by the keys of results.
    """
    from sentcli.training.observer import STSB_DEV, with_dev_scores
    from sentcli.training.records import AVERAGED_OVER, parts_means

    keys, others = _shared_settings(summaries)
    head = list(keys)
    if others:
        head.append("settings")
    columns = {"start": "start", "best": "best dev", "best_step": "at step", "final": "last dev"}
    for key, name in RESULT_COLUMNS.items():
        if any(summary.mean.get(key) is not None for summary in summaries):
            columns[key] = name
    columns |= more_columns
    rows = []
    deviations = {}
    for number, summary in enumerate(summaries):
        means = {**with_dev_scores(summary.mean), "best_step": _best_steps(summary)}
        spread = with_dev_scores(summary.sd)
        rows.append([*_setting_cells(summary.point, keys, others), _seeds(summary), *map(means.get, columns)])
        for key, name in columns.items():
            if key not in WITHOUT_DEVIATION and spread.get(key) is not None:
                deviations[number, name] = spread[key]
    for part in AVERAGED_OVER:
        for mean in parts_means(summaries, part):
            settings = _setting_cells({**mean.point, part: "mean"}, keys, others)
            rows.append([*settings, "", *map(mean.numbers.get, columns)])
    dev_sets = dev_sets_of(summaries)
    is_spearman = all(metric == STSB_DEV[1] for _, metric in dev_sets)
    formats = dict.fromkeys(("start", "best dev", "last dev"), ".2f" if is_spearman else ".4f")
    formats |= dict.fromkeys(more_columns.values(), ",.0f")
    ranked = [columns[key] for key in _RANKED_COLUMNS if key in columns]
    if len(dev_sets) > 1:
        ranked.remove(columns["best"])
    return Table(
        title,
        [*(head or ["run"]), "seeds", *columns.values()],
        rows,
        formats=formats,
        ranked=ranked,
        deviations=deviations,
        published=len(rows) - len(summaries),
        notes=list(notes),
    )


def _shared_settings(summaries: Sequence[Summary]) -> tuple[list[str], list[str]]:
    """Return the settings that all points have, and the others, which share a column since a run has few of them."""
    points_with = Counter(chain.from_iterable(summary.point for summary in summaries))
    keys = []
    others = []
    for key, count in points_with.items():
        if count == len(summaries):
            keys.append(key)
        else:
            others.append(key)
    return keys, others


def dev_sets_of(summaries: Sequence[Summary]) -> list[tuple[str, str]]:
    """Return name and metric of each dev set on which weights were chosen."""
    from sentcli.training.observer import dev_scores

    found = {}
    for results in chain.from_iterable(summary.runs for summary in summaries):
        dev = dev_scores(results)
        if dev is not None:
            found[dev.name, dev.metric] = dev
    return list(found)


def _seeds(summary: Summary) -> str:
    """Return the seeds of a point, with a mark behind those whose run did not end as others do."""
    seeds = []
    for seed, results in zip(summary.seeds, summary.runs, strict=True):
        seeds.append(f"{seed}{_mark(results)}")
    return ", ".join(seeds)


def _best_steps(summary: Summary) -> str | None:
    """Return the step of the best weights of each seed; None without a dev set."""
    from sentcli.training.observer import with_dev_scores

    steps = [with_dev_scores(run).get("best_step") for run in summary.runs]
    if None in steps:
        return None
    return ", ".join(map(str, steps))


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
