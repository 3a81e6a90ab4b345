"""How the threads of matrix products wait, and how much of the processor other programs leave.

OpenMP reads its environment once, when torch is imported. Threads that have done their part of a product spin for some
milliseconds before they sleep. Beside another busy program the spinning takes the core that the last thread of the same
product needs. benchmarks/waiting.py and waiting_kernel.py measure what threads gain that sleep soon.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
