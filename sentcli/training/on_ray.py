"""The runs of a sweep on Ray: each is a task with its CPUs or GPUs, and this process alone writes the results."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sentcli.cluster import Workers, require_ray
from sentcli.errors import InputError, SentcliError
from sentcli.training import sweep
from sentcli.training.run_folder import LockedError
from sentcli.training.sweep import SweepObserver, SweepResult, SweepRun

RETRIES = 2
"""How often a run is begun again, from its last checkpoint, after its process or node has died."""


def run_all_on_ray(
    planned: Sequence[SweepRun], results: Path, observer: SweepObserver, workers: Workers, device: str
) -> SweepResult:
    """Run on the connected cluster what has not been run yet; see `sweep.run_all`.

    Args:
        planned: the runs, of which as many as there are workers are made at a time.
        results: the file that gets a line for each finished run, in the order in which they finish.
        observer: is told of finished, skipped and failed runs.
        workers: what each run reserves; a run computes with as many threads as it has CPUs.
        device: of all runs.

    Raises:
        InputError: if the first run refuses its input; an error of another run is kept in the outcome.
    """
    ray = require_ray()
    task = ray.remote(num_cpus=workers.cpus, num_gpus=workers.gpus, max_retries=RETRIES, scheduling_strategy="SPREAD")(
        _run_in_task
    )
    records = sweep.read_results(results)
    known = ray.put(records)
    waiting = deque(planned)
    busy: dict[Any, SweepRun] = {}
    ended: dict[str, dict[str, Any]] = {}
    outcome = SweepResult()
    while waiting or busy:
        while waiting and len(busy) < workers.count:
            run = waiting.popleft()
            sent = replace(run, request=replace(run.request, device=device))
            busy[task.remote(sent, known, str(Path.cwd()), workers.cpus)] = run
        (reference,), _ = ray.wait(list(busy))
        run = busy.pop(reference)
        try:
            record, is_new = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, SentcliError):
                raise error.cause from error
            _refused(run, error.cause, outcome, observer, is_first=run is planned[0])
        except ray.exceptions.RayError:
            _refused(run, SentcliError(f"its process has died {RETRIES + 1} times"), outcome, observer)
        else:
            if is_new and record["digest"] not in records:
                sweep.append_record(results, record)
                records[record["digest"]] = record
            (observer.finished if is_new else observer.skipped)(run)
            ended[run.name] = {**record, "run": run.name, "point": run.point}
    outcome.records = [ended[run.name] for run in planned if run.name in ended]
    return outcome


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


def _run_in_task(run: SweepRun, known: dict[str, Any], folder: str, threads: int) -> tuple[dict[str, Any], bool]:
    """Make a run in a process of Ray, in the folder that relative paths of the command begin at.

    Raises:
        SentcliError: with a message alone, which can be sent to another process.
    """
    import torch

    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    try:
        os.chdir(folder)
    except OSError as error:
        raise SentcliError(f"{folder}: {error.strerror} on a node; all nodes have to see it") from None
    try:
        return sweep.make_record(run, known.get, lambda prepared: None)
    except LockedError as error:
        raise LockedError(str(error)) from None
    except InputError as error:
        raise InputError(str(error)) from None
    except SentcliError as error:
        raise SentcliError(str(error)) from None
