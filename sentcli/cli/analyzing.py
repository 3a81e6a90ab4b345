"""Options of ``report`` for what is inside models; they go when ``report`` is a verb."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentcli.verbs.kinds import shared

if TYPE_CHECKING:
    from sentcli.evaluation.candidate import Candidate

Data = Annotated[
    Path | None,
    typer.Option(
        help="A SentEval data/downstream folder, or sts once it is fetched: its STS-B pairs.",
        show_default=False,
        rich_help_panel=shared.INPUT,
    ),
]
TextsFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Texts, one a line or a row of a table.", show_default=False, rich_help_panel=shared.INPUT
    ),
]


@dataclass(frozen=True)
class Loading:
    """How the models of a report are loaded."""

    pooling: str | None = None
    max_length: int | None = None
    backend: Any = "auto"
    precision: Any = "auto"
    device: str = "auto"
    rerun: bool = False

    def candidates(self, names: Sequence[str]) -> list[Candidate]:
        """Return models, which are loaded when their vectors are not known."""
        load = shared.LoadOptions(self.pooling, None, self.max_length, self.backend, self.precision, self.device)
        return shared.models(names, load, rerun=self.rerun)
