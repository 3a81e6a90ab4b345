"""Which trainings are seeds of one: those whose identities differ in the seed alone.

Their mean and deviation speak of other seeds. Whatever differs in anything else is a system of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from operator import methodcaller
from typing import Any

from sentcli.table import flat

IRRELEVANT = ("settings.seed", "subset.seed", "device")
"""Of an identity: the seeds of the training and of the rows that are drawn for it, and where it ran."""


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Return mean and sample standard deviation of the scores of seeds; one seed has no deviation."""
    mean = statistics.fmean(values)
    if len(values) == 1:
        return mean, None
    return mean, statistics.stdev(values)


def training_facts(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides a training besides its seed, by dotted names.

    Args:
        identity: of a run, as its ``run.json`` or the line of a sweep has it.
    """
    facts = flat(identity)
    for key in list(facts):
        if key in IRRELEVANT or key.startswith("environment."):
            del facts[key]
    return facts


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the facts in which two trainings differ.

    A setting that one of them lacks in a section that it has was not there in its version.
    """
    keys = []
    for key in dict.fromkeys([*first, *second]):
        if key in first and key in second:
            is_different = first[key] != second[key]
        else:
            whole, lacking = (first, second) if key in first else (second, first)
            section = key.rpartition(".")[0]
            is_known = section != "" and any(map(methodcaller("startswith", f"{section}."), lacking))
            is_different = whole[key] is not None and not is_known
        if is_different:
            keys.append(key)
    return keys


def by_training(trainings: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return the positions of the facts of runs, those of one training together, in the order of their first ones."""
    groups: list[list[int]] = []
    for position, facts in enumerate(trainings):
        for group in groups:
            if not differing(trainings[group[0]], facts):
                group.append(position)
                break
        else:
            groups.append([position])
    return groups


def told_apart(trainings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for the facts of each run those that tell its training apart from the others, by the names of settings.

    Methods differ in their name, others in what differs between trainings of the same method.
    """
    keys: dict[str, None] = {}
    names = {facts.get("method.name") for facts in trainings}
    if len(names) > 1:
        keys["method.name"] = None
    groups = by_training(trainings)
    for number, group in enumerate(groups):
        facts = trainings[group[0]]
        for other_group in groups[:number]:
            other = trainings[other_group[0]]
            if facts.get("method.name") == other.get("method.name"):
                keys |= dict.fromkeys(differing(other, facts))
    return [by_setting(facts, list(keys)) for facts in trainings]


def by_setting(facts: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return some facts, as far as they are known, by the names of settings that users give, as tables show them."""
    settings = {}
    for key in keys:
        name = key.removeprefix("settings.").removeprefix("method.")
        if key == "method.name":
            name = "method"
        if key in facts:
            settings[name] = _in_short(facts[key])
    return settings


def _in_short(value: Any) -> Any:
    """Return the value of a fact as it stands in a table: of files their names and the beginning of their digests."""
    if not isinstance(value, list):
        return value
    parts = []
    for part in value:
        if isinstance(part, Mapping) and "file" in part:
            part = f"{part['file']} {str(part.get('sha256', ''))[:8]}".strip()
        parts.append(str(part))
    return ", ".join(parts)
