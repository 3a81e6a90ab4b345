"""The output of ``train``: a live table on a terminal, lines in a log file, and tables of results at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.remaining import Remaining
from sentcli.table import Table
from sentcli.waiting import busy_note

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sentcli.training.dev import DevSet
    from sentcli.training.observer import Observer, OtherStart, StepInfo, TrainResult
    from sentcli.training.prepare import Prepared
    from sentcli.training.records import Summary
    from sentcli.training.sweep import SweepRun

MOST_EVALUATION = 0.5
"""The share of the time that evaluations may take before a hint."""
REMEDY = (
    "Try another --learning-rate; sentcli analyze similarity shows by what the vectors of the start model distinguish "
    "sentences"
)
"""What to do where training does not help."""
LOG_EVERY = 100
"""Steps between two lines if there is no live table; slow steps have one every `console.EVERY` seconds."""


class TrainingView:
    """An `Observer` of the training loop that shows one run and passes everything on to experiment trackers.

    Args:
        trackers: observers of the same run.
        sets: the dev sets.
        live: the live table on a terminal.
        progress: the bar below it.
    """

    def __init__(
        self, trackers: Sequence[Observer], sets: Sequence[DevSet] = (), live: Any = None, progress: Any = None
    ) -> None:
        self.trackers, self.sets, self.live, self.progress = trackers, sets, live, progress
        self.values: dict[str, float] = {}
        self.shares: dict[str, float] = {}
        self.dev = ""
        self.said = time.monotonic()
        self.remaining: Remaining | None = None
        self.other: OtherStart | None = None
        self.marks_best = True
        """Whether the best score so far is marked."""

    def resumed(self, step: int, notes: list[str]) -> None:
        """Print where the run continues."""
        for note in notes:
            console.warn(note)
        console.note(f"going on from the checkpoint of step {step}" if step else "no checkpoint: starting anew")
        for tracker in self.trackers:
            tracker.resumed(step, notes)

    def other_start(self, other: OtherStart) -> None:
        """Keep what the start has with the other pooling, to say it beside the first score."""
        self.other = other

    def step(self, info: StepInfo) -> None:
        """Show loss, terms, shares and speed."""
        self.values, self.shares = info.values, info.shares or self.shares
        if self.remaining is None:  # what was done before `--resume` says nothing about the speed
            self.remaining = Remaining(info.total - info.step + 1)
        self.remaining.add(1)
        left = console.left(self.remaining)
        speed = f"{self.dev}{info.sentences_per_second:,.0f} sentences/s"
        if self.live is not None:
            self.progress.update(self.progress.task_ids[0], completed=info.step, status=speed, left=left)
            self.live.update(self.table())
        elif info.step % LOG_EVERY == 0 or time.monotonic() - self.said > console.EVERY:
            self.said = time.monotonic()
            shares = {name: f" ({share:.0%} of the gradient)" for name, share in self.shares.items()}
            shares = shares if len(shares) > 1 else {}
            terms = ", ".join(f"{name} {loss_text(value)}{shares.get(name, '')}" for name, value in info.values.items())
            console.note(f"step {info.step} of {info.total}: {terms}, {speed}{f', {left}' if left else ''}")
        for tracker in self.trackers:
            tracker.step(info)

    def scored(self, step: int, values: Mapping[str, float], best: bool) -> None:
        """Print the numbers of an evaluation."""
        scores = {dev.key: dev.score_text(values[dev.key]) for dev in self.sets if dev.key in values}
        others = [f"{key.replace('_', '-')} {value:.3f}" for key, value in values.items() if key not in scores]
        parts = [*scores.values(), *others]
        if scores:
            self.dev = f"{parts[0]}, "
            parts[0] += " (best so far)" if best and step and self.marks_best else ""
        console.note(f"step {step}: {', '.join(parts)}")
        if self.other is not None:
            self._compare_poolings(self.other, values[self.sets[0].key])
            self.other = None
        for tracker in self.trackers:
            tracker.scored(step, values, best)

    def _compare_poolings(self, other: OtherStart, own: float) -> None:
        """Say what the start has with the pooling that was not taken, and warn if it is better."""
        said = f"with --pooling {other.pooling} the start has {self.sets[0].score_text(other.value)}"
        if other.value > own:
            console.warn(f"{said}, which is more")
        else:
            console.note(said)

    def table(self) -> Any:
        """Return the table above the progress bar."""
        from rich.console import Group
        from rich.table import Table as RichTable

        table = RichTable(box=None, padding=(0, 2), show_edge=False)
        table.add_column("term", min_width=18)
        table.add_column("value", justify="right")
        table.add_column("share of the gradient", justify="right")
        for name, value in self.values.items():
            table.add_row(name, loss_text(value), f"{self.shares[name]:.1%}" if name in self.shares else "")
        return Group(table, self.progress)


@contextmanager
def training(prepared: Prepared, *, finished: bool = False) -> Iterator[TrainingView]:
    """Print what will be trained, and show it: by a live table with a bar on a terminal, else by lines."""
    from rich.live import Live

    from sentcli.training.observer import track

    _introduce(prepared)
    with ExitStack() as stack:
        live = progress = None
        if prepared.steps and not finished and not console.state.quiet and console.stderr().is_terminal:
            progress = console.bar()
            progress.add_task("training", total=prepared.steps, status="", left="")
            live = stack.enter_context(Live(progress, console=progress.console, refresh_per_second=4))
            stack.enter_context(console.shown_on(live.console))
        output = prepared.request.output
        names = prepared.request.log.log_to or []
        trackers = [stack.enter_context(track(name, output, prepared.identity())) for name in names]
        yield TrainingView(trackers, prepared.inputs.dev, live, progress)


def _introduce(prepared: Prepared) -> None:
    """Print method, data, settings and warnings before the training."""
    import torch

    from sentcli.precision import half_precision_supported

    encoder, method, request = prepared.encoder, prepared.method, prepared.request
    settings = method.settings
    batch = f"{settings.batch_size}{f' x {settings.accumulate}' if settings.accumulate > 1 else ''}"
    work = f"{prepared.steps} steps of {batch}" if prepared.model else "fitted"
    terms = " + ".join(f"{o.weight:g} x {name}" if o.weight != 1 else name for name, o in method.objectives.items())
    console.note(
        f"{method.name}{f' ({terms})' if terms else ''} from {request.model}, pooling {encoder.spec.pooling} "
        f"({prepared.pooling.reason}): "
        f"{len(prepared.corpus.sentences)} {prepared.corpus.unit}, {work} on {encoder.backend.device}"
    )
    device = torch.device(encoder.backend.device)
    if prepared.model and settings.precision == "fp32" and half_precision_supported(device, "bf16"):
        console.note(f"{device} computes in bf16, too, which is faster: --set precision=bf16")
    for section, values in {**method.describe(), "settings": vars(settings)}.items():
        if isinstance(values, dict):
            console.detail(f"{section}: {', '.join(f'{key} {value}' for key, value in values.items())}")
    if prepared.steps >= LOG_EVERY and (busy := busy_note(torch.get_num_threads())):
        console.note(busy)
    for taken in prepared.corpus.readings:
        console.note(taken)
    for note in prepared.notes:
        console.warn(note)
    if prepared.corpus.blank:
        console.warn(f"{prepared.corpus.blank} blank rows were left out")


class SweepView:
    """Prints which run of a sweep starts, and shows its steps until the next one starts.

    Args:
        runs: of the sweep.
        views: closes the view of the run that is shown.
    """

    def __init__(self, runs: list[SweepRun], views: ExitStack) -> None:
        self.runs, self.views = runs, views
        self.said: dict[str, float] = {}
        self.began: dict[str, float] = {}
        """When each run began that this process has made; one with ``--after`` trains twice."""

    def starts(self, run: SweepRun, prepared: Prepared) -> Observer | None:
        """Print which run starts, and show its steps."""
        now, number = time.monotonic(), self.runs.index(run)
        left = ""
        if earlier := [began for name, began in self.began.items() if name != run.name]:
            of_one = (now - earlier[0]) / len(earlier)
            left = f"; about {console.duration(of_one * (len(self.runs) - number))} left, if all take as long as so far"
        self.began.setdefault(run.name, now)
        console.note(f"{self._title(run)}{left}")
        return self.views.enter_context(training(prepared))

    def logged(self, run: SweepRun, line: Mapping[str, Any]) -> None:
        """Print scores and, as often as for one run, the terms of the loss."""
        now, is_step = time.monotonic(), "loss" in line
        every = line["step"] % LOG_EVERY == 0
        if is_step and not every and now - self.said.setdefault(run.name, now) <= console.EVERY:
            return
        self.said[run.name] = now
        hidden = ("step", "best", "learning_rate", "grad_norm", "sentences_per_second")
        shown = {key: value for key, value in line.items() if key not in hidden and not key.startswith("share_")}
        values = {key: value for key, value in shown.items() if isinstance(value, int | float)}
        numbers = (f"{key} {loss_text(value)}" for key, value in values.items())
        best = " (best so far)" if line.get("best") and line["step"] else ""
        console.note(f"{self._title(run)}, step {line['step']}: {', '.join(numbers)}{best}")

    def finished(self, run: SweepRun, record: Mapping[str, Any]) -> None:
        """Print that another process has made a run."""
        early = f" early, at step {record['results']['steps']}" if record["results"].get("ended_early") else ""
        console.note(f"{self._title(run)}: finished{early}")

    def skipped(self, run: SweepRun) -> None:
        """Print that a run has finished before."""
        console.note(f"{self._title(run)}: finished before")

    def failed(self, run: SweepRun, message: str) -> None:
        """Print why a run ended."""
        console.warn(f"{self._title(run)}: {message}")

    def _title(self, run: SweepRun) -> str:
        """Close the view of the last run, and return the number and the name of this one."""
        self.views.close()
        return f"run {self.runs.index(run) + 1} of {len(self.runs)}, {run.name}"


def summary(result: TrainResult, output: Path) -> None:
    """Print the results of a run."""
    scores = "" if result.dev is None else f"; {result.dev}"
    if result.eval_seconds:
        evaluating = result.eval_seconds / (result.eval_seconds + result.train_seconds)
        scores += f"; {evaluating:.0%} of the time went into evaluations"
        scores += " (--dev-limit scores a sample)" if evaluating > MOST_EVALUATION and result.dev is not None else ""
    if result.held_out_perplexity is not None:
        scores += f"; held-out perplexity {result.held_out_perplexity:.2f}"
    if result.held_out_spearman is not None:
        scores += f"; held out: Pearson {result.held_out_pearson:.2f}, Spearman {result.held_out_spearman:.2f}"
    if result.sts_average is not None:
        scores += f"; STS average {result.sts_average:.2f}"
    if result.senteval_average is not None:
        scores += f"; transfer average {result.senteval_average:.2f} ({', '.join(result.senteval or ())})"
    console.note(f"{result.steps} steps, {result.sentences_per_second:.0f} sentences/s{scores}; model in {output}")
    if kept_start(result.to_dict()):
        console.warn(f"no step was better than the start, whose weights are in the model. {REMEDY}")


def overview(result: TrainResult, output: Path) -> dict[str, Any]:
    """Return what matters of the results of a run."""
    from sentcli.training.observer import dev_title, score_text

    scores: dict[str, Any] = {}
    if (dev := result.dev) is not None:
        of_dev = {"at the start": dev.start, "best": dev.best, "at the end": dev.final}
        title = dev_title(dev.name, dev.metric)
        scores = {f"{title}, {when}": score_text(dev.metric, score) for when, score in of_dev.items()}
        scores["step of the best"] = result.best_step
    averages = {"STS average": result.sts_average, "transfer average": result.senteval_average}
    averages |= {"held out, Spearman": result.held_out_spearman, "held-out perplexity": result.held_out_perplexity}
    scores |= {name: f"{value:.2f}" for name, value in averages.items() if value is not None}
    speed = {"sentences/s": result.sentences_per_second, "seconds": result.train_seconds + result.eval_seconds}
    cut = {"sentences cut": result.truncated} if result.truncated else {}
    return {"model": str(output), "steps": result.steps, **scores, **speed, **cut}


def loss_text(value: float) -> str:
    """Return a loss with four decimals, or a small one, as that of a finished encoder, with three digits."""
    return f"{value:.4f}" if not value or abs(value) >= 0.001 else f"{value:.2e}"


def kept_start(results: Mapping[str, Any]) -> bool:
    """Tell by its results whether a run has trained, and no step was better than its start."""
    return results.get("best_step") == 0 < (results.get("steps") or 0)


def sweep_table(title: str, summaries: Sequence[Summary], notes: Sequence[str] = ()) -> Table:
    """Return a table with mean and standard deviation of each point, and the step of each run's best weights."""
    from sentcli.training.records import AVERAGED_OVER, parts_means

    points = [summary.point for summary in summaries]
    varied = dict.fromkeys(key for point in points for key in point)
    keys = [key for key in varied if all(key in point for point in points)]
    others = [key for key in varied if key not in keys]  # these share a column, since a run has few of them
    head = [*keys, *(["settings"] if others else [])] or ["run"]

    def settings(point: Mapping[str, Any]) -> list[Any]:
        rest = ", ".join(f"{key} {point[key]}" for key in others if key in point)
        own = (f"{point[key]:g}" if isinstance(point[key], float) else point[key] for key in keys)
        return [*own, *([rest] if others else [])] or ["all"]

    columns = {"start": "start", "best": "best dev", "best_step": "at step", "final": "last dev"}
    more = {"sts_average": "STS avg", "senteval_average": "transfer avg"}
    more |= {"held_out_pearson": "held-out Pearson", "held_out_spearman": "held-out Spearman"}
    columns |= {key: name for key, name in more.items() if any(s.mean.get(key) is not None for s in summaries)}
    rows = []
    for summary in summaries:
        seeds = zip(summary.seeds, summary.runs, strict=True)
        shown = [f"{seed}{_mark(result)}" for seed, result in seeds]
        rows.append([*settings(summary.point), ", ".join(shown), *(_mean_and_sd(summary, key) for key in columns)])
    for part in AVERAGED_OVER:
        for mean in parts_means(summaries, part):
            numbers = (f"{mean.numbers[key]:.2f}" if key in mean.numbers else "" for key in columns)
            rows.append([*settings({**mean.point, part: "mean"}), "", *numbers])
    return Table(title, [*head, "seeds", *columns.values()], rows, notes=list(notes))


def _mark(results: Mapping[str, Any]) -> str:
    """Return what a table of runs says behind the seed of a run that did not end as others do."""
    if kept_start(results):
        return " (start kept)"
    return " (ended early)" if results.get("ended_early") else ""


def _mean_and_sd(summary: Summary, key: str) -> str:
    """Return ``84.02 ± 0.13``; a dash where there is no number."""
    from sentcli.training.observer import STSB_DEV, dev_scores, score_text, with_dev_scores

    mean, spread = (with_dev_scores(values).get(key) for values in (summary.mean, summary.sd))
    if mean is None or key == "best_step":
        return "-" if mean is None else ", ".join(str(with_dev_scores(run)["best_step"]) for run in summary.runs)
    dev = dev_scores(summary.runs[0])
    metric = dev.metric if dev is not None and key in vars(dev) else STSB_DEV[1]
    return score_text(metric, mean) + ("" if spread is None or key == "start" else f" ± {score_text(metric, spread)}")
