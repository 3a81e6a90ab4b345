"""What ``evaluate --by`` shows: the scores of the queries with each value of a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentcli.evaluation.baseline import Baseline
from sentcli.evaluation.score_kinds import RETRIEVAL
from sentcli.evaluation.scores import ModelScores
from sentcli.evaluation.slices import slices_of
from sentcli.pages.page import Section
from sentcli.pages.parts import Part
from sentcli.table import Table


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
