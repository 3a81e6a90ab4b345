"""Tables and figures of scores: rows are models, columns tasks and their average, as papers print them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sentcli.evaluation.set_facts import canonical, known_sets
from sentcli.reports import protocols
from sentcli.reports.page import MISSING, Cell, Column, DotPlot, Point, Rank, Row, Series, Table, number, word
from sentcli.reports.published import Print
from sentcli.reports.runs import Run
from sentcli.reports.systems import AVERAGE, System, spread

PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
SHORT = {
    **{"STSBenchmark": "STS-B", "SICKRelatedness": "SICK-R", "SICKEntailment": "SICK-E", AVERAGE: "Avg."},
    **{alias: each.short or each.title for each in known_sets().values() for alias in (each.name, *each.aliases)},
}
"""What papers call a task."""
ORDER = (
    *("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICKRelatedness"),
    *("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC", "SICKEntailment"),
    *known_sets(),
)
"""Of the columns; tasks that papers do not print come last, as they were read."""
SETTINGS_HERE = 6
"""Rows up to which the models' settings stand under the table; those of more are in the details."""


@dataclass(frozen=True)
class Scores:
    """Systems under one protocol."""

    runs: tuple[Run, ...]
    systems: tuple[System, ...]
    printed: tuple[Print, ...]
    title: str
    """Says also what sets the protocol apart from that of another table."""

    @property
    def tasks(self) -> list[str]:
        """The tasks, in the order of the papers."""
        found = list(dict.fromkeys(task for run in self.runs for task in run.scores))
        return sorted(found, key=lambda task: ORDER.index(name) if (name := canonical(task)) in ORDER else len(ORDER))

    @property
    def columns(self) -> list[str]:
        """The tasks, and the average if there is one."""
        tasks = self.tasks
        return [*tasks, AVERAGE] if len(tasks) > 1 and self.runs[0].averaged else tasks


def score_table(scores: Scores) -> Table:
    """Return the table that a paper prints."""
    counted = any(system.grouped for system in scores.systems)
    columns = scores.columns
    rows = _ranked([_measured_row(system, scores, columns) for system in scores.systems])
    rows += [_printed_row(one, columns) for one in scores.printed]
    if counted:
        counts = [str(len(system.members)) for system in scores.systems] + [""] * len(scores.printed)
        rows = [_with_count(row, count) for row, count in zip(rows, counts, strict=True)]
    heads = [Column("model", "word"), *([Column("n")] if counted else []), *(Column(short(task)) for task in columns)]
    whole = any(cell.interval for row in rows for cell in row.cells)
    return Table(
        caption=f"{scores.title}: {protocols.axis(scores.runs[0])}",
        columns=tuple(heads),
        rows=tuple(rows),
        notes=tuple(_notes(scores, any(cell.text == MISSING for row in rows for cell in row.cells))),
        interval_note=_interval_note(scores.runs[0]) if whole else "",
    )


def short(task: str) -> str:
    """Return what papers call a task."""
    return SHORT.get(task, task)


def _measured_row(system: System, scores: Scores, columns: Sequence[str]) -> Row:
    return Row((word(system.label), *(_cell(system, task, scores.tasks) for task in columns)))


def _cell(system: System, task: str, tasks: Sequence[str]) -> Cell:
    mean, sd = spread(system.values(task, tasks))
    cell = number(mean)
    if system.grouped:
        return cell if sd is None else replace(cell, text=f"{cell.text} {PLUS_MINUS} {sd:.2f}")
    return replace(cell, interval=system.members[0].interval(task, tasks))


def _printed_row(one: Print, columns: Sequence[str]) -> Row:
    return Row((word(one.label), *(number(one.score(task)) for task in columns)), printed=True)


def _with_count(row: Row, count: str) -> Row:
    return replace(row, cells=(row.cells[0], Cell(count, float(count) if count else None), *row.cells[1:]))


def _ranked(rows: list[Row]) -> list[Row]:
    """Mark the best and the second best of each column, by the numbers as they are shown; a single row is none."""
    marked = [list(row.cells) for row in rows]
    for column in range(1, len(marked[0])):
        shown = [None if row[column].value is None else round(row[column].value or 0.0, 2) for row in marked]
        order = sorted({value for value in shown if value is not None}, reverse=True)
        if sum(value is not None for value in shown) < 2:
            continue
        marks: tuple[Rank, Rank] = ("best", "second")
        ranks: dict[float, Rank] = dict(zip(order, marks, strict=False))
        for row, value in zip(marked, shown, strict=True):
            row[column] = replace(row[column], rank="" if value is None else ranks.get(value, ""))
    return [replace(row, cells=tuple(cells)) for row, cells in zip(rows, marked, strict=True)]


def _notes(scores: Scores, gaps: bool) -> list[str]:
    """Say under which protocol the numbers are, and what the words of the table mean."""
    notes = [f"Protocol: {protocols.protocol_note(scores.runs[0])}"]
    members = [member for system in scores.systems for member in system.members]
    settings = [protocols.settings(member.runs[0]) for member in members]
    if common := protocols.shared(settings):
        notes.append(f"{'All models' if len(members) > 1 else 'Model'}: {protocols.words(common)}.")
    if len(scores.systems) <= SETTINGS_HERE:
        for system, own in _own_settings(scores.systems):
            notes.append(f"{system.label}: {own}.")
    if AVERAGE in scores.columns:
        rounded = "sets" if scores.runs[0].command == "retrieve" else "tasks, each rounded to two decimals first"
        notes.append(f"Avg.: mean of the {len(scores.tasks)} {rounded}.")
    if any(system.grouped for system in scores.systems):
        notes.append(f"n: seeds of one system, shown as mean {PLUS_MINUS} sample standard deviation.")
    if gaps:
        notes.append(f"{MISSING}: not measured, not by every seed, or not to be compared with print.")
    if scores.printed:
        notes.append("Published rows are taken from print and are not ranked.")
    return notes


def _own_settings(systems: Sequence[System]) -> list[tuple[System, str]]:
    """Return what sets the settings of each system apart, unless its label says it."""
    each = protocols.telling([protocols.settings(system.members[0].runs[0]) for system in systems])
    found = [(system, protocols.words(own)) for system, own in zip(systems, each, strict=True)]
    return [(system, own) for system, own in found if own and not system.label.endswith(f"({own})")]


def _interval_note(run: Run) -> str:
    if run.command == "sts-eval":
        draws = run.protocol.get("interval_draws")
        samples = f"{draws:,} samples" if isinstance(draws, int) and draws else "samples"
        return f"Intervals: 95 %, from {samples} of the pairs; they tell nothing of other seeds."
    if run.command == "retrieve":
        return "Intervals: 95 %, from 1,000 samples of the queries; they tell nothing of other seeds."
    return "Intervals: 95 % (Wilson), over the test examples; they tell nothing of other seeds."


def score_figure(scores: Scores) -> DotPlot | None:
    """Return a figure with a band for each task, or None if no score is known."""
    tasks, columns = scores.tasks, scores.columns
    bands = []
    for task in columns:
        points = [_point(i, system, task, tasks) for i, system in enumerate(scores.systems)]
        printed = [
            Point(i, value, f"{value:.2f}")
            for i, one in enumerate(scores.printed, len(scores.systems))
            if (value := one.score(task)) is not None
        ]
        if found := [*(point for point in points if point is not None), *printed]:
            bands.append((short(task), tuple(found)))
    if not bands:
        return None
    series = [Series(system.label) for system in scores.systems]
    series += [Series(one.label, printed=True) for one in scores.printed]
    return DotPlot(
        title=f"{scores.title}, by task",
        axis=protocols.axis(scores.runs[0]),
        whiskers=_whiskers(scores, [point for _, points in bands for point in points]),
        series=tuple(series),
        bands=tuple(bands),
    )


def _point(i: int, system: System, task: str, tasks: Sequence[str]) -> Point | None:
    values = system.values(task, tasks)
    mean, sd = spread(values)
    if mean is None:
        return None
    ends = (mean - sd, mean + sd) if sd is not None else None
    if not system.grouped:
        ends = system.members[0].interval(task, tasks)
    return Point(i, mean, _cell(system, task, tasks).text, ends, tuple(values) if len(values) > 1 else ())


def _whiskers(scores: Scores, points: Sequence[Point]) -> str:
    grouped = {i for i, system in enumerate(scores.systems) if system.grouped}
    meanings = []
    if any(point.range and point.series not in grouped for point in points):
        meanings.append("95 % interval")
    if any(point.range and point.series in grouped for point in points):
        meanings.append(f"mean {PLUS_MINUS} standard deviation of the seeds, which are the small dots")
    return "; of grouped models ".join(meanings)
