"""``sentcli sts-eval``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sentcli import console
from sentcli.cli import options, scores
from sentcli.cli.base import command

if TYPE_CHECKING:
    from sentcli.cli.json_report import Report
    from sentcli.evaluation.candidate import Candidate
    from sentcli.evaluation.relatedness import GradedTask
    from sentcli.evaluation.sts import Pairs, STSResult


@command("sts-eval")
def sts_eval(
    model: scores.Models,
    data: Annotated[
        Path | None,
        typer.Option(help="A SentEval data/downstream folder, or sts once it is fetched.", show_default=False),
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="A table of your own with the columns sentence1, sentence2 and score (csv, tsv, jsonl or parquet), or "
            "a folder with one for each topic, such as AFS.",
            show_default=False,
        ),
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Comma-separated; default: all that have the split.")] = None,
    split: Annotated[
        Literal["test", "dev", "train"], typer.Option(help="dev and train: STSBenchmark and SICKRelatedness.")
    ] = "test",
    aggregation: Annotated[
        Literal["all", "mean", "wmean"],
        typer.Option(help="What is averaged: subsets concatenated, their mean, or their mean weighted by size."),
    ] = "all",
    regression: Annotated[
        bool,
        typer.Option(
            "--regression",
            help="SentEval's head, trained on the training split of STSBenchmark and SICKRelatedness, instead of the "
            "cosine.",
        ),
    ] = False,
    intervals: Annotated[
        bool, typer.Option("--intervals/--no-intervals", help="95 % intervals, from 1,000 samples of the pairs.")
    ] = True,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    against: scores.AgainstOption = None,
    rerun: options.Rerun = False,
    json: options.Json = None,
    pages: scores.Pages = None,
) -> None:
    """Score the seven semantic textual similarity tasks by the protocol of the SimCSE papers.

    Spearman correlation (x 100) of the cosine similarity with the gold score,
    over the concatenation of a task's subsets. The mean over the subsets, plain
    and weighted by size, stands beside it, because some papers print those.
    Several models are compared with the first one, on the same samples. What
    was measured before is not measured again.

    \b
    Examples:
      sentcli sts-eval -m minilm --data SentEval/data/downstream
      sentcli sts-eval -m minilm --data downstream --pooling cls --tasks STS12,STS13
      sentcli sts-eval -m my-model --data downstream --split dev --json dev.json --report dev.html
      sentcli sts-eval -m minilm --pairs my-pairs.tsv
      sentcli sts-eval -m minilm --pairs AFS
      sentcli sts-eval -m seed1 -m seed2 -m seed3 --data downstream --against micse-bert-base
    """  # noqa: D301
    from sentcli.errors import InputError
    from sentcli.evaluation import significance

    wanted = _read(data, pairs or [], scores.task_names(tasks), split, regression)
    found = scores.system(against, "sts-eval", wanted)
    if found is not None and (split, aggregation, regression) != ("test", "all", False):
        raise InputError(
            "--against: papers print cosines on the test split with subsets concatenated, so leave those as they are"
        )
    normalize = False if regression else None  # the toolkit's head sees the pooled vectors
    candidates = [
        options.candidate(name, backend, precision, device, pooling, normalize, max_length, rerun=rerun)
        for name in model
    ]
    draws = significance.DRAWS if intervals else 0
    reports, results = measure(
        candidates, wanted, split if data is not None else None, draws, aggregation, regression=regression
    )
    scores.finish(reports, [scores.correlations(results)], found, json, pages)


def measure(
    candidates: Sequence[Candidate],
    wanted: Mapping[str, list[Pairs] | GradedTask],
    split: str | None,
    draws: int,
    aggregation: str = "all",
    *,
    regression: bool = False,
) -> tuple[list[Report], list[STSResult]]:
    """Score models on tasks and print a table for each.

    Args:
        candidates: the models.
        wanted: tasks by name.
        split: of a SentEval folder; None for pairs of one's own.
        draws: samples of the pairs, for intervals.
        aggregation: a key of `sts.AGGREGATIONS`.
        regression: the tasks train a head.
    """
    from sentcli.cli.json_report import Report
    from sentcli.evaluation import relatedness, significance, sts

    measurements = [
        relatedness.measurement(task, draws, console.counting)
        if isinstance(task, relatedness.GradedTask)
        else sts.measurement(name, task, draws, aggregation)
        for name, task in wanted.items()
    ]
    protocol = {
        "correlation": "spearman",
        "aggregation": sts.AGGREGATIONS[aggregation].title,
        "similarity": "regression" if regression else "cosine",
        **({"regression": relatedness.PROTOCOL} if regression else {}),
        "split": split,
        "interval_draws": draws,
    }
    reports, results = [], []
    for candidate in candidates:
        report = Report("sts-eval", candidate.name)
        found = candidate.measure(measurements, console.encoding_texts)
        result = sts.STSResult(split or "test", tuple(found), aggregation)
        report.average, report.average_pearson = result.average, result.average_pearson
        if len(result.tasks) > 1 and result.average_draws is not None:
            report.average_interval = significance.interval(result.average_draws)
        if regression:
            scores.show_regression(candidate.name, result)
        else:
            what = f"STS {split}" if split is not None else "pairs"
            _show(f"{candidate.name}: {what}, pooling {candidate.spec.pooling}, Spearman of cosines", result)
        scores.end(report, candidate, protocol, {task.task: task.to_dict() for task in result.tasks})
        reports.append(report)
        results.append(result)
    return reports, results


def _read(
    data: Path | None, pairs: list[str], tasks: list[str] | None, split: str, regression: bool
) -> dict[str, list[Pairs] | GradedTask]:
    """Read the tasks of a SentEval folder, and those of tables of one's own."""
    from sentcli.data import located
    from sentcli.errors import InputError
    from sentcli.evaluation import relatedness, sts

    if data is None and not pairs:
        raise InputError("give --data, a SentEval data/downstream folder, or --pairs, a table of your own")
    if data is None and (tasks or split != "test"):
        raise InputError("--tasks and --split are of --data")
    data = located(data) if data is not None else None
    if regression:
        if data is None or pairs or split != "test":
            raise InputError("--regression trains on the training split of --data and scores its test split")
        return {task.name: task for task in relatedness.load_tasks(data, tasks or list(sts.SPLITS))}
    loaded = sts.load_tasks(data, tasks, split) if data is not None else {}
    for file in pairs:
        own = sts.read_pairs(file)
        if own.keys() & loaded.keys():
            raise InputError(f"{file}: there is a task {next(iter(own))} already; rename the file")
        loaded |= own
    return dict(loaded)


def _show(title: str, result: STSResult) -> None:
    from sentcli.evaluation.significance import interval
    from sentcli.evaluation.sts import AGGREGATIONS

    shown = ("spearman", "pearson", "spearman_mean", "spearman_wmean")
    rows = []
    for task in result.tasks:
        between = "" if task.draws is None else "{:.2f} to {:.2f}".format(*interval(task.draws))
        rows.append([task.task, task.pairs, *(f"{getattr(task, name):.2f}" for name in shown), between])
    if len(rows) > 1:
        draws = result.average_draws
        between = "" if draws is None else "{:.2f} to {:.2f}".format(*interval(draws))
        averaged = AGGREGATIONS[result.aggregation].score
        means = {averaged: result.average, "pearson": result.average_pearson}
        cells = [f"{means[name]:.2f}" if name in means else "" for name in shown]
        rows.append(["average", sum(task.pairs for task in result.tasks), *cells, between])
    columns = ["task", "pairs", "Spearman", "Pearson", "mean of subsets", "weighted mean", "95 % interval"]
    console.table(title, columns if rows[0][-1] else columns[:-1], rows if rows[0][-1] else [row[:-1] for row in rows])
