"""Tables of differences between models, and between systems that are groups of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isclose
from typing import Any

from sentcli.evaluation import significance
from sentcli.evaluation.scores import AVERAGE, ModelScores
from sentcli.pages import protocols
from sentcli.pages.leaders import equal_because, leaders
from sentcli.pages.score_tables import ScoreTable, short
from sentcli.pages.systems import System
from sentcli.table import MINUS, MISSING, Table

SMALLEST_P = 0.001
FLOOR = 2 / (significance.RESAMPLES + 1)
"""What a bootstrap says of p where all samples agree: it is no larger."""
FEW_ITEMS = 50
"""With fewer queries, pairs or texts the verdict says which difference they would show."""


def comparison_table(table: ScoreTable) -> Table | None:
    """Return the differences of models or systems, or None if nothing was compared.

    Models are compared with the first one of their run, as the command did; where there are groups of seeds, systems
    are compared with the first system of the table. Tables of one's own data have one comparison, `own_comparison`.
    """
    if table.is_own:
        return None
    return _of_systems([table]) if _has_groups(table) else _of_runs(table)


def own_comparison(tables: Sequence[ScoreTable]) -> Table | None:
    """Return the differences of systems on all of one's own data, or None if there are none."""
    return _of_systems([table for table in tables if table.is_own])


@dataclass(frozen=True)
class SystemDifference:
    """The score of a system minus that of the first system of its table."""

    table: ScoreTable
    system: System
    column: str
    """A task, or ``average``."""
    difference: significance.GroupDifference
    corrected: float | None
    """The p value, corrected for all differences of the tables that have one (Holm)."""

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of the JSON, with the reason if there is no p value."""
        entry = {**vars(self.difference), "p_holm": self.corrected}
        if not entry["reason"]:
            del entry["reason"]
        return entry


def differences(tables: Sequence[ScoreTable]) -> list[SystemDifference]:
    """Compare each system of each table with the first one there, where there are samples of both."""
    compared = []
    for table in tables:
        first, *others = table.systems
        for system in others:
            for column in table.columns:
                difference = _difference(system, first, column, table.columns)
                if difference is not None:
                    compared.append(SystemDifference(table, system, column, difference, None))
    p_values = [line.difference.p for line in compared if line.difference.p is not None]
    corrected = iter(significance.holm(p_values))
    for number, line in enumerate(compared):
        if line.difference.p is not None:
            compared[number] = replace(line, corrected=next(corrected))
    return compared


def verdict(tables: Sequence[ScoreTable]) -> str:
    """Return a sentence that says of each table which system is best and by how much; empty for a single system."""
    leads = [lead for lead in map(_lead, tables) if lead is not None]
    if not leads:
        return ""
    first_best, _ = leads[0]
    if len(leads) > 1 and all(best == first_best for best, _ in leads):
        return f"{first_best} everywhere: {'; '.join(text for _, text in leads)}."
    return f"{'; '.join(f'{best} {text}' for best, text in leads)}."


def _lead(table: ScoreTable) -> tuple[str, str] | None:
    """Return who is best by the last column, which is the average if there is one, and the lead in words."""
    column = table.columns[-1]
    leading = leaders(table.systems, column, table.columns, table.format_of(column))
    if leading is None or len(leading.best) + len(leading.others) < 2:
        return None
    where = f"on average over {len(table.tasks)} data sets" if column == AVERAGE else f"on {short(column)}"
    value = _in_words(leading.value, table, column)
    lead = f"{where} ({protocols.axis(table.models[0])} {value})"
    if leading.all_equal:
        return f"{leading.names} are equal", f"{lead}{equal_because(leading.best)}"
    if len(leading.best) > 1:
        return f"{leading.names} are best and equal", f"{lead}{equal_because(leading.best)}"
    system, other = leading.best[0], leading.others[0]
    next_best, _ = other.mean_and_deviation(column, table.columns)
    assert next_best is not None  # the others have a value
    more = _in_words(leading.value - next_best, table, column)
    lead += f", {more} more than {other.label}"
    return f"{system.label} is best", lead + _how_sure(table, system, other, column)


def _in_words(value: float, table: ScoreTable, column: str) -> str:
    """Return a value in the format of a column of a table."""
    return format(value, table.format_of(column)).replace("-", MINUS)


def _how_sure(table: ScoreTable, first: System, second: System, column: str) -> str:
    """Return the interval of a difference in words, and what so few items would show; empty without samples."""
    difference = _difference(first, second, column, table.columns)
    if difference is None:
        return ""
    if difference.low is None or difference.high is None:
        return f", which may be chance ({difference.reason})"
    low, high = _in_words(difference.low, table, column), _in_words(difference.high, table, column)
    words = f" (95 % {low} to {high})"
    if difference.low <= 0 <= difference.high:
        words += ", which may be chance"
    items = _items(table, column)
    if items is not None and items < FEW_ITEMS:
        # a difference of 2.8 standard errors is found with power 0.8, and the interval is 3.92 of them wide
        least = _in_words((1.96 + 0.84) / 3.92 * (difference.high - difference.low), table, column)
        words += f"; with {items} {table.kind.sampled} a difference of {least} is found in four of five cases"
    return words


def _items(table: ScoreTable, column: str) -> int | None:
    """Return the number of items of a task; None if it is not known, or the column is no task."""
    for scores in table.models:
        for task in scores.tasks:
            if task.task == column:
                return task.details.get("items") or None
    return None


def may_be_chance(table: ScoreTable, first: System, second: System, column: str) -> bool:
    """Tell whether the samples do not show that the first system is better; False where there are none."""
    difference = _difference(first, second, column, table.columns)
    if difference is None:
        return False
    return difference.low is None or difference.high is None or difference.low <= 0 <= difference.high


def not_compared(table: ScoreTable) -> list[str]:
    """Return a sentence on the systems that lack samples for their comparison, if there are any."""
    columns = table.columns
    lacking = []
    for system in table.systems:
        if all(system.samples(column, columns) is None for column in columns):
            lacking.append(system.label)
    if not lacking or len(table.systems) == 1:
        return []
    apart = dict.fromkeys(scores.replicates_file for scores in table.models if scores.replicates_file)
    if apart:
        why = f"Their samples (draws) are in {', '.join(apart)}; score again without --draws."
    elif table.grouped:
        why = (
            "The files hold no samples (draws), because an earlier version wrote them or intervals were left out; "
            "score again."
        )
    else:
        return []
    return [f"Not compared: {', '.join(lacking)}. {why}"]


def _has_groups(table: ScoreTable) -> bool:
    return len(table.systems) > 1 and table.grouped


def _of_systems(tables: Sequence[ScoreTable]) -> Table | None:
    """Return the differences of systems from the first one of their table, or None if none can be compared."""
    compared = differences(tables)
    if not compared:
        return None
    of_own_data = len(tables) > 1
    grouped = any(_has_groups(table) for table in tables)
    rows: list[dict[str, Any]] = []
    texts: dict[tuple[int, int], str] = {}
    for line in compared:
        first, difference = line.table.systems[0], line.difference
        row: dict[str, Any] = {"system" if grouped else "model": line.system.label, "less": first.label}
        if grouped:
            row["seeds"] = f"{len(line.system.seeds)}, {len(first.seeds)}"
        row["task"] = short(line.column)
        if of_own_data:
            row["measure"] = protocols.measure(line.table.models[0])
        numbers = {"difference": difference.difference, "95 % from": difference.low, "to": difference.high}
        for place, value in enumerate(numbers.values(), len(row)):
            if value is not None:
                pattern = f"+{line.table.format_of(line.column)}"
                texts[len(rows), place] = format(value, pattern).replace("-", MINUS)
        row |= numbers
        for name, p in {"p": difference.p, "p (Holm)": line.corrected}.items():
            if p is not None and p < SMALLEST_P:
                texts[len(rows), len(row)] = f"< {SMALLEST_P}"
            row[name] = p
        rows.append(row)
    title = "Your own data" if of_own_data else tables[0].title
    title += ": difference of mean scores" if grouped else ": difference of scores"
    formats = {"p": ".3f", "p (Holm)": ".3f"}
    return Table.of_rows(title, rows, formats=formats, notes=_notes(tables, compared, grouped=grouped), texts=texts)


def _notes(tables: Sequence[ScoreTable], compared: Sequence[SystemDifference], *, grouped: bool) -> list[str]:
    """Return what intervals and p values are of, and why some differences have none."""
    sampled = " or ".join(dict.fromkeys(table.kind.sampled for table in tables))
    if grouped:
        notes = [f"Means over seeds; the intervals are of other {sampled} and of other seeds."]
    else:
        notes = [f"On the same samples of the {sampled}; the intervals tell nothing of other seeds."]
    tested = [line for line in compared if line.corrected is not None]
    notes.append(f"p: Student's t; p (Holm): corrected for the {len(tested)} comparisons that have a p.")
    reasons = dict.fromkeys(line.difference.reason for line in compared if line.difference.reason)
    return notes + [f"{MISSING}: {reason}." for reason in reasons]


def _difference(system: System, first: System, column: str, columns: list[str]) -> significance.GroupDifference | None:
    """Compare two systems; two single models as they are, and a single run of ``train`` with no group of seeds."""
    draws, others = system.samples(column, columns), first.samples(column, columns)
    if draws is None or others is None or draws.shape[1] != others.shape[1]:
        return None
    fixed = (True, True)
    if system.grouped or first.grouped:
        fixed = (system.fixed, first.fixed)
    values, other_values = system.values(column, columns), first.values(column, columns)
    difference = significance.compare_seeds(values, other_values, draws, others, fixed)
    if difference.p is not None:
        return difference
    reasons = [f"{one.label} {one.single_run_caveat}" for one in (system, first) if one.single_run_caveat]
    return replace(difference, reason=f"{' and '.join(reasons)}, so how far other seeds lie from it is not known")


def _of_runs(table: ScoreTable) -> Table | None:
    """Return the differences of models from the first one of their run, or None if nothing was compared."""
    rows: list[list[Any]] = []
    texts = {}
    mcnemar = False
    for scores in table.models:
        first = _compared_with(scores, table)
        for task, line in scores.compared.get("tasks", {}).items():
            if task not in table.columns:
                continue
            p = line["p"] or 1
            if "only_first" in line:
                mcnemar = True
                more = [line["only_first"], line["only_second"]]
            else:
                more = [line["low"], line["high"]]
            if not mcnemar and isclose(p, FLOOR, rel_tol=1e-6):
                texts[len(rows), 6] = f"\N{LESS-THAN OR EQUAL TO} {FLOOR:.3f}"
            elif p < SMALLEST_P:
                texts[len(rows), 6] = f"< {SMALLEST_P}"
            rows.append([scores.label, first, short(task), line["difference"], *more, line["p"]])
    if not rows:
        return None
    signed = f"+{table.finest}"
    formats = {"difference": signed, "p": ".3f"}
    if mcnemar:
        heads, test = ("only this right", "only the other right"), "McNemar's exact test"
    else:
        heads, test = ("95 % from", "to"), f"paired bootstrap of the {table.kind.sampled}"
        formats |= dict.fromkeys(heads, signed)
    note = f"p: {test}."
    if len(rows) > 1:
        note += f" Of {len(rows)} comparisons, one in twenty falls below 0.05 by chance."
    columns = ["model", "less", "task", "difference", *heads, "p"]
    return Table(f"{table.title}: difference of scores", columns, rows, formats=formats, notes=[note], texts=texts)


def _compared_with(scores: ModelScores, table: ScoreTable) -> str:
    """Return the label of the model that the scores of another one were compared with."""
    name = str(scores.compared.get("with"))
    for other in table.models:
        if other.model == name and other.source == scores.source and not other.compared:
            return other.label
    return name
