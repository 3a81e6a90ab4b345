"""The rows of a table: models, each with its runs put together, and seeds taken as one system."""

from __future__ import annotations

import fnmatch
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sentcli.errors import InputError
from sentcli.reports import protocols
from sentcli.reports.runs import Run

AVERAGE = "average"


@dataclass(frozen=True)
class Pattern:
    """``LABEL=GLOB``: a label for the runs whose model or file matches."""

    option: str
    label: str
    glob: str

    def matches(self, run: Run) -> bool:
        """Say whether the model's name, the file's, or the last part of either matches."""
        names = {run.model, Path(run.model).name, run.source, Path(run.source).name} - {""}
        return any(fnmatch.fnmatchcase(name, self.glob) for name in names)

    def __str__(self) -> str:
        return f"{self.option} {self.label}={self.glob}"


def parse_patterns(option: str, values: Sequence[str]) -> list[Pattern]:
    """Read ``LABEL=GLOB`` of an option.

    Raises:
        InputError: if one does not have this form.
    """
    found = []
    for value in values:
        label, equals, glob = value.partition("=")
        if not (label.strip() and equals and glob):
            raise InputError(
                f"{option} {value!r}: expected LABEL=NAME, where NAME is of a model or file and may have *"
            )
        found.append(Pattern(option, label.strip(), glob))
    return found


def check_patterns(patterns: Sequence[Pattern], runs: Sequence[Run]) -> None:
    """Refuse a pattern that matches nothing, and a run that two patterns match.

    Raises:
        InputError: for either.
    """
    for pattern in patterns:
        if not any(map(pattern.matches, runs)):
            there = ", ".join(dict.fromkeys(run.model for run in runs))
            raise InputError(f"{pattern} matches no model and no file; there are: {there}")
    for run in runs:
        matching = [str(pattern) for pattern in patterns if pattern.matches(run)]
        if len(matching) > 1:
            raise InputError(f"{run.model} is matched by {' and by '.join(matching)}")


@dataclass(frozen=True)
class Member:
    """One model in a table, with all of its tasks."""

    label: str
    """No other model of the table has it."""
    runs: tuple[Run, ...]
    name: str
    """What the model is called, by itself or by the user."""

    @property
    def scores(self) -> dict[str, float | None]:
        """The score of each task."""
        return {task: score for run in self.runs for task, score in run.scores.items()}

    def interval(self, task: str, tasks: Sequence[str]) -> tuple[float, float] | None:
        """Return 95 % of what `score` returns, where it is known; the arguments are the same."""
        if task == AVERAGE:
            first = self.runs[0]
            return first.average_interval if first.scores.keys() == set(tasks) else None
        return next((run.intervals[task] for run in self.runs if task in run.intervals), None)

    def score(self, task: str, tasks: Sequence[str]) -> float | None:
        """Return a task's score.

        Args:
            task: its name, or `AVERAGE`: the mean of the scores rounded to two decimals, as papers print it.
            tasks: that an average is of; it is None if one of them is missing.
        """
        scores = self.scores
        if task != AVERAGE:
            return scores.get(task)
        first = self.runs[0]
        if first.average is not None and first.scores.keys() == set(tasks):
            return first.average
        values = [value for name in tasks if (value := scores.get(name)) is not None]
        complete = bool(tasks) and len(values) == len(tasks)
        return round(statistics.fmean(round(value, 2) for value in values), 2) if complete else None


@dataclass(frozen=True)
class System:
    """A row: one model, or several that are seeds of one."""

    label: str
    members: tuple[Member, ...]
    grouped: bool = False

    def values(self, task: str, tasks: Sequence[str]) -> list[float]:
        """Return the score of each member; nothing if one of them lacks it."""
        found = [value for member in self.members if (value := member.score(task, tasks)) is not None]
        return found if len(found) == len(self.members) else []


def spread(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return mean and sample standard deviation; None where there are too few values."""
    return (statistics.fmean(values) if values else None, statistics.stdev(values) if len(values) > 1 else None)


def systems(runs: Sequence[Run], groups: Sequence[Pattern], names: Sequence[Pattern]) -> list[System]:
    """Return the rows of a table.

    Args:
        runs: that share a protocol.
        groups: whose runs are seeds of one system.
        names: labels of models.

    Raises:
        InputError: if the seeds of a system differ in a setting that moves their numbers.
    """
    members = _labelled(_merged(runs, names))
    found: dict[str, System] = {}
    for number, member in enumerate(members):
        pattern = next((pattern for pattern in groups if pattern.matches(member.runs[0])), None)
        if pattern is None:
            found[f"model {number}"] = System(member.label, (member,))
        else:
            before = found.get(f"group {pattern.label}", System(pattern.label, (), grouped=True))
            found[f"group {pattern.label}"] = replace(before, members=(*before.members, member))
    for system in found.values():
        _check_seeds(system)
    return list(found.values())


def _check_seeds(system: System) -> None:
    each = [{**protocols.settings(member.runs[0]), "backend": None} for member in system.members]
    different = protocols.differing(each)
    if any(different):
        raise InputError(
            f"--group {system.label}: its runs are no seeds of one system, they differ in "
            f"{', '.join(dict.fromkeys(key for one in different for key in one))}"
        )


def _merged(runs: Sequence[Run], names: Sequence[Pattern]) -> list[Member]:
    """Put runs of one model together that have different tasks."""
    found: list[Member] = []
    for run in runs:
        label = next((pattern.label for pattern in names if pattern.matches(run)), run.model)
        for i, member in enumerate(found):
            first = member.runs[0]
            same = (first.model, protocols.settings(first), member.label) == (run.model, protocols.settings(run), label)
            if same and not member.scores.keys() & run.scores.keys():
                found[i] = replace(member, runs=(*member.runs, run))
                break
        else:
            found.append(Member(label, (run,), label))
    return found


def _labelled(members: list[Member]) -> list[Member]:
    """Tell models of the same name apart: by their settings, then by their files, then by number."""
    together = {label: [m for m in members if m.label == label] for label in {m.label for m in members}}
    found = []
    for member in members:
        twins = together[member.label]
        each = [protocols.settings(twin.runs[0]) for twin in twins]
        own = protocols.telling(each)[twins.index(member)]
        found.append(replace(member, label=f"{member.label} ({protocols.words(own)})" if own else member.label))
    found = _apart(found, [Path(member.runs[0].source).name for member in found])
    return _apart(found, [str(i) for i, _ in enumerate(found, 1)])


def _apart(members: list[Member], marks: list[str]) -> list[Member]:
    """Add a mark to the labels that stand more than once."""
    times = Counter(member.label for member in members)
    return [
        replace(member, label=f"{member.label} [{mark}]") if times[member.label] > 1 and mark else member
        for member, mark in zip(members, marks, strict=True)
    ]
