"""What ``evaluate`` prints of models on the user's own data: scores, differences of systems, and costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sentcli.evaluation.score_kinds import RETRIEVAL
from sentcli.evaluation.scores import AVERAGE, ModelScores
from sentcli.pages import comparisons, score_tables
from sentcli.pages.parts import Comparisons
from sentcli.pages.score_page import Choices, cost_table, score_tables_of
from sentcli.table import Table


def compare_systems(scores: Sequence[ModelScores], choices: Choices) -> Comparisons:
    """Compare the systems of each kind of data with the first one there, and say which is best.

    Args:
        scores: of the models.
        choices: which of them are seeds of one system.
    """
    tables = score_tables_of(scores, choices)
    with_first: dict[str, dict[str, Any]] = {}
    for line in comparisons.differences(tables):
        title = line.table.kind.title if line.column == AVERAGE else line.column
        for seed in line.system.seeds:
            entry = with_first.setdefault(seed.model, {"with": "", "tasks": {}})
            entry["with"] = line.table.systems[0].label
            entry["tasks"][title] = line.entry
    compared = []
    for of_model in scores:
        if of_model.model in with_first:
            compared.append((of_model, with_first[of_model.model]))
    verdict = comparisons.verdict(tables) if len(scores) > 1 else ""
    return Comparisons(compared, verdict=verdict)


def tables_of(scores: Sequence[ModelScores], choices: Choices) -> Iterator[Table]:
    """Yield the tables that the command prints: for each kind scores and differences, then the costs."""
    tables = score_tables_of(scores, choices)
    for table in tables:
        measures = score_tables.measure_table(table)
        if table.grouped or len(table.columns) > 1 or table.kind is RETRIEVAL:
            yield score_tables.score_table(table)
            if measures is not None:
                measures = replace(measures, intervals={})
        if measures is not None:
            yield measures
    differences = comparisons.own_comparison(tables)
    if differences is not None:
        yield differences
    costs = cost_table(scores)
    if costs is not None:
        yield costs
