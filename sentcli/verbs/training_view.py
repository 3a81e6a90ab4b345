"""What ``train`` shows: a live table on a terminal, lines in a log file, tables of results at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sentcli.training.observer import Observer, StepInfo, TrainResult
    from sentcli.training.prepare import Prepared
    from sentcli.training.sweep import Summary, SweepResult

LOG_EVERY = 100
"""Steps between two lines where no live table is shown."""


class TrainingView:
    """Shows one run; an `Observer` of the training loop."""

    def __init__(self, total: int, live: Any = None, progress: Any = None) -> None:
        self.total, self.live, self.progress = total, live, progress
        self.task = progress.add_task("training", total=total, status="") if progress is not None else None
        self.values: dict[str, float] = {}
        self.shares: dict[str, float] = {}
        self.dev = ""

    def resumed(self, step: int, notes: list[str]) -> None:
        """Say where the run continues."""
        for note in notes:
            console.warn(note)
        console.note(f"going on from the checkpoint of step {step}" if step else "no checkpoint: starting anew")

    def step(self, info: StepInfo) -> None:
        """Show loss, terms, shares and speed."""
        self.values, self.shares = info.values, info.shares or self.shares
        if self.progress is not None:
            status = f"{self.dev}{info.sentences_per_second:,.0f} sentences/s"
            self.progress.update(self.task, completed=info.step, status=status)
            self.live.update(self.drawn())
        elif info.step % LOG_EVERY == 0:
            terms = ", ".join(f"{name} {value:.4f}{self._share(name)}" for name, value in info.values.items())
            speed = f"{info.sentences_per_second:,.0f} sentences/s"
            console.note(f"step {info.step} of {info.total}: {terms}, {self.dev}{speed}")

    def scored(self, step: int, values: Mapping[str, float], best: bool) -> None:
        """Say the numbers of an evaluation on a line of their own."""
        from sentcli.training.observer import SCORE

        told = [f"{name.replace('_', '-')} {value:.3f}" for name, value in values.items() if name != SCORE]
        if SCORE in values:
            self.dev = f"dev {values[SCORE]:.2f}, "
            told.insert(0, f"STS-B dev {values[SCORE]:.2f}{' (best so far)' if best and step else ''}")
        console.note(f"step {step}: {', '.join(told)}")

    def _share(self, name: str) -> str:
        share = self.shares.get(name)
        return f" ({share:.0%} of the gradient)" if share is not None and len(self.shares) > 1 else ""

    def drawn(self) -> Any:
        """Return the table above the progress bar."""
        from rich.console import Group
        from rich.table import Table as RichTable

        table = RichTable(box=None, padding=(0, 2), show_edge=False)
        table.add_column("term", min_width=18)
        table.add_column("value", justify="right")
        table.add_column("share of the gradient", justify="right")
        for name, value in self.values.items():
            share = self.shares.get(name)
            table.add_row(name, f"{value:.5f}", "" if share is None else f"{share:.1%}")
        return Group(table, self.progress)


@contextmanager
def training(total: int) -> Iterator[TrainingView]:
    """Show a run of so many steps: a live table with a bar on a terminal, else a line now and then."""
    if console.state.quiet or not console.stderr().is_terminal or total == 0:
        yield TrainingView(total)
        return
    from rich.live import Live

    progress = console.bar()
    with Live(progress, console=progress.console, refresh_per_second=4) as live, console.shown_on(live.console):
        yield TrainingView(total, live, progress)


class Both:
    """Tells several observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers

    def resumed(self, step: int, notes: list[str]) -> None:
        """Before the first step of a run that is resumed."""
        for observer in self.observers:
            observer.resumed(step, notes)

    def step(self, info: StepInfo) -> None:
        """After each step."""
        for observer in self.observers:
            observer.step(info)

    def scored(self, step: int, values: Mapping[str, float], best: bool) -> None:
        """After each evaluation."""
        for observer in self.observers:
            observer.scored(step, values, best)


def introduce(prepared: Prepared) -> None:
    """Say what will be trained."""
    encoder, method, request = prepared.encoder, prepared.method, prepared.request
    settings = method.settings
    batch = f"{settings.batch_size}{f' x {settings.accumulate}' if settings.accumulate > 1 else ''}"
    work = f"{prepared.steps} steps of {batch}" if prepared.model else "fitted"
    terms = " + ".join(f"{o.weight:g} x {name}" if o.weight != 1 else name for name, o in method.objectives.items())
    console.note(
        f"{method.name}{f' ({terms})' if terms else ''} from {request.model}, pooling {encoder.spec.pooling}: "
        f"{len(prepared.corpus.sentences)} {'pairs' if prepared.corpus.scores else 'sentences'}, {work} on "
        f"{encoder.backend.device}"
    )
    for section, values in {**method.describe(), "settings": vars(settings)}.items():
        if isinstance(values, dict):
            console.detail(f"{section}: {', '.join(f'{key} {value}' for key, value in values.items())}")
    for note in prepared.notes:
        console.warn(note)
    if prepared.corpus.blank:
        console.warn(f"{prepared.corpus.blank} blank rows were left out")


def summary(result: TrainResult, output: Path) -> None:
    """Say what a run came to."""
    scores = ""
    if result.best_dev_spearman is not None:
        scores = (
            f"; STS-B dev {result.start_dev_spearman:.2f} -> {result.best_dev_spearman:.2f} at step {result.best_step}"
        )
    if result.held_out_perplexity is not None:
        scores += f"; held-out perplexity {result.held_out_perplexity:.2f}"
    if result.held_out_spearman is not None:
        scores += f"; held out: Pearson {result.held_out_pearson:.2f}, Spearman {result.held_out_spearman:.2f}"
    if result.sts_average is not None:
        scores += f"; STS average {result.sts_average:.2f}"
    console.note(f"{result.steps} steps, {result.sentences_per_second:.0f} sentences/s{scores}; model in {output}")
    if result.best_step == 0 < result.steps:
        console.warn(
            "no step was better than the start, whose weights are in the model. Try another --learning-rate; "
            "sentcli analyze similarity on the start says what its vectors set sentences apart by"
        )


def sweep_table(title: str, summaries: Sequence[Summary]) -> Table:
    """Return a table with mean and standard deviation of each point."""
    from sentcli.training.sweep import held_out_means

    points = [summary.point for summary in summaries]
    varied = dict.fromkeys(key for point in points for key in point)
    keys = [key for key in varied if all(key in point for point in points)]
    others = [key for key in varied if key not in keys]  # share a column: a run has few of them
    head = [*keys, *(["settings"] if others else [])] or ["run"]

    def named(point: Mapping[str, Any]) -> list[Any]:
        rest = ", ".join(f"{key} {point[key]}" for key in others if key in point)
        return [*(point[key] for key in keys), *([rest] if others else [])] or ["all"]

    more = {"sts_average": "STS avg", "held_out_pearson": "held-out Pearson", "held_out_spearman": "held-out Spearman"}
    tested = [key for key in more if any(summary.mean.get(key) is not None for summary in summaries)]
    columns = [*head, "seeds", "start", "best dev", "at step", "last dev", *(more[key] for key in tested)]
    scores = ["start_dev_spearman", "best_dev_spearman", "best_step", "final_dev_spearman", *tested]
    rows = []
    for summary in summaries:
        cells = [mean_and_sd(summary.mean, summary.sd, score) for score in scores]
        rows.append([*named(summary.point), ", ".join(map(str, summary.seeds)), *cells])
    for mean in held_out_means(summaries):
        found = {"held_out_pearson": f"{mean.pearson:.2f}", "held_out_spearman": f"{mean.spearman:.2f}"}
        rows.append([*named({**mean.point, "hold_out": "mean"}), *[""] * 5, *(found.get(key, "") for key in tested)])
    return Table(title, columns, rows)


def mean_and_sd(mean: Mapping[str, Any], sd: Mapping[str, Any], key: str) -> str:
    """Return ``84.02 ± 0.13``; a dash where there is no number."""
    if mean.get(key) is None:
        return "-"
    digits = 0 if key == "best_step" else 2
    spread = sd.get(key)
    plus = "" if spread is None or key in ("best_step", "start_dev_spearman") else f" ± {spread:.{digits}f}"
    return f"{mean[key]:.{digits}f}{plus}"


def leftovers(outcome: SweepResult) -> None:
    """Say which runs of a sweep failed or are another process's."""
    for name, message in outcome.failed.items():
        console.warn(f"{name} failed: {message}")
    for name in outcome.elsewhere:
        console.warn(f"{name} is being run by another process")
