"""One training run, or several with one table at the end, as ``train`` starts them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.cluster.pool import open_cluster
from sentcli.command.result import Clock, Record, Result, failed, kept_if_interrupted
from sentcli.machine import environment
from sentcli.training import view as training_view
from sentcli.training.sweep_view import SweepView, sweep_table

if TYPE_CHECKING:
    from sentcli.cluster import ClusterOptions
    from sentcli.training.prepare import Prepared
    from sentcli.training.records import Summary
    from sentcli.training.request import TrainRequest
    from sentcli.training.sweep import SweepResult, SweepRun
    from sentcli.training.sweep_file import Asha, Sweep


def start_check_result(request: TrainRequest) -> Result:
    """Say whether a few steps gain from the start; the exit code is 3 if they do not."""
    from sentcli.training import start_check

    clock = Clock()
    check = start_check.check_start(request)
    facts = check.environment
    record = Record("train", request.model, results=check.to_dict(), environment=facts, seconds=clock.seconds)
    exit_code = 0 if check.gains else 3
    return Result.of(record, [check.table()], verdict=check.sentence(), exit_code=exit_code)


def estimate_runs(request: TrainRequest, varied: Sweep, results: Path) -> Result:
    """Say what a run or the runs of a sweep, whose results go into a file, will take."""
    from sentcli.training.dry_run import MEASURED_STEPS, estimate_training
    from sentcli.training.planned import planned_runs
    from sentcli.training.records import read_results

    clock = Clock()
    runs: list[SweepRun] = []
    records: dict[str, Any] = {}
    if varied.points:
        runs = planned_runs(request, varied)
        records = read_results(results)
    estimate = estimate_training(request, runs, records)
    protocol = {"dry_run": True, "measured_steps": MEASURED_STEPS}
    facts = environment(request.device, None)
    record = Record("train", request.model, protocol, estimate.to_dict(), facts, clock.seconds)
    return Result.of(record, [estimate.table()], verdict=estimate.sentence())


def run_one(request: TrainRequest) -> Result:
    """Train once, and print and return the results."""
    from sentcli.analysis.curves import curve
    from sentcli.evaluation.published import AVERAGES, PREFIXES
    from sentcli.processes import everywhere, is_first
    from sentcli.training.prepare import prepare
    from sentcli.training.run import after_first_stage, first_stage, run
    from sentcli.training.run_folder import WEIGHTS_FILE

    clock = Clock()
    first = first_stage(request)
    if first is not None:
        with training_view.training(first) as view:
            run(first, view)  # returns at once if it has finished; another run's folder is refused
        request = after_first_stage(request, first)
    prepared = everywhere(lambda: prepare(request))
    settings = prepared.method.settings
    facts = environment(prepared.encoder.backend.device, settings.precision, settings.seed, prepared.revision)
    record = Record("train", request.model, _protocol(prepared), environment=facts)
    finished = request.log.resume and not request.log.overwrite and (request.output / WEIGHTS_FILE).exists()
    interrupted = kept_if_interrupted(record, clock, lambda: _done_so_far(request.output))
    with interrupted, console.resumable(request.output), training_view.training(prepared, finished=finished) as view:
        result = run(prepared, view)
    if finished:
        console.note("this run has finished before: nothing was trained")
    training_view.summary(result, request.output, scores_pairs=prepared.encoder.spec.scores_pairs)
    recipe = request.recipe
    if recipe is not None and recipe.published and request.model == recipe.model:
        of_single_sets = tuple(PREFIXES.values())
        scores = []
        for name, published in recipe.published.items():
            if name in AVERAGES or not name.startswith(of_single_sets):
                scores.append(f"{name} {published.value:.2f}")
        trained_on = recipe.data or "unnamed data"
        console.note(f"published for {recipe.name}, trained on {trained_on}: {', '.join(scores)}")
    if result.truncated:
        console.note(f"{result.truncated} times a sentence was cut to {settings.max_length} tokens (--max-length)")
    return Result.of(
        replace(record, results=result.to_dict(), seconds=clock.seconds),
        make_figure=partial(curve, request.output.resolve()),
        overview=training_view.overview(result, request.output),
        silent=not is_first(),
    )


def _done_so_far(output: Path) -> dict[str, Any]:
    """Return the steps of a run that was interrupted and its last evaluation; nothing if it had not begun.

    One that replaces a finished run is made beside it, in the staging folder.
    """
    from sentcli.io.atomic import staging_folder
    from sentcli.training.records import METRICS_FILE, parsed
    from sentcli.training.run_folder import WEIGHTS_FILE

    for folder in (staging_folder(output), output):
        log = folder / METRICS_FILE
        if not log.is_file() or (folder / WEIGHTS_FILE).exists():
            continue
        lines = parsed(log.read_bytes(), log)
        if lines:
            so_far = {"steps": lines[-1]["step"]}
            for line in lines:
                if "best" in line:
                    so_far["evaluation"] = line
            return so_far
    return {}


def run_many(request: TrainRequest, varied: Sweep, results: Path, cluster: ClusterOptions) -> Result:
    """Run those points of a sweep that have not been run, and return the table of all."""
    from sentcli.processes import is_first
    from sentcli.training import sweep
    from sentcli.training.planned import planned_runs
    from sentcli.training.records import read_results, summarize, warmup_notes

    points, seeds = varied.points, varied.seeds
    planned = planned_runs(request, varied)
    sweep.check_sweep_folder(request, results)
    clock = Clock()
    begun = Record("train", request.model)
    names = {run.name for run in planned}
    there = read_results(results)
    replaced = there if request.log.overwrite else {}
    finished = {str(record.get("run")) for key, record in there.items() if key not in replaced}

    def so_far() -> dict[str, Any]:
        done = 0
        for key, record in read_results(results).items():
            done += record.get("run") in names and record != replaced.get(key)
        return {"runs": len(planned), "runs_done": done}

    interrupted = kept_if_interrupted(begun, clock, so_far)
    with interrupted, console.resumable(request.output), ExitStack() as shown:
        view = SweepView(planned, shown, finished)
        if cluster.ray is None:
            ran = sweep.run_all(planned, results, view)
        else:
            ran = _run_on_ray(planned, results, view, cluster, request.device, varied.asha)
    if not is_first():
        return Result.of(begun, silent=True)
    _say_what_happened(ran, len(planned), results)
    summaries = summarize(ran.records)
    tables = []
    if summaries:
        title = "runs" if len(points) > 1 else "seeds"
        tables.append(sweep_table(title, summaries, warmup_notes(ran.records)))
    record = replace(
        begun,
        protocol={"seeds": seeds, "points": points, "runs": [record["identity"] for record in ran.records]},
        results=_report(summaries, single=len(points) == 1),
        environment=environment(request.device, ""),
        seconds=clock.seconds,
    )
    result = Result.of(record, tables)
    if ran.failed:
        result.show()
        message = f"{len(ran.failed)} of {len(planned)} runs failed"
        if ran.records:
            message += f"; the others are in {results}"
        raise failed(result, message)
    return result


def _report(summaries: Sequence[Summary], *, single: bool) -> dict[str, Any]:
    """Return the results of the points of a sweep, or of its single point, and the means over its parts."""
    from sentcli.training.records import parts_means

    results_by_point = [summary.to_dict() for summary in summaries]
    report: dict[str, Any] = {"points": results_by_point}
    if single and summaries:
        report = dict(results_by_point[0])
    for name, key in (("held_out", "hold_out"), ("text_of", "text_of")):
        entries = []
        for mean in parts_means(summaries, key):
            numbers = {number.removeprefix("held_out_"): value for number, value in mean.numbers.items()}
            entries.append({"point": mean.point, name: mean.parts, **numbers})
        if entries:
            report[name] = entries
    return report


def _say_what_happened(ran: SweepResult, planned: int, results: Path) -> None:
    """Say how many runs of a sweep have finished, which have failed, and which have kept their start."""
    for name, message in ran.failed.items():
        console.warn(f"{name} failed: {message}")
    for name in ran.locked:
        console.warn(f"{name} is being run by another process")
    finished = len(ran.records)
    at_start = sum(training_view.kept_start(record["results"]) for record in ran.records)
    if at_start:
        console.warn(
            f"{at_start} of {finished} runs: no step was better than the start, whose weights were kept. "
            f"{training_view.RATE_ADVICE}"
        )
    note = f"{finished} of {planned} runs have finished"
    if finished:
        note += f"; their results are in {results}"
    console.note(note)


def _run_on_ray(
    planned: list[SweepRun], results: Path, view: SweepView, cluster: ClusterOptions, device: str, asha: Asha | None
) -> SweepResult:
    """Make the runs on a cluster, after comparing the start models on its nodes."""
    from sentcli.cluster.pool import Pool
    from sentcli.encoder.loading import require_same_weights
    from sentcli.training.on_ray import run_all_on_ray

    with open_cluster(cluster, most=len(planned), on_cpu=device == "cpu") as (nodes, workers):
        for model in dict.fromkeys(run.request.model for run in planned):
            require_same_weights(nodes, model)
        if not workers.gpus and any(node.gpus for node in nodes):
            device = "cpu"
        with Pool(workers) as pool:
            return run_all_on_ray(planned, results, view, pool, device, asha)


def _protocol(prepared: Prepared) -> dict[str, Any]:
    """Return every choice on which the result of a run depends."""
    encoder, method, request = prepared.encoder, prepared.method, prepared.request
    protocol: dict[str, Any] = {
        **encoder.describe(),
        "pooling_reason": prepared.pooling.reason,
        **encoder.provenance(),
        "encoding_max_length": encoder.spec.max_length,
        "method": method.name,
        "recipe": request.recipe.name if request.recipe else None,
        **method.describe(),
    }
    if prepared.model is not None:
        protocol |= vars(method.settings)
    protocol |= {"data": list(prepared.corpus.files), "subset": vars(prepared.inputs.subset)}
    if request.data.hold_out is not None:
        protocol["hold_out"] = request.data.hold_out
    if request.first_stage is not None:
        protocol["first_stage"] = request.first_stage
    return protocol
