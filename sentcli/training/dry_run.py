"""``train --dry-run``: what one run or a sweep will take, measured by a few steps of each kind of run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.machine import threads
from sentcli.remaining import duration
from sentcli.table import Table
from sentcli.training.notes import WARM_UP
from sentcli.training.prepare import prepare
from sentcli.training.request import TrainRequest
from sentcli.training.run import run
from sentcli.training.run_folder import WEIGHTS_FILE
from sentcli.training.sweep import SweepRun
from sentcli.waiting import busy_note

MEASURED_STEPS = 5
"""How many steps of each kind of run are measured."""
SAME_COST = (
    "seed", "subset_seed", "learning_rate", "weight_decay", "warmup_steps", "warmup_share", "schedule", "clip_norm"
)  # fmt: skip
"""Settings that change no run's time, so that runs that differ in them are of one kind."""
SAME_COST_ENDINGS = (".weight", ".temperature")


@dataclass(frozen=True)
class RunKind:
    """Runs that take the same time, and what one of them takes."""

    settings: str
    """What distinguishes them from the other kinds, in words."""
    runs: int
    steps: int
    """The steps of one run."""
    evaluations: int
    seconds: float
    """The time of one run."""
    note: str = ""
    """What a run of this kind would warn of: a learning rate that does not rise to what was set."""


@dataclass(frozen=True)
class TrainingEstimate:
    """What one run or the runs of a sweep will take on this machine."""

    kinds: Sequence[RunKind]
    runs: int
    """The runs in all."""
    finished: int
    """Those of them that have finished before."""

    @property
    def steps(self) -> int:
        """The steps that are to be made."""
        return sum(kind.runs * kind.steps for kind in self.kinds)

    @property
    def seconds(self) -> float:
        """The time that these runs will take."""
        return sum(kind.runs * kind.seconds for kind in self.kinds)

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON."""
        kinds = [vars(kind) for kind in self.kinds]
        totals = {"runs": self.runs, "finished": self.finished, "steps": self.steps, "seconds": self.seconds}
        return {**totals, "kinds": kinds}

    def sentence(self) -> str:
        """Say how long all will take."""
        count = self.runs - self.finished
        runs = f"{count:,} run{'s' * (count != 1)} of {self.steps:,} steps in all"
        return f"{runs}: about {duration(self.seconds)} here."

    def table(self) -> Table:
        """Return a row for each kind of run."""
        rows = []
        for kind in self.kinds:
            rows.append([kind.settings, kind.runs, kind.steps, kind.evaluations, duration(kind.seconds)])
        notes = [
            f"{MEASURED_STEPS} steps and the evaluations of one run of each kind were measured. Nothing was written."
        ]
        notes += [f"{kind.settings}: {kind.note}." for kind in self.kinds if kind.note]
        if self.finished:
            notes.append(f"{self.finished} more have finished before and will not be made again.")
        busy = busy_note(threads())
        if busy is not None:
            notes.append(f"{busy.capitalize()}.")
        columns = ["kind", "runs", "steps a run", "evaluations a run", "time a run"]
        return Table("What training will take", columns, rows, notes=notes)


def estimate_training(request: TrainRequest, planned: Sequence[SweepRun]) -> TrainingEstimate:
    """Measure a few steps and an evaluation of each kind of run in a temporary folder, and write nothing else.

    Args:
        request: what the user asked for.
        planned: the runs of a sweep; none for a single run.
    """
    runs = [(run.point, run.request) for run in planned] or [({}, request)]
    requests_by_kind: dict[str, list[TrainRequest]] = {}
    for point, one in runs:
        if not _has_finished(one):
            requests_by_kind.setdefault(_costly_settings(point) or "all", []).append(one)
    kinds = []
    with console.counting("measuring", len(requests_by_kind)) as advance:
        for words, alike in requests_by_kind.items():
            kinds.append(_measure(alike[0], words, len(alike)))
            advance(1)
    return TrainingEstimate(kinds, len(runs), len(runs) - sum(kind.runs for kind in kinds))


def _has_finished(request: TrainRequest) -> bool:
    return request.log.resume and (request.output / WEIGHTS_FILE).exists()


def _costly_settings(point: Mapping[str, Any]) -> str:
    """Return the settings of a run on which its time depends, in words."""
    settings = []
    for key, value in point.items():
        if key not in SAME_COST and not key.endswith(SAME_COST_ENDINGS):
            settings.append(f"{key} {value}")
    return ", ".join(settings)


def _measure(request: TrainRequest, settings: str, runs: int) -> RunKind:
    """Run a few steps with an evaluation before and after them, and scale the times to the whole run."""
    if request.after is not None:
        raise InputError("--dry-run measures one training, and a run with --after is two")
    short = {"max_steps": MEASURED_STEPS, "eval_every": MEASURED_STEPS, "patience": 0, "keep_start": True}
    with tempfile.TemporaryDirectory(prefix="sentcli-dry-run-") as folder:
        log = replace(request.log, save_every=0, resume=False, overwrite=False, log_to=None)
        request = replace(request, output=Path(folder) / "run", log=log)
        whole = prepare(request)
        if whole.model is None:
            result, steps = run(whole), 0
            return RunKind(settings, runs, 0, 2 * bool(whole.inputs.dev), result.eval_seconds + result.train_seconds)
        evaluation = replace(request.evaluation, sts=False, senteval=None)
        assignments = list(request.assignments)
        for key, value in short.items():
            assignments.append((f"settings.{key}", value))
        steps, every = whole.steps, whole.method.settings.eval_every
        note = next((note for note in whole.notes if note.startswith(WARM_UP)), "")
        del whole
        result = run(prepare(replace(request, evaluation=evaluation, assignments=assignments)))
    evaluations = 0
    if result.eval_seconds:
        evaluations = 1 + steps // every + bool(steps % every)
    seconds = steps * result.train_seconds / result.steps + evaluations * result.eval_seconds / 2
    return RunKind(settings, runs, steps, evaluations, seconds, note)
