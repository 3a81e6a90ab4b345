"""``evaluate``: models on the user's own data, side by side with what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.io.labelled import Kind
from sentcli.model.options import LoadOptions
from sentcli.verbs.declaration import Flag, Group, verb
from sentcli.verbs.options import Models, Overwrite, PairFields
from sentcli.verbs.scoring import Evaluation, ScoringOptions

if TYPE_CHECKING:
    from sentcli.evaluation.scores import ModelScores
    from sentcli.pages.score_tables import ScoreTable
    from sentcli.pages.systems import Pattern
    from sentcli.table import Table


@dataclass(frozen=True)
class OwnEvaluation(Evaluation):
    """The scores of models on the user's own data, what the models cost, and which of them is best."""

    groups: tuple[Pattern, ...] = ()
    """Patterns of models that are seeds of one system."""
    draws: Path | None = None
    """The file that has the samples behind intervals and comparisons, instead of the JSON."""

    @property
    def verdict(self) -> str:
        """A sentence that says which model is best and by how much; empty for one model."""
        from sentcli.pages.comparisons import verdict

        return verdict(self._score_tables())

    def to_dict(self) -> Any:
        """Return the JSON: an object for one model, a list for several, each object with the verdict on them."""
        written = super().to_dict()
        for scores in (written if isinstance(written, list) else [written]) if self.draws else ():
            scores["draws"] = str(self.draws)
            for task in scores["results"].values():
                task.pop("draws", None)
        return [{**scores, "verdict": self.verdict} for scores in written] if isinstance(written, list) else written

    def _score_tables(self) -> list[ScoreTable]:
        """Return a table for each kind of data."""
        from sentcli.pages.score_page import Choices, score_tables_of

        return score_tables_of(self.models, Choices(groups=self.groups))

    def with_differences(self) -> OwnEvaluation:
        """Add to each model's scores its system's difference from the first system, and return them."""
        from sentcli.evaluation.scores import AVERAGE
        from sentcli.pages.comparisons import differences

        for line in differences(self._score_tables()):
            title = line.table.kind.title if line.column == AVERAGE else line.column
            for scores in self.models:
                if scores.model in [seed.model for seed in line.system.seeds]:
                    tasks = scores.compared.get("tasks", {})
                    scores.compared = {"with": line.table.systems[0].label, "tasks": {**tasks, title: line.entry}}
        return self

    def tables(self) -> Iterator[Table]:
        """Yield the tables that the command prints: for each kind scores and differences, then the costs."""
        from sentcli.evaluation.score_kinds import RETRIEVAL
        from sentcli.pages import comparisons, score_tables
        from sentcli.pages.score_page import cost_table

        for table in self._score_tables():
            measures = score_tables.measure_table(table)
            grouped = any(system.grouped for system in table.systems)
            if grouped or len(table.columns) > 1 or table.kind is RETRIEVAL:
                yield score_tables.score_table(table)
                measures = None if measures is None else replace(measures, intervals={})
            if measures is not None:
                yield measures
        if (differences := comparisons.own_comparison(self._score_tables())) is not None:
            yield differences
        if (costs := cost_table(self.models)) is not None:
            yield costs

    def show(self) -> None:
        """Print tables and verdict as the command does."""
        super().show()
        if verdict := self.verdict:
            console.conclude(verdict)

    def _repr_html_(self) -> str:
        """Show tables and verdict in a notebook."""
        from html import escape

        return f"{super()._repr_html_()}<p>{escape(self.verdict)}</p>"

    def write_pages(self, files: Sequence[Path]) -> None:
        """Write the scores as HTML, Markdown or LaTeX."""
        from sentcli.pages.score_page import Choices, write_score_page

        write_score_page(self.models, files, Choices(groups=self.groups))


def write_draws(target: Path, models: Sequence[ModelScores]) -> None:
    """Write the samples behind intervals as arrays model, task and metric ``[rows]`` and draws ``[rows, draws]``."""
    import numpy as np

    from sentcli.io.atomic import replacing

    rows = [
        (scores.model, task.task, metric, samples)
        for scores in models
        for task in scores.tasks
        for metric in task.headline
        if (samples := task.samples(metric)) is not None
    ]
    types: dict[str, Any] = {"model": np.str_, "task": np.str_, "metric": np.str_, "draws": np.float32}
    arrays: dict[str, Any] = {name: np.array([row[i] for row in rows], types[name]) for i, name in enumerate(types)}
    with replacing(target) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, **arrays)


@verb("evaluate", pages=True)
def evaluate(
    files: Annotated[list[str], Flag(metavar="FILE|DIR...", positional=True)],
    model: Models,
    kind: Kind | None = None,
    pair_fields: PairFields = None,
    skip_empty: bool = False,
    group: Annotated[list[str] | None, Flag(metavar="LABEL=NAME")] = None,
    draws: Annotated[Path | None, Flag(metavar="FILE", panel="Output")] = None,
    overwrite: Overwrite = False,
    options: Annotated[LoadOptions, Group("Model", without=["normalize"])] = LoadOptions(),
    scoring: Annotated[ScoringOptions, Group("Output", without=["against"])] = ScoringOptions(),
) -> OwnEvaluation:
    """Score models on data of your own, and compare them and what they cost.

    The kind of a table is told from its columns: sentence1, sentence2, score
    (Spearman x 100); sentence1, sentence2, label in 0/1 (average precision, AUC,
    best F1); anchor, positive (MRR@10, recall@k among all positives); anchor,
    positive, negative (accuracy); text, label (accuracy of a logistic
    regression, by ten folds). A folder in BEIR layout is a retrieval set
    (nDCG@10 of its split dev, or of its only one). Everything is checked before
    anything is encoded.

    Args:
        files: Tables (csv, tsv, jsonl, parquet, xlsx or ods), folders of them, or folders in BEIR layout.
        kind: The kind of the tables; default: told from the names of the columns and from all values.
        skip_empty: Leave out rows with an empty cell, and count them.
        group: Models that are seeds of one system, compared by their mean: NAME may have *.
        draws: Write the samples behind the intervals here (.npz), instead of into --json.

    \b
    Examples:
      sentcli evaluate dev.tsv -m minilm -m runs/simcse
      sentcli evaluate quora.tsv -m minilm --pair-fields question1,question2,is_duplicate
      sentcli evaluate pairs.tsv triplets.jsonl beir/scifact -m minilm -m my-model --report models.html
      sentcli evaluate dev.tsv -m minilm -m runs/s1 -m runs/s2 --group "simcse=s*" --json dev.json
    """  # noqa: D301
    from sentcli.evaluation import costs, labelled_data, significance
    from sentcli.evaluation.evaluated import score_model
    from sentcli.evaluation.scores import ModelScores
    from sentcli.io.atomic import check_output
    from sentcli.pages.systems import Pattern, check_patterns

    if twin := next((name for name in model if model.count(name) > 1), None):
        raise InputError(f"-m {twin} is given twice")
    if draws is not None:
        if draws.suffix != ".npz":
            raise InputError(f"--draws {draws}: the samples are written as .npz")
        check_output(draws, overwrite=overwrite)
    groups = tuple(Pattern.parse("--group", value) for value in group or [])
    check_patterns(groups, [ModelScores("evaluate", name, {}, []) for name in model])
    tasks = labelled_data.load_tasks(files, kind=kind, fields=pair_fields, skip_empty=skip_empty)
    if any(task.kind == "retrieval" for task in tasks) and options.on_cpu:
        from sentcli.search.exact import require_faiss

        require_faiss()
    by_kind: dict[str, dict[str, Any]] = {}
    for task in tasks:
        console.note(f"{task.name}: {task.kind}, {task.described}")
        by_kind.setdefault(task.kind, {}).update(task.protocol)
    choices = {"kinds": by_kind, **({"pair_fields": pair_fields} if pair_fields else {})}
    models = scoring.models(model, options)
    sample = costs.sample([task.all_texts for task in tasks])
    results = []
    for evaluated in models:
        prompts = {f"{role}_prompt": evaluated.spec.role_prompt(role) for role in ("query", "document")}
        protocol = {**choices, **prompts, "interval_draws": significance.DRAWS}
        scores = score_model(evaluated, tasks, "evaluate", protocol)
        of_data = {task.name: task.counts for task in tasks}
        scores.tasks = [replace(score, facts={**score.facts, **of_data[score.task]}) for score in scores.tasks]
        with console.working(f"{evaluated.name}: measuring the speed"):
            scores.cost = costs.measure(evaluated, sample)
        scores.finish()
        results.append(scores)
    if draws is not None:
        write_draws(draws, results)
    return OwnEvaluation(results, groups, draws).with_differences()
