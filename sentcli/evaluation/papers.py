"""The tables, figures, equations and settings of the papers, and which of them can be repeated.

A paper is a TOML file in ``models/papers``:

    title = "miCSE"
    reference = "Klein and Nabi, ACL 2023"
    [[item]]
    name = "Table 2"
    shows = "STS average by share of the text, with and without each part"
    answer = "yes"
    commands = ["sentcli train --sweep micse-table-2 --data wiki1m --eval-data sts --sts -o table-2"]
    printed = ["micse-bert-base"]
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import BaseModel, model_validator

from sentcli.errors import InputError, nearest
from sentcli.io.forms import read_toml
from sentcli.zoo import models_folder

_Answer = Literal["yes", "partly", "no"]
_ANSWERS: tuple[_Answer, ...] = ("yes", "partly", "no")


class Item(BaseModel, extra="forbid"):
    """A table, a figure, an equation or a setting of a paper."""

    name: str
    shows: str
    answer: _Answer
    """Whether commands repeat all of it, given the data."""
    commands: list[str] = []
    data: str = ""
    """The data and the weights that it needs, besides those that `commands` name."""
    printed: list[str] = []
    """The systems of `published` whose printed scores belong to it."""
    results: list[str] = []
    """The files of the repository that hold the results of these commands."""
    missing: str = ""
    """A sentence on what cannot be repeated or is not known, and why."""

    @model_validator(mode="after")
    def _complete(self) -> Item:
        if self.answer != "no" and not self.commands:
            raise ValueError(f"{self.name}: {self.answer} needs commands")
        if self.answer != "yes" and not self.missing:
            raise ValueError(f"{self.name}: {self.answer} needs missing, which says what and why")
        return self


class Paper(BaseModel, extra="forbid"):
    """A paper and its items."""

    name: str = ""
    title: str
    reference: str
    item: list[Item]

    def counts(self) -> dict[_Answer, int]:
        """Return the number of items by answer."""
        counts = Counter(item.answer for item in self.item)
        return {answer: counts[answer] for answer in _ANSWERS}


def paper_names() -> list[str]:
    """Return the names of the papers."""
    return sorted(path.stem for path in (models_folder() / "papers").glob("*.toml"))


def load_paper(name: str) -> Paper:
    """Read a paper's items.

    Raises:
        InputError: if there is no such paper.
        DataError: if its file is damaged.
    """
    names = paper_names()
    if name not in names:
        raise InputError(f"--paper {name}: unknown{nearest(name, names)}; one of: {', '.join(names)}")
    paper = read_toml(Paper, models_folder() / "papers" / f"{name}.toml")
    return paper.model_copy(update={"name": name})
