"""Scores of parts of a retrieval set: the queries with each value of a column."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sentcli.errors import InputError
from sentcli.table import Table

if TYPE_CHECKING:
    from sentcli.evaluation.baseline import Baseline
    from sentcli.evaluation.evaluated import OwnTask
    from sentcli.evaluation.scores import ModelScores, TaskScore


def query_columns(tasks: Sequence[OwnTask], name: str) -> dict[str, dict[str, str]]:
    """Return a column of the queries of each data set, by the name of the set and the id of the query.

    Raises:
        InputError: if there is no retrieval set, or a query does not have the column.
    """
    from sentcli.evaluation.retrieval import query_column
    from sentcli.evaluation.retrieval_tasks import RetrievalTask

    sets = {task.name: query_column(task.data, name) for task in tasks if isinstance(task, RetrievalTask)}
    if not sets:
        raise InputError(f"--by {name} is of the queries of retrieval sets, and there is none")
    return sets


def sliced(
    models: Sequence[ModelScores], columns: Mapping[str, Mapping[str, str]], name: str, baseline: Baseline | None
) -> list[Table]:
    """Return a table for each retrieval set, and put the scores of its slices into the JSON as ``by``."""
    from sentcli.evaluation.score_kinds import RETRIEVAL

    rows: dict[str, list[list[Any]]] = {task: [] for task in columns}
    for scores in models:
        for place, score in enumerate(scores.tasks):
            if score.task in columns:
                parts = _slices(score, columns[score.task], baseline)
                scores.tasks[place] = replace(score, details={**score.details, "by": {name: parts}})
                for value, part in parts.items():
                    row = [value, scores.model, part["items"], part["value"], *part["interval"]]
                    if "baseline" in part:
                        row += [part["baseline"]["difference"], *part["baseline"]["interval"]]
                    rows[score.task].append(row)
    heads = [name, "model", "queries", RETRIEVAL.columns.get("ndcg@10", RETRIEVAL.metric), "low", "high"]
    heads += [] if baseline is None else ["difference", "difference low", "difference high"]
    formats = dict.fromkeys(heads[3:], ".4f")
    notes = ["Low and high: the 95 % interval; with few queries it is too narrow."]
    if baseline is not None:
        notes.append("Difference: from the baseline.")
    return [Table(f"{task} by {name}", heads, of_task, formats=formats, notes=notes) for task, of_task in rows.items()]


def _slices(score: TaskScore, column: Mapping[str, str], baseline: Baseline | None) -> dict[str, Any]:
    """Return the metric of the queries with each value, the most frequent first, and its difference from a baseline."""
    import numpy as np

    from sentcli.evaluation import significance

    values, before = score.item_values[score.headline[0]], None
    if baseline is not None:
        before = np.array(baseline.tasks[score.task].values)
    own, stream = np.array([column[item] for item in score.items]), zlib.crc32(score.task.encode())

    def mean(part: Any) -> dict[str, Any]:
        draws = significance.mean_draws(part, stream=stream)
        return {"value": float(part.mean()), "interval": significance.interval(draws)}

    slices: dict[str, Any] = {}
    for value, count in Counter(own.tolist()).most_common():
        rows = own == value
        slices[value] = {"items": count, **mean(values[rows])}
        if before is not None:
            difference = mean(values[rows] - before[rows])
            slices[value]["baseline"] = {"difference": difference["value"], "interval": difference["interval"]}
    return slices
