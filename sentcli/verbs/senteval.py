"""``senteval``: transfer tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from sentcli.command.declaration import Group, verb
from sentcli.command.result import Result
from sentcli.command.scoring import score_study
from sentcli.errors import InputError
from sentcli.evaluation.options import ScoringOptions
from sentcli.model.options import LoadOptions, Models


@verb("senteval", pages=True)
def senteval(
    model: Models,
    data: Path,
    tasks: str | None = None,
    protocol: Literal["full", "fast", "lbfgs"] = "full",
    options: Annotated[LoadOptions, Group("Model", without=["normalize"])] = LoadOptions(),
    scoring: Annotated[ScoringOptions, Group("Output")] = ScoringOptions(),
) -> Result:
    """Score SentEval's transfer tasks: a linear classifier on frozen vectors.

    The vectors are those before any final normalisation, as in the original
    toolkit, whose folds, shuffles and first weights are kept. Every distinct
    text is encoded once. full trains 410 classifiers for each of MR, CR, SUBJ
    and MPQA (ten folds in ten folds, four penalties), fast 105. What was
    measured before is not measured again.

    Args:
        data: A SentEval data/downstream folder, or senteval once it is fetched.
        tasks: Comma-separated; default: the seven of the papers. Also SST5, SICKEntailment, and with a regression
            SICKRelatedness and STSBenchmark.
        protocol: full is the papers', fast the toolkit's quick one, lbfgs trains to the end.

    \b
    Examples:
      sentcli senteval -m minilm --data SentEval/data/downstream
      sentcli senteval -m minilm --data downstream --protocol lbfgs --tasks MR,TREC
      sentcli senteval -m my-model --data downstream --json senteval.json --against infocse-bert-base
    """  # noqa: D301
    from sentcli.data import dataset_path
    from sentcli.evaluation import probe, relatedness, significance, sts_pairs, transfer, transfer_data
    from sentcli.evaluation.evaluated import Task
    from sentcli.evaluation.files import task_names
    from sentcli.evaluation.score_kinds import TRANSFER
    from sentcli.evaluation.studies import study_of

    data = dataset_path(data)
    with_regression = sts_pairs.SPLITS
    usual = transfer_data.AVERAGED
    chosen = task_names(usual if tasks is None else tasks, [*transfer_data.LAYOUTS, *with_regression])
    classified = transfer.load_transfer_tasks(data, [name for name in chosen if name not in with_regression], protocol)
    graded_names = [name for name in chosen if name in with_regression]
    graded = relatedness.load_relatedness_tasks(data, graded_names, resamples=significance.RESAMPLES)
    published = scoring.published(TRANSFER, [task.name for task in classified])
    if published is not None and protocol != "full":
        raise InputError("--against: papers print the protocol full, so leave that as it is")
    all_tasks: list[Task] = [*classified, *graded]
    all_tasks.sort(key=lambda task: chosen.index(task.name))
    choices = transfer.transfer_choices(protocol, classified)
    if graded:
        choices["regression"] = relatedness.HEAD_PROTOCOL
    study = study_of(model, groups=scoring.group)
    models = scoring.models(study.models, replace(options, normalize=False))
    runs = [(evaluated, all_tasks, choices) for evaluated in models]
    return score_study(study, runs, TRANSFER, published, seed=probe.TOOLKIT_SEED)
