"""The facts of known retrieval sets, which are in ``models/retrieval.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from sentcli.zoo import models_folder


@dataclass(frozen=True)
class SetFacts:
    """The facts of a set that decide its score besides the model."""

    name: str
    title: str
    short: str = ""
    """A shorter title, for narrow columns."""
    aliases: tuple[str, ...] = ()
    average: bool = False
    """Whether the set is part of the mean over BEIR that papers print."""
    split: str = "test"
    self_hits: Literal["kept", "removed"] = "kept"
    """Whether a hit whose document is the query itself counts."""
    join_title: bool = True
    query_length: int | None = None
    """Tokens; None is the model's maximum length."""
    document_length: int | None = None
    forums: tuple[str, ...] = ()
    """The sets whose mean is the score of this one."""
    note: str = ""


@cache
def known_sets() -> dict[str, SetFacts]:
    """Return the facts of all known sets by name, in the order of the papers."""
    tables: dict[str, dict[str, Any]] = tomllib.loads((models_folder() / "retrieval.toml").read_text("utf-8"))
    sets = {}
    for name, table in tables.items():
        for key in ("aliases", "forums"):
            if key in table:
                table[key] = tuple(table[key])
        sets[name] = SetFacts(name=name, **table)
    return sets


@cache
def _names() -> dict[str, str]:
    """Return the name of each known set by its name and its aliases."""
    names = {}
    for facts in known_sets().values():
        names.update(dict.fromkeys((facts.name, *facts.aliases), facts.name))
    return names


def canonical(name: str) -> str:
    """Return the name that ``sentcli data list`` has for a set, given that name or an alias, in upper or lower case."""
    return _names().get(name.lower(), name)


def set_facts(name: str) -> SetFacts:
    """Return the facts of a set; an unknown one has the defaults."""
    return known_sets().get(canonical(name)) or SetFacts(name, title=name)


def averaged() -> frozenset[str]:
    """Return the names of the sets that papers average."""
    return frozenset(name for name, facts in known_sets().items() if facts.average)
