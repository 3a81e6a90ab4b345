"""The output of ``train``: a live table on a terminal, lines in a log file, and tables of results at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.remaining import Remaining, duration
from sentcli.table import Table
from sentcli.waiting import busy_note

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sentcli.methods.method import Method
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
        if step:
            console.note(f"going on from the checkpoint of step {step}")
        else:
            console.note("no checkpoint: starting anew")
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
        left = self.remaining.words()
        speed = f"{self.dev}{info.sentences_per_second:,.0f} sentences/s"
        if self.live is not None:
            self.progress.update(self.progress.task_ids[0], completed=info.step, status=speed, left=left)
            self.live.update(self.table())
        elif info.step % LOG_EVERY == 0 or time.monotonic() - self.said > console.EVERY:
            self.said = time.monotonic()
            parts = [*self._terms(info.values), speed]
            if left:
                parts.append(left)
            console.note(f"step {info.step} of {info.total}: {', '.join(parts)}")
        for tracker in self.trackers:
            tracker.step(info)

    def _terms(self, values: Mapping[str, float]) -> Iterator[str]:
        """Yield each term of the loss in words, with its share of the gradient if there are several."""
        for name, value in values.items():
            term = f"{name} {loss_text(value)}"
            if name in self.shares and len(self.shares) > 1:
                term += f" ({self.shares[name]:.0%} of the gradient)"
            yield term

    def scored(self, step: int, values: Mapping[str, float], best: bool) -> None:
        """Print the numbers of an evaluation."""
        dev_keys = [dev.key for dev in self.sets]
        parts = [dev.score_text(values[dev.key]) for dev in self.sets if dev.key in values]
        if parts:
            self.dev = f"{parts[0]}, "
            if best and step and self.marks_best:
                parts[0] += " (best so far)"
        for key, value in values.items():
            if key not in dev_keys:
                parts.append(f"{key.replace('_', '-')} {value:.3f}")
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
            share = f"{self.shares[name]:.1%}" if name in self.shares else ""
            table.add_row(name, loss_text(value), share)
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
    work = "fitted"
    if prepared.model:
        work = f"{prepared.steps} steps of {settings.batch_size}"
        if settings.accumulate > 1:
            work += f" x {settings.accumulate}"
    console.note(
        f"{_title_with_terms(method)} from {request.model}, pooling {encoder.spec.pooling} "
        f"({prepared.pooling.reason}): "
        f"{len(prepared.corpus.sentences)} {prepared.corpus.unit}, {work} on {encoder.backend.device}"
    )
    device = torch.device(encoder.backend.device)
    if prepared.model and settings.precision == "fp32" and half_precision_supported(device, "bf16"):
        console.note(f"{device} computes in bf16, too, which is faster: --set precision=bf16")
    for section, values in {**method.describe(), "settings": vars(settings)}.items():
        if isinstance(values, dict):
            settings_in_words = [f"{key} {value}" for key, value in values.items()]
            console.detail(f"{section}: {', '.join(settings_in_words)}")
    busy = busy_note(torch.get_num_threads()) if prepared.steps >= LOG_EVERY else None
    if busy is not None:
        console.note(busy)
    for reading in prepared.corpus.readings:
        console.note(reading)
    for note in prepared.notes:
        console.warn(note)
    if prepared.corpus.blank:
        console.warn(f"{prepared.corpus.blank} blank rows were left out")


def _title_with_terms(method: Method) -> str:
    """Return the name of a method with the terms of its loss and their weights, if it has any."""
    terms = []
    for name, objective in method.objectives.items():
        if objective.weight != 1:
            name = f"{objective.weight:g} x {name}"
        terms.append(name)
    if not terms:
        return method.name
    return f"{method.name} ({' + '.join(terms)})"


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
        earlier = [began for name, began in self.began.items() if name != run.name]
        left = ""
        if earlier:
            of_one = (now - earlier[0]) / len(earlier)
            of_others = duration(of_one * (len(self.runs) - number))
            left = f"; about {of_others} left, if all take as long as so far"
        self.began.setdefault(run.name, now)
        console.note(f"{self._title(run)}{left}")
        return self.views.enter_context(training(prepared))

    def logged(self, run: SweepRun, line: Mapping[str, Any]) -> None:
        """Print scores and, as often as for one run, the terms of the loss."""
        now, step = time.monotonic(), line["step"]
        if "loss" in line and step % LOG_EVERY and now - self.said.setdefault(run.name, now) <= console.EVERY:
            return
        self.said[run.name] = now
        hidden = ("step", "best", "learning_rate", "grad_norm", "sentences_per_second")
        numbers = []
        for key, value in line.items():
            is_shown = key not in hidden and not key.startswith("share_")
            if is_shown and isinstance(value, int | float):
                numbers.append(f"{key} {loss_text(value)}")
        note = f"{self._title(run)}, step {step}: {', '.join(numbers)}"
        if line.get("best") and step:
            note += " (best so far)"
        console.note(note)

    def finished(self, run: SweepRun, record: Mapping[str, Any]) -> None:
        """Print that another process has made a run."""
        note = f"{self._title(run)}: finished"
        if record["results"].get("ended_early"):
            note += f" early, at step {record['results']['steps']}"
        console.note(note)

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
    scores = ""
    if result.dev is not None:
        scores += f"; {result.dev}"
    if result.eval_seconds:
        evaluating = result.eval_seconds / (result.eval_seconds + result.train_seconds)
        scores += f"; {evaluating:.0%} of the time went into evaluations"
        if evaluating > MOST_EVALUATION and result.dev is not None:
            scores += " (--dev-limit scores a sample)"
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

    facts: dict[str, Any] = {"model": str(output), "steps": result.steps}
    dev = result.dev
    if dev is not None:
        title = dev_title(dev.name, dev.metric)
        for when, score in {"at the start": dev.start, "best": dev.best, "at the end": dev.final}.items():
            facts[f"{title}, {when}"] = score_text(dev.metric, score)
        facts["step of the best"] = result.best_step
    averages = {"STS average": result.sts_average, "transfer average": result.senteval_average}
    averages |= {"held out, Spearman": result.held_out_spearman, "held-out perplexity": result.held_out_perplexity}
    for name, value in averages.items():
        if value is not None:
            facts[name] = f"{value:.2f}"
    facts["sentences/s"] = result.sentences_per_second
    facts["seconds"] = result.train_seconds + result.eval_seconds
    if result.truncated:
        facts["sentences cut"] = result.truncated
    return facts


def loss_text(value: float) -> str:
    """Return a loss with four decimals, or a small one, as that of a finished encoder, with three digits."""
    if not value or abs(value) >= 0.001:
        return f"{value:.4f}"
    return f"{value:.2e}"


def kept_start(results: Mapping[str, Any]) -> bool:
    """Tell by its results whether a run has trained, and no step was better than its start."""
    return results.get("best_step") == 0 < (results.get("steps") or 0)


def sweep_table(title: str, summaries: Sequence[Summary], notes: Sequence[str] = ()) -> Table:
    """Return a table with mean and standard deviation of each point, and the step of each run's best weights."""
    from sentcli.training.records import AVERAGED_OVER, parts_means

    points = [summary.point for summary in summaries]
    points_with = Counter(chain.from_iterable(points))
    keys = [key for key, count in points_with.items() if count == len(points)]
    others = [key for key in points_with if key not in keys]  # these share a column, since a run has few of them
    head = list(keys)
    if others:
        head.append("settings")

    def settings(point: Mapping[str, Any]) -> list[Any]:
        cells = []
        for key in keys:
            value = point[key]
            cells.append(f"{value:g}" if isinstance(value, float) else value)
        if others:
            cells.append(", ".join(f"{key} {point[key]}" for key in others if key in point))
        return cells or ["all"]

    columns = {"start": "start", "best": "best dev", "best_step": "at step", "final": "last dev"}
    more = {"sts_average": "STS avg", "senteval_average": "transfer avg"}
    more |= {"held_out_pearson": "held-out Pearson", "held_out_spearman": "held-out Spearman"}
    for key, name in more.items():
        if any(summary.mean.get(key) is not None for summary in summaries):
            columns[key] = name
    rows = []
    for summary in summaries:
        seeds = zip(summary.seeds, summary.runs, strict=True)
        seeds_text = ", ".join(f"{seed}{_mark(result)}" for seed, result in seeds)
        numbers = [_mean_and_sd(summary, key) for key in columns]
        rows.append([*settings(summary.point), seeds_text, *numbers])
    for part in AVERAGED_OVER:
        for mean in parts_means(summaries, part):
            means = {key: f"{value:.2f}" for key, value in mean.numbers.items()}
            numbers = [means.get(key, "") for key in columns]
            rows.append([*settings({**mean.point, part: "mean"}), "", *numbers])
    return Table(title, [*(head or ["run"]), "seeds", *columns.values()], rows, notes=list(notes))


def _mark(results: Mapping[str, Any]) -> str:
    """Return what a table of runs says behind the seed of a run that did not end as others do."""
    if kept_start(results):
        return " (start kept)"
    if results.get("ended_early"):
        return " (ended early)"
    return ""


def _mean_and_sd(summary: Summary, key: str) -> str:
    """Return ``84.02 ± 0.13``; a dash where there is no number."""
    from sentcli.training.observer import STSB_DEV, dev_scores, score_text, with_dev_scores

    mean = with_dev_scores(summary.mean).get(key)
    if mean is None:
        return "-"
    if key == "best_step":
        return ", ".join(str(with_dev_scores(run)["best_step"]) for run in summary.runs)
    dev = dev_scores(summary.runs[0])
    metric = STSB_DEV[1]
    if dev is not None and key in vars(dev):
        metric = dev.metric
    text = score_text(metric, mean)
    spread = with_dev_scores(summary.sd).get(key)
    if spread is not None and key != "start":
        text += f" ± {score_text(metric, spread)}"
    return text
