"""Which rows of a table are the same weights under several names."""

from __future__ import annotations

from collections.abc import Sequence

from sentcli.evaluation.scores import ModelScores
from sentcli.evaluation.systems import System
from sentcli.pages.protocols import DIGESTS, model_choices, without


def listed(names: Sequence[str]) -> str:
    """Return ``a``, ``a and b``, or ``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def same_weights(systems: Sequence[System]) -> list[tuple[System, ...]]:
    """Return the systems that are the same weights used in the same way, each group of two or more.

    Files of earlier versions do not say which weights a model had; nothing is said of them.
    """
    by_weights: dict[str, list[System]] = {}
    for system in systems:
        weights = _weights_of(system)
        if weights is not None:
            group = by_weights.setdefault(weights, [])
            group.append(system)
    return [tuple(group) for group in by_weights.values() if len(group) > 1]


def weights_notes(systems: Sequence[System]) -> list[str]:
    """Return a sentence for each group of rows, and for each group of seeds, that are the same weights."""
    notes = []
    mentioned = []
    for group in same_weights(systems):
        labels = [system.label for system in group]
        mentioned += labels
        models = listed(labels)
        if len(group) == len(systems):
            models = "All models"
        notes.append(f"{models}: the same weights{_of_start(group)}.")
    for system in systems:
        seeds = len(system.seeds)
        label = system.label
        if seeds > 1 and _weights_of(system) is not None and label not in mentioned:
            notes.append(f"{label}: its {seeds} runs have the same weights{_of_start((system,))}.")
    return notes


def equal_because(group: Sequence[System]) -> str:
    """Return why the scores of systems are equal, if it is known: a clause that begins with a colon, or nothing."""
    weights = set(map(_weights_of, group))
    if len(weights) > 1 or None in weights:
        return ""
    return f": they have the same weights{_of_start(group)}"


def _weights_of(system: System) -> str | None:
    """Return the `_identity` that all seeds of a system share, or None if they differ or it is not known."""
    identities = set(map(_identity, system.seeds))
    if len(identities) > 1:
        return None
    return identities.pop()


def _identity(scores: ModelScores) -> str | None:
    """Return what two names of one model share, or None if the weights are not known."""
    if scores.protocol.get("weights") is None:
        return None
    choices = without(model_choices(scores), (*DIGESTS, "revision"))
    digests = list(map(scores.protocol.get, DIGESTS))
    return repr((digests, sorted(choices.items(), key=str)))


def _of_start(group: Sequence[System]) -> str:
    """Return a clause if the weights are those that a training began with, since no step of it was better."""
    for system in group:
        if any(scores.environment.get("kept_start") for scores in system.seeds):
            return ", those of the start, since no step was better"
    return ""
