"""The JSON object of a command."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Report:
    """What a command found, with every choice that moved it. Made when the command starts, filled as it goes."""

    command: str
    model: str
    protocol: dict[str, Any] = field(default_factory=dict)
    results: Any = None
    environment: dict[str, Any] = field(default_factory=dict)
    average: float | None = None
    average_pearson: float | None = None
    average_interval: tuple[float, float] | None = None
    """95 %."""
    compared: dict[str, Any] | None = None
    """What sets this model apart from the first one of the run."""
    cached: list[str] = field(default_factory=list)
    """Tasks whose scores were kept from an earlier run."""
    started: float = field(default_factory=time.perf_counter)
    seconds: float | None = None
    """From `started` to `finish`."""

    def finish(self) -> None:
        """Stop the clock: what follows belongs to another model."""
        self.seconds = time.perf_counter() - self.started

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object; `average`, `average_interval`, `compared` and `cached` only where there are."""
        found = {
            "command": self.command,
            "model": self.model,
            "protocol": self.protocol,
            "results": self.results,
            "environment": self.environment,
            "elapsed_seconds": round(time.perf_counter() - self.started if self.seconds is None else self.seconds, 3),
        }
        more = {
            "average": self.average,
            "average_pearson": self.average_pearson,
            "average_interval": self.average_interval,
            "compared": self.compared,
            "cached": self.cached or None,
        }
        return found | {name: value for name, value in more.items() if value is not None}
