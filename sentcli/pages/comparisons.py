"""Tables of differences between models, and between systems that are groups of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isclose
from typing import Any

from sentcli.evaluation import significance
from sentcli.evaluation.scores import AVERAGE
from sentcli.pages import systems
from sentcli.pages.leaders import equal_because, leaders
from sentcli.pages.score_tables import ScoreTable, short
from sentcli.pages.systems import System
from sentcli.table import MINUS, MISSING, Table

SMALLEST_P = 0.001
FLOOR = 2 / (significance.DRAWS + 1)
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
        return {key: value for key, value in entry.items() if key != "reason" or value}


def differences(tables: Sequence[ScoreTable]) -> list[SystemDifference]:
    """Compare each system of each table with the first one there, where there are samples of both."""
    compared = [
        (table, system, column, difference)
        for table in tables
        for system in table.systems[1:]
        for column in table.columns
        if (difference := _difference(system, table.systems[0], column, table.columns)) is not None
    ]
    corrected = iter(significance.holm([d.p for *_, d in compared if d.p is not None]))
    return [SystemDifference(*line, None if line[-1].p is None else next(corrected)) for line in compared]


def verdict(tables: Sequence[ScoreTable]) -> str:
    """Return a sentence that says of each table which system is best and by how much; empty for a single system."""
    leads = [lead for table in tables if (lead := _lead(table)) is not None]
    if not leads:
        return ""
    best = {who for who, _ in leads}
    if len(best) == 1 and len(leads) > 1:
        return f"{best.pop()} everywhere: {'; '.join(text for _, text in leads)}."
    return f"{'; '.join(f'{who} {text}' for who, text in leads)}."


def _lead(table: ScoreTable) -> tuple[str, str] | None:
    """Return who is best by the last column, which is the average if there is one, and the lead in words."""
    column = table.columns[-1]
    leading = leaders(table.systems, column, table.columns, table.format_of(column))
    if leading is None or len(leading.best) + len(leading.others) < 2:
        return None
    where = f"on average over {len(table.tasks)} data sets" if column == AVERAGE else f"on {short(column)}"

    def text(value: float) -> str:
        return format(value, table.format_of(column)).replace("-", MINUS)

    lead = f"{where} ({systems.axis(table.models[0])} {text(leading.value)})"
    if leading.everyone:
        return f"{leading.names} are equal", f"{lead}{equal_because(leading.best)}"
    if len(leading.best) > 1:
        return f"{leading.names} are best and equal", f"{lead}{equal_because(leading.best)}"
    system, other = leading.best[0], leading.others[0]
    who, next_best = f"{system.label} is best", other.spread(column, table.columns)[0]
    assert next_best is not None  # the others have a value
    difference = _difference(system, other, column, table.columns)
    lead += f", {text(leading.value - next_best)} more than {other.label}"
    if difference is None:
        return who, lead
    if difference.low is None or difference.high is None:
        return who, f"{lead}, which may be chance ({difference.reason})"
    doubt = ", which may be chance" if difference.low <= 0 <= difference.high else ""
    lead += f" (95 % {text(difference.low)} to {text(difference.high)}){doubt}"
    items = [task.details.get("items") for scores in table.models for task in scores.tasks if task.task == column]
    if items and (items[0] or FEW_ITEMS) < FEW_ITEMS:
        # a difference of 2.8 standard errors is found with power 0.8, and the interval is 3.92 of them wide
        found = text((1.96 + 0.84) / 3.92 * (difference.high - difference.low))
        lead += f"; with {items[0]} {table.kind.sampled} a difference of {found} is found in four of five cases"
    return who, lead


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
    apart = dict.fromkeys(scores.draws_file for scores in table.models if scores.draws_file)
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
    in_one_table = len(tables) > 1
    title = "Your own data" if in_one_table else tables[0].title
    grouped = any(_has_groups(table) for table in tables)
    rows: list[list[Any]] = []
    texts: dict[tuple[int, int], str] = {}
    for i, line in enumerate(compared):
        table, system, difference = line.table, line.system, line.difference
        first, numbers = table.systems[0], [difference.difference, difference.low, difference.high]
        seeds = [f"{len(system.seeds)}, {len(first.seeds)}"] if grouped else []
        measure = [systems.measure(table.models[0])] if in_one_table else []
        row = [system.label, first.label, *seeds, short(line.column), *measure, *numbers, difference.p, line.corrected]
        texts |= {
            (i, len(row) - 5 + j): format(n, f"+{table.format_of(line.column)}").replace("-", MINUS)
            for j, n in enumerate(numbers)
            if n is not None
        }
        for place, value in enumerate((difference.p, line.corrected), len(row) - 2):
            if value is not None and value < SMALLEST_P:
                texts[i, place] = f"< {SMALLEST_P}"
        rows.append(row)
    sampled = " or ".join(dict.fromkeys(table.kind.sampled for table in tables))
    tested = sum(line.corrected is not None for line in compared)
    notes = [
        f"Means over seeds; the intervals are of other {sampled} and of other seeds."
        if grouped
        else f"On the same samples of the {sampled}; the intervals tell nothing of other seeds.",
        f"p: Student's t; p (Holm): corrected for the {tested} comparisons that have a p.",
    ]
    reasons = dict.fromkeys(line.difference.reason for line in compared)
    notes += [f"{MISSING}: {reason}." for reason in reasons if reason]
    heads = ["system" if grouped else "model", "less", *(["seeds"] if grouped else []), "task"]
    heads += [*(["measure"] if in_one_table else []), "difference", "95 % from", "to", "p", "p (Holm)"]
    title += f": difference of {'mean ' if grouped else ''}scores"
    return Table(title, heads, rows, formats={"p": ".3f", "p (Holm)": ".3f"}, notes=notes, texts=texts)


def _difference(system: System, first: System, column: str, columns: list[str]) -> significance.GroupDifference | None:
    """Compare two systems; two single models as they are, and a single run of ``train`` with no group of seeds."""
    draws, others = system.samples(column, columns), first.samples(column, columns)
    if draws is None or others is None or draws.shape[1] != others.shape[1]:
        return None
    fixed = (system.fixed, first.fixed) if system.grouped or first.grouped else (True, True)
    scores = system.values(column, columns), first.values(column, columns)
    difference = significance.compare_seeds(*scores, draws, others, fixed)
    if difference.p is not None:
        return difference
    reasons = [f"{one.label} {one.alone}" for one in (system, first) if one.alone]
    return replace(difference, reason=f"{' and '.join(reasons)}, so how far other seeds lie from it is not known")


def _of_runs(table: ScoreTable) -> Table | None:
    """Return the differences of models from the first one of their run, or None if nothing was compared."""
    rows: list[list[Any]] = []
    texts: dict[tuple[int, int], str] = {}
    mcnemar = False
    for scores in table.models:
        name = str(scores.compared.get("with"))
        same_file = (other for other in table.models if other.model == name and other.source == scores.source)
        first = next((other.label for other in same_file if not other.compared), name)
        tasks = {task: line for task, line in scores.compared.get("tasks", {}).items() if task in table.columns}
        for task, line in tasks.items():
            mcnemar = mcnemar or "only_first" in line
            keys = ("only_first", "only_second") if "only_first" in line else ("low", "high")
            more = [line[key] for key in keys]
            if not mcnemar and isclose(line["p"] or 1, FLOOR, rel_tol=1e-6):
                texts[len(rows), 6] = f"\N{LESS-THAN OR EQUAL TO} {FLOOR:.3f}"
            elif (line["p"] or 1) < SMALLEST_P:
                texts[len(rows), 6] = f"< {SMALLEST_P}"
            rows.append([scores.label, first, short(task), line["difference"], *more, line["p"]])
    if not rows:
        return None
    heads = ("only this right", "only the other right") if mcnemar else ("95 % from", "to")
    test = "McNemar's exact test" if mcnemar else f"paired bootstrap of the {table.kind.sampled}"
    note = f"p: {test}. Of {len(rows)} comparisons, one in twenty falls below 0.05 by chance."
    signed = dict.fromkeys(("difference", *(() if mcnemar else heads)), f"+{table.finest}")
    title, notes = f"{table.title}: difference of scores", [note if len(rows) > 1 else f"p: {test}."]
    columns = ["model", "less", "task", "difference", *heads, "p"]
    return Table(title, columns, rows, formats={**signed, "p": ".3f"}, notes=notes, texts=texts)
