"""The tables of scores and the differences of their systems: what the console, the JSON and pages show of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any

from sentcli.evaluation.score_kinds import RETRIEVAL
from sentcli.evaluation.scores import ModelScores
from sentcli.evaluation.systems import Pattern, check_patterns
from sentcli.pages import grouping, protocols, score_tables
from sentcli.pages.comparisons import Differences, comparisons, verdict
from sentcli.pages.cost_table import cost_table
from sentcli.pages.score_tables import ScoreTable
from sentcli.table import Table


@dataclass(frozen=True)
class ScoreReport:
    """Tables of scores, each of one protocol, and the differences of their systems."""

    tables: tuple[ScoreTable, ...]

    @classmethod
    def of(
        cls,
        scores: Sequence[ModelScores],
        groups: Sequence[Pattern] = (),
        names: Sequence[Pattern] = (),
        shown: Mapping[str, str] = MappingProxyType({}),
    ) -> ScoreReport:
        """Return the report of scores of any commands and protocols.

        Args:
            scores: of models.
            groups: patterns of models that are seeds of one system.
            names: labels of models.
            shown: labels of models for which `names` has none; by default their names.

        Raises:
            InputError: if a pattern matches nothing, or the seeds of a system differ in a setting.
        """
        for patterns in (groups, names):
            check_patterns(patterns, [of_model.names for of_model in scores])
        shared = grouping.tables(replace(of_model, number=number) for number, of_model in enumerate(scores))
        first_of_kind: dict[str, list[ModelScores]] = {}  # a model of each table, by the title of its kind
        for first, *_ in shared:
            first_of_kind.setdefault(first.kinds[0].title, []).append(first)
        tables = []
        for models in shared:
            title = models[0].kinds[0].title
            twins = first_of_kind[title]
            if len(twins) > 1:
                title = f"{title} ({_mark(models[0], twins)})"
            rows = grouping.systems_of(models, groups, names, shown)
            tables.append(ScoreTable(title, tuple(rows)))
        return cls(tuple(tables))

    @cached_property
    def comparisons(self) -> list[Differences]:
        """The differences of systems, of tables that have one correction together."""
        return comparisons(self.tables)

    def comparison_behind(self, table: ScoreTable) -> Differences | None:
        """Return the comparison that is shown behind a table, the last of those that it compares; None if it has none.

        The one of the user's own data stands behind all of its tables.
        """
        for comparison in self.comparisons:
            if comparison.lines and comparison.lines[-1].table is table:
                return comparison
        return None

    def with_differences(self, scores: Sequence[ModelScores]) -> list[ModelScores]:
        """Return scores of this report with the entry ``compared`` of their JSON, as far as they were compared."""
        compared: dict[int, dict[str, Any]] = {}
        for comparison in self.comparisons:
            for number, first, tasks in comparison.entries():
                compared.setdefault(number, {"with": first, "tasks": {}})["tasks"] |= tasks
        found = []
        for number, of_model in enumerate(scores):
            if number in compared:
                of_model = of_model.with_entries({"compared": compared[number]})
            found.append(of_model)
        return found

    @property
    def costs(self) -> Table | None:
        """The table of what the models cost, or None if that was not measured."""
        return cost_table(list(chain.from_iterable(table.models for table in self.tables)))

    @property
    def verdict(self) -> str:
        """A sentence on which model is best on the user's own data; empty for a single model."""
        return verdict([table for table in self.tables if table.is_own])

    def console_tables(self) -> Iterator[Table]:
        """Yield what a command prints of the scores, as far as a screen has room for it."""
        for table in self.tables:
            yield from _of_own_data(table) if table.is_own else _of_known_tasks(table)
            comparison = self.comparison_behind(table)
            if comparison is not None:
                yield comparison.table(narrow=True)
            yield from score_tables.against_tables(table)
        if self.costs is not None:
            yield self.costs


def _of_own_data(table: ScoreTable) -> Iterator[Table]:
    """Yield the scores of data of the user's own, and everything that was measured."""
    measures = score_tables.measure_table(table)
    if table.grouped or len(table.columns) > 1 or table.kind is RETRIEVAL:
        yield score_tables.score_table(table)
        if measures is not None:
            measures = replace(measures, intervals={})
    if measures is not None:
        yield measures


def _of_known_tasks(table: ScoreTable) -> Iterator[Table]:
    """Yield the scores of known tasks with the interval of the average, and of a single model everything measured."""
    shown = score_tables.score_table(table)
    of_average = {}
    for (row, column), interval in shown.intervals.items():
        if column == score_tables.SHORT_AVERAGE:
            of_average[row, column] = interval
    yield replace(shown, intervals=of_average or shown.intervals)
    measures = score_tables.measure_table(table)
    if len(table.models) == 1 and measures is not None:
        yield replace(measures, intervals={})


def _mark(first: ModelScores, twins: Sequence[ModelScores]) -> str:
    """Return what differs from the protocols of other tables of the same kind, to tell a table apart from them.

    Args:
        first: of the models of a table.
        twins: the first model of each table of this kind.
    """
    measured = []
    number = 0
    for place, twin in enumerate(twins):
        score = protocols.measure_name(twin)
        measured.append({"score": score, **protocols.common_protocol(twin)})
        if twin is first:
            number = place
    keys = protocols.different_keys(measured)
    different = protocols.of_keys(measured[number], keys)
    name = different.get("name")
    if name:
        return str(name)
    return protocols.as_phrase(different) or f"data {number + 1} of {len(twins)}"
