"""``evaluate``: models on the user's own data, side by side with what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.io.labelled_kinds import Kind
from sentcli.model.options import LoadOptions
from sentcli.pages.page import Section
from sentcli.verbs.declaration import Flag, Group, verb
from sentcli.verbs.gate import GateOptions, settle
from sentcli.verbs.options import Models, Overwrite, PairFields, RerankOptions
from sentcli.verbs.result import Result
from sentcli.verbs.scoring import ScoringOptions, kept_if_interrupted
from sentcli.verbs.slices import query_columns, sliced
from sentcli.verbs.variants import compare_variants, read_grid

if TYPE_CHECKING:
    from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask
    from sentcli.evaluation.reranking import EvaluatedReranker
    from sentcli.evaluation.retrieval_tasks import RetrievalTask
    from sentcli.evaluation.scores import ModelScores
    from sentcli.pages.score_tables import ScoreTable
    from sentcli.pages.systems import Pattern
    from sentcli.table import Table


def own_result(models: list[ModelScores], groups: Sequence[Pattern] = (), draws: Path | None = None) -> Result:
    """Return scores on the user's own data with the differences of systems, what models cost, and which is best.

    Args:
        models: their scores.
        groups: patterns of models that are seeds of one system.
        draws: the file that has the samples behind intervals and comparisons, instead of the JSON.
    """
    from sentcli.evaluation.score_files import model_json
    from sentcli.evaluation.scores import AVERAGE
    from sentcli.pages import comparisons
    from sentcli.pages.score_page import Choices, score_tables_of

    choices = Choices(groups=tuple(groups))
    for line in comparisons.differences(score_tables_of(models, choices)):
        title = line.table.kind.title if line.column == AVERAGE else line.column
        for scores in models:
            if scores.model in [seed.model for seed in line.system.seeds]:
                tasks = scores.compared.get("tasks", {})
                scores.compared = {"with": line.table.systems[0].label, "tasks": {**tasks, title: line.entry}}
    tables = score_tables_of(models, choices)
    sentence, objects = comparisons.verdict(tables), [model_json(scores) for scores in models]
    for scores_json in objects:
        if draws is not None:
            scores_json["draws"] = str(draws)
            for task in scores_json["results"].values():
                task.pop("draws", None)
        scores_json |= {"verdict": sentence} if len(models) > 1 else {}
    trusted = {task.task: task.details["trust"] for task in models[0].tasks if "trust" in task.details}
    sentences = [sentence, *(f"{name}: {trust}" for name, trust in trusted.items())]
    verdict = "\n".join(filter(None, sentences))
    return Result.of_scores(models, tables_of(models, tables), verdict=verdict, objects=objects, choices=choices)


def tables_of(models: Sequence[ModelScores], tables: Sequence[ScoreTable]) -> Iterator[Table]:
    """Yield the tables that the command prints: for each kind scores and differences, then the costs."""
    from sentcli.evaluation.score_kinds import RETRIEVAL
    from sentcli.pages import comparisons, score_tables
    from sentcli.pages.score_page import cost_table

    for table in tables:
        measures = score_tables.measure_table(table)
        grouped = table.grouped
        if grouped or len(table.columns) > 1 or table.kind is RETRIEVAL:
            yield score_tables.score_table(table)
            measures = None if measures is None else replace(measures, intervals={})
        if measures is not None:
            yield measures
    if (differences := comparisons.own_comparison(tables)) is not None:
        yield differences
    if (costs := cost_table(models)) is not None:
        yield costs


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


def choices(tasks: Sequence[OwnTask], model: EvaluatedModel, pair_fields: str | None) -> dict[str, Any]:
    """Return every choice that moves a score of a model on tasks."""
    from sentcli.evaluation import significance
    from sentcli.evaluation.evaluated import for_model

    by_kind: dict[str, dict[str, Any]] = {}
    for task in tasks:
        adapted: Any = for_model(task, model.spec)
        by_kind.setdefault(str(task.kind.table), {}).update(adapted.protocol)
    made = {"kinds": by_kind, **model.spec.role_prompts, "interval_draws": significance.DRAWS}
    if pair_fields:
        made["pair_fields"] = pair_fields
    return made


@verb(
    "evaluate",
    pages=True,
    common=(
        "files model kind pair_fields skip_empty group_by by variants rerank save_baseline baseline allow format "
        "max_length backend precision json report"
    ),
)
def evaluate(
    files: Annotated[list[str], Flag(metavar="FILE|DIR...", positional=True)],
    model: Models,
    kind: Kind | None = None,
    pair_fields: PairFields = None,
    skip_empty: bool = False,
    group_by: Annotated[str | None, Flag(metavar="COLUMN")] = None,
    group: Annotated[list[str] | None, Flag(metavar="LABEL=NAME")] = None,
    by: Annotated[str | None, Flag(metavar="COLUMN")] = None,
    variants: Annotated[str | None, Flag(metavar="[FILE.toml]", bare="default")] = None,
    draws: Annotated[Path | None, Flag(metavar="FILE", panel="Output")] = None,
    overwrite: Overwrite = False,
    options: Annotated[LoadOptions, Group("Model", without=["normalize"])] = LoadOptions(),
    reranking: Annotated[RerankOptions, Group("Model")] = RerankOptions(),
    scoring: Annotated[ScoringOptions, Group("Output", without=["against"])] = ScoringOptions(),
    gate: Annotated[GateOptions, Group("Still as good")] = GateOptions(),
) -> Result:
    """Score models on data of your own, and compare them and what they cost.

    The kind of a table is told from its columns: sentence1, sentence2, score
    (Spearman x 100); sentence1, sentence2, label in 0/1 (average precision, AUC,
    best F1); anchor, positive (MRR@10, recall@k among all positives); anchor,
    positive, negative (accuracy); text, label (accuracy of a logistic
    regression, by ten folds). A folder in BEIR layout is a retrieval set
    (nDCG@10 of its split dev, or of its only one). All is checked beforehand.

    Args:
        files: Tables (csv, tsv, jsonl, parquet, arrow, xlsx or ods), folders of them, or folders in BEIR layout.
        kind: The kind of the tables; default: told from columns and values.
        skip_empty: Leave out rows with an empty cell, and count them.
        group_by: Keep texts of one value, such as an author, in one fold.
        group: Models that are seeds of one system, compared by their mean: NAME may have *.
        variants: Say what may be saved: search retrieval sets with fewer dimensions and bits, indexes, shorter texts,
            or the ways that a file names (docs/evaluate.md).
        by: Score the queries of a retrieval set apart by a column of its queries.jsonl, such as language.
        draws: Write the samples behind the intervals here (.npz), instead of into --json.

    \b
    Examples:
      sentcli evaluate dev.tsv -m minilm -m runs/simcse
      sentcli evaluate quora.tsv -m minilm --pair-fields question1,question2,is_duplicate
      sentcli evaluate pairs.tsv triplets.jsonl beir/scifact -m minilm -m other --report all.html
      sentcli evaluate faq-set -m minilm --variants --report savings.html
      sentcli evaluate faq-set -m minilm --save-baseline faq.json
      sentcli evaluate faq-set -m runs/new --baseline faq.json --allow 0.01
    """  # noqa: D301
    from sentcli.evaluation import costs, labelled_data
    from sentcli.evaluation.evaluated import score_model
    from sentcli.evaluation.retrieval_tasks import retrieval_tasks
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
    tasks = labelled_data.load_tasks(files, kind=kind, fields=pair_fields, skip_empty=skip_empty, group_by=group_by)
    reranker = reranking.load(options, rerun=scoring.rerun)
    reranked = [] if reranker is None else [t.reranked(reranker) for t in retrieval_tasks(tasks, "--rerank")]
    baseline = gate.read(model, files, tasks, overwrite=overwrite)
    columns, grid = {} if by is None else query_columns(tasks, by), read_grid(variants, tasks)
    for task in tasks:
        console.note(f"{task.name}: {task.kind.table}, {task.description}")
    models = scoring.models(model, options, kept=files)
    sample = costs.sample([task.all_texts for task in tasks])
    with kept_if_interrupted() as results:
        for evaluated in models:
            protocol = choices(tasks, evaluated, pair_fields)
            scores = score_model(evaluated, tasks, "evaluate", protocol, done=results)
            with console.working(f"{evaluated.name}: measuring the speed"):
                scores.cost = costs.measure(evaluated, sample)
            scores.finish()
            if reranker is not None:
                again = score_model(evaluated, reranked, "evaluate", {**protocol, **reranker.protocol})
                results.append(_reranked(again, scores, reranker, reranked[0]))
    caveats = {task.name: task.caveats for task in tasks}
    for scores in results:
        scores.tasks = [replace(score, details={**score.details, **caveats[score.task]}) for score in scores.tasks]
    if draws is not None:
        write_draws(draws, results)
    compared = settle(models, results, tasks, baseline, gate)
    slices = [] if by is None else sliced(results, columns, by, baseline)
    savings = None if grid is None else compare_variants(models, results, tasks, grid, gate.allow)
    result = own_result(results, groups, draws)
    result.further = [Section(table.title, table=table) for table in slices]
    result = result if savings is None else savings.added(result)
    return result if compared is None else compared.added(result)


def _reranked(again: ModelScores, scores: ModelScores, reranker: EvaluatedReranker, task: RetrievalTask) -> ModelScores:
    """Return the scores of reranked hits under the name of both models, with what both cost."""
    from sentcli.evaluation import costs

    again.model = again.label = f"{scores.model} + {reranker.name}"
    with console.working(f"{reranker.name}: measuring the speed"):
        milliseconds = reranker.milliseconds(task.data)
    weights = (scores.cost["weight_bytes"] or 0) + costs.weight_bytes(reranker.spec)
    again.cost = scores.cost | {"weight_bytes": weights, "rerank_milliseconds": milliseconds}
    again.finish()
    return again
