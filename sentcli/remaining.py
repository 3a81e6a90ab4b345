"""How long a work will still take, said only when it means something."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_AGREEING_ESTIMATES = 4
"""The estimates that have to agree."""
AGREEMENT = 1.25
"""How many times as long as the shortest of them the longest may be."""
APART = 1 / 8
"""The share of the time gone that lies between two of them, and at least `LEAST_APART` seconds."""
LEAST_APART = 1.0
LEAST_DONE = 0.05
"""The share of the work that has to be done before anything is said."""


@dataclass
class Remaining:
    """Estimates the time left of a work, from what is done and the time that it took.

    Long texts come first, caches fill and first calls compile, so that a first estimate may be a hundred times too
    long. Nothing is said until a twentieth is done and the last estimates of the whole time agree.
    """

    total: float
    """The size of the work, in the unit of `add`."""
    clock: Callable[[], float] = lambda: time.monotonic()
    done: float = 0
    at_once: float = 0
    """What was done within the first second, as by an earlier run: it says nothing about the speed."""

    def __post_init__(self) -> None:
        """Begin."""
        self.began = self.looked = self.clock()
        self.looks: deque[float] = deque(maxlen=_AGREEING_ESTIMATES)

    def add(self, count: float) -> None:
        """Count what has been done."""
        now = self.clock()
        self.done += count
        gone = now - self.began
        if gone < 1:
            self.at_once = self.done
        elif now - self.looked >= max(LEAST_APART, gone * APART) and self.done > self.at_once:
            self.looked = now
            self.looks.append(self._whole(gone))

    def seconds(self) -> float | None:
        """Return the time left in seconds; None while it is not known, or the work is done."""
        begun = self.done - self.at_once > LEAST_DONE * (self.total - self.at_once)
        if self.done >= self.total or not begun or len(self.looks) < _AGREEING_ESTIMATES:
            return None
        gone = self.clock() - self.began
        estimates = [*self.looks, self._whole(gone)]
        if max(estimates) > AGREEMENT * min(estimates):
            return None
        return max(0.0, estimates[-1] - gone)

    def words(self) -> str:
        """Return the time left in words; nothing while it is not known."""
        seconds = self.seconds()
        if seconds is None:
            return ""
        return f"{duration(seconds)} left"

    def _whole(self, gone: float) -> float:
        """Return how long all of the work takes, if it goes on as in the time that is gone."""
        return gone * (self.total - self.at_once) / (self.done - self.at_once)


def duration(seconds: float) -> str:
    """Return a time as hours, minutes and seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
