"""The options of ``adapt``, declared once for the verb and for what runs it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from sentcli.bounds import Flag, Holds
from sentcli.errors import InputError

_UNIT_SECONDS = {"h": 3600, "m": 60, "s": 1}
LEAST_BUDGET = 10
"""The least budget in seconds, below which nothing can be measured."""


@dataclass(frozen=True)
class AdaptOptions:
    """What an adaptation learns from, is chosen by and is judged by.

    Attributes:
        dev: Retrieval set whose queries choose among the candidates; default: queries of the documents, held out.
        test: Retrieval set whose queries choose nothing and decide, in its split test; default: half of --dev, or made
            ones.
        keep: Set of general similarity on which the model may not fall, such as STS-B's pairs.
        allow: The greatest loss on --keep, in units of its metric; default: a hundredth of the highest score, which is
            1 where scores are times 100.
        write_with: Let a model write the queries of training, as for data make-set.
        teacher: A better model, whose margins between documents are learnt; default: the model itself.
        budget: Time for all of it, such as 90s, 15m or 2h.
        limit: The most queries that are made of the documents.
        text_field: Column of the text; default: told from the names.
        title_field: Column of the title or question; default: told from the names.
        seed: Of what is drawn at random, and of training.
    """

    dev: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="SET")] = None
    test: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="SET")] = None
    keep: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="SET")] = None
    allow: Annotated[float | None, Ge(0)] = None
    write_with: Annotated[str | None, Flag(metavar="URL#MODEL|MODEL|FILE")] = None
    teacher: Annotated[str | None, Holds.MODEL, Flag(metavar="M|URL#NAME|FILE")] = None
    budget: Annotated[str, Flag(metavar="TIME")] = "15m"
    limit: Annotated[int, Ge(10)] = 5000
    text_field: Annotated[str | None, Holds.WORDS] = None
    title_field: Annotated[str | None, Holds.WORDS] = None
    seed: Annotated[int, Ge(0), Le(2**32 - 2)] = 0

    def __post_init__(self) -> None:
        _ = self.seconds

    @property
    def seconds(self) -> int:
        """The budget in seconds.

        Raises:
            InputError: if it is no time, or too short to measure anything.
        """
        parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", self.budget.strip())
        if parts is None or not any(parts.groups()):
            raise InputError(f"--budget {self.budget}: give a time such as 90s, 15m or 1h30m")
        hours, minutes, seconds = (int(part or 0) for part in parts.groups())
        budget = hours * _UNIT_SECONDS["h"] + minutes * _UNIT_SECONDS["m"] + seconds
        if budget < LEAST_BUDGET:
            raise InputError(f"--budget {self.budget}: at least {LEAST_BUDGET}s")
        return budget
