"""The runs of a sweep on Ray, each in a worker; this process alone writes the results.

Where a sweep asks for it, one actor hears the scores of all runs and ends those that are behind.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.cluster.joining import require_ray
from sentcli.cluster.pool import Pool
from sentcli.errors import DataError, SentcliError
from sentcli.training import sweep
from sentcli.training.records import METRICS_FILE, append_record, parsed, read_results
from sentcli.training.sweep import SweepObserver, SweepResult, SweepRun
from sentcli.training.sweep_file import Asha

if TYPE_CHECKING:
    from sentcli.training.observer import OtherStart, StepInfo
    from sentcli.training.prepare import Prepared


def run_all_on_ray(
    planned: Sequence[SweepRun],
    results: Path,
    observer: SweepObserver,
    pool: Pool,
    device: str,
    asha: Asha | None = None,
) -> SweepResult:
    """Run on a cluster what has not been run yet; see `sweep.run_all`.

    Args:
        planned: the runs, of which as many as there are workers are made at a time.
        results: the file that gets a line for each finished run, in the order in which they finish.
        observer: is told of finished, skipped and failed runs, and of what the others log.
        pool: the workers; a run computes with as many threads as its worker has CPUs.
        device: of all runs.
        asha: when runs that are behind are ended; None ends none.

    Raises:
        InputError: if the first run refuses its input; an error of another run is kept in the outcome.
    """
    records = pool.ray.put(read_results(results))
    judge = _start_judge(pool, asha)
    waiting = deque(replace(run, request=replace(run.request, device=device)) for run in planned)
    logs = {run.name: _Log(run) for run in planned}
    added: set[str] = set()
    ended: dict[str, dict[str, Any]] = {}
    outcome = SweepResult()
    for event in pool.run_each(waiting, _make_record, records, str(Path.cwd()), judge):
        started = list(pool.items)
        if event.item:
            started.append(event.item)
        for item in started:
            log = logs[item.name]
            for line in log.new_lines():
                observer.logged(log.run, line)
        if event.kind in ("failed", "died"):
            if not isinstance(event.value, SentcliError):
                raise event.value
            run = logs[event.item.name].run
            is_first = event.kind == "failed" and run.name == planned[0].name
            sweep.keep_error(run, event.value, outcome, observer, is_first=is_first)
        elif event.kind == "done":
            run = logs[event.item.name].run
            record, is_new = event.value
            if not is_new:
                observer.skipped(run)
            else:
                if record["digest"] not in added:
                    append_record(results, record)
                    added.add(record["digest"])
                observer.finished(run, record)
            ended[run.name] = {**record, "run": run.name, "point": run.point}
    outcome.records = [ended[run.name] for run in planned if run.name in ended]
    return outcome


def _start_judge(pool: Pool, asha: Asha | None) -> Any:
    """Start the `RunJudge`, if there is one, on the node of this process, so that it ends with the sweep."""
    if asha is None:
        return None
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(pool.ray.get_runtime_context().get_node_id(), soft=True)
    return pool.ray.remote(num_cpus=0, scheduling_strategy=here)(RunJudge).remote(asha)


class _Log:
    """The metrics of a run, which another process writes, from now on."""

    def __init__(self, run: SweepRun) -> None:
        self.run = run
        self.path = run.request.output / METRICS_FILE
        self.end = len(self._data())
        """How many bytes have been read."""

    def new_lines(self) -> list[dict[str, Any]]:
        """Return the whole lines that were added since the last call."""
        data = self._data()
        begin = min(len(data), self.end)
        end = data.rfind(b"\n") + 1
        try:
            lines = parsed(data[begin:end], self.path)
        except DataError:  # the file was begun anew
            self.end = end
            return []
        self.end = max(begin, end)
        return lines

    def _data(self) -> bytes:
        if self.path.is_file():
            return self.path.read_bytes()
        return b""


@dataclass
class RunJudge:
    """The actor that ends runs which are behind.

    This is asynchronous successive halving (Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys
    2020, algorithm 2) as Ray Tune's ASHA scheduler decides it: at each rung a run goes on if its score is not below the
    quantile 1 - 1 / reduction_factor of the scores that other runs have had there before.
    """

    asha: Asha
    rungs: dict[int, dict[str, float]] = field(default_factory=dict)
    """The scores of the runs by the number of the rung, from 0."""
    ended: dict[str, int] = field(default_factory=dict)
    """The step at which each run was ended."""

    def ends(self, run: str, step: int, score: float) -> bool:
        """Take the score of a run, and tell whether the run ends here."""
        asha = self.asha
        rung = -1
        while step >= asha.grace_period * asha.reduction_factor ** (rung + 1):
            rung += 1
        scores = self.rungs.setdefault(rung, {})
        if rung >= 0 and run not in scores:
            others = list(scores.values())
            scores[run] = score
            if others and score < np.quantile(others, 1 - 1 / asha.reduction_factor):
                self.ended.setdefault(run, step)
        return run in self.ended and step >= self.ended[run]  # a run that is made again comes by earlier steps

    def take(self, run: str, scores: Sequence[tuple[int, float]]) -> None:
        """Take the scores that a run had before, so that others are compared with them."""
        for step, score in scores:
            self.ends(run, step, score)


@dataclass
class _Reporting:
    """The observer of a run in a worker, which reports its scores to a `RunJudge`."""

    judge: Any
    """The handle of the actor; None reports nothing."""
    run: SweepRun
    key: str = ""
    """The name of the score that is reported."""

    def starts(self, run: SweepRun, prepared: Prepared) -> _Reporting | None:
        """Return the observer of a training, which is not that of ``--after``."""
        is_first_stage = prepared.request.output != run.request.output
        if self.judge is None or is_first_stage or not prepared.inputs.dev:
            return None
        self.key = prepared.inputs.dev[0].key
        return self

    def resumed(self, step: int, notes: list[str]) -> None:
        """Report the scores up to the checkpoint."""
        self.had_before()

    def had_before(self) -> None:
        """Report the scores on the first dev set, as far as the metrics of the run are there.

        Raises:
            DataError: for a damaged line.
        """
        path = self.run.request.output / METRICS_FILE
        lines: list[dict[str, Any]] = []
        if path.is_file():
            lines = parsed(path.read_bytes(), path)
        scores = []
        for line in lines:
            dev_scores = [value for key, value in line.items() if key.startswith("dev_")]
            if dev_scores and isinstance(dev_scores[0], int | float):
                scores.append((line["step"], dev_scores[0]))
        require_ray().get(self.judge.take.remote(self.run.name, scores))

    def other_start(self, other: OtherStart) -> None:
        """Do nothing: only scores are reported."""

    def step(self, info: StepInfo) -> None:
        """Do nothing: only scores are reported."""

    def scored(self, step: int, values: Mapping[str, float | None], best: bool) -> bool:
        """Report a score, and tell whether the run ends here; no score is less than any."""
        value = values[self.key]
        if value is None:
            value = -sys.float_info.max  # a quantile can be taken of it
        answer = self.judge.ends.remote(self.run.name, step, value)
        return bool(require_ray().get(answer))


def _make_record(
    _: None, run: SweepRun, records: Mapping[str, Any], folder: str, judge: Any
) -> tuple[dict[str, Any], bool]:
    """Make a run in a worker, in the folder that relative paths of the command begin at."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    try:
        os.chdir(folder)
    except OSError as error:
        raise SentcliError(f"{folder}: {error.strerror} on a node; all nodes have to see it") from None
    reporting = _Reporting(judge, run)
    record, is_new = sweep.make_record(run, records, reporting)
    if judge is not None and not is_new:
        reporting.had_before()
    return record, is_new
