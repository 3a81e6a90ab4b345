"""The rows of a table of scores: models with all their tasks, and groups of seeds as one system."""

from __future__ import annotations

import fnmatch
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sentcli.errors import InputError
from sentcli.evaluation.scores import AVERAGE, ModelScores
from sentcli.evaluation.significance import Floats
from sentcli.pages import protocols


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
    def alone(self) -> str:
        """Why a single run does not stand for its training, in words; empty for seeds and for a fixed model."""
        if len(self.seeds) > 1 or self.fixed:
            return ""
        unknown = "may be one trained run (its file does not say; score again)"
        return "is one trained run" if self.grouped or "trained_run" in self.seeds[0].environment else unknown

    def values(self, column: str, columns: Sequence[str]) -> list[float]:
        """Return the score of each seed.

        Args:
            column: a task, or ``average``.
            columns: all columns of the table; an average needs all of its tasks.

        Returns:
            One score for each seed; an empty list if one of the seeds does not have it.
        """
        scores_of_seeds = [_values(scores, columns).get(column) for scores in self.seeds]
        values = [value for value in scores_of_seeds if value is not None]
        return values if len(values) == len(scores_of_seeds) else []

    def spread(self, column: str, columns: Sequence[str]) -> tuple[float | None, float | None]:
        """Return mean and sample standard deviation over the seeds; None if there are too few values."""
        values = self.values(column, columns)
        return (statistics.fmean(values) if values else None, statistics.stdev(values) if len(values) > 1 else None)

    def samples(self, column: str, columns: Sequence[str]) -> Floats | None:
        """Return the score of each seed on samples of the items ``[seeds, draws]``; None if a seed has no samples.

        Args:
            column: a task, or ``average``.
            columns: all columns of the table.
        """
        if not self.values(column, columns):
            return None
        samples = [scores.samples(scores.kinds[0]).get(column) for scores in self.seeds]
        present = [draws for draws in samples if draws is not None]
        comparable = len(present) == len(samples) and len({len(draws) for draws in present}) == 1
        return np.stack(present) if comparable else None

    def interval(self, column: str, columns: Sequence[str]) -> tuple[float, float] | None:
        """Return the 95 % interval of the score; None for a group of seeds, or if it was not measured."""
        scores = self.seeds[0]
        if self.grouped or column not in _values(scores, columns):
            return None
        return scores.intervals(scores.kinds[0]).get(column)

    def whiskers(self, column: str, columns: Sequence[str]) -> tuple[float, float] | None:
        """Return the mean less and plus the standard deviation over the seeds, or the interval of a single model."""
        mean, deviation = self.spread(column, columns)
        if mean is None or deviation is None:
            return self.interval(column, columns)
        return mean - deviation, mean + deviation


def _values(scores: ModelScores, columns: Sequence[str]) -> dict[str, float]:
    values = scores.values(scores.kinds[0])
    whole = values.keys() >= set(columns) - {AVERAGE}
    return {title: value for title, value in values.items() if title != AVERAGE or whole}


def systems(runs: Sequence[ModelScores], groups: Sequence[Pattern], names: Sequence[Pattern]) -> list[System]:
    """Return the rows of a table.

    Args:
        runs: that share a protocol.
        groups: whose runs are seeds of one system.
        names: labels of models.

    Raises:
        InputError: if the seeds of a system differ in a setting that moves their numbers.
    """
    rows: dict[str, System] = {}
    for number, scores in enumerate(_labelled(_merged(runs, names))):
        pattern = next((pattern for pattern in groups if pattern.matches(scores)), None)
        if pattern is None:
            rows[f"model {number}"] = System(scores.label, (scores,))
        else:
            before = rows.get(f"group {pattern.label}", System(pattern.label, (), grouped=True))
            rows[f"group {pattern.label}"] = replace(before, seeds=(*before.seeds, scores))
    for system in rows.values():
        different = protocols.differing([{**protocols.settings(seed), "backend": None} for seed in system.seeds])
        if any(different):
            keys = ", ".join(dict.fromkeys(key for settings in different for key in settings))
            raise InputError(f"--group {system.label}: its runs are no seeds of one system, they differ in {keys}")
    return list(rows.values())


def _merged(runs: Sequence[ModelScores], names: Sequence[Pattern]) -> list[ModelScores]:
    """Join scores of the same model and settings that are of different tasks."""
    merged: list[ModelScores] = []
    for run in runs:
        label, settings = next((name.label for name in names if name.matches(run)), run.model), protocols.settings(run)
        for i, scores in enumerate(merged):
            same = (scores.model, protocols.settings(scores), scores.label) == (run.model, settings, label)
            if same and not {task.task for task in scores.tasks} & {task.task for task in run.tasks}:
                merged[i] = scores.joined(run)
                break
        else:
            merged.append(replace(run, label=label))
    return merged


def _labelled(models: list[ModelScores]) -> list[ModelScores]:
    """Make labels unique: by the settings of the models, then by their files, then by numbers."""
    together = {label: [m for m in models if m.label == label] for label in {m.label for m in models}}
    labelled = []
    for scores in models:
        twins = together[scores.label]
        distinct = protocols.telling([protocols.settings(twin) for twin in twins])
        own = next(settings for twin, settings in zip(twins, distinct, strict=True) if twin is scores)
        labelled.append(replace(scores, label=f"{scores.label} ({protocols.words(own)})" if own else scores.label))
    labelled = _apart(labelled, [Path(scores.source).name for scores in labelled])
    return _apart(labelled, [str(i) for i, _ in enumerate(labelled, 1)])


def _apart(models: list[ModelScores], marks: list[str]) -> list[ModelScores]:
    """Add a mark to the labels that several models have."""
    counts = Counter(scores.label for scores in models)
    return [
        replace(scores, label=f"{scores.label} [{mark}]") if counts[scores.label] > 1 and mark else scores
        for scores, mark in zip(models, marks, strict=True)
    ]
