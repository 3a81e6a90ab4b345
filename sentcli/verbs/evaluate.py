"""``evaluate``: models on the user's own data, side by side with what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sentcli import console
from sentcli.bounds import Holds, Overwrite, PairFields
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Clock, Result
from sentcli.command.scoring import scores_if_interrupted
from sentcli.errors import DegenerateVectorsError, InputError
from sentcli.evaluation.options import GateOptions, RerankOptions, ScoringOptions, ThresholdOptions
from sentcli.io.labelled_kinds import Kind
from sentcli.model.options import LoadOptions, Models
from sentcli.stores.options import PassageOptions

if TYPE_CHECKING:
    from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask
    from sentcli.evaluation.reranking import EvaluatedReranker
    from sentcli.evaluation.retrieval_tasks import RetrievalTask
    from sentcli.evaluation.scores import ModelScores


@verb(
    "evaluate",
    pages=True,
    common=(
        "files model kind pair_fields skip_empty by variants rerank threshold save_baseline baseline allow "
        "max_length backend precision json report"
    ),
)
def evaluate(
    files: Annotated[list[str], Holds.TEXT_FILE, Flag(metavar="FILE|DIR...", positional=True)],
    model: Models,
    kind: Kind | None = None,
    pair_fields: PairFields = None,
    skip_empty: bool = False,
    group_by: Annotated[str | None, Flag(metavar="COLUMN")] = None,
    by: Annotated[str | None, Holds.WORDS, Flag(metavar="COLUMN")] = None,
    variants: Annotated[str | None, Flag(metavar="[FILE.toml]", implied_value="default")] = None,
    draws: Annotated[Path | None, Flag(metavar="FILE", panel="Output")] = None,
    overwrite: Overwrite = False,
    options: Annotated[LoadOptions, Group("Model", without=["normalize"])] = LoadOptions(),
    reranking: Annotated[RerankOptions, Group("Model")] = RerankOptions(),
    passages: Annotated[PassageOptions, Group("Passages")] = PassageOptions(),
    scoring: Annotated[ScoringOptions, Group("Output", without=["against"])] = ScoringOptions(),
    thresholds: Annotated[ThresholdOptions, Group()] = ThresholdOptions(),
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
        variants: Say what may be saved: search sets with fewer dimensions and bits, indexes, shorter texts, or the ways
            that a file names (docs/evaluate.md).
        by: Score the queries of a retrieval set apart by a column of its queries.jsonl, such as language.
        passages: Cut the documents of retrieval sets at paragraphs, else sentences; each is found by its best passage.
        draws: Write the samples behind the intervals here (.npz), instead of into --json.

    \b
    Examples:
      sentcli evaluate dev.tsv -m minilm -m runs/simcse
      sentcli evaluate quora.tsv -m minilm --pair-fields question1,question2,is_duplicate
      sentcli evaluate pairs.tsv triplets.jsonl beir/scifact -m minilm -m other --report all.html
      sentcli evaluate faq-set -m minilm --variants --report savings.html
      sentcli evaluate faq-set -m minilm --threshold 0.9 --keep-threshold vectors
      sentcli evaluate faq-set -m minilm --save-baseline faq.json
      sentcli evaluate faq-set -m runs/new --baseline faq.json --allow 0.01
    """  # noqa: D301
    from sentcli.command.scoring import choices_of
    from sentcli.evaluation import labelled_data
    from sentcli.evaluation.score_replicates import check_replicates_file, write_replicates
    from sentcli.evaluation.studies import study_of
    from sentcli.pages.gate import compare_with_baseline, save_baseline
    from sentcli.pages.parts import Caveats, Part
    from sentcli.pages.savings import compare_variants, read_grid
    from sentcli.pages.slices import Slices, query_columns
    from sentcli.pages.thresholds import find_thresholds

    # what the user asks for, checked before anything is encoded
    study = study_of(model, once=True, groups=scoring.group)
    model = study.models
    if draws is not None:
        check_replicates_file(draws, overwrite=overwrite)
    tasks = labelled_data.load_tasks(files, kind=kind, fields=pair_fields, skip_empty=skip_empty, group_by=group_by)
    tasks = _in_passages(tasks, passages, variants)
    reranker = reranking.load(options, rerun=scoring.rerun)
    reranked = _reranked_tasks(tasks, reranker)
    baseline = gate.read_baseline(model, files, tasks, overwrite=overwrite)
    columns = {} if by is None else query_columns(tasks, by)
    grid = None if variants is None else read_grid(variants, tasks)
    for task in tasks:
        console.note(f"{task.name}: {task.kind.table}, {task.description}")

    # scores, and what is found beside them
    models = scoring.models(model, options, reused=files, spares_export=False)  # costs are those of `encode`
    thresholds.check(models, tasks, overwrite=overwrite)
    scores = score_models(models, tasks, pair_fields, reranker, reranked)
    if draws is not None:
        write_replicates(draws, scores)
        scores = [replace(of_model, replicates_file=str(draws)) for of_model in scores]
    scored = _with_scores(models, tasks, scores)
    parts: list[Part] = [Caveats({task.name: task.caveats for task in tasks})]
    if by is not None:
        parts.append(Slices.of(scores, columns, by, baseline))
    if grid is not None:
        parts.append(compare_variants(scored, grid, gate.allow))
    parts += find_thresholds(scored, thresholds)
    if gate.save_baseline is not None:
        save_baseline(gate.save_baseline, models[0], scores[0], tasks)
    if baseline is not None:
        compared = compare_with_baseline(models, scores, tasks, baseline, gate)
        parts.append(compared)
        if gate.format is not None:
            compared.print_for_program(gate.format)
    return Result.of_scores(scores, choices_of(study, scores), parts)


def _with_scores(
    models: Sequence[EvaluatedModel], tasks: Sequence[OwnTask], scores: Sequence[ModelScores]
) -> list[tuple[EvaluatedModel, OwnTask]]:
    """Return each model with each task on which it has a score."""
    lacking = {of_model.model: of_model.lacking for of_model in scores}
    pairs = []
    for model, task in product(models, tasks):
        if task.name not in lacking[model.name]:
            pairs.append((model, task))
    return pairs


def _in_passages(tasks: list[OwnTask], passages: PassageOptions, variants: str | None) -> list[OwnTask]:
    """Return the tasks; with ``--passages`` the documents of retrieval sets are cut.

    Raises:
        InputError: for other data, or beside ``--variants``.
    """
    from sentcli.evaluation.retrieval_tasks import retrieval_tasks

    if not passages.passages:
        return tasks
    if variants is not None:
        raise InputError("--variants tries passages by itself where documents are long: leave --passages out")
    return [task.in_passages(passages) for task in retrieval_tasks(tasks, "--passages")]


def _reranked_tasks(tasks: Sequence[OwnTask], reranker: EvaluatedReranker | None) -> list[RetrievalTask]:
    """Return the retrieval tasks with reranked hits; none without a reranker."""
    from sentcli.evaluation.retrieval_tasks import retrieval_tasks

    if reranker is None:
        return []
    return [task.reranked(reranker) for task in retrieval_tasks(tasks, "--rerank")]


def score_models(
    models: Sequence[EvaluatedModel],
    tasks: Sequence[OwnTask],
    pair_fields: str | None,
    reranker: EvaluatedReranker | None,
    reranked: Sequence[RetrievalTask],
) -> list[ModelScores]:
    """Score models on tasks and measure what they cost; behind each model comes the same with reranked hits."""
    from sentcli.evaluation import costs
    from sentcli.evaluation.labelled_data import labelled_choices
    from sentcli.evaluation.measuring import score_model

    sample = costs.sample_texts([task.all_texts for task in tasks])
    with scores_if_interrupted() as done:
        for model in models:
            clock = Clock()
            protocol = labelled_choices(tasks, model, pair_fields)
            scores = score_model(model, tasks, "evaluate", protocol, done=done)
            cost: dict[str, Any] = {}
            with console.working(f"{model.name}: measuring the speed"), suppress(DegenerateVectorsError):
                cost = costs.measure_costs(model, sample)
            scores = replace(scores.with_entries({"cost": cost}), seconds=clock.seconds)
            done[-1] = scores
            if reranker is not None:
                again = score_model(model, reranked, "evaluate", {**protocol, **reranker.protocol})
                done.append(_reranked(again, scores, reranker, reranked[0]))
    return done


def _reranked(again: ModelScores, scores: ModelScores, reranker: EvaluatedReranker, task: RetrievalTask) -> ModelScores:
    """Return the scores of reranked hits under the name of both models, with what both cost."""
    from sentcli.evaluation import costs

    clock = Clock()
    name = f"{scores.model} + {reranker.name}"
    with console.working(f"{reranker.name}: measuring the speed"):
        milliseconds = reranker.milliseconds(task.data)
    model_bytes = scores.cost.get("weight_bytes") or 0
    weight_bytes = model_bytes + costs.weight_bytes(reranker.spec)
    cost = {**scores.cost, "weight_bytes": weight_bytes, "rerank_milliseconds": milliseconds}
    scoring_seconds = again.seconds or 0.0
    again = again.with_entries({"cost": cost})
    return replace(again, model=name, label=name, seconds=scoring_seconds + clock.seconds)
