"""The options and the result of the verbs that score models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.verbs.declaration import Flag

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.published import Published
    from sentcli.evaluation.score_kinds import ScoreKind
    from sentcli.evaluation.scores import ModelScores
    from sentcli.table import Table


def _list_published() -> None:
    from sentcli.evaluation.published import AVERAGES, published
    from sentcli.table import Table

    columns = ["name", "system", *AVERAGES.values()]
    rows = [[p.name, p.title, *map(p.scores.get, AVERAGES.values())] for p in published().values()]
    console.show(Table("Published scores, times 100", columns, rows))


@dataclass(frozen=True)
class ScoringOptions:
    """Comparison with published scores, and whether kept scores are used.

    Attributes:
        against: Set what a paper prints beside it, such as micse-bert-base. Several models count as seeds of one. list
            names what there is.
        rerun: Encode and score anew, also what was measured before and is kept.
    """

    against: Annotated[str | None, Flag(metavar="NAME|list", lists=_list_published)] = None
    rerun: bool = False

    def models(self, names: Sequence[str], options: LoadOptions) -> list[EvaluatedModel]:
        """Return models, each of which is loaded when something has to be encoded with it."""
        from sentcli.evaluation.evaluated import EvaluatedModel

        return [EvaluatedModel(name, options, rerun=self.rerun) for name in names]

    def published(self, kind: ScoreKind, tasks: Iterable[str]) -> Published | None:
        """Return the system of ``--against``, or None.

        Raises:
            InputError: if there is no such system, or no published score of it for these tasks.
        """
        from sentcli.evaluation import published

        if self.against is None:
            return None
        system = published.find(self.against)
        published.require(system, kind, tasks)
        return system


@dataclass(frozen=True)
class Evaluation:
    """The scores of one or several models."""

    models: list[ModelScores]

    def compared(self, system: Published | None, kind: ScoreKind) -> Evaluation:
        """Add to the scores their comparison with the first model and with a published system, and return them."""
        from sentcli.evaluation.published import compare

        first, *others = self.models
        for scores in others:
            scores.compared = {"with": first.model, "tasks": scores.compare(first)}
        if system is not None:
            by_model = [scores.values(kind) for scores in self.models]
            by_task = {task: [values[task] for values in by_model] for task in by_model[0]}
            against = compare(system, kind, by_task, first.intervals(kind))
            for scores in self.models:
                scores.against = against
        return self

    def to_dict(self) -> Any:
        """Return the JSON: an object for one model, a list for several."""
        objects = [scores.to_dict() for scores in self.models]
        return objects[0] if len(objects) == 1 else objects

    def to_frame(self) -> pd.DataFrame:
        """Return the long table: a row for each model, task and metric, with its 95 % interval where it is known."""
        import pandas as pd

        return pd.DataFrame([row for scores in self.models for row in scores.rows()])

    def tables(self) -> Iterator[Table]:
        """Yield the tables that the command prints."""
        from sentcli.pages import comparisons, score_tables
        from sentcli.pages.score_page import score_tables_of

        for table in score_tables_of(self.models):
            scores = score_tables.score_table(table)
            of_average = {key: interval for key, interval in scores.intervals.items() if key[1] == "Avg."}
            yield replace(scores, intervals=of_average or scores.intervals)  # a screen has no room for all tasks' ones
            if len(self.models) == 1 and (measures := score_tables.measure_table(table)) is not None:
                yield replace(measures, intervals={})
            if (differences := comparisons.comparison_table(table)) is not None:
                yield differences
            yield from score_tables.against_tables(table)

    def show(self) -> None:
        """Print the scores as the command does."""
        for table in self.tables():
            console.show(table)

    def _repr_html_(self) -> str:
        """Show the scores in a notebook."""
        return "".join(table._repr_html_() for table in self.tables())

    def write_pages(self, files: Sequence[Path]) -> None:
        """Write the scores as HTML, Markdown or LaTeX."""
        from sentcli.pages.score_page import write_score_page

        write_score_page(self.models, files)


def names(tasks: str | None) -> list[str] | None:
    """Return the names in ``--tasks A,B``; None for None.

    Raises:
        InputError: if there is no name.
    """
    chosen = [name.strip() for name in tasks.split(",") if name.strip()] if tasks is not None else None
    if chosen == []:
        raise InputError("--tasks names no task")
    return chosen
