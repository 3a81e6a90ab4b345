"""Which scores share a table, and its rows: protocols, models with all their tasks, and groups of seeds as one system.

Rows of one table share the protocol of the evaluation, and may differ in what belongs to the model.
"""

from __future__ import annotations

import fnmatch
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from sentcli.errors import InputError
from sentcli.evaluation.score_kinds import TRAINED_HEAD
from sentcli.evaluation.scores import AVERAGE, ModelScores, TaskScore
from sentcli.evaluation.significance import Floats
from sentcli.hub import short
from sentcli.pages.protocols import (
    DIGESTS,
    MODEL_CHOICES,
    REVISIONS,
    SET_CHOICES,
    common_protocol,
    different_choices,
    distinct_choices,
    measure,
    model_choices,
    without_names,
    words,
)

SIZES = ("pairs", "test", "queries", "documents", "items")
"""Details of a task that are its size: rows with different sizes were measured on different data."""


@dataclass(frozen=True)
class Pattern:
    """``LABEL=GLOB``: a label for the runs whose model or file matches."""

    option: str
    label: str
    glob: str

    @classmethod
    def parse(cls, option: str, value: str) -> Pattern:
        """Parse the value ``LABEL=GLOB`` of an option.

        Raises:
            InputError: if label or pattern are missing.
        """
        label, equals, glob = value.partition("=")
        if not (label.strip() and equals and glob):
            raise InputError(
                f"{option} {value!r}: expected LABEL=NAME, where NAME is of a model or file and may have *"
            )
        return cls(option, label.strip(), glob)

    def matches(self, scores: ModelScores) -> bool:
        """Tell whether the model's name, the file's, or the last part of either matches."""
        names = {scores.model, Path(scores.model).name, scores.source, Path(scores.source).name} - {""}
        return any(fnmatch.fnmatchcase(name, self.glob) for name in names)

    def __str__(self) -> str:
        return f"{self.option} {self.label}={self.glob}"


def check_patterns(patterns: Sequence[Pattern], runs: Sequence[ModelScores]) -> None:
    """Check that every pattern matches a run, and that no run is matched by two patterns.

    Raises:
        InputError: otherwise.
    """
    for pattern in patterns:
        if not any(map(pattern.matches, runs)):
            models = ", ".join(dict.fromkeys(run.model for run in runs))
            raise InputError(f"{pattern} matches no model and no file; there are: {models}")
    for run in runs:
        matching = [str(pattern) for pattern in patterns if pattern.matches(run)]
        if len(matching) > 1:
            raise InputError(f"{run.model} is matched by {' and by '.join(matching)}")


@dataclass(frozen=True)
class System:
    """A row: one model, or several that are seeds of one."""

    label: str
    seeds: tuple[ModelScores, ...]
    """Their labels are unique in the table."""
    grouped: bool = False

    @property
    def fixed(self) -> bool:
        """Whether it is a single model that is no run of ``train``, and so has no spread over seeds."""
        return not self.grouped and self.seeds[0].fixed

    @property
    def single_run_caveat(self) -> str:
        """Why a single run does not stand for its training, in words; empty for seeds and for a fixed model."""
        if len(self.seeds) > 1 or self.fixed:
            return ""
        if self.grouped or "trained_run" in self.seeds[0].environment:
            return "is one trained run"
        return "may be one trained run (its file does not say; score again)"

    def values(self, column: str, columns: Sequence[str]) -> list[float]:
        """Return the score of each seed.

        Args:
            column: a task, or ``average``.
            columns: all columns of the table; an average needs all of its tasks.

        Returns:
            One score for each seed; an empty list if one of the seeds does not have it.
        """
        values = []
        for scores in self.seeds:
            value = _values(scores, columns).get(column)
            if value is None:
                return []
            values.append(value)
        return values

    def mean_and_deviation(self, column: str, columns: Sequence[str]) -> tuple[float | None, float | None]:
        """Return mean and sample standard deviation over the seeds; None if there are too few values."""
        values = self.values(column, columns)
        if not values:
            return None, None
        mean = statistics.fmean(values)
        if len(values) == 1:
            return mean, None
        return mean, statistics.stdev(values)

    def samples(self, column: str, columns: Sequence[str]) -> Floats | None:
        """Return the score of each seed on samples of the items ``[seeds, draws]``; None if a seed has no samples.

        Args:
            column: a task, or ``average``.
            columns: all columns of the table.
        """
        if not self.values(column, columns):
            return None
        samples: list[Floats] = []
        for scores in self.seeds:
            draws = scores.replicates(scores.kinds[0]).get(column)
            if draws is None or (samples and len(draws) != len(samples[0])):
                return None
            samples.append(draws)
        return np.stack(samples)

    def interval(self, column: str, columns: Sequence[str]) -> tuple[float, float] | None:
        """Return the 95 % interval of the score; None for a group of seeds, or if it was not measured."""
        scores = self.seeds[0]
        if self.grouped or column not in _values(scores, columns):
            return None
        return scores.intervals(scores.kinds[0]).get(column)

    def whiskers(self, column: str, columns: Sequence[str]) -> tuple[float, float] | None:
        """Return the mean less and plus the standard deviation over the seeds, or the interval of a single model."""
        mean, deviation = self.mean_and_deviation(column, columns)
        if mean is None or deviation is None:
            return self.interval(column, columns)
        return mean - deviation, mean + deviation


def _values(scores: ModelScores, columns: Sequence[str]) -> dict[str, float]:
    """Return the scores of a model by column, with the average if it has all tasks."""
    values = dict(scores.values(scores.kinds[0]))
    if not values.keys() >= set(columns) - {AVERAGE}:
        values.pop(AVERAGE, None)
    return values


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
    rows = {}
    for number, scores in enumerate(_labelled(_merged(runs, names, shown))):
        label = label_of(scores, groups)
        if label is None:
            rows[f"model {number}"] = System(scores.label, (scores,))
        else:
            before = rows.get(f"group {label}", System(label, (), grouped=True))
            rows[f"group {label}"] = replace(before, seeds=(*before.seeds, scores))
    for system in rows.values():
        _refuse_commits(system)
        choices = [{**without_names(model_choices(seed)), "backend": None} for seed in system.seeds]
        different = dict.fromkeys(chain.from_iterable(different_choices(choices)))
        if different:
            keys = ", ".join(different)
            raise InputError(f"--group {system.label}: its runs are no seeds of one system, they differ in {keys}")
    return list(rows.values())


def label_of(scores: ModelScores, patterns: Sequence[Pattern]) -> str | None:
    """Return the label of the first pattern that matches a model; None if none does."""
    for pattern in patterns:
        if pattern.matches(scores):
            return pattern.label
    return None


def _refuse_commits(system: System) -> None:
    """Refuse the same model at several commits as seeds of one system.

    Raises:
        InputError: with the model.
    """
    commits: dict[str, set[str]] = {}
    for seed in system.seeds:
        commits.setdefault(seed.model, set()).add(str(seed.protocol.get("revision")))
    for model, of_model in commits.items():
        if len(of_model - {"None"}) > 1:
            shown = " and ".join(sorted(map(short, of_model)))
            raise InputError(f"--group {system.label}: {model} stands at the commits {shown}, which are two models")


def _merged(runs: Sequence[ModelScores], names: Sequence[Pattern], shown: Mapping[str, str]) -> list[ModelScores]:
    """Join scores of the same model and choices that are of different tasks."""
    merged: list[ModelScores] = []
    for run in runs:
        label = label_of(run, names) or shown.get(run.model, run.model)
        choices, tasks = model_choices(run), {task.task for task in run.tasks}
        for number, scores in enumerate(merged):
            same_model = (scores.model, scores.label) == (run.model, label) and _same(model_choices(scores), choices)
            if same_model and tasks.isdisjoint(task.task for task in scores.tasks):
                merged[number] = scores.joined(run)
                break
        else:
            merged.append(replace(run, label=label))
    return merged


def _same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Tell whether two choices are those of one model; files of earlier versions do not say which weights it had."""
    if without_names(first) != without_names(second):
        return False
    return all(first[key] == second[key] for key in (*REVISIONS, *DIGESTS) if key in first and key in second)


def _labelled(models: list[ModelScores]) -> list[ModelScores]:
    """Make labels unique: by the choices of the models, then by their files, then by numbers."""
    together: dict[str, list[int]] = {}
    for number, scores in enumerate(models):
        together.setdefault(scores.label, []).append(number)
    labelled = list(models)
    for label, twins in together.items():
        distinct = distinct_choices([model_choices(models[number]) for number in twins])
        for number, own in zip(twins, distinct, strict=True):
            if own:
                labelled[number] = replace(models[number], label=f"{label} ({words(own)})")
    labelled = _apart(labelled, [Path(scores.source).name for scores in labelled])
    return _apart(labelled, list(map(str, range(1, len(labelled) + 1))))


def _apart(models: list[ModelScores], marks: list[str]) -> list[ModelScores]:
    """Add a mark to the labels that several models have."""
    counts = Counter(scores.label for scores in models)
    apart = []
    for scores, mark in zip(models, marks, strict=True):
        if counts[scores.label] > 1 and mark:
            scores = replace(scores, label=f"{scores.label} [{mark}]")
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
            protocol = {key: value for key, value in protocol.items() if key in (*MODEL_CHOICES, "regression")}
        parts.append(replace(scores, tasks=tasks, protocol=protocol))
    return parts


def tables(runs: Iterable[ModelScores]) -> list[list[ModelScores]]:
    """Group scores that may share a table: those of the same kind, measure and protocol, on tasks of the same size."""
    groups: list[tuple[str, dict[str, tuple[Any, ...]], list[ModelScores]]] = []
    for scores in chain.from_iterable(map(single_kinds, runs)):
        key = json.dumps([scores.kinds[0].name, measure(scores), common_protocol(scores)], sort_keys=True, default=str)
        sizes = {task.task: _size(task, scores) for task in scores.tasks}
        for group_key, group_sizes, members in groups:
            if group_key == key and _alike(group_sizes, sizes):
                group_sizes.update(sizes)
                members.append(scores)
                break
        else:
            groups.append((key, sizes, [scores]))
    by_command: dict[str, list[list[ModelScores]]] = {}
    for _, _, members in groups:
        by_command.setdefault(members[0].command, []).append(members)
    return list(chain.from_iterable(by_command.values()))


def _size(task: TaskScore, scores: ModelScores) -> tuple[Any, ...]:
    """Return what two scores of a task must have in common to be on the same data: its size and choices of the set."""
    size = [task.details.get(key) for key in SIZES]
    if scores.command == "retrieve":
        choices = dict(scores.protocol)
        sets = choices.get("sets")
        if isinstance(sets, dict):
            choices |= sets.get(task.task) or {}
        size += [choices.get(key) for key in SET_CHOICES]
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
