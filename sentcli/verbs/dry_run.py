"""``train --dry-run``: what one run or a sweep will take, measured by a few steps of each kind of run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.table import Table
from sentcli.verbs.result import Result
from sentcli.waiting import busy_note

if TYPE_CHECKING:
    from sentcli.training.request import TrainRequest
    from sentcli.training.sweep import SweepRun

MEASURED_STEPS = 5
"""How many steps of each kind of run are measured."""
SAME_COST = (
    *("seed", "subset_seed", "learning_rate", "weight_decay"),
    *("warmup_steps", "warmup_share", "schedule", "clip_norm"),
)
"""Settings that change no run's time, so that runs that differ in them are of one kind."""
SAME_COST_ENDINGS = (".weight", ".temperature")


@dataclass(frozen=True)
class Kind:
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


def dry_run(request: TrainRequest, planned: Sequence[SweepRun]) -> Result:
    """Measure a few steps and an evaluation of each kind of run in a temporary folder, and write nothing else.

    Args:
        request: what the user asked for.
        planned: the runs of a sweep; none for a single run.
    """
    from sentcli.machine import threads
    from sentcli.training.run_folder import WEIGHTS_FILE

    result = Result("train", request.model, {"dry_run": True, "measured_steps": MEASURED_STEPS})
    runs = [(run.point, run.request) for run in planned] or [({}, request)]
    kinds: dict[str, list[TrainRequest]] = {}
    for point, one in runs:
        if not (request.log.resume and (one.output / WEIGHTS_FILE).exists()):
            words = ", ".join(f"{key} {value}" for key, value in _costly(point).items())
            kinds.setdefault(words or "all", []).append(one)
    finished = len(runs) - sum(map(len, kinds.values()))
    measured = []
    with console.counting("measuring", len(kinds)) as advance:
        for words, alike in kinds.items():
            measured.append(_measure(alike[0], words, len(alike)))
            advance(1)
    steps = sum(kind.runs * kind.steps for kind in measured)
    seconds = sum(kind.runs * kind.seconds for kind in measured)
    times = [console.duration(kind.seconds) for kind in measured]
    rows = [[k.settings, k.runs, k.steps, k.evaluations, time] for k, time in zip(measured, times, strict=True)]
    notes = [f"{MEASURED_STEPS} steps and the evaluations of one run of each kind were measured. Nothing was written."]
    notes += [f"{kind.settings}: {kind.note}." for kind in measured if kind.note]
    if finished:
        notes.append(f"{finished} more have finished before and will not be made again.")
    if busy := busy_note(threads()):
        notes.append(f"{busy.capitalize()}.")
    columns = ["kind", "runs", "steps a run", "evaluations a run", "time a run"]
    result.ran_on(request.device, None)
    count = len(runs) - finished
    result.verdict = (
        f"{count:,} run{'s' * (count != 1)} of {steps:,} steps in all: about {console.duration(seconds)} here."
    )
    found: dict[str, Any] = {"runs": len(runs), "finished": finished, "steps": steps, "seconds": seconds}
    found["kinds"] = [vars(kind) for kind in measured]
    return result.finish(found, [Table("What training will take", columns, rows, notes=notes)])


def _costly(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run on which its time depends."""
    return {key: value for key, value in point.items() if key not in SAME_COST and not key.endswith(SAME_COST_ENDINGS)}


def _measure(request: TrainRequest, settings: str, runs: int) -> Kind:
    """Run a few steps with an evaluation before and after them, and scale the times to the whole run."""
    from sentcli.training.notes import WARM_UP
    from sentcli.training.prepare import prepare
    from sentcli.training.run import run

    if request.after is not None:
        raise InputError("--dry-run measures one training, and a run with --after is two")
    short = {"max_steps": MEASURED_STEPS, "eval_every": MEASURED_STEPS, "patience": 0, "keep_start": True}
    with tempfile.TemporaryDirectory(prefix="sentcli-dry-run-") as folder:
        log = replace(request.log, save_every=0, resume=False, overwrite=False, log_to=None)
        request = replace(request, output=Path(folder) / "run", log=log)
        whole = prepare(request)
        if whole.model is None:
            result, steps = run(whole), 0
            return Kind(settings, runs, 0, 2 * bool(whole.inputs.dev), result.eval_seconds + result.train_seconds)
        evaluation = replace(request.evaluation, sts=False, senteval=None)
        assignments = [*request.assignments, *((f"settings.{key}", value) for key, value in short.items())]
        steps, every = whole.steps, whole.method.settings.eval_every
        note = next((note for note in whole.notes if note.startswith(WARM_UP)), "")
        del whole
        result = run(prepare(replace(request, evaluation=evaluation, assignments=assignments)))
    evaluations = 0
    if result.eval_seconds:
        evaluations = 1 + steps // every + bool(steps % every)
    seconds = steps * result.train_seconds / result.steps + evaluations * result.eval_seconds / 2
    return Kind(settings, runs, steps, evaluations, seconds, note)
