"""Scores from print in a report, and the comparison with them that ``--against`` made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sentcli.errors import DataError
from sentcli.reports.page import MISSING, Cell, Column, Row, Table, between, number, word
from sentcli.reports.runs import Run, ends_of, number_of

WITHIN = {True: "yes", False: "no", None: MISSING}


@dataclass(frozen=True)
class Line:
    """A measured score beside a printed one."""

    task: str
    measured: float | None
    published: float | None
    difference: float | None
    range: tuple[float, float] | None
    within: bool | None
    runs: int


@dataclass(frozen=True)
class Print:
    """What is printed of a system."""

    name: str
    title: str
    source: str
    comparisons: tuple[tuple[str, tuple[Line, ...]], ...] = field(default=())
    """What was measured, and the comparison task by task."""

    @property
    def label(self) -> str:
        """What a row of these scores is called."""
        return f"published: {self.title} ({self.source})" if self.source else f"published: {self.title}"

    def score(self, task: str) -> float | None:
        """Return a printed score, if one was compared with."""
        found = [line.published for _, lines in self.comparisons for line in lines if line.task == task]
        return found[0] if found else None


def printed(runs: Sequence[Run], labels: dict[int, str]) -> list[Print]:
    """Return what the runs were set against.

    Args:
        runs: of one table.
        labels: of each run, by its position.

    Raises:
        DataError: if such a comparison is not as the commands write it.
    """
    found: dict[str, dict[str, tuple[Line, ...]]] = {}
    about: dict[str, tuple[str, str]] = {}
    for i, run in enumerate(runs):
        if run.against is None:
            continue
        name = str(run.against.get("name"))
        about.setdefault(name, _about(name, run.against))
        lines = _lines(run)
        n = max((line.runs for line in lines), default=1)
        what = f"mean of {n} models" if n > 1 else labels[i]
        if n > 1 and lines in found.get(name, {}).values():
            continue  # every model of one run has the same comparison, that of their mean
        found.setdefault(name, {})[_unused(what, found.get(name, {}))] = lines
    return [Print(name, *about[name], tuple(compared.items())) for name, compared in found.items()]


def _unused(what: str, taken: dict[str, Any]) -> str:
    return next(name for i in range(1, len(taken) + 2) if (name := what if i == 1 else f"{what} [{i}]") not in taken)


def _about(name: str, against: dict[str, Any]) -> tuple[str, str]:
    """Return title and source: as the report has them, else as this version knows them."""
    from sentcli.evaluation.published import published

    if "title" in against:
        return str(against["title"]), str(against.get("source", ""))
    known = published().get(name)
    return (known.title, known.source) if known else (name, "")


def _lines(run: Run) -> tuple[Line, ...]:
    tasks = (run.against or {}).get("tasks")
    place = f"{run.source or 'the results'}: against"
    if not isinstance(tasks, dict) or not all(isinstance(one, dict) for one in tasks.values()):
        raise DataError(place, "no comparison by task")
    return tuple(
        Line(
            task=task,
            measured=number_of(one.get("measured"), f"{place} {task}"),
            published=number_of(one.get("published"), f"{place} {task}"),
            difference=number_of(one.get("difference"), f"{place} {task}"),
            range=ends_of(one.get("range"), f"{place} {task}"),
            within=one.get("within") if isinstance(one.get("within"), bool) else None,
            runs=int(number_of(one.get("runs"), f"{place} {task}") or 1),
        )
        for task, one in tasks.items()
    )


def print_table(one: Print, short: dict[str, str]) -> Table:
    """Return measured scores beside the printed ones.

    Args:
        one: what is printed.
        short: what papers call a task.
    """
    rows = [
        Row(
            (
                word(what),
                word(short.get(line.task, line.task)),
                number(line.measured),
                number(line.published),
                number(line.difference, "{:+.2f}"),
                Cell(MISSING) if line.range is None else word(between(line.range)),
                word(WITHIN[line.within]),
            )
        )
        for what, lines in one.comparisons
        for line in lines
    ]
    heads = (Column("measured model", "word"), Column("task", "word"), Column("measured"), Column("published"))
    more = (Column("difference"), Column("range", "word"), Column("within", "word"))
    seeds = any(line.runs > 1 for _, lines in one.comparisons for line in lines)
    means = "where 95 % of further seeds would lie, if they are normally distributed" if seeds else "the 95 % interval"
    note = f"Range: {means}; within: whether the published score lies in it."
    return Table(f"Measured and published: {one.title}", (*heads, *more), tuple(rows), (_source(one), note))


def _source(one: Print) -> str:
    return f"Published: {one.source}." if one.source else f"Published: known as {one.name}; its source is not known."
