"""What is known of retrieval sets by name, kept as data in ``models/retrieval.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from sentcli.zoo import models_folder


@dataclass(frozen=True)
class SetFacts:
    """What decides a set's score beside the model."""

    name: str
    title: str
    short: str = ""
    """The title for a narrow column, where that is another."""
    aliases: tuple[str, ...] = ()
    average: bool = False
    """Whether papers have it in their mean over BEIR."""
    split: str = "test"
    self_hits: Literal["kept", "removed"] = "kept"
    """A hit whose document is the query."""
    join_title: bool = True
    query_length: int | None = None
    """Tokens; None is the model's maximum length."""
    document_length: int | None = None
    forums: tuple[str, ...] = ()
    """The sets that this one is the mean of."""
    note: str = ""


@cache
def known_sets() -> dict[str, SetFacts]:
    """Return all sets that something is known of, in the order of the papers."""
    with (models_folder() / "retrieval.toml").open("rb") as handle:
        tables: dict[str, dict[str, Any]] = tomllib.load(handle)
    sets = {}
    for name, table in tables.items():
        lists = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
        sets[name] = SetFacts(name=name, **{**table, **lists})
    return sets


@cache
def _names() -> dict[str, str]:
    return {alias: each.name for each in known_sets().values() for alias in (each.name, *each.aliases)}


def canonical(name: str) -> str:
    """Return a set's name as ``sentcli data list`` has it, for its own or another name of it, in any case."""
    return _names().get(name.lower(), name)


def facts_of(name: str) -> SetFacts:
    """Return what is known of a set; of one that is not known, the usual."""
    return known_sets().get(canonical(name)) or SetFacts(name, title=name)


def averaged() -> frozenset[str]:
    """Return the sets that papers average."""
    return frozenset(name for name, each in known_sets().items() if each.average)
