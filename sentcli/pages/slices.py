"""What ``evaluate --by`` shows: the scores of the queries with each value of a column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sentcli.errors import InputError
from sentcli.evaluation import significance
from sentcli.evaluation.baseline import Baseline
from sentcli.evaluation.evaluated import OwnTask
from sentcli.evaluation.retrieval import query_column
from sentcli.evaluation.retrieval_tasks import RetrievalTask
from sentcli.evaluation.score_kinds import RETRIEVAL
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.pages.page import Section
from sentcli.pages.parts import Part
from sentcli.table import Table


def query_columns(tasks: Sequence[OwnTask], name: str) -> dict[str, dict[str, str]]:
    """Return a column of the queries of each data set, by the name of the set and the id of the query.

    Raises:
        InputError: if there is no retrieval set, or a query does not have the column.
    """
    columns = {task.name: query_column(task.data, name) for task in tasks if isinstance(task, RetrievalTask)}
    if not columns:
        raise InputError(f"--by {name} is of the queries of retrieval sets, and there is none")
    return columns


def slices_of(score: TaskScore, column: Mapping[str, str], baseline: Baseline | None) -> dict[str, dict[str, Any]]:
    """Return the metric of the queries with each value of a column, the most frequent value first.

    Args:
        score: of a retrieval set, with the values of its queries.
        column: the value of each query, by its id.
        baseline: of an earlier model; the differences from it are ``baseline`` in each entry.

    Returns:
        ``items``, ``value`` and its 95 % ``interval`` by the value of the column.
    """
    metrics = score.item_values[score.main_metric]
    before = None
    if baseline is not None:
        before = np.array(baseline.tasks[score.task].values)
    column_values = np.array([column[item] for item in score.items])
    slices: dict[str, dict[str, Any]] = {}
    for value, count in Counter(column_values.tolist()).most_common():
        rows = column_values == value
        part = metrics[rows]
        entry: dict[str, Any] = {"items": count, "value": float(part.mean()), "interval": (0.0, 1.0)}
        if count > 1:
            low, high = significance.mean_interval(part)
            entry["interval"] = (max(low, 0.0), min(high, 1.0))
        if before is not None:
            compared = significance.compare_means(part, before[rows])
            entry["baseline"] = {"difference": compared.difference, "interval": compared.interval}
        slices[value] = entry
    return slices


@dataclass(frozen=True)
class Slices(Part):
    """The scores of parts of retrieval sets."""

    column: str
    """The column of the queries that tells the parts apart."""
    of_scores: Mapping[tuple[str, str], Mapping[str, dict[str, Any]]]
    """The scores of each value of the column, as `slices_of` returns them, by the labels of model and set."""
    with_baseline: bool
    """Whether there are differences from a baseline."""

    @classmethod
    def of(
        cls,
        scores: Sequence[ModelScores],
        columns: Mapping[str, Mapping[str, str]],
        name: str,
        baseline: Baseline | None,
    ) -> Slices:
        """Return the slices of the scores of models.

        Args:
            scores: of the models.
            columns: what `query_columns` returned.
            name: of the column.
            baseline: of an earlier model, if the slices are compared with one.
        """
        of_scores = {}
        for of_model in scores:
            for score in of_model.tasks:
                task = score.task
                if task in columns and not score.reason:
                    of_scores[of_model.label, task] = slices_of(score, columns[task], baseline)
        return cls(name, of_scores, baseline is not None)

    def json(self, scores: ModelScores, task: str) -> Mapping[str, Any]:
        """Return the slices of a set."""
        slices = self.of_scores.get((scores.label, task))
        return {} if slices is None else {"by": {self.column: slices}}

    def sections(self) -> Sequence[Section]:
        """Return a table for each set."""
        sets = dict.fromkeys(task for _, task in self.of_scores)
        return [Section.of(self._table(task)) for task in sets]

    def _table(self, task: str) -> Table:
        rows = []
        for (model, of_task), slices in self.of_scores.items():
            if of_task != task:
                continue
            for value, entry in slices.items():
                row = [value, model, entry["items"], entry["value"], *entry["interval"]]
                if self.with_baseline:
                    compared = entry["baseline"]
                    row += [compared["difference"], *compared["interval"]]
                rows.append(row)
        metric = RETRIEVAL.columns.get("ndcg@10", RETRIEVAL.metric)
        heads = [self.column, "model", "queries", metric, "low", "high"]
        notes = ["Low and high: the 95 % interval, by Student's t; of a single query it is all that there can be."]
        if self.with_baseline:
            heads += ["difference", "difference low", "difference high"]
            notes.append("Difference: from the baseline.")
        formats = dict.fromkeys(heads[3:], ".4f")
        return Table(f"{task} by {self.column}", heads, rows, formats=formats, notes=notes)
