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
from sentcli.training.run import run as train_run
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
    """The settings in which these runs differ from the other kinds, in words."""
    runs: int
    steps: int
    """The steps of one run."""
    evaluations: int
    seconds: float
    """The time of one run."""
    note: str = ""
    """The warning of a run of this kind, if its learning rate does not rise to what was set."""


@dataclass(frozen=True)
class TrainingEstimate:
    """The time that one run or the runs of a sweep will take on this machine."""

    kinds: Sequence[RunKind]
    runs: int
    """The runs in all."""
    finished: int
    """The runs that have finished before."""

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
        return {
            "runs": self.runs,
            "finished": self.finished,
            "steps": self.steps,
            "seconds": self.seconds,
            "kinds": list(map(vars, self.kinds)),
        }

    def sentence(self) -> str:
        """Say how long all will take."""
        count = self.runs - self.finished
        runs = f"{count:,} run{'s' * (count != 1)} of {self.steps:,} steps in all"
        return f"{runs}: about {duration(self.seconds)} here."

    def table(self) -> Table:
        """Return a row for each kind of run."""
        rows = []
        notes = [
            f"{MEASURED_STEPS} steps and the evaluations of one run of each kind were measured. Nothing was written."
        ]
        for kind in self.kinds:
            rows.append([kind.settings, kind.runs, kind.steps, kind.evaluations, duration(kind.seconds)])
            if kind.note:
                notes.append(f"{kind.settings}: {kind.note}.")
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
    runs = planned or [SweepRun("", {}, request)]
    requests_by_kind: dict[str, list[TrainRequest]] = {}
    for run in runs:
        if not _has_finished(run.request):
            settings = _costly_settings(run.point) or "all"
            requests_by_kind.setdefault(settings, []).append(run.request)
    kinds = []
    with console.counting("measuring", len(requests_by_kind)) as advance:
        for settings, alike in requests_by_kind.items():
            kinds.append(_measure(alike[0], settings, len(alike)))
            advance(1)
    to_make = sum(kind.runs for kind in kinds)
    return TrainingEstimate(kinds, runs=len(runs), finished=len(runs) - to_make)


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
            result = train_run(whole)
            return RunKind(
                settings=settings,
                runs=runs,
                steps=0,
                evaluations=2 * bool(whole.inputs.dev),
                seconds=result.eval_seconds + result.train_seconds,
            )
        evaluation = replace(request.evaluation, sts=False, senteval=None)
        assignments = list(request.assignments)
        for key, value in short.items():
            assignments.append((f"settings.{key}", value))
        steps = whole.steps
        every = whole.method.settings.eval_every
        note = next((note for note in whole.notes if note.startswith(WARM_UP)), "")
        del whole
        result = train_run(prepare(replace(request, evaluation=evaluation, assignments=assignments)))
    evaluations = 0
    if result.eval_seconds:
        evaluations = 1 + steps // every + bool(steps % every)
    step_seconds = result.train_seconds / result.steps
    return RunKind(
        settings=settings,
        runs=runs,
        steps=steps,
        evaluations=evaluations,
        seconds=steps * step_seconds + evaluations * result.eval_seconds / 2,
        note=note,
    )
