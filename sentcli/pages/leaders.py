"""Which rows of a table are best, which of them are equal, and which are the same weights under several names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentcli.pages.protocols import DIGESTS, model_choices

if TYPE_CHECKING:
    from sentcli.evaluation.scores import ModelScores
    from sentcli.pages.systems import System


@dataclass(frozen=True)
class Leaders:
    """The systems of a table that have its best value, as the table prints it."""

    best: tuple[System, ...]
    value: float
    others: tuple[System, ...]
    """The rest of those that have a value, the best one first."""

    @property
    def all_equal(self) -> bool:
        """Whether several systems are compared and all have the same value."""
        return len(self.best) > 1 and not self.others

    @property
    def names(self) -> str:
        """The labels of the best systems."""
        return listed([system.label for system in self.best])


def leaders(systems: Sequence[System], column: str, columns: Sequence[str], pattern: str) -> Leaders | None:
    """Return the best systems of a column of a table; None if no system has a value.

    Args:
        systems: of the table.
        column: a task, or ``average``.
        columns: all columns of the table.
        pattern: the format of the column, in which values are equal or not.
    """
    means = []
    for system in systems:
        mean, _ = system.mean_and_deviation(column, columns)
        if mean is not None:
            means.append((mean, system))
    if not means:
        return None
    means.sort(key=lambda entry: -entry[0])
    highest = means[0][0]
    best, others = [], []
    for mean, system in means:
        is_best = format(mean, pattern) == format(highest, pattern)
        if is_best:
            best.append(system)
        else:
            others.append(system)
    return Leaders(tuple(best), highest, tuple(others))


def listed(names: Sequence[str]) -> str:
    """Return ``a``, ``a and b``, or ``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def same_weights(systems: Sequence[System]) -> list[tuple[System, ...]]:
    """Return the systems that are the same weights used in the same way, each group of two or more.

    Files of earlier versions do not say which weights a model had; nothing is said of them.
    """
    groups: dict[str, list[System]] = {}
    for system in systems:
        weights = _weights_of(system)
        if weights is not None:
            groups.setdefault(weights, []).append(system)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def weights_notes(systems: Sequence[System]) -> list[str]:
    """Return a sentence for each group of rows, and for each group of seeds, that are the same weights."""
    notes = []
    said = []
    for group in same_weights(systems):
        labels = [system.label for system in group]
        said += labels
        who = "All models" if len(group) == len(systems) else listed(labels)
        notes.append(f"{who}: the same weights{_of_start(group)}.")
    for system in systems:
        seeds = len(system.seeds)
        if seeds > 1 and _weights_of(system) is not None and system.label not in said:
            notes.append(f"{system.label}: its {seeds} runs have the same weights{_of_start((system,))}.")
    return notes


def equal_because(group: Sequence[System]) -> str:
    """Return why the scores of systems are equal, if it is known: a clause that begins with a colon, or nothing."""
    weights = {_weights_of(system) for system in group}
    if len(weights) > 1 or None in weights:
        return ""
    return f": they have the same weights{_of_start(group)}"


def _weights_of(system: System) -> str | None:
    """Return the `_identity` that all seeds of a system share, or None if they differ or it is not known."""
    identities = {_identity(scores) for scores in system.seeds}
    return identities.pop() if len(identities) == 1 else None


def _identity(scores: ModelScores) -> str | None:
    """Return what two names of one model share, or None if the weights are not known."""
    if scores.protocol.get("weights") is None:
        return None
    choices = {key: value for key, value in model_choices(scores).items() if key not in DIGESTS}
    choices.pop("revision", None)
    digests = [scores.protocol.get(key) for key in DIGESTS]
    return repr((digests, sorted(choices.items(), key=str)))


def _of_start(group: Sequence[System]) -> str:
    """Return a clause if the weights are those that a training began with, since no step of it was better."""
    for system in group:
        if any(scores.environment.get("kept_start") for scores in system.seeds):
            return ", those of the start, since no step was better"
    return ""
