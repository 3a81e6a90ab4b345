"""Differences between models, and between groups of seeds: their table, their JSON, and who is best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from sentcli.evaluation import significance
from sentcli.evaluation.differences import LEVEL, Difference
from sentcli.evaluation.scores import AVERAGE, ModelScores
from sentcli.evaluation.systems import System
from sentcli.pages.leaders import leaders
from sentcli.pages.protocols import measure_name
from sentcli.pages.score_tables import ScoreTable, short_task
from sentcli.pages.weights import equal_because
from sentcli.table import MINUS, MISSING, Table

SMALLEST_P = 0.001
P_VALUES = ("p", "p (Holm)")
SIGNED = ("difference", "95 % from", "to")
FEW_SEEDS = 5
"""With fewer seeds a comparison says that their spread is hardly known."""
FEW_ITEMS = 50
"""With fewer queries, pairs or texts the verdict says which difference they would show."""


@dataclass(frozen=True)
class SystemDifference:
    """The score of a system minus that of the one that it is compared with."""

    table: ScoreTable
    system: System
    first: System | None
    """The other system; None if it is in no table, and the difference is what a file says."""
    less: str
    """The label of the other system."""
    column: str
    """A task, or ``average``."""
    difference: Difference

    @property
    def seeds(self) -> str | None:
        """The numbers of seeds of both, where one of them is a group of seeds."""
        if self.first is None or not (self.system.grouped or self.first.grouped):
            return None
        return f"{len(self.system.seeds)}, {len(self.first.seeds)}"


@dataclass(frozen=True)
class Differences:
    """The differences of the systems of some tables, whose p values are corrected together (Holm)."""

    lines: tuple[SystemDifference, ...]

    @classmethod
    def of(cls, tables: Sequence[ScoreTable]) -> Differences:
        """Compare each system with the first one: that of the first table if it has the same tasks, else of its own.

        Of two models of one command a file says what the command found.

        Args:
            tables: of one's own data, or of one kind of scores of one command.
        """
        lines = []
        for table in tables:
            for system, column in product(table.systems, table.columns):
                line = _compared(table, system, column, tables[0].systems[0])
                if line is not None:
                    lines.append(line)
        differences = significance.corrected([line.difference for line in lines])
        for number, difference in enumerate(differences):
            lines[number] = replace(lines[number], difference=difference)
        return cls(tuple(lines))

    def entries(self) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Yield the number of each model that was compared, with what, and the entry of the JSON by task."""
        for line in self.lines:
            title = line.column
            if title == AVERAGE and line.table.is_own:
                title = line.table.kind.title
            name = line.less
            if line.first is not None and not line.first.grouped:
                name = line.first.seeds[0].model
            for scores in line.system.seeds:
                yield scores.number, name, {title: line.difference.entry}

    def table(self, *, narrow: bool = False) -> Table:
        """Return the table of the differences, of which there is one at least.

        Args:
            narrow: the system that all others are compared with stands in the title, and not in a column.
        """
        rows = list(map(self._row, self.lines))
        texts = {}
        for number, (row, line) in enumerate(zip(rows, self.lines, strict=True)):
            pattern = line.table.format_of(line.column)
            for head, value in row.items():
                text = _number_text(head, value, pattern)
                if text:
                    texts[number, head] = text
        title = "Your own data" if self.is_own else self.lines[0].table.title
        title += ": difference of mean scores" if self.grouped else ": difference of scores"
        firsts = {line.less for line in self.lines}
        if narrow and len(firsts) == 1:
            title += f" from {firsts.pop()}"
            for row in rows:
                row["less"] = None
        optional = [head for head in rows[0] if head != "p"]
        formats = dict.fromkeys(P_VALUES, ".3f")
        return Table.of_rows(title, rows, optional=optional, texts=texts, formats=formats, notes=self._notes())

    def _row(self, line: SystemDifference) -> dict[str, Any]:
        """Return the cells of a difference by the heads of their columns."""
        difference = line.difference
        return {
            "system" if self.grouped else "model": line.system.label,
            "less": line.less,
            "seeds": line.seeds,
            "task": short_task(line.column),
            "measure": measure_name(line.table.models[0]) if self.is_own else None,
            "difference": difference.difference,
            "95 % from": difference.low,
            "to": difference.high,
            "only this right": difference.only_first,
            "only the other right": difference.only_second,
            "p": difference.p,
            "p (Holm)": difference.p_holm if self.tested > 1 else None,
            "smallest": difference.smallest,
            "seeds needed": difference.seeds_needed,
        }

    @property
    def is_own(self) -> bool:
        """Whether the scores are of the user's own data."""
        return self.lines[0].table.is_own

    @property
    def grouped(self) -> bool:
        """Whether a group of seeds is compared."""
        return any(line.seeds for line in self.lines)

    @property
    def tested(self) -> int:
        """The number of differences that have a p value."""
        return sum(line.difference.p is not None for line in self.lines)

    def _notes(self) -> list[str]:
        """Return what intervals and p values are of, what they do not tell, and why some differences have none."""
        kinds: dict[str, None] = {}
        tests: dict[str, None] = {}
        reasons: dict[str, None] = {}
        seeds = []  # of each group
        has_smallest = False
        needed = False
        for line in self.lines:
            difference = line.difference
            kinds[line.table.kind.sampled] = None
            tests["Student's t" if difference.only_first is None else "McNemar's exact test"] = None
            has_smallest = has_smallest or difference.smallest is not None
            needed = needed or difference.seeds_needed is not None
            if difference.reason:
                reasons[f"{MISSING}: {difference.reason}."] = None
            if line.first is not None:
                seeds += [len(system.seeds) for system in (line.system, line.first) if system.grouped]
        sampled = " or ".join(kinds)
        p = f"p: {' or '.join(tests)}, over the {sampled}"
        if self.tested > 1:
            p += f"; p (Holm): corrected for the {self.tested} comparisons that have a p"
        notes = [f"{p}."]
        if has_smallest:
            notes.append("Smallest: the smallest difference that would have been shown in four of five cases.")
        if seeds:
            notes.append(f"Means over seeds; the intervals are of other {sampled} and of other seeds.")
            if min(seeds) < FEW_SEEDS:
                notes.append(f"With {min(seeds)} seeds, how far seeds lie from each other is itself hardly known.")
        elif any(line.system.single_run_caveat for line in self.lines):
            notes.append("Of other seeds it tells nothing: a trained run is one of many that there might be.")
        if needed:
            notes.append(
                f"Seeds needed: of the smaller group, to show the difference that was seen; {MISSING}: no number of "
                "seeds would on these items."
            )
        return [*notes, *reasons]


def comparisons(tables: Sequence[ScoreTable]) -> list[Differences]:
    """Return the comparisons of the systems of tables: one for all of one's own data, and one for each other table.

    Tables of one command and kind, whose models differ in the protocol, have one together.
    """
    families: dict[Any, list[ScoreTable]] = {}
    for table in tables:
        first = table.models[0]
        key: Any = "own data"
        if not table.is_own:
            key = (first.command, first.source, table.kind.name)
        families.setdefault(key, []).append(table)
    return list(map(Differences.of, families.values()))


def _compared(table: ScoreTable, system: System, column: str, first: System) -> SystemDifference | None:
    """Compare a system with the first one of all tables, or else of its own; None if that cannot be done."""
    same_kind = first.seeds[0].kinds == system.seeds[0].kinds
    if not (same_kind and first.tasks == system.tasks):
        first = table.systems[0]
    (scores, *others) = system.seeds
    stated = scores.compared.get("tasks", {}).get(column)
    if stated is not None and not (others or system.grouped or first.grouped):
        found = Difference.of_entry(stated)
        return SystemDifference(table, system, None, _compared_with(scores, table), column, found)
    if system is first:
        return None
    difference = system.compare(first, column)
    if difference is None:
        return None
    return SystemDifference(table, system, first, first.label, column, difference)


def _number_text(head: str, value: Any, pattern: str) -> str:
    """Return what a cell shows of a number; empty where the format of its column does."""
    if head in P_VALUES and value is not None and value < SMALLEST_P:
        return f"< {SMALLEST_P}"
    if value is None or head not in (*SIGNED, "smallest"):
        return ""
    if head in SIGNED:
        pattern = f"+{pattern}"
    return format(value, pattern).replace("-", MINUS)


def verdict(tables: Sequence[ScoreTable]) -> str:
    """Return a sentence that says of each table which system is best and by how much; empty for a single system."""
    bests = []
    leads = []
    sentences = []
    for table in tables:
        best_and_lead = _lead(table)
        if best_and_lead is not None:
            best, lead = best_and_lead
            bests.append(best)
            leads.append(lead)
            sentences.append(f"{best} {lead}")
    if not leads:
        return ""
    if len(leads) > 1 and len(set(bests)) == 1:
        return f"{bests[0]} everywhere: {'; '.join(leads)}."
    return f"{'; '.join(sentences)}."


def _lead(table: ScoreTable) -> tuple[str, str] | None:
    """Return who is best by the last column, which is the average if there is one, and the lead in words."""
    leading = leaders(table)
    if leading is None:
        return None
    best = leading.best
    others = leading.others
    if len(best) + len(others) < 2:
        return None
    column = table.columns[-1]
    where = f"on {short_task(column)}"
    if column == AVERAGE:
        where = f"on average over {len(table.tasks)} data sets"
    score = _in_words(leading.value, table, column)
    lead = f"{where} ({table.axis} {score})"
    if len(best) > 1:
        equal = "are equal" if leading.all_equal else "are best and equal"
        return f"{leading.names} {equal}", lead + equal_because(best)
    system = best[0]
    other = others[0]
    next_best, _ = other.mean_and_deviation(column)
    assert next_best is not None  # the others have a value
    more = _in_words(leading.value - next_best, table, column)
    lead += f", {more} more than {other.label}"
    return f"{system.label} is best", lead + _how_sure(table, system, other, column)


def _in_words(value: float, table: ScoreTable, column: str) -> str:
    """Return a value in the format of a column of a table."""
    return format(value, table.format_of(column)).replace("-", MINUS)


def _how_sure(table: ScoreTable, first: System, second: System, column: str) -> str:
    """Return the interval of a difference in words, and what so few items would show; empty without samples."""
    difference = first.compare(second, column)
    if difference is None or difference.only_first is not None:
        return ""
    low = difference.low
    high = difference.high
    if low is None or high is None:
        return f", which may be chance ({difference.reason})"
    low_words = _in_words(low, table, column)
    high_words = _in_words(high, table, column)
    words = f" (95 % {low_words} to {high_words})"
    if low <= 0 <= high:
        words += ", which may be chance"
    items = first.items(column) or FEW_ITEMS
    smallest = difference.smallest
    if column != AVERAGE and items < FEW_ITEMS and smallest is not None:
        least = _in_words(smallest, table, column)
        words += f"; with {items} {table.kind.sampled} a difference of {least} is found in four of five cases"
    return words


def reservation(first: System, second: System, column: str) -> str:
    """Return what keeps a reader from calling the first system better, in words; empty if it is, or without samples."""
    difference = first.compare(second, column)
    if difference is None:
        return ""
    if difference.p is None:
        return f"which was not compared with {second.label}: {difference.reason}"
    if difference.p > 1 - LEVEL:
        return f"which is not told apart from {second.label}"
    return ""


def not_compared(table: ScoreTable) -> list[str]:
    """Return a sentence on the systems that lack samples for their comparison, if there are any."""
    columns = table.columns
    lacking = []
    for system in table.systems:
        if all(system.samples(column) is None for column in columns):
            lacking.append(system.label)
    if not lacking or len(table.systems) == 1:
        return []
    files = dict.fromkeys(scores.replicates_file for scores in table.models if scores.replicates_file)
    if files:
        why = f"Their samples (draws) are in {', '.join(files)}; score again without --draws."
    elif table.grouped:
        why = (
            "The files hold no samples (draws), because an earlier version wrote them or intervals were left out; "
            "score again."
        )
    else:
        return []
    return [f"Not compared: {', '.join(lacking)}. {why}"]


def _compared_with(scores: ModelScores, table: ScoreTable) -> str:
    """Return the label of the model that the scores of another one were compared with."""
    name = str(scores.compared.get("with"))
    for other in table.models:
        if other.model == name and other.source == scores.source and not other.compared:
            return other.label
    return name
