"""Scores of parts of a retrieval set: the queries with each value of a column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sentcli.errors import InputError
from sentcli.evaluation import significance
from sentcli.evaluation.baseline import Baseline
from sentcli.evaluation.evaluated import OwnTask
from sentcli.evaluation.retrieval import query_column
from sentcli.evaluation.retrieval_tasks import RetrievalTask
from sentcli.evaluation.scores import TaskScore


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
