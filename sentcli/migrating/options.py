"""The options of moving a corpus to another model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from sentcli.bounds import Flag, Holds


@dataclass(frozen=True)
class MoveOptions:
    """Whether a corpus moves to another model.

    Attributes:
        set: Compare the models on this retrieval set, whose documents are in the corpus; default: one that is made of
            the corpus, as data make-set does.
        allow: The loss of nDCG@10 that is allowed; the move is refused (exit code 3) unless a greater one is excluded
            at 95 %.
        anyway: Move without comparing, where that is not possible, or against its result.
        dry_run: Estimate and compare, and write nothing.
    """

    set: Annotated[str | None, Holds.RETRIEVAL_SET, Flag(metavar="SET", needs="model", excludes="back")] = None
    allow: Annotated[float, Ge(0), Flag(needs="model", excludes="back")] = 0.01
    anyway: Annotated[bool, Flag(needs="model", excludes="back")] = False
    dry_run: Annotated[bool, Flag(needs="model", excludes="back drop")] = False
