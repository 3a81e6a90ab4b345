"""What the user sees: progress and notes on standard error, results on standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from sentcli.printable import safe
from sentcli.table import Table

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn, TaskID


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


def show(shown: Table) -> None:
    """Print a table; an entry's interval stands behind it, the best of a ranked column has a star."""
    drawn = RichTable(title=Text(safe(shown.title)), title_justify="left")
    for place, column in enumerate(shown.columns):
        justify: Literal["left", "right"] = "right" if shown.numeric(place) else "left"
        drawn.add_column(Text(safe(column)), justify=justify, overflow="fold")
    for i in range(len(shown.rows)):
        drawn.add_row(*(Text(safe(_entry(shown, i, place))) for place in range(len(shown.columns))))
    output().print(drawn)


def _entry(shown: Table, row: int, column: int) -> str:
    ends = shown.interval_text(row, column)
    star = "*" if shown.rank(row, column) == "best" else ""
    return f"{shown.shown(row, column)}{star}{f' ({ends})' if ends else ''}"


def _plain(message: str) -> str:
    """Make the lines of a message `safe`: it may name what stands in a file."""
    return "\n".join(map(safe, message.split("\n")))


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
    if _hidden():
        yield lambda step: detail(f"{label}: {step}")
        return
    shown = Console(stderr=True, highlight=False)
    with shown.status(label) as status, shown_on(shown):
        yield lambda step: status.update(Text(f"{label}: {step}"))


@contextmanager
def encoding(label: str, total: int) -> Iterator[Callable[[Counted], None]]:
    """Show a bar with rows/s, tokens/s and the time left, which is advanced by what batches added."""
    if _hidden():  # without the import of the bars
        yield lambda added: None
        return
    tokens = 0
    with bar() as progress, shown_on(progress.console):
        task = progress.add_task(label, total=total, status="")

        def advance(added: Counted) -> None:
            nonlocal tokens
            tokens += added.tokens
            progress.update(task, advance=added.texts)
            if elapsed := progress.tasks[0].elapsed:
                speed = progress.tasks[0].completed / elapsed
                progress.update(task, status=f"{speed:,.0f} rows/s, {tokens / elapsed:,.0f} tokens/s")

        yield advance


def encoding_texts(total: int) -> AbstractContextManager[Callable[[Counted], None]]:
    """Show `encoding` of a number of distinct texts."""
    return encoding("encoding", total)


@contextmanager
def counting(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar that is advanced by the numbers that are given."""
    if _hidden():
        yield lambda count: None
        return
    with bar() as progress, shown_on(progress.console):
        task = progress.add_task(label, total=total, status="")
        yield lambda count: progress.update(task, advance=count)


def _hidden() -> bool:
    return state.quiet or not stderr().is_terminal


def bar() -> RichProgress:
    """Return a progress bar with a field ``status``, elapsed time and time left."""
    from rich import progress as rich

    ends = (rich.TextColumn("{task.fields[status]}"), rich.TimeElapsedColumn())
    return _bar(rich.MofNCompleteColumn(), *ends)


def _bar(*columns: ProgressColumn, hidden: bool = False) -> RichProgress:
    from rich import progress as rich

    begin = (rich.TextColumn("{task.description}"), rich.BarColumn(bar_width=None))
    left = (rich.TextColumn("left"), rich.TimeRemainingColumn())
    console = Console(stderr=True, highlight=False)
    return rich.Progress(*begin, *columns, *left, console=console, expand=True, disable=hidden)


@contextmanager
def shown_on(console: Console) -> Iterator[None]:
    """Print notes above what is live on a console."""
    state.live = console
    try:
        yield
    finally:
        state.live = None


@dataclass(frozen=True)
class Transfer:
    """A bar of bytes that come over the network, with their speed and the time left."""

    progress: RichProgress
    task: TaskID
    label: str

    def total(self, size: int) -> None:
        """Take how many bytes there will be."""
        self.progress.update(self.task, total=size)

    def advance(self, count: int) -> None:
        """Take how many bytes came."""
        self.progress.advance(self.task, count)

    def step(self, text: str) -> None:
        """Take what is being done."""
        detail(f"{self.label}: {text}")
        self.progress.update(self.task, description=f"{self.label}: {Text(safe(text)).markup}")


@contextmanager
def transferring(label: str) -> Iterator[Transfer]:
    """Show a bar with bytes, bytes per second and the time left; on a terminal only."""
    from rich import progress as rich

    hidden = _hidden()
    progress = _bar(rich.DownloadColumn(), rich.TransferSpeedColumn(), hidden=hidden)
    with progress, nullcontext() if hidden else shown_on(progress.console):
        yield Transfer(progress, progress.add_task(label, total=None), label)
