"""Tables of differences between models, and between systems that are groups of seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import isclose
from typing import Any

from sentcli.evaluation import significance
from sentcli.evaluation.scores import AVERAGE, ModelScores
from sentcli.pages.leaders import leaders
from sentcli.pages.protocols import measure
from sentcli.pages.score_tables import ScoreTable, short
from sentcli.pages.systems import System
from sentcli.pages.weights import equal_because
from sentcli.table import MINUS, MISSING, Table

SMALLEST_P = 0.001
FLOOR = 2 / (significance.RESAMPLES + 1)
"""The smallest p that a bootstrap can give: where all samples agree, p is at most this."""
FEW_ITEMS = 50
"""With fewer queries, pairs or texts the verdict says which difference they would show."""


def comparison_table(table: ScoreTable) -> Table | None:
    """Return the differences of models or systems, or None if nothing was compared.

    Models are compared with the first one of their run, as the command did; where there are groups of seeds, systems
    are compared with the first system of the table. Tables of one's own data have one comparison, `own_comparison`.
    """
    if table.is_own:
        return None
    if _has_groups(table):
        return _of_systems([table])
    return _of_runs(table)


def own_comparison(tables: Sequence[ScoreTable]) -> Table | None:
    """Return the differences of systems on all tables of one's own data, or None if there are none."""
    return _of_systems(tables)


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
    compared: list[SystemDifference] = []
    tested = []  # the numbers of those that have a p value
    p_values = []
    for table in tables:
        first, *others = table.systems
        for system, column in product(others, table.columns):
            difference = _difference(system, first, column)
            if difference is None:
                continue
            if difference.p is not None:
                tested.append(len(compared))
                p_values.append(difference.p)
            compared.append(SystemDifference(table, system, column, difference, None))
    for number, corrected in zip(tested, significance.holm(p_values), strict=True):
        compared[number] = replace(compared[number], corrected=corrected)
    return compared


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
    where = f"on {short(column)}"
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
    difference = _difference(first, second, column)
    if difference is None:
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
    items = first.items(column)
    if column != AVERAGE and items is not None and items < FEW_ITEMS:
        # a difference of 2.8 standard errors is found with power 0.8, and the interval is 3.92 of them wide
        least = _in_words((1.96 + 0.84) / 3.92 * (high - low), table, column)
        words += f"; with {items} {table.kind.sampled} a difference of {least} is found in four of five cases"
    return words


def may_be_chance(first: System, second: System, column: str) -> bool:
    """Tell whether the samples do not show that the first system is better; False where there are none."""
    difference = _difference(first, second, column)
    if difference is None:
        return False
    low = difference.low
    high = difference.high
    return low is None or high is None or low <= 0 <= high


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


def _has_groups(table: ScoreTable) -> bool:
    return len(table.systems) > 1 and table.grouped


def _of_systems(tables: Sequence[ScoreTable]) -> Table | None:
    """Return the differences of systems from the first one of their table, or None if none can be compared."""
    compared = differences(tables)
    if not compared:
        return None
    of_own_data = len(tables) > 1
    grouped = any(map(_has_groups, tables))
    rows: list[dict[str, Any]] = []
    texts: dict[tuple[int, int], str] = {}
    for line in compared:
        table = line.table
        system = line.system
        column = line.column
        first = table.systems[0]
        difference = line.difference
        row: dict[str, Any] = {"system" if grouped else "model": system.label, "less": first.label}
        if grouped:
            row["seeds"] = f"{len(system.seeds)}, {len(first.seeds)}"
        row["task"] = short(column)
        if of_own_data:
            row["measure"] = measure(table.models[0])
        pattern = f"+{table.format_of(column)}"
        numbers = {"difference": difference.difference, "95 % from": difference.low, "to": difference.high}
        p_values = {"p": difference.p, "p (Holm)": line.corrected}
        for name, value in numbers.items():
            if value is not None:
                texts[len(rows), len(row)] = format(value, pattern).replace("-", MINUS)
            row[name] = value
        for name, p in p_values.items():
            if p is not None and p < SMALLEST_P:
                texts[len(rows), len(row)] = f"< {SMALLEST_P}"
            row[name] = p
        rows.append(row)
    title = "Your own data" if of_own_data else tables[0].title
    title += ": difference of mean scores" if grouped else ": difference of scores"
    formats = {"p": ".3f", "p (Holm)": ".3f"}
    notes = _notes(tables, compared, grouped=grouped)
    return Table.of_rows(title, rows, formats=formats, notes=notes, texts=texts)


def _notes(tables: Sequence[ScoreTable], compared: Sequence[SystemDifference], *, grouped: bool) -> list[str]:
    """Return what intervals and p values are of, and why some differences have none."""
    sampled = " or ".join(dict.fromkeys(table.kind.sampled for table in tables))
    if grouped:
        notes = [f"Means over seeds; the intervals are of other {sampled} and of other seeds."]
    else:
        notes = [f"On the same samples of the {sampled}; the intervals tell nothing of other seeds."]
    tested = 0
    reasons: dict[str, None] = {}
    for line in compared:
        if line.corrected is not None:
            tested += 1
        reason = line.difference.reason
        if reason:
            reasons[f"{MISSING}: {reason}."] = None
    notes.append(f"p: Student's t; p (Holm): corrected for the {tested} comparisons that have a p.")
    return [*notes, *reasons]


def _difference(system: System, first: System, column: str) -> significance.GroupDifference | None:
    """Compare two systems; two single models as they are, and a single run of ``train`` with no group of seeds."""
    draws = system.samples(column)
    others = first.samples(column)
    if draws is None or others is None or draws.shape[1] != others.shape[1]:
        return None
    fixed = (True, True)
    if system.grouped or first.grouped:
        fixed = (system.fixed, first.fixed)
    values = system.values(column)
    other_values = first.values(column)
    items = system.items(column)
    if items is None:
        apart = statistics.fmean(values) - statistics.fmean(other_values)
        return significance.GroupDifference(apart, reason="the number of items that were sampled is not known")
    difference = significance.compare_seeds(values, other_values, draws, others, items, fixed)
    if difference.p is not None:
        return difference
    reasons = []
    for single in (system, first):
        caveat = single.single_run_caveat
        if caveat:
            reasons.append(f"{single.label} {caveat}")
    reason = f"{' and '.join(reasons)}, so how far other seeds lie from it is not known"
    return replace(difference, reason=reason)


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
            columns = ("low", "high")
            if "only_first" in line:
                mcnemar = True
                columns = ("only_first", "only_second")
            if not mcnemar and isclose(p, FLOOR, rel_tol=1e-6):
                texts[len(rows), 6] = f"\N{LESS-THAN OR EQUAL TO} {FLOOR:.3f}"
            elif p < SMALLEST_P:
                texts[len(rows), 6] = f"< {SMALLEST_P}"
            numbers = map(line.get, ("difference", *columns, "p"))
            rows.append([scores.label, first, short(task), *numbers])
    if not rows:
        return None
    signed = f"+{table.finest}"
    formats = {"difference": signed, "p": ".3f"}
    if mcnemar:
        heads = ("only this right", "only the other right")
        note = "p: McNemar's exact test."
    else:
        heads = ("95 % from", "to")
        note = f"p: paired bootstrap of the {table.kind.sampled}."
        formats |= dict.fromkeys(heads, signed)
    if len(rows) > 1:
        note += f" Of {len(rows)} comparisons, one in twenty falls below 0.05 by chance."
    all_heads = ["model", "less", "task", "difference", *heads, "p"]
    return Table(f"{table.title}: difference of scores", all_heads, rows, formats=formats, notes=[note], texts=texts)


def _compared_with(scores: ModelScores, table: ScoreTable) -> str:
    """Return the label of the model that the scores of another one were compared with."""
    name = str(scores.compared.get("with"))
    for other in table.models:
        if other.model == name and other.source == scores.source and not other.compared:
            return other.label
    return name
