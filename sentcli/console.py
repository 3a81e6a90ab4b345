"""What the user sees: progress and notes on standard error, results on standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from sentcli.printable import safe
from sentcli.table import Table

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


class Counted(Protocol):
    """What a batch added to the work."""

    @property
    def texts(self) -> int:
        """How many texts it held."""

    @property
    def tokens(self) -> int:
        """How many tokens."""


@dataclass
class _State:
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    data_on_stdout: bool = False
    live: Console | None = None
    """The console of the progress bar that is shown: notes are printed above it."""


state = _State()


@contextmanager
def speaking(*, quiet: bool, verbose: bool, data_on_stdout: bool = False) -> Iterator[None]:
    """Say as much as was asked for while a verb runs, and as much as before when it is done."""
    before = dict(vars(state))
    vars(state).update(quiet=quiet, verbose=verbose, data_on_stdout=data_on_stdout or state.data_on_stdout)
    try:
        yield
    finally:
        vars(state).update(before)


def stderr() -> Console:
    """Return the console for progress and notes."""
    return state.live or Console(stderr=True, soft_wrap=True, highlight=False)


def output() -> Console:
    """Return the console for results: standard output, unless that carries data."""
    file = sys.stderr if state.data_on_stdout else sys.stdout
    console = Console(file=file, highlight=False)
    if not console.is_terminal:
        console.width = 120
    return console


def note(message: str) -> None:
    """Say something on standard error, unless quiet."""
    if not state.quiet:
        stderr().print(Text(_plain(message)))


def detail(message: str) -> None:
    """Say something on standard error if verbose."""
    if state.verbose:
        note(message)


def warn(message: str) -> None:
    """Say something that changes how a result reads, unless quiet."""
    if not state.quiet:
        stderr().print(Text.assemble(("warning: ", "yellow"), _plain(message)))


def fail(message: str) -> None:
    """Print an error."""
    stderr().print(Text.assemble(("error: ", "bold red"), _plain(message)))


def show(shown: Table, *, intervals: bool = True) -> None:
    """Print a table; an entry's interval stands behind it, the best of a ranked column has a star."""
    drawn = RichTable(title=Text(safe(shown.title)), title_justify="left")
    for place, column in enumerate(shown.columns):
        justify: Literal["left", "right"] = "right" if shown.numeric(place) else "left"
        drawn.add_column(Text(safe(column)), justify=justify, overflow="fold")
    for i in range(len(shown.rows)):
        drawn.add_row(*(Text(safe(_entry(shown, i, place, intervals))) for place in range(len(shown.columns))))
    output().print(drawn)


def _entry(shown: Table, row: int, column: int, intervals: bool) -> str:
    ends = shown.interval_text(row, column) if intervals else ""
    star = "*" if shown.rank(row, column) == "best" else ""
    return f"{shown.shown(row, column)}{star}{f' ({ends})' if ends else ''}"


def _plain(message: str) -> str:
    """Make the lines of a message `safe`: it may name what stands in a file."""
    return "\n".join(map(safe, message.split("\n")))


class Bar:
    """A progress bar that counts texts and tokens; it is shown on a terminal only."""

    def __init__(self, progress: RichProgress | None, task: Any = None) -> None:
        self.progress, self.task, self.tokens = progress, task, 0

    def __call__(self, added: Counted) -> None:
        """Advance by what one batch added."""
        self.tokens += added.tokens
        if self.progress is None:
            return
        self.progress.update(self.task, advance=added.texts)
        elapsed = self.progress.tasks[0].elapsed or 0.0
        if elapsed > 0:
            done = self.progress.tasks[0].completed
            self.progress.update(
                self.task, status=f"{done / elapsed:,.0f} rows/s, {self.tokens / elapsed:,.0f} tokens/s"
            )


@contextmanager
def resumable(output: object, *, can: bool = True) -> Iterator[None]:
    """Say how to go on if the work inside, which `can` be resumed, is interrupted by Ctrl-C or SIGTERM."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if can:
            note(f"{output} is not finished: the same command with --resume continues it")
        raise


@contextmanager
def working(label: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on a terminal with the step that is under way; steps are notes where there is no terminal."""
    if state.quiet or not stderr().is_terminal:
        yield lambda step: detail(f"{label}: {step}")
        return
    shown = Console(stderr=True, highlight=False)
    with shown.status(label) as status, shown_on(shown):
        yield lambda step: status.update(Text(f"{label}: {step}"))


@contextmanager
def encoding(label: str, total: int) -> Iterator[Bar]:
    """Show a bar with rows/s, tokens/s and the time left."""
    with _progress() as progress:
        yield Bar(progress, progress.add_task(label, total=total, status="") if progress else None)


def encoding_texts(total: int) -> AbstractContextManager[Bar]:
    """Show `encoding` of a number of distinct texts."""
    return encoding("encoding", total)


@contextmanager
def counting(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar that is advanced by the numbers that are given."""
    with _progress() as progress:
        task = progress.add_task(label, total=total, status="") if progress else None
        yield lambda count: progress.update(task, advance=count) if progress and task is not None else None


@contextmanager
def _progress() -> Iterator[RichProgress | None]:
    if state.quiet or not stderr().is_terminal:
        yield None
        return
    with bar() as progress, shown_on(progress.console):
        yield progress


def bar() -> RichProgress:
    """Return a progress bar with a field ``status``, elapsed time and time left."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True, highlight=False), expand=True)


@contextmanager
def shown_on(console: Console) -> Iterator[None]:
    """Print notes above what is live on a console."""
    state.live = console
    try:
        yield
    finally:
        state.live = None


class Transfer:
    """A bar of bytes that come over the network, with their speed and the time left; shown on a terminal only."""

    def __init__(self, progress: RichProgress | None, label: str) -> None:
        self.progress, self.label = progress, label
        self.task = progress.add_task(label, total=None) if progress else None

    def total(self, size: int) -> None:
        """Take how many bytes there will be."""
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, total=size)

    def advance(self, count: int) -> None:
        """Take how many bytes came."""
        if self.progress is not None and self.task is not None:
            self.progress.advance(self.task, count)

    def step(self, text: str) -> None:
        """Take what is being done."""
        detail(f"{self.label}: {text}")
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, description=f"{self.label}: {Text(safe(text)).markup}")


@contextmanager
def transferring(label: str) -> Iterator[Transfer]:
    """Show a bar with bytes, bytes per second and the time left."""
    if state.quiet or not stderr().is_terminal:
        yield Transfer(None, label)
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    shown = Console(stderr=True, highlight=False)
    with Progress(*columns, console=shown, expand=True) as progress, shown_on(shown):
        yield Transfer(progress, label)
