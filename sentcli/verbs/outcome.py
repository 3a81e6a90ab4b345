"""The result of a verb that scores no models."""

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
    """The result of a verb, which is made when the verb starts and filled while it works."""

    command: str
    model: str = ""
    protocol: dict[str, Any] = field(default_factory=dict)
    results: Any = None
    environment: dict[str, Any] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    """Printed by `show`."""
    silent: bool = False
    """Whether another process of the same training prints and writes the result."""
    started: float = field(default_factory=time.perf_counter, repr=False)
    seconds: float | None = None

    def finish(self, results: Any, tables: Sequence[Table] = ()) -> Outcome:
        """Set the results and stop the clock."""
        self.results, self.tables, self.seconds = results, tables, time.perf_counter() - self.started
        return self

    def ran_on(self, device: str | None, precision: str | None, seed: int | None = None) -> None:
        """Set the environment; None stands for a device, a precision or a seed that was not used."""
        self.environment = environment(device, precision, seed)

    def failed(self, message: str) -> SentcliError:
        """Return the error to end with after work that was partly done; ``--json`` is written all the same."""
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
        """Return the first table, or a row for each of the results if there is no table."""
        import pandas as pd

        if self.tables:
            return self.tables[0].to_frame()
        return pd.json_normalize(self.results)

    def show(self) -> None:
        """Print the tables, as the command does."""
        for table in () if self.silent else self.tables:
            console.show(table)

    def _repr_html_(self) -> str:
        """Show the result in a notebook."""
        return "".join(table._repr_html_() for table in self.tables) or f"<pre>{self.command}: {self.results}</pre>"
