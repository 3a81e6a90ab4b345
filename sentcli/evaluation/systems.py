"""The systems of a comparison: single models, and groups of models that are seeds of one training."""

from __future__ import annotations

import fnmatch
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from sentcli.arrays import BoolArray, Float64Array
from sentcli.errors import InputError
from sentcli.evaluation.differences import Difference
from sentcli.evaluation.score_kinds import TRANSFER
from sentcli.evaluation.scores import AVERAGE, ModelScores, TaskScore
from sentcli.evaluation.significance import compare_groups, compare_seeds, mcnemar
from sentcli.seeds import mean_and_deviation


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
        label = label.strip()
        if not (label and equals and glob):
            raise InputError(
                f"{option} {value!r}: expected LABEL=NAME, where NAME is of a model or file and may have *"
            )
        return cls(option, label, glob)

    def matches(self, names: Iterable[str]) -> bool:
        """Tell whether a name of a model or of its file, or the last part of one, matches; an empty one does not."""
        for name in filter(None, names):
            if fnmatch.fnmatchcase(name, self.glob) or fnmatch.fnmatchcase(Path(name).name, self.glob):
                return True
        return False

    def __str__(self) -> str:
        return f"{self.option} {self.label}={self.glob}"


def check_patterns(patterns: Sequence[Pattern], runs: Sequence[Sequence[str]]) -> None:
    """Check that every pattern matches a run, and that no run is matched by two patterns.

    Args:
        patterns: of an option.
        runs: the names of each run, that of its model first.

    Raises:
        InputError: otherwise.
    """
    for pattern in patterns:
        if not any(map(pattern.matches, runs)):
            models = ", ".join(dict.fromkeys(model for model, *_ in runs))
            raise InputError(f"{pattern} matches no model and no file; there are: {models}")
    for names in runs:
        matching = [str(pattern) for pattern in patterns if pattern.matches(names)]
        if len(matching) > 1:
            both = " and by ".join(matching)
            raise InputError(f"{names[0]} is matched by {both}")


def label_of(scores: ModelScores, patterns: Sequence[Pattern]) -> str | None:
    """Return the label of the first pattern that matches a model; None if none does."""
    for pattern in patterns:
        if pattern.matches(scores.names):
            return pattern.label
    return None


@dataclass(frozen=True)
class System:
    """A row: one model, or several that are seeds of one."""

    label: str
    seeds: tuple[ModelScores, ...]
    """Their labels are unique in the table."""
    tasks: frozenset[str]
    """The names of all tasks of the table; a model without a score of one of them has no average."""
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

    def values(self, column: str) -> list[float]:
        """Return the score of each seed on a task or their ``average``; an empty list if a seed does not have it."""
        values = []
        for scores in self.seeds:
            by_column = scores.values(scores.kinds[0])
            if column not in by_column:
                return []
            if column == AVERAGE and not self.tasks <= by_column.keys():
                return []
            values.append(by_column[column])
        return values

    def mean_and_deviation(self, column: str) -> tuple[float | None, float | None]:
        """Return mean and sample standard deviation over the seeds; None if there are too few values."""
        values = self.values(column)
        if not values:
            return None, None
        return mean_and_deviation(values)

    def samples(self, column: str) -> Float64Array | None:
        """Return the score of each seed on samples of the items ``[seeds, draws]``; None if a seed has no samples."""
        if not self.values(column):
            return None
        samples: list[Float64Array] = []
        for scores in self.seeds:
            draws = scores.replicates(scores.kinds[0]).get(column)
            if draws is None or (samples and len(draws) != len(samples[0])):
                return None
            samples.append(draws)
        return np.stack(samples)

    def _scores(self, column: str) -> Iterator[tuple[TaskScore, str]]:
        """Yield the score of each seed and its metric: of a column, or of all columns for the average."""
        for scores in self.seeds:
            for title, task, metric in scores.columns(scores.kinds[0]):
                if column in (title, AVERAGE):
                    yield task, metric

    def items(self, column: str) -> int | None:
        """Return the number of items of a task, or of the smallest task of the average; None if it is not known."""
        sizes = []
        for task, _ in self._scores(column):
            if task.size is None:
                return None
            sizes.append(task.size)
        return min(sizes, default=None)

    def interval(self, column: str) -> tuple[float, float] | None:
        """Return the 95 % interval of the score; None for a group of seeds, or if it was not measured."""
        if self.grouped or not self.values(column):
            return None
        scores = self.seeds[0]
        return scores.intervals(scores.kinds[0]).get(column)

    def whiskers(self, column: str) -> tuple[float, float] | None:
        """Return the mean less and plus the standard deviation over the seeds, or the interval of a single model."""
        mean, deviation = self.mean_and_deviation(column)
        if mean is None or deviation is None:
            return self.interval(column)
        return mean - deviation, mean + deviation

    def compare(self, other: System, column: str) -> Difference | None:
        """Compare with another system on a task or on the average.

        Seeds stand for their training. Two single models are compared as they are; a single run of ``train`` has no
        test against seeds. The right and wrong answers of two models on a transfer task have McNemar's test.

        Returns:
            The score of this system minus that of the other one; None where there are neither samples nor answers.
        """
        fixed = (True, True)
        if self.grouped or other.grouped:
            fixed = (self.fixed, other.fixed)
        else:
            answers = self._answers(column)
            other_answers = other._answers(column)
            if answers is not None and other_answers is not None:
                return mcnemar(answers, other_answers, TRANSFER.highest)
        difference = self._by_items(other, column, fixed) or self._by_samples(other, column, fixed)
        if difference is None or difference.p is not None:
            return difference
        reasons = []
        for single in (self, other):
            caveat = single.single_run_caveat
            if caveat:
                reasons.append(f"{single.label} {caveat}")
        if not reasons:
            return difference
        reason = f"{' and '.join(reasons)}, so how far other seeds lie from it is not known"
        return replace(difference, reason=reason)

    def _by_items(self, other: System, column: str, fixed: tuple[bool, bool]) -> Difference | None:
        """Compare by the values of the items, whose mean the score is; None where they are not known."""
        if column == AVERAGE:
            return None
        values = []
        asked = set()
        for task, metric in chain(self._scores(column), other._scores(column)):
            if metric not in task.item_values:
                return None
            asked.add(task.items)
            values.append(task.item_values[metric])
        if len(asked) != 1 or len(values[0]) < 2:
            return None
        difference = compare_groups(values[: len(self.seeds)], values[len(self.seeds) :], fixed)
        scores = statistics.fmean(self.values(column)) - statistics.fmean(other.values(column))
        return replace(difference, difference=scores)  # which are rounded

    def _by_samples(self, other: System, column: str, fixed: tuple[bool, bool]) -> Difference | None:
        """Compare by the scores on the same samples of the items; None where there are none."""
        samples = self.samples(column)
        others = other.samples(column)
        if samples is None or others is None or samples.shape[1] != others.shape[1]:
            return None
        values = self.values(column)
        other_values = other.values(column)
        items = self.items(column)
        if items is None:
            apart = statistics.fmean(values) - statistics.fmean(other_values)
            return Difference(apart, reason="the number of items that were sampled is not known")
        return compare_seeds(values, other_values, samples, others, items, fixed)

    def _answers(self, column: str) -> BoolArray | None:
        """Return whether a single model is right on each example of a transfer task ``[examples]``; else None."""
        (scores,) = self.seeds
        for task in scores.of_kind(TRANSFER):
            if task.task == column:
                return task.correct
        return None
