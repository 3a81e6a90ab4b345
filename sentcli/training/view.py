"""The output of one run of ``train``: a live table on a terminal, lines in a log file, and the results at the end."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.remaining import Remaining
from sentcli.training.departures import departure_source, departures, in_words
from sentcli.waiting import busy_note

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sentcli.methods.method import Method
    from sentcli.training.dev import DevSet
    from sentcli.training.observer import Observer, OtherStart, StepInfo, TrainResult
    from sentcli.training.prepare import Prepared
    from sentcli.training.request import TrainRequest

MOST_EVALUATION = 0.5
"""The share of the time that evaluations may take before a hint."""
RATE_ADVICE = "Try another --learning-rate"
"""The advice where training does not help."""
LOOK_AT_VECTORS = (
    f"{RATE_ADVICE}; sentcli analyze similarity shows by what the vectors of the start model distinguish sentences"
)
"""The same, for a model that makes vectors."""
LITTLE = 1e-4
"""A loss over the sentences of a batch below which next to nothing is learned: so small is the probability that is
given to wrong ones, and with it the gradient."""
LOG_EVERY = 100
"""Steps between two lines if there is no live table; slow steps have one every `console.EVERY` seconds."""


class TrainingView:
    """An `Observer` of the training loop that shows one run and passes everything on to experiment trackers.

    Args:
        trackers: observers of the same run.
        sets: the dev sets.
        live: the live table on a terminal.
        progress: the bar below it.
        in_batch: the names of the terms whose negatives are the other sentences of the batch.
    """

    def __init__(
        self,
        trackers: Sequence[Observer],
        sets: Sequence[DevSet] = (),
        live: Any = None,
        progress: Any = None,
        in_batch: Collection[str] = (),
    ) -> None:
        self.in_batch = in_batch
        self.trackers = trackers
        self.sets = sets
        self.live = live
        self.progress = progress
        self.values: dict[str, float] = {}
        self.shares: dict[str, float] = {}
        """The shares of the gradient that were measured last, at the step `shares_step`."""
        self.shares_step = 0
        self.step_shown = 0
        self.dev = ""
        self.said = time.monotonic()
        self.remaining: Remaining | None = None
        self.other: OtherStart | None = None
        self.has_collapsed = False
        """Whether the vectors were equal when they were looked at last."""
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
        self.values = info.values
        self.step_shown = info.step
        if info.shares:
            self.shares = info.shares
            self.shares_step = info.step
        if info.step == 1:
            self._warn_of_little_to_learn(info.values)
        if info.spread is not None:
            self._warn_of_collapse(info.step, collapsed=info.has_collapsed)
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
            numbers = ", ".join(parts)
            console.note(f"step {info.step} of {info.total}: {numbers}")
        for tracker in self.trackers:
            tracker.step(info)

    def _warn_of_little_to_learn(self, values: Mapping[str, float]) -> None:
        """Say that the start has solved the task of a term already, whose gradient is then about as small as it is."""
        for name in self.in_batch:
            if values[name] < LITTLE:
                console.warn(
                    f"{name} is {loss_text(values[name])} at the first step: the start tells the sentences of a batch "
                    "apart already, so that there is next to nothing to learn; a larger --batch-size, a higher "
                    f"--set {name}.temperature, or pairs with hard negatives (sentcli data mine) are harder"
                )

    def _warn_of_collapse(self, step: int, *, collapsed: bool) -> None:
        """Say once that the vectors of all texts have become equal."""
        if collapsed and not self.has_collapsed:
            console.warn(
                f"step {step}: the vectors of all texts are equal, or not finite: the model has collapsed (try a lower "
                "--learning-rate)"
            )
        self.has_collapsed = collapsed

    def _terms(self, values: Mapping[str, float]) -> Iterator[str]:
        """Yield each term of the loss in words, with its share of the gradient if there are several."""
        for name, value in values.items():
            term = f"{name} {loss_text(value)}"
            if name in self.shares and len(self.shares) > 1:
                term += f" ({self.shares[name]:.0%} of the gradient{self._when_measured()})"
            yield term

    def _when_measured(self) -> str:
        """Return at which step the shares were measured, if it is not the one that is shown."""
        if self.shares_step == self.step_shown:
            return ""
        return f" at step {self.shares_step}"

    def scored(self, step: int, values: Mapping[str, float | None], best: bool) -> None:
        """Print the numbers of an evaluation."""
        others = dict(values)
        parts = []
        for dev in self.sets:
            if dev.key in values:
                parts.append(dev.score_text(others.pop(dev.key)))
        if parts:
            self.dev = f"{parts[0]}, "
            if values[self.sets[0].key] is None:
                self._warn_of_collapse(step, collapsed=True)
            if best and step and self.marks_best:
                parts[0] += " (best so far)"
        for key, value in others.items():
            if value is not None:
                parts.append(f"{key.replace('_', '-')} {value:.3f}")
        console.note(f"step {step}: {', '.join(parts)}")
        if self.other is not None:
            self._compare_poolings(self.other, values[self.sets[0].key])
            self.other = None
        for tracker in self.trackers:
            tracker.scored(step, values, best)

    def _compare_poolings(self, other: OtherStart, own: float | None) -> None:
        """Say what the start has with the pooling that was not taken, and warn if it is better."""
        score = self.sets[0].score_text(other.value)
        said = f"with --pooling {other.pooling} the start has {score}"
        if own is None or other.value > own:
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
        table.add_column(f"share of the gradient{self._when_measured()}", justify="right")
        for name, value in self.values.items():
            share = ""
            if name in self.shares:
                share = f"{self.shares[name]:.1%}"
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
        yield TrainingView(trackers, prepared.inputs.dev, live, progress, _in_batch(prepared.method))


def _introduce(prepared: Prepared) -> None:
    """Print method, data, settings and warnings before the training."""
    import torch

    from sentcli.precision import half_precision_supported

    encoder = prepared.encoder
    method = prepared.method
    request = prepared.request
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
    for note in filter(None, [_departing(request, method), *prepared.corpus.readings]):
        console.note(note)
    for note in prepared.notes:
        console.warn(note)
    if prepared.corpus.blank:
        console.warn(prepared.corpus.left_out)


def _in_batch(method: Method) -> list[str]:
    """Return the names of the terms whose negatives are the other sentences of the batch."""
    from sentcli.objectives import InBatchNegatives

    return [name for name, objective in method.objectives.items() if isinstance(objective, InBatchNegatives)]


def _departing(request: TrainRequest, method: Method) -> str:
    """Return a clause on the settings that are not those of the recipe or of the method; empty if all are."""
    recipe = None
    if request.recipe is not None:
        recipe = request.recipe.name
    return in_words(departures(request), departure_source(recipe, method.title))


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


def summary(result: TrainResult, output: Path, *, scores_pairs: bool = False) -> None:
    """Print the results of a run; a cross-encoder scores pairs, and has no vectors to look at."""
    parts = [f"{result.steps} steps, {result.sentences_per_second:.0f} sentences/s"]
    if result.dev is not None:
        parts.append(str(result.dev))
    if result.eval_seconds:
        evaluating = result.eval_seconds / (result.eval_seconds + result.train_seconds)
        part = f"{evaluating:.0%} of the time went into evaluations"
        if evaluating > MOST_EVALUATION and result.dev is not None:
            part += " (--dev-limit scores a sample)"
        parts.append(part)
    if result.held_out_perplexity is not None:
        parts.append(f"held-out perplexity {result.held_out_perplexity:.2f}")
    if result.held_out_spearman is not None:
        parts.append(f"held out: Pearson {result.held_out_pearson:.2f}, Spearman {result.held_out_spearman:.2f}")
    if result.sts_average is not None:
        parts.append(f"STS average {result.sts_average:.2f}")
    if result.senteval_average is not None:
        tasks = ", ".join(result.senteval or ())
        parts.append(f"transfer average {result.senteval_average:.2f} ({tasks})")
    parts.append(f"model in {output}")
    console.note("; ".join(parts))
    if kept_start(result.to_dict()):
        remedy = RATE_ADVICE if scores_pairs else LOOK_AT_VECTORS
        console.warn(f"no step was better than the start, whose weights are in the model. {remedy}")


def overview(result: TrainResult, output: Path) -> dict[str, Any]:
    """Return what matters of the results of a run."""
    from sentcli.training.observer import dev_title, score_text

    facts: dict[str, Any] = {"model": str(output), "steps": result.steps}
    dev = result.dev
    if dev is not None:
        title = dev_title(dev.name, dev.metric)
        facts[f"{title}, at the start"] = score_text(dev.metric, dev.start)
        facts[f"{title}, best"] = score_text(dev.metric, dev.best)
        facts[f"{title}, at the end"] = score_text(dev.metric, dev.final)
        facts["step of the best"] = result.best_step
    averages = {
        "STS average": result.sts_average,
        "transfer average": result.senteval_average,
        "held out, Spearman": result.held_out_spearman,
        "held-out perplexity": result.held_out_perplexity,
    }
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
