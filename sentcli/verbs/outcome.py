"""The result of a verb that scores no models: what it did, with every choice that moved it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import SentcliError
from sentcli.machine import environment

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.table import Table


@dataclass
class Outcome:
    """What a verb did. Made when it starts, filled as it goes."""

    command: str
    model: str = ""
    protocol: dict[str, Any] = field(default_factory=dict)
    results: Any = None
    environment: dict[str, Any] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    """For people."""
    silent: bool = False
    """Another process of the same work shows and writes the result."""
    started: float = field(default_factory=time.perf_counter, repr=False)
    seconds: float | None = None

    def finish(self, results: Any, tables: Sequence[Table] = ()) -> Outcome:
        """Take the results and stop the clock."""
        self.results, self.tables, self.seconds = results, tables, time.perf_counter() - self.started
        return self

    def ran_on(self, device: str | None, precision: str | None, seed: int | None = None) -> None:
        """Take where and how it ran, beside the versions of this machine; None is what had no part in it."""
        self.environment = environment(device, precision, seed)

    def failed(self, message: str) -> SentcliError:
        """Return the error of work that was partly done: ``--json`` is written although it ends so."""
        error = SentcliError(message)
        error.outcome = self
        return error

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the command."""
        return {
            "command": self.command,
            "model": self.model,
            "protocol": self.protocol,
            "results": self.results,
            "environment": self.environment,
            "elapsed_seconds": round(self.seconds or 0.0, 3),
        }

    def to_frame(self) -> pd.DataFrame:
        """Return the first table, or else the results, a row for each entry."""
        import pandas as pd

        if self.tables:
            return self.tables[0].to_frame()
        return pd.json_normalize(self.results)

    def show(self) -> None:
        """Print the tables as the command does."""
        for table in () if self.silent else self.tables:
            console.show(table)

    def _repr_html_(self) -> str:
        """Show the result in a notebook."""
        return "".join(table._repr_html_() for table in self.tables) or f"<pre>{self.command}: {self.results}</pre>"
