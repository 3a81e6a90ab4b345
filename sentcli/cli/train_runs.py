"""What ``train`` does with its options: one run, or several with one table at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.cli import training_view
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.training.prepare import Prepared, TrainRequest
    from sentcli.training.state import Observer
    from sentcli.training.sweep import Planned


def run_one(request: TrainRequest, log_to: list[str], json: str | None) -> None:
    """Train once, and say and report what came of it."""
    from sentcli.cli.json_report import Report
    from sentcli.evaluation.published import AVERAGES, PREFIXES
    from sentcli.io.json_files import finite, write_json
    from sentcli.machine import environment
    from sentcli.processes import everywhere, is_first
    from sentcli.training.prepare import prepare
    from sentcli.training.run import run
    from sentcli.training.run_folder import WEIGHTS
    from sentcli.training.stages import after_first_stage

    report = Report("train", request.model)
    with ExitStack() as shown:
        request = after_first_stage(request, lambda first: _shown(first, shown, log_to))
    prepared = everywhere(lambda: prepare(request))
    settings, device = prepared.method.settings, prepared.encoder.backend.device
    report.protocol = _protocol(prepared)
    report.environment = environment(device, settings.precision, settings.seed)
    finished = request.resume and (request.output / WEIGHTS).exists()
    training_view.introduce(prepared)
    with ExitStack() as stack:
        stack.enter_context(console.resumable(request.output))
        view = stack.enter_context(training_view.training(0 if finished else prepared.steps))
        result = run(prepared, stack.enter_context(_tracked(prepared, view, log_to)))
    if finished:
        console.note("this run has finished before: nothing was trained")
    training_view.summary(result, request.output)
    cooked = request.recipe
    if cooked is not None and cooked.published and request.model == cooked.model:
        several = tuple(PREFIXES.values())  # of each set
        usual = {n: s for n, s in cooked.published.items() if n in AVERAGES.values() or not n.startswith(several)}
        scores = ", ".join(f"{name} {score.value:.2f}" for name, score in usual.items())
        console.note(f"published for {cooked.name}, trained on {cooked.data or 'unnamed data'}: {scores}")
    if result.truncated:
        console.note(f"{result.truncated} times a sentence was cut to {settings.max_length} tokens (--max-length)")
    report.results = result.to_dict()
    if json is not None and is_first():
        write_json(json, finite(report.to_dict()))


def run_many(
    request: TrainRequest,
    points: list[dict[str, Any]],
    seeds: list[int],
    results: Path,
    log_to: list[str],
    json: str | None,
) -> None:
    """Run what has not been run of a sweep, print one table, and report."""
    from sentcli.cli.json_report import Report
    from sentcli.errors import SentcliError
    from sentcli.io.json_files import finite, write_json
    from sentcli.machine import environment
    from sentcli.processes import is_first
    from sentcli.training import sweep

    planned = sweep.plan(request, points, seeds)
    sweep.check_sweep_folder(request, results)
    report = Report("train", request.model)
    with console.resumable(request.output), ExitStack() as shown:
        outcome = sweep.run_all(planned, results, SweepView(planned, log_to, shown))
    if not is_first():
        return
    summaries = sweep.summarize(outcome.records)
    if summaries:
        training_view.sweep_table("runs" if len(points) > 1 else "seeds", summaries)
    training_view.leftovers(outcome)
    where = f"; their results are in {results}" if outcome.records else ""
    console.note(f"{len(outcome.records)} of {len(planned)} runs have finished{where}")
    told = [summary.to_dict() for summary in summaries]
    held_out = sweep.held_out_means(summaries)
    report.results = told[0] if len(points) == 1 and told else {"points": told}
    if held_out:
        report.results["held_out"] = [mean.to_dict() for mean in held_out]
    report.protocol = {"seeds": seeds, "points": points, "runs": [record["identity"] for record in outcome.records]}
    report.environment = environment(request.device, "")
    if json is not None:
        write_json(json, finite(report.to_dict()))
    if outcome.failed:
        others = f"; the others are in {results}" if outcome.records else ""
        raise SentcliError(f"{len(outcome.failed)} of {len(planned)} runs failed{others}")


class SweepView:
    """Says which run of a sweep is on, and shows its steps until the next one starts."""

    def __init__(self, planned: list[Planned], log_to: list[str], shown: ExitStack) -> None:
        self.planned, self.log_to, self.shown = planned, log_to, shown

    def starts(self, one: Planned, prepared: Prepared) -> Observer | None:
        """Say which run starts, and show it."""
        console.note(self._number(one))
        return _shown(prepared, self.shown, self.log_to)

    def skipped(self, one: Planned) -> None:
        """Say that a run has finished before."""
        console.note(f"{self._number(one)}: finished before")

    def failed(self, one: Planned, message: str) -> None:
        """Say why a run ended."""
        console.warn(f"{self._number(one)}: {message}")

    def _number(self, one: Planned) -> str:
        self.shown.close()
        return f"run {self.planned.index(one) + 1} of {len(self.planned)}, {one.name}"


def _shown(prepared: Prepared, stack: ExitStack, log_to: list[str]) -> Observer:
    """Say what will be trained, and show its steps until the stack is closed."""
    training_view.introduce(prepared)
    view = stack.enter_context(training_view.training(prepared.steps))
    return stack.enter_context(_tracked(prepared, view, log_to))


def _protocol(prepared: Prepared) -> dict[str, Any]:
    """Return every choice that moved the result of a run."""
    encoder, method = prepared.encoder, prepared.method
    return {
        **encoder.describe(),
        "encoding_max_length": encoder.spec.max_length,
        "method": method.name,
        "recipe": prepared.request.recipe.name if prepared.request.recipe else None,
        **method.describe(),
        **(vars(method.settings) if prepared.model is not None else {}),
        "data": list(prepared.corpus.files),
        "subset": vars(prepared.request.subset),
        **({} if prepared.request.hold_out is None else {"hold_out": prepared.request.hold_out}),
        **({} if prepared.request.first_stage is None else {"first_stage": prepared.request.first_stage}),
    }


@contextmanager
def _tracked(prepared: Prepared, view: Observer, log_to: list[str]) -> Iterator[Observer]:
    """Also tell the experiment trackers that were asked for."""
    from sentcli.training import trackers

    with ExitStack() as stack:
        found = [stack.enter_context(trackers.start(name, prepared)) for name in log_to]
        yield training_view.Both([view, *found]) if found else view


def points_and_seeds(
    sweep_file: Path | None, seeds: str | None, hold_out: str | None, data: Sequence[str]
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the points and the seeds of a run of several; no points for a single one.

    Args:
        sweep_file: a grid.
        seeds: with commas.
        hold_out: ``topics`` or ``10-fold`` are several points.
        data: whose topics they are.
    """
    from sentcli.training import sweep
    from sentcli.training.pairs import every_hold_out

    points: list[dict[str, Any]] = []
    listed: list[int] = []
    if sweep_file is not None:
        listed, points = sweep.read_sweep(sweep_file)
    if seeds is not None:
        try:
            listed = [int(seed) for seed in seeds.split(",")]
        except ValueError as error:
            raise InputError(f"--seeds {seeds}: expected whole numbers, such as 48,49,50") from error
        if len(set(listed)) < len(listed):
            raise InputError(f"--seeds {seeds}: a seed stands twice")
        points = points or [{}]
    if hold_out is not None and len(left_out := every_hold_out(hold_out, data)) > 1:
        points = [{**point, "hold_out": each} for point in points or [{}] for each in left_out]
    return points, listed
