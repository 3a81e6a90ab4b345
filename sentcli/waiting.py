"""The threads of libraries: how they wait, what other programs leave them, and processes that were forked without them.

OpenMP reads its environment once, when torch is imported. Threads that have done their part of a product spin for some
milliseconds before they sleep. Beside another busy program the spinning takes the core that the last thread of the same
product needs. benchmarks/waiting.py and waiting_kernel.py measure what threads gain that sleep soon.

Web servers and the loaders of PyTorch fork. A child has none of its parent's threads, and the libraries that wait for
theirs hang. Where a library can do without them it is told so before it works in such a child, and where it cannot, an
error says how to start the child.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentcli.errors import SentcliError

CHOSEN_BY = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""The variables by which a user chooses how threads wait."""
SPINS = 1000
"""How often a thread looks for work before it sleeps; GNU's own value is 300,000. In a Jupyter kernel beside a busy
program training makes 56 sentences a second with it, 60 with threads that sleep at once, and 2 with GNU's value; alone
113, 94 and 124 (benchmarks/waiting_kernel.py)."""
GLANCE = 0.2
"""Seconds for which the processors are looked at."""
WORTH_SAYING = 0.5
"""The share of a core that others have to take before it is said."""


def wait_briefly() -> None:
    """Let waiting threads of GNU's OpenMP sleep soon, unless the user has chosen or torch has been imported."""
    if "torch" not in sys.modules and not any(name in os.environ for name in CHOSEN_BY):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)


@dataclass(frozen=True)
class _Look:
    """The seconds that processors have worked up to a moment."""

    moment: float
    everyone: float
    this_process: float

    @classmethod
    def now(cls) -> _Look | None:
        """Return the seconds up to now; None where the system does not tell (it is no Linux)."""
        with suppress(OSError, ValueError, AttributeError):
            head = Path("/proc/stat").read_text("ascii").splitlines()[0].split()
            user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, head[1:9])
            ticks = user + nice + system + interrupts + soft + stolen
            return cls(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time())
        return None

    def others_until(self, later: _Look) -> float:
        """Return how many cores other processes have kept busy since."""
        worked = (later.everyone - self.everyone) - (later.this_process - self.this_process)
        return max(0.0, worked / (later.moment - self.moment))


def cores_of_others() -> float | None:
    """Return how many cores other processes keep busy now, by a glance at them; None if it is not known."""
    before = _Look.now()
    time.sleep(GLANCE)
    after = _Look.now()
    if before is None or after is None:
        return None
    return before.others_until(after)


def busy_note(threads: int) -> str | None:
    """Return a sentence if other programs leave fewer cores than the threads that are to compute; else None."""
    others, cores = cores_of_others(), os.cpu_count() or 1
    if others is None or others < WORTH_SAYING or others + threads <= cores:
        return None
    return f"other programs keep {others:.1f} of {cores} cores busy: this takes longer than alone"


@dataclass
class _Process:
    """Whether and how this process was forked."""

    lost: frozenset[str] = frozenset()
    """The libraries that had been loaded when it was forked, from a process with several threads."""
    adapted: bool = True
    threads: int = 1
    """How many threads there were before the last fork."""


_process = _Process()
_THREADED_LIBRARIES = ("torch", "openvino", "faiss")
"""Libraries with threads of their own."""


def _note_threads() -> None:
    try:
        _process.threads = len(list(Path("/proc/self/task").iterdir()))
    except OSError:  # nothing is known
        _process.threads = 2


def _note_loss() -> None:
    if _process.threads > 1:
        _process.lost = frozenset(name for name in _THREADED_LIBRARIES if name in sys.modules)
        _process.adapted = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_threads, after_in_child=_note_loss)


def drop_lost_threads() -> None:
    """Let torch, faiss and the tokenizers compute in the calling thread alone, if this process lost their threads."""
    if _process.adapted:
        return
    _process.adapted = True
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if "torch" in _process.lost:
        import torch

        torch.set_num_threads(1)
    if "faiss" in _process.lost:
        import faiss

        faiss.omp_set_num_threads(1)


def refuse_lost(library: str, advice: str = "") -> None:
    """Refuse to use a library that waits for threads that this process has lost.

    Raises:
        SentcliError: which names ``spawn``.
    """
    if library in _process.lost:
        raise forked(library, advice)


def forked(library: str, advice: str = "") -> SentcliError:
    """Return the error for a library that does not work in a forked process."""
    from sentcli.errors import SentcliError

    return SentcliError(
        f"{library} does not work in a process that was forked from one that used it: start it with "
        f"multiprocessing.get_context('spawn'){advice}"
    )
