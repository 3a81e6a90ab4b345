"""What ``train`` does with its options: one run, or several with one table at the end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.verbs import training_view
from sentcli.verbs.outcome import Outcome

if TYPE_CHECKING:
    from sentcli.training.observer import Observer
    from sentcli.training.prepare import Prepared, TrainRequest
    from sentcli.training.sweep import SweepRun


def run_one(request: TrainRequest, log_to: list[str]) -> Outcome:
    """Train once, and say and return what came of it."""
    from sentcli.evaluation.published import AVERAGES, PREFIXES
    from sentcli.processes import everywhere, is_first
    from sentcli.training.prepare import prepare
    from sentcli.training.run import after_first_stage, run
    from sentcli.training.run_folder import WEIGHTS

    outcome = Outcome("train", request.model, silent=not is_first())
    with ExitStack() as stack:
        request = after_first_stage(request, lambda first: stack.enter_context(training_view.training(first, log_to)))
    prepared = everywhere(lambda: prepare(request))
    settings = prepared.method.settings
    outcome.protocol = _protocol(prepared)
    outcome.ran_on(prepared.encoder.backend.device, settings.precision, settings.seed)
    finished = request.resume and (request.output / WEIGHTS).exists()
    with console.resumable(request.output), training_view.training(prepared, log_to, finished=finished) as view:
        result = run(prepared, view)
    if finished:
        console.note("this run has finished before: nothing was trained")
    training_view.summary(result, request.output)
    recipe = request.recipe
    if recipe is not None and recipe.published and request.model == recipe.model:
        several = tuple(PREFIXES.values())  # of each set
        usual = {n: s for n, s in recipe.published.items() if n in AVERAGES.values() or not n.startswith(several)}
        scores = ", ".join(f"{name} {score.value:.2f}" for name, score in usual.items())
        console.note(f"published for {recipe.name}, trained on {recipe.data or 'unnamed data'}: {scores}")
    if result.truncated:
        console.note(f"{result.truncated} times a sentence was cut to {settings.max_length} tokens (--max-length)")
    return outcome.finish(result.to_dict())


def run_many(
    request: TrainRequest, points: list[dict[str, Any]], seeds: list[int], results: Path, log_to: list[str]
) -> Outcome:
    """Run what has not been run of a sweep, and return one table."""
    from sentcli.processes import is_first
    from sentcli.training import sweep

    planned = sweep.plan(request, points, seeds)
    sweep.check_sweep_folder(request, results)
    outcome = Outcome("train", request.model, silent=not is_first())
    with console.resumable(request.output), ExitStack() as shown:
        ran = sweep.run_all(planned, results, SweepView(planned, log_to, shown))
    if not is_first():
        return outcome
    for name, message in ran.failed.items():
        console.warn(f"{name} failed: {message}")
    for name in ran.elsewhere:
        console.warn(f"{name} is being run by another process")
    where = f"; their results are in {results}" if ran.records else ""
    console.note(f"{len(ran.records)} of {len(planned)} runs have finished{where}")
    summaries = sweep.summarize(ran.records)
    told: dict[str, Any] = {"points": [summary.to_dict() for summary in summaries]}
    if len(points) == 1 and summaries:
        told = told["points"][0]
    if means := sweep.held_out_means(summaries):
        told = {**told, "held_out": [mean.to_dict() for mean in means]}
    outcome.protocol = {"seeds": seeds, "points": points, "runs": [record["identity"] for record in ran.records]}
    outcome.ran_on(request.device, "")
    title = "runs" if len(points) > 1 else "seeds"
    outcome.finish(told, [training_view.sweep_table(title, summaries)] if summaries else [])
    if ran.failed:
        outcome.show()
        others = f"; the others are in {results}" if ran.records else ""
        raise outcome.failed(f"{len(ran.failed)} of {len(planned)} runs failed{others}")
    return outcome


class SweepView:
    """Says which run of a sweep is on, and shows its steps until the next one starts."""

    def __init__(self, planned: list[SweepRun], log_to: list[str], shown: ExitStack) -> None:
        self.planned, self.log_to, self.shown = planned, log_to, shown

    def starts(self, run: SweepRun, prepared: Prepared) -> Observer | None:
        """Say which run starts, and show it."""
        console.note(self._number(run))
        return self.shown.enter_context(training_view.training(prepared, self.log_to))

    def skipped(self, run: SweepRun) -> None:
        """Say that a run has finished before."""
        console.note(f"{self._number(run)}: finished before")

    def failed(self, run: SweepRun, message: str) -> None:
        """Say why a run ended."""
        console.warn(f"{self._number(run)}: {message}")

    def _number(self, run: SweepRun) -> str:
        self.shown.close()
        return f"run {self.planned.index(run) + 1} of {len(self.planned)}, {run.name}"


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
    from sentcli.training.data import every_hold_out

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
