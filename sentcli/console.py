"""What the user sees: progress and notes on standard error, results on standard output."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.text import Text

from sentcli.errors import InputError
from sentcli.printable import printable_on, safe, without_secrets
from sentcli.remaining import Remaining, duration

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn, TaskID

    from sentcli.table import Table


class Counted(Protocol):
    """The number of texts and tokens of a batch."""

    @property
    def texts(self) -> int:
        """The number of texts."""

    @property
    def tokens(self) -> int:
        """The number of tokens."""


@dataclass
class _State:
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    data_on_stdout: bool = False
    live: Console | None = None
    """The console of the progress bar that is shown: notes are printed above it."""
    worded: Callable[[str], str] = str
    """Puts a message into the words of the caller, who may not have a command line."""


state = _State()
closed: set[str] = set()
"""The names of the standard streams that were closed when the program began."""


def at_terminal() -> bool:
    """Tell whether a person may be asked: input and messages are those of a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def refuse_closed(name: str, what: str) -> None:
    """Refuse to read from a standard stream, or to write data to it, that was closed when the program began.

    Args:
        name: ``stdin`` or ``stdout``.
        what: uses it, such as ``--json -``.

    Raises:
        InputError: if it was closed.
    """
    if name in closed:
        stream = {"stdin": "standard input", "stdout": "standard output"}[name]
        raise InputError(f"{what}: {stream} is closed; name a file")


@contextmanager
def speaking(*, quiet: bool, verbose: bool, data_on_stdout: bool = False) -> Iterator[None]:
    """Set how much is printed while a verb runs, and restore the earlier setting afterwards."""
    before = dict(vars(state))
    vars(state).update(quiet=quiet, verbose=verbose, data_on_stdout=data_on_stdout or state.data_on_stdout)
    try:
        yield
    finally:
        vars(state).update(before)


@contextmanager
def worded(words: Callable[[str], str]) -> Iterator[None]:
    """Put notes and warnings into the words of the caller while a verb runs."""
    before = state.worded
    state.worded = words
    try:
        yield
    finally:
        state.worded = before


def stderr() -> Console:
    """Return the console for progress and notes."""
    return state.live or Console(stderr=True, soft_wrap=True, highlight=False)


def output() -> Console:
    """Return the console for results: standard output, unless that carries data."""
    stream = sys.stderr if state.data_on_stdout else sys.stdout
    console = Console(file=printable_on(stream), highlight=False)
    if not console.is_terminal:
        console.width = 120
    return console


def note(message: str) -> None:
    """Print a message on standard error, unless quiet."""
    if not state.quiet:
        stderr().print(Text(_plain(state.worded(message))))


def detail(message: str) -> None:
    """Print a message on standard error if verbose."""
    if state.verbose:
        note(message)


def warn(message: str) -> None:
    """Print a warning on standard error, unless quiet."""
    if not state.quiet:
        stderr().print(Text.assemble(("warning: ", "yellow"), _plain(state.worded(message))))


def fail(message: str) -> None:
    """Print an error on standard error, also if quiet."""
    stderr().print(Text.assemble(("error: ", "bold red"), _plain(message)))


def recording_console(width: int) -> Console:
    """Return a console of so many characters a line whose file keeps what is printed, as plain text."""
    return Console(file=StringIO(), width=width, color_system=None, force_jupyter=False, highlight=False)


def show(table: Table, target: Console | None = None) -> None:
    """Print a table and its notes; an entry is followed by its interval, and the best of a ranked column has a star.

    On a narrow terminal long headings and texts are broken, numbers are not.

    Args:
        table: the table.
        target: the console; None is that of results.
    """
    from rich.table import Table as RichTable

    console = target or output()
    drawn = RichTable(title=Text(safe(table.title)), title_justify="left")
    columns = []
    needed = 0
    for i, name in enumerate(table.columns):
        heading = safe(name)
        entries = [_shown(table, row, i) for row in range(len(table.rows))]
        width = max(map(_longest_word, entries), default=0)
        needed += max(width, _longest_word(heading)) + 3
        if table.numeric(i):
            drawn.add_column(Text(heading), justify="right", overflow="fold", min_width=width)
        else:
            drawn.add_column(Text(heading), overflow="fold")
        columns.append(map(Text, entries))
    if needed >= console.width:
        drawn.padding = 0
    for texts in zip(*columns, strict=True):
        drawn.add_row(*texts)
    console.print(drawn)
    for note in table.notes_below(intervals=bool(table.intervals)):
        conclude(note, console)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def conclude(sentence: str, target: Console | None = None) -> None:
    """Print a sentence below a table, or below all of a result; for `target` see `show`."""
    (target or output()).print(Text(_plain(sentence)), soft_wrap=True)


def _shown(table: Table, row: int, column: int) -> str:
    entry = table.shown(row, column)
    if table.rank(row, column) == "best":
        entry += "*"
    interval = table.interval_text(row, column)
    if interval:
        entry += f" ({interval})"
    return safe(without_secrets(entry))


def ask(question: str) -> str:
    """Return a line that is typed at the terminal, without its ends; empty at the end of the input."""
    stderr().print(Text(question), end="")
    try:
        return input().strip()
    except EOFError:
        return ""


def _plain(message: str) -> str:
    """Replace control characters in each line of a message, which may quote a file, and take secrets out."""
    return "\n".join(map(safe, without_secrets(message).split("\n")))


@contextmanager
def resumable(
    output: object,
    *,
    can: bool = True,
    how: str = "with --resume continues it",
    is_whole: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Say what the same command does if the work inside is interrupted by Ctrl-C or SIGTERM and `can` be resumed.

    Args:
        output: what is made.
        can: whether it can be resumed.
        how: what the same command does.
        is_whole: tells whether the output is whole all the same, as one that was to be replaced.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if can and is_whole():
            note(f"{output} is whole; the work was not finished, and the same command {how}")
        elif can:
            note(f"{output} is not finished: the same command {how}")
        raise


@contextmanager
def working(label: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner with the current step on a terminal; elsewhere a line now and then, and all steps if verbose."""
    if state.quiet or state.live is not None:
        yield lambda step: detail(f"{label}: {step}")
        return
    if _hidden():
        with _speaking_of(label) as say:
            yield say
        return
    console = Console(stderr=True, highlight=False)
    with console.status(label) as status, shown_on(console):
        yield lambda step: status.update(Text(f"{label}: {step}"))


@contextmanager
def _speaking_of(label: str) -> Iterator[Callable[[str], None]]:
    """Print the current step every `EVERY` seconds from a thread, since a step may take long."""
    began = time.monotonic()
    current = label
    done = threading.Event()

    def speak() -> None:
        while not done.wait(EVERY):
            note(f"{current} after {duration(time.monotonic() - began)}")

    def say(step: str) -> None:
        nonlocal current
        current = f"{label}: {step}"
        detail(current)

    threading.Thread(target=speak, daemon=True).start()
    try:
        yield say
    finally:
        done.set()


@contextmanager
def encoding(label: str, total: int) -> Iterator[Callable[[Counted], None]]:
    """Show a bar with rows/s, tokens/s and the time left, which each encoded batch advances; see `counting`."""
    tokens = texts = 0
    began = time.monotonic()
    with counting(label, total) as advance:

        def add(batch: Counted) -> None:
            nonlocal tokens, texts
            tokens += batch.tokens
            texts += batch.texts
            elapsed = max(time.monotonic() - began, 1e-9)
            advance(batch.texts, f"{texts / elapsed:,.0f} rows/s, {tokens / elapsed:,.0f} tokens/s")

        yield add


class Advance(Protocol):
    """Advances a bar by a number, with a status that is shown beside it."""

    def __call__(self, count: int, status: str = "") -> None:
        """Advance."""


@contextmanager
def counting(label: str, total: int) -> Iterator[Advance]:
    """Show a bar up to `total`; the function that is yielded advances it by a number.

    A terminal has a bar, a notebook one of tqdm. Elsewhere, as under nohup or SLURM, there is a line on standard error
    now and then. Nothing is shown if quiet.
    """
    if state.quiet:
        yield lambda count, status="": None
    elif _in_notebook():
        from tqdm.auto import tqdm

        with tqdm(total=total, desc=label) as meter:

            def advance_meter(count: int, status: str = "") -> None:
                meter.set_postfix_str(status, refresh=False)
                meter.update(count)

            yield advance_meter
    elif _hidden():  # rich.progress need not be imported
        yield _Lines(label, total).add
    else:
        remaining = Remaining(total)
        with bar() as progress, shown_on(progress.console):
            task = progress.add_task(label, total=total, status="", left="")

            def advance_bar(count: int, status: str = "") -> None:
                remaining.add(count)
                progress.update(task, advance=count, status=status, left=remaining.words())

            yield advance_bar


@dataclass
class _Lines:
    """Prints how far a work is in lines: one every `EVERY` seconds, later one for each twentieth of the time gone."""

    label: str
    total: int
    said: float = field(default_factory=lambda: time.monotonic())

    def __post_init__(self) -> None:
        self.remaining = Remaining(self.total)

    def add(self, count: int, status: str = "") -> None:
        """Count, and print a line if it is time."""
        self.remaining.add(count)
        now = time.monotonic()
        began = self.remaining.began
        done = self.remaining.done
        if now - self.said < max(EVERY, (now - began) / 20):
            return
        self.said = now
        of_total = f"{done:,} of {self.total:,} ({done / max(self.total, 1):.0%})"
        parts = [f"{of_total} after {duration(now - began)}", self.remaining.words(), status]
        note(f"{self.label}: {', '.join(filter(None, parts))}")


EVERY = 30.0
"""The least time in seconds between two lines of progress."""


def _in_notebook() -> bool:
    return stderr().is_jupyter


def _hidden() -> bool:
    """Tell whether bars are left out: there is no terminal for them, or it shows one, as in a training run."""
    return state.quiet or state.live is not None or not stderr().is_terminal


def bar() -> RichProgress:
    """Return a progress bar with elapsed time and the fields ``status`` and ``left``."""
    from rich import progress as rich

    ends = (rich.TextColumn("{task.fields[status]}"), rich.TimeElapsedColumn())
    return _bar(rich.MofNCompleteColumn(), *ends, rich.TextColumn("{task.fields[left]}"))


def _bar(*columns: ProgressColumn, hidden: bool = False) -> RichProgress:
    from rich import progress as rich

    begin = (rich.TextColumn("{task.description}"), rich.BarColumn(bar_width=None))
    console = Console(stderr=True, highlight=False)
    return rich.Progress(*begin, *columns, console=console, expand=True, disable=hidden)


@contextmanager
def shown_on(console: Console) -> Iterator[None]:
    """Print messages above the bar or table that is live on a console."""
    state.live = console
    try:
        yield
    finally:
        state.live = None


@dataclass(frozen=True)
class Transfer:
    """The progress bar of a download."""

    progress: RichProgress
    task: TaskID
    label: str

    def total(self, size: int) -> None:
        """Set the size of the download in bytes."""
        self.progress.update(self.task, total=size)

    def advance(self, count: int) -> None:
        """Advance by a number of bytes."""
        self.progress.advance(self.task, count)

    def step(self, text: str) -> None:
        """Show the current step in words."""
        detail(f"{self.label}: {text}")
        self.progress.update(self.task, description=f"{self.label}: {Text(_plain(text)).markup}")


@contextmanager
def transferring(label: str) -> Iterator[Transfer]:
    """Show the bar of a download with bytes, bytes per second and the time left; on a terminal only."""
    from rich import progress as rich

    hidden = _hidden()
    speed_and_left = (rich.TransferSpeedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn())
    progress = _bar(rich.DownloadColumn(), *speed_and_left, hidden=hidden)
    with progress, nullcontext() if hidden else shown_on(progress.console):
        yield Transfer(progress, progress.add_task(label, total=None), label)
