"""The errors that users see: one short message that says what is wrong, where, and what to do.

Exceptions that users see are in `errors.py`. `SentcliError` ends with code 1, `InputError` and `DataError` with 2. A
message says what is wrong, where, and what to do; `nearest` adds a "did you mean". It is also all that another process
gets of such an error. Any other exception is shown as a defect of sentcli, so let unexpected ones pass instead of
hiding them. An error of work that was partly done may carry an `outcome`, which is written as JSON all the same.

Every protocol holds all choices that move the number. Nothing is dropped silently: code that cuts, skips or merges
returns a count, and the verb says it. Only `console.py` prints. Texts of users pass through `safe` there and in the
pages, so that a document cannot move the cursor, colour the terminal or become markup.
"""

from __future__ import annotations

import errno
import re
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from sentcli.printable import without_secrets

_NO_MEMORY = (
    "failed to map segment|cannot allocate memory|can't allocate memory|not enough memory|out of memory|bad_alloc"
    "|failed to allocate memory|alloc_failed"
)
"""What the loader of libraries, torch, onnxruntime, CUDA's libraries and C++ say where there is too little memory."""


class SentcliError(Exception):
    """The work failed; the command line prints the message and exits with ``exit_code``."""

    exit_code = 1
    outcome: Any = None
    """The result of work that was partly done; a command writes it as JSON before it ends."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process as a message alone, because classes below take other arguments than that."""
        return _with_message, (type(self), str(self))


def _with_message(kind: type[SentcliError], message: str) -> SentcliError:
    error = kind.__new__(kind)
    error.args = (message,)
    return error


class InputError(SentcliError):
    """Wrong usage or bad input: nothing was started and nothing was overwritten."""

    exit_code = 2


class DataError(InputError):
    """Bad input at a known place: ``FILE, line N: what is wrong``."""

    path: str
    problem: str
    """What is wrong, without the place."""

    def __init__(self, path: Path | str, problem: str, *, line: int | None = None, unit: str = "line") -> None:
        self.path, self.problem = str(path), problem
        place = f"{path}"
        if line is not None:
            place += f", {unit} {line}"
        super().__init__(f"{place}: {problem}")


ALIKE_PROBLEMS, MOST_PROBLEMS = 10, 100
"""How many problems of one kind in a file, and of all kinds and files, are named in one message."""


def joined_errors(problems: Sequence[InputError]) -> InputError:
    """Return one error of several, each on a line; of those of a file that differ in numbers alone, the first ones."""
    if len(problems) == 1:
        return problems[0]
    kinds: dict[tuple[str, str], list[str]] = {}
    for problem in problems:
        file, words = "", str(problem)
        if isinstance(problem, DataError):
            file, words = problem.path, problem.problem
        kinds.setdefault((file, re.sub(r"'[^']*'|0x\w+|\d+", "", words)), []).append(str(problem))
    lines: list[str] = []
    for alike in kinds.values():
        lines += alike[:ALIKE_PROBLEMS]
        more = len(alike) - ALIKE_PROBLEMS
        if more > 0:
            lines.append(f"and {more:,} more like the last one")
    more = len(lines) - MOST_PROBLEMS
    if more > 0:
        lines[MOST_PROBLEMS:] = [f"and {more:,} more lines"]
    return InputError("\n  ".join([f"{len(problems):,} problems:", *lines]))


class DeviceMemoryError(SentcliError):
    """A device has too little memory for a piece of work, which a smaller piece may not need."""


class DegenerateVectorsError(SentcliError):
    """The vectors of a model are all equal, or not finite, so that nothing can be measured with them."""


class DivergenceError(SentcliError):
    """A loss or a gradient is NaN or infinite, so that training cannot go on."""


class MissingExtraError(SentcliError):
    """A library of an optional extra is not installed, or does not load."""

    def __init__(self, library: str, extra: str, purpose: str, *, problem: str = "which is not installed") -> None:
        super().__init__(f"{purpose} needs {library}, {problem}: pip install 'sentcli[{extra}]'")


def interruption(error: BaseException) -> BaseException | None:
    """Return the interruption (of Ctrl-C or SIGTERM) that an error stands for, if any.

    A module in C that is being loaded when the signal comes makes an ImportError of it, whose cause it is. Causes may
    form a circle: pymilvus raises an error from itself.
    """
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        signalled = isinstance(cause, SystemExit) and cause.code == 128 + signal.SIGTERM  # others may call sys.exit
        if signalled or isinstance(cause, KeyboardInterrupt):
            return cause
        seen.add(id(cause))
        cause = cause.__cause__
    return None


def lacks_memory(error: BaseException) -> bool:
    """Tell whether an error, or one of its causes, comes from too little memory, whatever a library calls it."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        no_room = isinstance(cause, OSError) and cause.errno == errno.ENOMEM
        if no_room or isinstance(cause, MemoryError) or re.search(_NO_MEMORY, str(cause), re.IGNORECASE):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def of_memory(purpose: str, error: BaseException) -> SentcliError:
    """Return the error of work that needs more memory than this process may have."""
    return SentcliError(f"{purpose} needs more memory than is left here ({one_line(error) or type(error).__name__})")


def required(module: str, library: str, extra: str, purpose: str) -> Any:
    """Import a module of an optional extra.

    Raises:
        MissingExtraError: if it is not installed or does not load; the message names the extra, and the purpose that
            needs it.
    """
    try:
        return import_module(module)
    except Exception as error:  # faiss without its CUDA libraries raises RuntimeError, others whatever they like
        if signalled := interruption(error):
            raise signalled from None
        if lacks_memory(error):
            raise of_memory(f"{purpose}: {library}", error) from error
        raise MissingExtraError(library, extra, purpose, problem=import_problem(module, error, library)) from error


def import_problem(module: str, error: Exception, library: str = "") -> str:
    """Return what is wrong with a module that could not be imported: it is not there, or it does not load, and why.

    Args:
        module: its name.
        error: of the import.
        library: that has to be installed for it, where another one's module imports it.
    """
    missing = None
    if isinstance(error, ModuleNotFoundError):
        missing = error.name
    if missing is not None and (missing == library or f"{module}.".startswith(f"{missing}.")):
        return "which is not installed"
    return f"which does not load ({_own_words(error)})"


def broken_library(error: BaseException) -> SentcliError | None:
    """Return the error of a library whose import has failed, if an error comes from that, and else None.

    A library that is installed may still not load, mostly because another version of what it imports was put beside it.
    Whoever asked for it, such as the reader of a configuration, has then nothing to complain of.
    """
    for part in _causes(error):
        for frame, _ in traceback.walk_tb(part.__traceback__):
            library = frame.f_globals.get("__name__", "").partition(".")[0]
            if frame.f_code.co_name == "<module>" and not library.startswith("sentcli"):
                return _not_loading(library, error)
    first = _causes(error)[-1]
    if isinstance(first, ImportError) and first.name and not first.name.startswith("sentcli"):
        return _not_loading(first.name.partition(".")[0], error)
    return None


def _not_loading(library: str, error: BaseException) -> SentcliError:
    return SentcliError(f"{library} does not load: {_own_words(error)}; 'sentcli doctor' compares versions with ranges")


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and what it was raised from, the first cause last."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def _own_words(error: BaseException) -> str:
    """Return what the first cause of an error says."""
    first = _causes(error)[-1]
    return one_line(first) or type(first).__name__


@contextmanager
def library_errors(make: Callable[[str], SentcliError], *passing: type[Exception]) -> Iterator[None]:
    """Turn whatever a library raises inside the block into one error, as libraries raise more than they document.

    Errors of sentcli and interruptions stay what they are.

    Args:
        make: makes the error of the library's words, which say what is wrong; who makes it says where.
        passing: classes of errors that pass as well.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (SentcliError, *passing)):
            raise
        if signalled := interruption(error):
            raise signalled from None
        if broken := broken_library(error):
            raise broken from error
        if unreadable := unreadable_name(error):
            raise unreadable from error
        if isinstance(error, MemoryError):
            raise make("there is not enough memory for it") from error
        raise make(one_line(error) or type(error).__name__) from error


def unreadable_name(error: BaseException) -> InputError | None:
    """Return the error of a name that a library cannot make bytes of; None if the error is another one."""
    if isinstance(error, UnicodeEncodeError) and re.search("[\ud800-\udfff]", error.object):
        return InputError(f"{error.object:.200}: a library opens only names in UTF-8; give it another")
    return None


def nearest(word: str, choices: list[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the choice that is most similar to a word, or an empty string."""
    import difflib

    close = difflib.get_close_matches(word, choices, n=1)
    if not close:
        return ""
    return f" (did you mean {close[0]!r}?)"


def one_line(error: BaseException) -> str:
    """Return the message of a library's exception on one line of at most 300 characters, without secrets."""
    return " ".join(without_secrets(str(error), of_host=True).split())[:300]
