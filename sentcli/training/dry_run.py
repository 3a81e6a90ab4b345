"""``train --dry-run``: what one run or a sweep will take, measured by a few steps of each kind of run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.evaluation import transfer
from sentcli.evaluation.evaluated import EvaluatedModel, Task
from sentcli.io.digests import json_digest
from sentcli.machine import threads
from sentcli.remaining import duration
from sentcli.table import Table
from sentcli.training.loop import run_order
from sentcli.training.notes import WARM_UP, batch_notes
from sentcli.training.prepare import prepare
from sentcli.training.request import TrainRequest
from sentcli.training.run import run as train_run
from sentcli.training.run_folder import WEIGHTS_FILE
from sentcli.training.scoring import StartScores, other_start_model, score_encoder
from sentcli.training.sweep import SweepRun, run_digest
from sentcli.waiting import busy_note

if TYPE_CHECKING:
    from sentcli.evaluation.transfer import TransferTask
    from sentcli.training.prepare import Prepared

MEASURED_STEPS = 5
"""How many steps of each kind of run are measured."""
SAMPLE_TEXTS = 300
"""Texts of the test sets that are encoded to measure."""
SAMPLE_EXAMPLES = 1000
"""Examples of one transfer task on which classifiers are trained to measure."""
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
    """How often one run scores weights on the dev sets, without those of a start that other runs have, too."""
    seconds: float
    """The time of one run."""
    step_seconds: float = 0.0
    """The time of one step."""
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
    starts: int = 0
    """How many start models are scored on the dev sets, once for all runs that begin with them."""
    start_seconds: float = 0.0
    """The time that this takes."""

    @property
    def steps(self) -> int:
        """The steps that are to be made."""
        return sum(kind.runs * kind.steps for kind in self.kinds)

    @property
    def seconds(self) -> float:
        """The time that these runs will take."""
        return sum(kind.runs * kind.seconds for kind in self.kinds) + self.start_seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON."""
        return {
            "runs": self.runs,
            "finished": self.finished,
            "steps": self.steps,
            "seconds": self.seconds,
            "starts": self.starts,
            "start_seconds": self.start_seconds,
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
            f"{MEASURED_STEPS} steps of one run of each kind were measured, an evaluation of each encoder, and samples "
            "of the test sets. Nothing was written."
        ]
        for kind in self.kinds:
            rows.append([kind.settings, kind.runs, kind.steps, kind.evaluations, duration(kind.seconds)])
            if kind.note:
                notes.append(f"{kind.settings}: {kind.note}.")
        if self.starts:
            notes.append(f"Besides, the start is scored once for all runs ({duration(self.start_seconds)}).")
        if self.finished:
            notes.append(f"{self.finished} more have finished before and will not be made again.")
        busy = busy_note(threads())
        if busy is not None:
            notes.append(f"{busy.capitalize()}.")
        columns = ["kind", "runs", "steps a run", "evaluations a run", "time a run"]
        return Table("What training will take", columns, rows, notes=notes)


def estimate_training(
    request: TrainRequest, planned: Sequence[SweepRun] = (), records: Mapping[str, Any] = MappingProxyType({})
) -> TrainingEstimate:
    """Measure a few steps and an evaluation of each kind of run in a temporary folder, and write nothing else.

    Args:
        request: what the user asked for.
        planned: the runs of a sweep; none for a single run.
        records: of runs that have finished, by digest; a run that has one is not made again.
    """
    runs = planned or [SweepRun("", {}, request)]
    requests_by_kind: dict[str, list[TrainRequest]] = {}
    for run in runs:
        if not _has_finished(run.request, records):
            settings = _costly_settings(run.point) or "all"
            requests_by_kind.setdefault(settings, []).append(run.request)
    kinds = []
    scoring = ScoringTimes()
    with console.counting("measuring", len(requests_by_kind)) as advance:
        for settings, alike in requests_by_kind.items():
            kinds.append(_measure(alike[0], settings, len(alike), scoring))
            advance(1)
    to_make = sum(kind.runs for kind in kinds)
    return TrainingEstimate(
        kinds,
        runs=len(runs),
        finished=len(runs) - to_make,
        starts=len(scoring.starts),
        start_seconds=sum(scoring.starts.values()),
    )


def _has_finished(request: TrainRequest, records: Mapping[str, Any]) -> bool:
    """Tell whether a run has finished and is not made again: it has a record, or its folder is whole."""
    if not request.log.resume:
        return False
    if (request.output / WEIGHTS_FILE).exists():
        return True
    return bool(records) and run_digest(prepare(request).identity(changed_only=True)) in records


def _costly_settings(point: Mapping[str, Any]) -> str:
    """Return the settings of a run on which its time depends, in words."""
    settings = []
    for key, value in point.items():
        if key not in SAME_COST and not key.endswith(SAME_COST_ENDINGS):
            settings.append(f"{key} {value}")
    return ", ".join(settings)


def _measure(request: TrainRequest, settings: str, runs: int, scoring: ScoringTimes) -> RunKind:
    """Prepare a run and make a few steps of it, and scale their time to the whole run."""
    if request.after is not None:
        raise InputError("--dry-run measures one training, and a run with --after is two")
    short = {"max_steps": MEASURED_STEPS, "eval_every": MEASURED_STEPS, "patience": 0, "keep_start": True}
    assignments = list(request.assignments)
    for key, value in short.items():
        assignments.append((f"settings.{key}", value))
    with tempfile.TemporaryDirectory(prefix="sentcli-dry-run-") as folder:
        log = replace(request.log, save_every=0, resume=False, overwrite=False, log_to=None)
        began = time.perf_counter()
        prepared = prepare(replace(request, output=Path(folder) / "run", log=log, assignments=assignments))
        seconds = time.perf_counter() - began
        if prepared.inputs.dev:
            scoring.add_starts(prepared)  # before its weights are trained
        began = time.perf_counter()
        result = train_run(_without_scores(prepared))
        of_whole = seconds + time.perf_counter() - began
    if prepared.model is None:
        evaluations = int(bool(prepared.inputs.dev))
        seconds = of_whole + scoring.of_evaluations(prepared, evaluations) + scoring.of_tests(prepared)
        return RunKind(settings, runs, steps=0, evaluations=evaluations, seconds=seconds)
    of_run = request.configured().settings
    method = replace(prepared.method, settings=of_run)
    rows = len(prepared.corpus.sentences)
    steps = of_run.total_steps(run_order(prepared.model, of_run, rows).per_epoch)
    evaluations = 0
    if prepared.inputs.dev or prepared.held_out_text is not None:
        evaluations = steps // of_run.eval_every + bool(steps % of_run.eval_every)
        evaluations += prepared.has_random_weights or not prepared.inputs.dev  # its start is scored in each run
    step_seconds = result.train_seconds / result.steps
    seconds += steps * step_seconds
    encoders = len(prepared.model.candidates())
    seconds += scoring.of_evaluations(prepared, evaluations * encoders) + scoring.of_tests(prepared)
    notes = batch_notes(method, prepared.model, rows)
    return RunKind(
        settings=settings,
        runs=runs,
        steps=steps,
        evaluations=evaluations,
        seconds=seconds,
        step_seconds=step_seconds,
        note=next((note for note in notes if note.startswith(WARM_UP)), ""),
    )


def _without_scores(prepared: Prepared) -> Prepared:
    """Return a run that scores nothing."""
    inputs = replace(prepared.inputs, dev=(), test=(), transfer=(), held_out=None)
    return replace(prepared, inputs=inputs, held_out_text=None)


@dataclass
class ScoringTimes:
    """How long it takes to score an encoder, which is measured once for all runs whose encoders are alike."""

    dev: dict[str, float] = field(default_factory=dict)
    """The seconds in which one encoder is scored on the dev sets, by what is alike of encoders."""
    tests: dict[str, float] = field(default_factory=dict)
    """The seconds of the STS and transfer tasks at the end of a run, by encoder."""
    starts: dict[str, float] = field(default_factory=dict)
    """The seconds of the evaluation of each start model that runs share and whose scores are not kept, by its key."""

    def add_starts(self, prepared: Prepared) -> None:
        """Add the start of a run, and the same with the pooling that was not taken, unless their scores are kept."""
        sets = prepared.inputs.dev
        start = StartScores(prepared.encoder, sets, prepared.request.log.log_geometry)
        if not prepared.has_random_weights and start.kept() is None:
            self.starts[start.key] = self.of_evaluations(prepared, 1)
        other = other_start_model(prepared)
        if other is not None and not other.has_kept(sets[0].task):
            self.starts[str(other.key)] = self.of_evaluations(prepared, 1)

    def of_evaluations(self, prepared: Prepared, count: int) -> float:
        """Return the seconds in which encoders are scored so many times on the dev sets and the held-out text."""
        if not count:
            return 0.0
        encoder = _encoder_of(prepared)
        if encoder not in self.dev:
            prepared.encoder.torch_module.eval()
            began = time.perf_counter()
            score_encoder(prepared, prepared.encoder.torch_module, is_start=False)
            self.dev[encoder] = time.perf_counter() - began
        return count * self.dev[encoder]

    def of_tests(self, prepared: Prepared) -> float:
        """Return the seconds of the test sets."""
        encoder = _encoder_of(prepared)
        if encoder not in self.tests:
            self.tests[encoder] = test_seconds(prepared)
        return self.tests[encoder]


def _encoder_of(prepared: Prepared) -> str:
    """Return what decides how long it takes to score the encoders of a run."""
    return json_digest([prepared.start_fingerprint, prepared.encoder.describe()])


def test_seconds(prepared: Prepared) -> float:
    """Estimate how long the STS and transfer tasks of a run take, from samples of their texts and examples."""
    inputs = prepared.inputs
    texts: list[str] = []
    tasks: list[Task] = [*inputs.test, *inputs.transfer]
    for task in tasks:
        texts += task.texts
    texts = list(dict.fromkeys(texts))
    if not texts:
        return 0.0
    model = EvaluatedModel.of(prepared.encoder.with_normalize(False))
    sample = texts[:: max(1, len(texts) // SAMPLE_TEXTS)]
    model.encode(sample[:8])  # the first pass takes longer than others
    began = time.perf_counter()
    model.encode(sample)
    seconds = (time.perf_counter() - began) * _letters(texts) / _letters(sample)
    if inputs.transfer:
        seconds += _classifier_seconds(inputs.transfer, model)
    return seconds


def _classifier_seconds(tasks: Sequence[TransferTask], model: EvaluatedModel) -> float:
    """Estimate how long the classifiers of transfer tasks take, from those on a sample of the smallest task."""
    smallest = min(tasks, key=_work)
    sample = replace(smallest, examples=smallest.examples.of_every(max(1, _rows(smallest) // SAMPLE_EXAMPLES)))
    vectors = model.encode(sample.texts)
    began = time.perf_counter()
    transfer.score_transfer(transfer.PROTOCOLS[sample.protocol], sample.examples, vectors)
    seconds = time.perf_counter() - began
    return seconds * sum(map(_work, tasks)) / _work(sample)


def _work(task: TransferTask) -> int:
    """Return what the time of a task's classifiers grows with: their number, their examples and their features."""
    trained = transfer.classifiers(transfer.PROTOCOLS[task.protocol], task.examples)
    first_split = next(iter(task.examples.splits.values()))
    return trained * _rows(task) * len(first_split[0].texts)


def _rows(task: TransferTask) -> int:
    """Return the number of examples that are trained on."""
    return len(next(iter(task.examples.splits.values())))


def _letters(texts: Sequence[str]) -> int:
    return sum(map(len, texts))
