"""``sts-eval``: semantic textual similarity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sentcli.bounds import Holds
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Result
from sentcli.command.scoring import scores_if_interrupted, scores_result
from sentcli.errors import InputError
from sentcli.evaluation.options import ScoringOptions
from sentcli.model.options import LoadOptions, Models

if TYPE_CHECKING:
    from sentcli.evaluation.evaluated import EvaluatedModel, Task
    from sentcli.evaluation.scores import ModelScores
    from sentcli.evaluation.sts_pairs import Pairs

Aggregation = Literal["all", "mean", "wmean"]
Split = Literal["test", "dev", "train"]


@verb("sts-eval", pages=True, common="model data pairs pair_fields tasks split aggregation against pooling json report")
def sts_eval(
    model: Models,
    data: Path | None = None,
    pairs: Annotated[list[str] | None, Holds.TEXT_FILE, Flag(metavar="FILE")] = None,
    pair_fields: Annotated[str | None, Holds.WORDS, Flag(metavar="A,B[,C]", needs="pairs")] = None,
    tasks: Annotated[str | None, Flag(needs="data")] = None,
    split: Annotated[Split, Flag(needs="data", excludes="regression")] = "test",
    aggregation: Aggregation = "all",
    regression: Annotated[bool, Flag(needs="data", excludes="pairs")] = False,
    intervals: bool = True,
    options: Annotated[LoadOptions, Group("Model", without=["normalize"])] = LoadOptions(),
    scoring: Annotated[ScoringOptions, Group("Output")] = ScoringOptions(),
) -> Result:
    """Score the seven semantic textual similarity tasks by the protocol of the SimCSE papers.

    Spearman correlation (x 100) of the cosine similarity with the gold score,
    over the concatenation of a task's subsets. The mean over the subsets, plain
    and weighted by size, stands beside it, because some papers print those.
    A cross-encoder gives the similarity itself. Several models are compared
    with the first one, on the same samples. What was measured before is not
    measured again.

    Args:
        data: A SentEval data/downstream folder, or sts once it is fetched.
        pairs: A table of your own with the columns sentence1, sentence2 and score (csv, tsv, jsonl or parquet), or a
            folder with one for each topic, such as AFS.
        pair_fields: Columns of --pairs: both sentences and the score, as A,B,SCORE.
        tasks: Comma-separated; default: all that have the split.
        split: dev and train: STSBenchmark and SICKRelatedness.
        aggregation: What is averaged: subsets concatenated, their mean, or their mean weighted by size.
        regression: SentEval's head, trained on the training split of STSBenchmark and SICKRelatedness, instead of the
            cosine.
        intervals: 95 % intervals, from 1,000 samples of the pairs.

    \b
    Examples:
      sentcli sts-eval -m minilm --data SentEval/data/downstream
      sentcli sts-eval -m minilm --data downstream --pooling cls --tasks STS12,STS13
      sentcli sts-eval -m my-model --data downstream --split dev --json dev.json --report dev.html
      sentcli sts-eval -m minilm --pairs my-pairs.tsv
      sentcli sts-eval -m minilm --pairs AFS
      sentcli sts-eval -m seed1 -m seed2 -m seed3 --data downstream --against micse-bert-base
    """  # noqa: D301
    from sentcli.data import dataset_path
    from sentcli.evaluation import relatedness, significance, sts, sts_pairs
    from sentcli.evaluation.measuring import score_model
    from sentcli.evaluation.score_kinds import SIMILARITY
    from sentcli.evaluation.studies import study_of

    resamples = significance.RESAMPLES if intervals else 0
    own_subsets: dict[str, list[Pairs]] = {}
    for file in pairs or []:
        _add_tasks(own_subsets, sts_pairs.read_pairs(file, pair_fields), str(file))
    if data is None and not own_subsets:
        raise InputError("give --data, a SentEval data/downstream folder, or --pairs, a table of your own")
    folder = dataset_path(data) if data is not None else None
    scored_tasks: list[Task]
    if regression and folder is not None:
        scored_tasks = list(relatedness.load_tasks(folder, tasks, resamples=resamples, kind=SIMILARITY))
        options = replace(options, normalize=False)  # the toolkit's head sees the pooled vectors
    else:
        by_task: dict[str, list[Pairs]] = {}
        if folder is not None:
            by_task |= sts_pairs.load_tasks(folder, tasks, split)
        _add_tasks(by_task, own_subsets, "--pairs")
        scored_tasks = [sts.SimilarityTask(name, subsets, resamples, aggregation) for name, subsets in by_task.items()]
    published = scoring.published(SIMILARITY, [task.name for task in scored_tasks])
    if published is not None and (split, aggregation, regression) != ("test", "all", False):
        raise InputError(
            "--against: papers print cosines on the test split with subsets concatenated, so leave those as they are"
        )
    protocol = _protocol(aggregation, split if data is not None else None, resamples, regression=regression)
    if pair_fields is not None:
        protocol["pair_fields"] = pair_fields
    study = study_of(model, groups=scoring.group)
    models = scoring.models(study.models, options, pairs=not regression)
    with scores_if_interrupted() as scores:
        for evaluated in models:
            score_model(evaluated, scored_tasks, "sts-eval", protocol, done=scores)
    return scores_result(scores, published, SIMILARITY, study)


def _add_tasks(subsets_by_task: dict[str, list[Pairs]], more: Mapping[str, list[Pairs]], place: str) -> None:
    """Add tasks that were read from a place.

    Raises:
        InputError: if there is a task of the same name already.
    """
    for name in more:
        if name in subsets_by_task:
            raise InputError(f"{place}: there is a task {name} already; rename the file")
    subsets_by_task |= more


def score_similarity(model: EvaluatedModel, tasks: Mapping[str, Sequence[Pairs]]) -> ModelScores:
    """Score a model on the test split of STS tasks by the usual protocol, as ``sts-eval -m M --data DIR`` does."""
    from sentcli.evaluation import significance, sts
    from sentcli.evaluation.measuring import score_model

    test_tasks = [sts.SimilarityTask(name, subsets, significance.RESAMPLES) for name, subsets in tasks.items()]
    return score_model(model, test_tasks, "sts-eval", _protocol("all", "test", significance.RESAMPLES))


def _protocol(
    aggregation: Aggregation, split: Split | None, resamples: int, *, regression: bool = False
) -> dict[str, Any]:
    from sentcli.evaluation import relatedness
    from sentcli.evaluation.score_kinds import AGGREGATIONS

    protocol: dict[str, Any] = {"correlation": "spearman", "aggregation": AGGREGATIONS[aggregation].title}
    protocol["similarity"] = "regression" if regression else "cosine"
    if regression:
        protocol["regression"] = relatedness.HEAD_PROTOCOL
    return protocol | {"split": split, "interval_draws": resamples}
