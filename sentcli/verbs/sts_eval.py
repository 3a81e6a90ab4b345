"""``sts-eval``: semantic textual similarity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from sentcli.bounds import Holds
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Result
from sentcli.command.scoring import score_study
from sentcli.errors import InputError
from sentcli.evaluation.options import ScoringOptions
from sentcli.model.options import LoadOptions, Models

if TYPE_CHECKING:
    from sentcli.evaluation.evaluated import Task

Aggregation = Literal["all", "mean", "wmean"]
SplitName = Literal["test", "dev", "train"]


@verb("sts-eval", pages=True, common="model data pairs pair_fields tasks split aggregation against pooling json report")
def sts_eval(
    model: Models,
    data: Path | None = None,
    pairs: Annotated[list[str] | None, Holds.TEXT_FILE, Flag(metavar="FILE")] = None,
    pair_fields: Annotated[str | None, Holds.WORDS, Flag(metavar="A,B[,C]", needs="pairs")] = None,
    tasks: Annotated[str | None, Flag(needs="data")] = None,
    split: Annotated[SplitName, Flag(needs="data", excludes="regression")] = "test",
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
    from sentcli.evaluation.score_kinds import SIMILARITY
    from sentcli.evaluation.studies import study_of

    resamples = significance.RESAMPLES if intervals else 0
    if data is None and not pairs:
        raise InputError("give --data, a SentEval data/downstream folder, or --pairs, a table of your own")
    folder = dataset_path(data) if data is not None else None
    scored_tasks: list[Task] = []
    head = None
    if regression and folder is not None:
        head = relatedness.HEAD_PROTOCOL
        scored_tasks += relatedness.load_relatedness_tasks(folder, tasks, resamples=resamples, kind=SIMILARITY)
        options = replace(options, normalize=False)  # the toolkit's head sees the pooled vectors
    elif folder is not None:
        scored_tasks += sts.load_similarity_tasks(folder, tasks, split, resamples=resamples, aggregation=aggregation)
    names = {task.name for task in scored_tasks}
    for file in pairs or []:
        for name, subsets in sts_pairs.read_pairs(file, pair_fields).items():
            if name in names:
                raise InputError(f"{file}: there is a task {name} already; rename the file")
            names.add(name)
            scored_tasks.append(sts.SimilarityTask(name, subsets, resamples, aggregation))
    published = scoring.published(SIMILARITY, names)
    if published is not None and (split, aggregation, regression) != ("test", "all", False):
        raise InputError(
            "--against: papers print cosines on the test split with subsets concatenated, so leave those as they are"
        )
    protocol = sts.similarity_protocol(aggregation, None if data is None else split, resamples, head)
    if pair_fields is not None:
        protocol["pair_fields"] = pair_fields
    study = study_of(model, groups=scoring.group)
    models = scoring.models(study.models, options, pairs=not regression)
    runs = [(evaluated, scored_tasks, protocol) for evaluated in models]
    return score_study(study, runs, SIMILARITY, published)
