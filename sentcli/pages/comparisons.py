"""Tables of differences between models, and between systems that are groups of seeds."""

from __future__ import annotations

from typing import Any

from sentcli.evaluation import significance
from sentcli.evaluation.scores import ModelScores
from sentcli.pages.score_tables import ScoreTable, short
from sentcli.pages.systems import System
from sentcli.table import Table

SMALLEST_P = 0.001


def comparison_table(table: ScoreTable) -> Table | None:
    """Return the differences of models or systems, or None if nothing was compared.

    Models are compared with the first one of their run, as the command did; where there are groups of seeds, systems
    are compared with the first system of the table.
    """
    return _of_systems(table) if _has_groups(table) else _of_runs(table)


def not_compared(table: ScoreTable) -> list[str]:
    """Return a sentence on the systems that lack samples for their comparison, if there are any."""
    columns = table.columns
    lacking = [s.label for s in table.systems if not any(s.samples(c, columns) is not None for c in columns)]
    if not (lacking and _has_groups(table)):
        return []
    return [
        f"Not compared: {', '.join(lacking)}. The files hold no samples (draws), because an earlier version wrote them "
        "or intervals were left out; score again."
    ]


def _has_groups(table: ScoreTable) -> bool:
    return len(table.systems) > 1 and any(system.grouped for system in table.systems)


def _of_systems(table: ScoreTable) -> Table | None:
    """Return the differences of systems from the first one, or None if none of them can be compared."""
    first, *others = table.systems
    compared = [
        (system, column, difference)
        for system in others
        for column in table.columns
        if (difference := _difference(system, first, column, table.columns)) is not None
    ]
    if not compared:
        return None
    corrected = significance.holm([difference.p for _, _, difference in compared])
    rows: list[list[Any]] = []
    texts: dict[tuple[int, int], str] = {}
    for i, ((system, column, difference), p) in enumerate(zip(compared, corrected, strict=True)):
        numbers = [value * table.factor for value in (difference.difference, difference.low, difference.high)]
        seeds = f"{len(system.seeds)}, {len(first.seeds)}"
        rows.append([system.label, first.label, seeds, short(column), *numbers, difference.p, p])
        texts |= {(i, 7 + j): f"< {SMALLEST_P}" for j, value in enumerate((difference.p, p)) if value < SMALLEST_P}
    notes = [
        f"Means over seeds, on the same samples of the {table.kind.sampled}. Systems with as many seeds are paired in "
        "the order of their seeds, and these pairs are sampled too; with one seed each or different numbers of seeds, "
        f"the interval is of the {table.kind.sampled} alone and tells nothing of other seeds.",
        f"p: normal, with the standard deviation of the samples; p (Holm): corrected for the {len(rows)} comparisons.",
    ]
    return Table(
        f"{table.title}: difference of mean scores{' in points' if table.points else ''}",
        ["system", "less", "seeds", "task", "difference", "95 % from", "to", "p", "p (Holm)"],
        rows,
        formats={**dict.fromkeys(("difference", "95 % from", "to"), f"+{table.format}"), "p": ".3f", "p (Holm)": ".3f"},
        notes=notes,
        texts=texts,
    )


def _difference(system: System, first: System, column: str, columns: list[str]) -> significance.Difference | None:
    draws, others = system.samples(column, columns), first.samples(column, columns)
    if draws is None or others is None or draws.shape[1] != others.shape[1]:
        return None
    return significance.compare_seeds(system.values(column, columns), first.values(column, columns), draws, others)


def _of_runs(table: ScoreTable) -> Table | None:
    """Return the differences of models from the first one of their run, or None if nothing was compared."""
    rows: list[list[Any]] = []
    texts: dict[tuple[int, int], str] = {}
    mcnemar = False
    for scores in table.models:
        tasks = {task: line for task, line in scores.compared.get("tasks", {}).items() if task in table.columns}
        for task, line in tasks.items():
            mcnemar = mcnemar or "only_first" in line
            factor = table.factor
            keys = ("only_first", "only_second") if "only_first" in line else ("low", "high")
            more = [value if isinstance(value := line[key], int) else value * factor for key in keys]
            if line["p"] < SMALLEST_P:
                texts[len(rows), 6] = f"< {SMALLEST_P}"
            first = _label_of(scores, table)
            rows.append([scores.label, first, short(task), line["difference"] * factor, *more, line["p"]])
    if not rows:
        return None
    heads = ("only this right", "only the other right") if mcnemar else ("95 % from", "to")
    test = "McNemar's exact test" if mcnemar else f"paired bootstrap of the {table.kind.sampled}"
    note = f"p: {test}. Of {len(rows)} comparisons, one in twenty falls below 0.05 by chance."
    signed = dict.fromkeys(("difference", *(() if mcnemar else heads)), f"+{table.format}")
    return Table(
        f"{table.title}: difference of scores{' in points' if table.points else ''}",
        ["model", "less", "task", "difference", *heads, "p"],
        rows,
        formats={**signed, "p": ".3f"},
        notes=[note if len(rows) > 1 else f"p: {test}."],
        texts=texts,
    )


def _label_of(scores: ModelScores, table: ScoreTable) -> str:
    """Return the label of the model that another one was compared with, or its name if the table does not have it."""
    name = str(scores.compared.get("with"))
    same_file = (other for other in table.models if other.model == name and other.source == scores.source)
    return next((other.label for other in same_file if not other.compared), name)
