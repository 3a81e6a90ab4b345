"""The runs of a sweep on Ray: each is a task with its CPUs or GPUs, and this process alone writes the results.

Where a sweep asks for it, one actor hears the scores of all runs and ends those that are behind.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sentcli.cluster import require_ray
from sentcli.cluster_nodes import Workers, was_taken_away
from sentcli.errors import DataError, InputError, SentcliError
from sentcli.training import sweep
from sentcli.training.metrics import parsed
from sentcli.training.run_folder import METRICS, LockedError
from sentcli.training.sweep import SweepObserver, SweepResult, SweepRun
from sentcli.training.sweep_file import Asha
from sentcli.training.sweep_results import append_record, read_results

if TYPE_CHECKING:
    from sentcli.training.observer import StepInfo
    from sentcli.training.prepare import Prepared

RETRIES = 2
"""How often a run is begun again, from its last checkpoint, after its process or node has died.

A node that is taken away does not count, for which Ray's own retries have no way (2.60).
"""
POLL_SECONDS = 1.0
"""How often the metrics of the runs are read."""
LONGEST_RUN = 10**9
"""The step at which the scheduler would end every run. No run has so many, so only the comparisons end runs."""


def run_all_on_ray(
    planned: Sequence[SweepRun],
    results: Path,
    observer: SweepObserver,
    workers: Workers,
    device: str,
    asha: Asha | None = None,
) -> SweepResult:
    """Run on the connected cluster what has not been run yet; see `sweep.run_all`.

    Args:
        planned: the runs, of which as many as there are workers are made at a time.
        results: the file that gets a line for each finished run, in the order in which they finish.
        observer: is told of finished, skipped and failed runs, and of what the others log.
        workers: what each run reserves; a run computes with as many threads as it has CPUs.
        device: of all runs.
        asha: when runs that are behind are ended; None ends none.

    Raises:
        InputError: if the first run refuses its input; an error of another run is kept in the outcome.
    """
    ray = require_ray()
    task = ray.remote(num_cpus=workers.cpus, num_gpus=workers.gpus, max_retries=0, scheduling_strategy="SPREAD")(
        _run_in_task
    )
    known = ray.put(read_results(results))
    judge = None if asha is None else _start_judge(ray, asha)
    added: set[str] = set()
    waiting = deque(planned)
    busy: dict[Any, SweepRun] = {}
    ended: dict[str, dict[str, Any]] = {}
    deaths: Counter[str] = Counter()
    told: dict[str, int] = {}
    outcome = SweepResult()
    while waiting or busy:
        while waiting and len(busy) < workers.count:
            run = waiting.popleft()
            sent = replace(run, request=replace(run.request, device=device))
            busy[task.remote(sent, known, str(Path.cwd()), workers.cpus, judge)] = run
            told[run.name] = _new_lines(run, None)[1]
        reference = _first_ended(ray, busy, told, observer)
        run = busy.pop(reference)
        try:
            record, is_new = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, SentcliError):
                raise error.cause from error
            _refused(run, error.cause, outcome, observer, is_first=run is planned[0])
        except ray.exceptions.RayError as error:
            deaths[run.name] += not was_taken_away(error)
            if deaths[run.name] > RETRIES:
                _refused(run, SentcliError(f"its process has died {RETRIES + 1} times"), outcome, observer)
            else:
                waiting.appendleft(run)
        else:
            if is_new and record["digest"] not in added:
                append_record(results, record)
                added.add(record["digest"])
            if is_new:
                observer.finished(run, record)
            else:
                observer.skipped(run)
            ended[run.name] = {**record, "run": run.name, "point": run.point}
    outcome.records = [ended[run.name] for run in planned if run.name in ended]
    return outcome


def _first_ended(ray: Any, busy: Mapping[Any, SweepRun], told: dict[str, int], observer: SweepObserver) -> Any:
    """Return the reference of a run that has ended, and tell meanwhile what all of them log."""
    while True:
        done, _ = ray.wait(list(busy), timeout=POLL_SECONDS)
        for run in busy.values():
            lines, told[run.name] = _new_lines(run, told[run.name])
            for line in lines:
                observer.logged(run, line)
        if done:
            return done[0]


def _new_lines(run: SweepRun, begin: int | None) -> tuple[list[dict[str, Any]], int]:
    """Return the whole lines in the metrics of a run from a byte on, and the byte behind them; None is the end."""
    path = run.request.output / METRICS
    data = path.read_bytes() if path.is_file() else b""
    begin, end = min(len(data) if begin is None else begin, len(data)), data.rfind(b"\n") + 1
    try:
        return parsed(data[begin:end], path), max(begin, end)
    except DataError:  # the file was begun anew
        return [], end


def _start_judge(ray: Any, asha: Asha) -> Any:
    """Start a `Judge` on the node of this process, so that it ends with the sweep and not before."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Judge).remote(asha)


class Judge:
    """The actor that ends runs which are behind, as the scheduler of Ray Tune says.

    Args:
        asha: its settings.
    """

    def __init__(self, asha: Asha) -> None:
        from ray.tune.schedulers import ASHAScheduler

        self.scheduler = ASHAScheduler(
            time_attr="step",
            metric="score",
            mode="max",
            grace_period=asha.grace_period,
            reduction_factor=asha.reduction_factor,
            max_t=LONGEST_RUN,
            stop_last_trials=False,
        )
        self.ended: dict[str, int] = {}
        """The step at which each run was ended."""

    def ends(self, run: str, step: int, score: float) -> bool:
        """Take the score of a run, and tell whether the run ends here."""
        trial = SimpleNamespace(trial_id=run)
        self.scheduler.on_trial_add(None, trial)  # needs no more of a trial than its name
        if self.scheduler.on_trial_result(None, trial, {"step": step, "score": score}) == self.scheduler.STOP:
            self.ended.setdefault(run, step)
        return step >= self.ended.get(run, LONGEST_RUN)  # a run that is made again comes by earlier steps

    def take(self, run: str, scores: Sequence[tuple[int, float]]) -> None:
        """Take the scores that a run had before, so that others are compared with them."""
        for step, score in scores:
            self.ends(run, step, score)


class _Reporting:
    """The observer of a run that reports its scores to a `Judge`.

    Args:
        judge: the handle of the actor.
        run: the run.
        key: of the score that decides.
    """

    def __init__(self, judge: Any, run: SweepRun, key: str) -> None:
        self.judge, self.run, self.key = judge, run, key

    def resumed(self, step: int, notes: list[str]) -> None:
        """Report the scores up to the checkpoint."""
        self.had_before()

    def had_before(self) -> None:
        """Report the scores on the first dev set, as far as the metrics of the run are there.

        Raises:
            DataError: for a damaged line.
        """
        path = self.run.request.output / METRICS
        lines = parsed(path.read_bytes() if path.is_file() else b"", path)
        scores = ((line["step"], next((line[key] for key in line if key.startswith("dev_")), None)) for line in lines)
        numbers = [(step, score) for step, score in scores if isinstance(score, int | float)]
        require_ray().get(self.judge.take.remote(self.run.name, numbers))

    def step(self, info: StepInfo) -> None:
        """Do nothing."""

    def scored(self, step: int, values: Mapping[str, float], best: bool) -> bool:
        """Report a score, and tell whether the run ends here."""
        return bool(require_ray().get(self.judge.ends.remote(self.run.name, step, values[self.key])))


def _refused(
    run: SweepRun, error: SentcliError, outcome: SweepResult, observer: SweepObserver, *, is_first: bool = False
) -> None:
    """Keep the error of a run.

    Raises:
        InputError: if it is the error of the first run, which is most likely that of all.
    """
    if isinstance(error, LockedError):
        outcome.elsewhere.append(run.name)
        return
    if isinstance(error, InputError) and is_first:
        raise error
    outcome.failed[run.name] = str(error)
    observer.failed(run, str(error))


def _run_in_task(
    run: SweepRun, known: dict[str, Any], folder: str, threads: int, judge: Any
) -> tuple[dict[str, Any], bool]:
    """Make a run in a process of Ray, in the folder that relative paths of the command begin at."""
    import torch

    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    try:
        os.chdir(folder)
    except OSError as error:
        raise SentcliError(f"{folder}: {error.strerror} on a node; all nodes have to see it") from None

    def starts(prepared: Prepared) -> _Reporting | None:
        is_judged = judge is not None and prepared.inputs.dev and prepared.request.output == run.request.output
        return _Reporting(judge, run, prepared.inputs.dev[0].key) if is_judged else None

    record, is_new = sweep.make_record(run, known.get, starts)
    if judge is not None and not is_new:
        _Reporting(judge, run, "").had_before()
    return record, is_new
