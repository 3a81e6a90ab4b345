"""Which scores share a table, and its rows: protocols, models with all their tasks, and groups of seeds as one system.

Rows of one table share the protocol of the evaluation, and may differ in what belongs to the model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sentcli.errors import InputError
from sentcli.evaluation.score_kinds import TRAINED_HEAD
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.evaluation.systems import Pattern, System, label_of
from sentcli.hub import short_digits
from sentcli.pages.protocols import (
    DIGESTS,
    MODEL_CHOICES,
    REVISIONS,
    SET_CHOICES,
    as_phrase,
    common_protocol,
    different_keys,
    distinct_choices,
    measure_name,
    model_choices,
    of_keys,
    without_names,
)

SIZES = ("pairs", "test", "queries", "documents", "items")
"""Details of a task that are its size: rows with different sizes were measured on different data."""


def systems_of(
    runs: Sequence[ModelScores],
    groups: Sequence[Pattern],
    names: Sequence[Pattern],
    shown: Mapping[str, str] = MappingProxyType({}),
) -> list[System]:
    """Return the rows of a table.

    Args:
        runs: that share a protocol.
        groups: whose runs are seeds of one system.
        names: labels of models.
        shown: labels of models for which `names` has none; by default their names.

    Raises:
        InputError: if the seeds of a system differ in a setting that moves their numbers.
    """
    rows: dict[str | int, list[ModelScores]] = {}  # by the label of a group, or the number of a single model
    tasks: set[str] = set()
    for number, scores in enumerate(_labelled(_merged(runs, names, shown))):
        label = label_of(scores, groups)
        key = number if label is None else label
        rows.setdefault(key, []).append(scores)
        tasks.update(title for title, _, _ in scores.columns(scores.kinds[0]))
    systems = []
    for key, seeds in rows.items():
        if isinstance(key, str):
            _check_seeds(key, seeds)
            system = System(key, tuple(seeds), frozenset(tasks), grouped=True)
        else:
            system = System(seeds[0].label, tuple(seeds), frozenset(tasks))
        systems.append(system)
    return systems


def _check_seeds(label: str, seeds: Sequence[ModelScores]) -> None:
    """Check that runs may be seeds of one system: they share all settings, and a model has one commit.

    Raises:
        InputError: otherwise.
    """
    commits: dict[str, set[str]] = {}
    settings = []
    for scores in seeds:
        of_model = commits.setdefault(scores.model, set())
        commit = scores.protocol.get("revision")
        if commit is not None:
            of_model.add(str(commit))
        settings.append(without_names({**model_choices(scores), "backend": None}))
    for model, of_model in commits.items():
        if len(of_model) > 1:
            shown = " and ".join(sorted(map(short_digits, of_model)))
            raise InputError(f"--group {label}: {model} stands at the commits {shown}, which are two models")
    different = different_keys(settings)
    if different:
        raise InputError(f"--group {label}: its runs are no seeds of one system, they differ in {', '.join(different)}")
    models: dict[str, str] = {}  # one of each training that is known
    for scores in seeds:
        if scores.training:
            models.setdefault(scores.training, scores.model)
    if len(models) > 1:
        raise InputError(
            f"--group {label}: {' and '.join(models.values())} are no seeds of one system, their trainings differ in "
            "more than the seed (run.json in their folders says in what)"
        )


def _merged(runs: Sequence[ModelScores], names: Sequence[Pattern], shown: Mapping[str, str]) -> list[ModelScores]:
    """Join scores of the same model and choices that are of different tasks."""
    merged: list[ModelScores] = []
    for run in runs:
        label = label_of(run, names) or shown.get(run.model, run.model)
        run = replace(run, label=label)
        for number, scores in enumerate(merged):
            if _may_be_joined(scores, run):
                merged[number] = scores.joined(run)
                break
        else:
            merged.append(run)
    return merged


def _may_be_joined(first: ModelScores, second: ModelScores) -> bool:
    """Tell whether two scores are of one model on different tasks.

    Files of earlier versions do not say which weights it had.
    """
    if (first.model, first.label) != (second.model, second.label):
        return False
    choices = model_choices(first)
    other_choices = model_choices(second)
    if without_names(choices) != without_names(other_choices):
        return False
    for key in (*REVISIONS, *DIGESTS):
        if key in choices and key in other_choices and choices[key] != other_choices[key]:
            return False
    name = attrgetter("task")
    return set(map(name, first.tasks)).isdisjoint(map(name, second.tasks))


def _labelled(models: list[ModelScores]) -> list[ModelScores]:
    """Make labels unique: by the choices of the models, then by their files, then by numbers."""
    choices: dict[str, list[dict[str, Any]]] = {}  # of the models of each label
    for scores in models:
        of_label = choices.setdefault(scores.label, [])
        of_label.append(model_choices(scores))
    distinct = {label: iter(distinct_choices(of_label)) for label, of_label in choices.items()}
    labelled = []
    for scores in models:
        label = scores.label
        own = next(distinct[label])
        if own:
            scores = replace(scores, label=f"{label} ({as_phrase(own)})")
        labelled.append(scores)
    files = [Path(scores.source).name for scores in labelled]
    numbers = list(map(str, range(1, len(labelled) + 1)))
    by_file = _apart(labelled, files)
    return _apart(by_file, numbers)


def _apart(models: list[ModelScores], marks: list[str]) -> list[ModelScores]:
    """Add a mark to the labels that several models have."""
    counts = Counter(scores.label for scores in models)
    apart = []
    for scores, mark in zip(models, marks, strict=True):
        label = scores.label
        if counts[label] > 1 and mark:
            scores = replace(scores, label=f"{label} [{mark}]")
        apart.append(scores)
    return apart


def single_kinds(scores: ModelScores) -> list[ModelScores]:
    """Split the scores of a model by kind, since accuracies and correlations need different tables."""
    if len(scores.kinds) < 2 and scores.command != "evaluate":
        return [scores]
    parts = []
    for kind in scores.kinds:
        tasks = tuple(scores.of_kind(kind))
        protocol = scores.protocol
        if scores.command == "evaluate":  # each kind has the part of the protocol that is its own
            table_kind = tasks[0].details.get("kind", "")
            protocol = {**protocol, **protocol.get("kinds", {}).get(table_kind, {})}
            protocol.pop("kinds", None)
        elif kind is TRAINED_HEAD:
            protocol = of_keys(protocol, (*MODEL_CHOICES, "regression"))
        parts.append(replace(scores, tasks=tasks, protocol=protocol))
    return parts


@dataclass(frozen=True)
class _SharedTable:
    """Scores that may share a table."""

    key: str
    """Kind, measure and protocol, which are the same for all of them."""
    sizes: dict[str, tuple[Any, ...]]
    """The size and the choices of the data of each task, as `_size` returns them."""
    members: list[ModelScores]


def tables(runs: Iterable[ModelScores]) -> list[list[ModelScores]]:
    """Group scores that may share a table: those of the same kind, measure and protocol, on tasks of the same size."""
    shared: list[_SharedTable] = []
    for scores in chain.from_iterable(map(single_kinds, runs)):
        kind = scores.kinds[0]
        facts = [kind.name, measure_name(scores), common_protocol(scores)]
        key = json.dumps(facts, sort_keys=True, default=str)
        sizes = {task.task: _size(task, scores) for task in scores.tasks}
        for table in shared:
            if table.key == key and _alike(table.sizes, sizes):
                table.sizes.update(sizes)
                table.members.append(scores)
                break
        else:
            shared.append(_SharedTable(key, sizes, [scores]))
    groups = [table.members for table in shared]
    commands = list(dict.fromkeys(first.command for first, *_ in groups))
    groups.sort(key=lambda group: commands.index(group[0].command))
    return groups


def _size(task: TaskScore, scores: ModelScores) -> tuple[Any, ...]:
    """Return what two scores of a task must have in common to be on the same data: its size and choices of the set."""
    size = list(map(task.details.get, SIZES))
    if scores.command == "retrieve":
        choices = dict(scores.protocol)
        sets = choices.get("sets")
        if isinstance(sets, dict):
            choices |= sets.get(task.task) or {}
        size += map(choices.get, SET_CHOICES)
    return tuple(size)


def _alike(first: Mapping[str, tuple[Any, ...]], second: Mapping[str, tuple[Any, ...]]) -> bool:
    """Tell whether tasks, with what `_size` returns of each, may be of the same data.

    Results of mteb do not say all of it.
    """
    for task in first.keys() & second.keys():
        for one, other in zip(first[task], second[task], strict=True):
            if one != other and one is not None and other is not None:
                return False
    return True
