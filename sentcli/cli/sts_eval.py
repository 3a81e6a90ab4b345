"""``sentcli sts-eval``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sentcli.cli import console, options, scores
from sentcli.cli.base import command

if TYPE_CHECKING:
    from sentcli.evaluation.sts import Pairs, STSResult


@command("sts-eval")
def sts_eval(
    model: scores.Models,
    data: Annotated[Path | None, typer.Option(help="A SentEval data/downstream folder.", show_default=False)] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="A table of your own with the columns sentence1, sentence2 and score: csv, tsv, jsonl or parquet.",
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
    intervals: Annotated[
        bool, typer.Option("--intervals/--no-intervals", help="95 % intervals, from 1,000 samples of the pairs.")
    ] = True,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    against: scores.AgainstOption = None,
    json: options.Json = None,
) -> None:
    """Score the seven semantic textual similarity tasks by the protocol of the SimCSE papers.

    Spearman correlation (x 100) of the cosine similarity with the gold score,
    over the concatenation of a task's subsets. The mean over the subsets, plain
    and weighted by size, stands beside it, because some papers print those.
    Several models are compared with the first one, on the same samples.

    \b
    Examples:
      sentcli sts-eval -m minilm --data SentEval/data/downstream
      sentcli sts-eval -m minilm --data downstream --pooling cls --tasks STS12,STS13
      sentcli sts-eval -m my-model --data downstream --split dev --json dev.json
      sentcli sts-eval -m minilm --pairs my-pairs.tsv
      sentcli sts-eval -m seed1 -m seed2 -m seed3 --data downstream --against micse-bert-base
    """  # noqa: D301
    from sentcli.errors import InputError
    from sentcli.evaluation import significance, sts
    from sentcli.report import Report, environment

    loaded = _read(data, pairs or [], scores.task_names(tasks), split)
    found = scores.system(against, "sts-eval", loaded)
    if found is not None and (split, aggregation) != ("test", "all"):
        raise InputError("--against: papers print the test split with subsets concatenated, so leave those as they are")
    scores.check_models(model, pooling, None)
    draws = significance.DRAWS if intervals else 0
    reports, results = [], []
    for name in model:
        report = Report("sts-eval", name)
        encoder = options.load(name, backend, precision, device, pooling, None, max_length, make_export=False)
        report.environment = environment(encoder.backend.device, encoder.backend.precision)
        with console.encoding("encoding", sts.distinct_sentences(loaded)) as bar:
            result = sts.evaluate(encoder, loaded, split, bar, draws=draws, aggregation=aggregation)
        report.protocol = {
            "correlation": "spearman",
            "aggregation": AGGREGATED[aggregation],
            "similarity": "cosine",
            "split": split if data is not None else None,
            "interval_draws": draws,
            **encoder.describe(),
            "truncated_texts": result.truncated,
            "zero_vectors": result.zero_vectors,
        }
        report.results = {task.task: task.to_dict() for task in result.tasks}
        report.average = result.average
        _show(name, encoder.spec.pooling, result)
        options.warn_truncated(encoder, result.truncated)
        if result.zero_vectors:
            console.warn(f"the vectors of {result.zero_vectors} sentences are zero; their similarities count as 0")
        report.finish()
        reports.append(report)
        results.append(result)
    measured, ranges = _measured(results)
    differences = [sts.compare(result, results[0]) for result in results[1:]]
    scores.finish("Spearman", reports, measured, differences, ranges, found, json)


def _read(data: Path | None, pairs: list[str], tasks: list[str] | None, split: str) -> dict[str, list[Pairs]]:
    """Read the tasks of a SentEval folder, and those of tables of one's own."""
    from sentcli.data import located
    from sentcli.errors import InputError
    from sentcli.evaluation import sts

    if data is None and not pairs:
        raise InputError("give --data, a SentEval data/downstream folder, or --pairs, a table of your own")
    if data is None and (tasks or split != "test"):
        raise InputError("--tasks and --split are of --data")
    loaded = sts.load_tasks(located(data), tasks, split) if data is not None else {}
    for file in pairs:
        own = sts.read_pairs(file)
        if own.keys() & loaded.keys():
            raise InputError(f"{file}: there is a task {next(iter(own))} already; rename the file")
        loaded |= own
    return loaded


AGGREGATED = {
    "all": "all (subsets concatenated)",
    "mean": "mean of the subsets",
    "wmean": "mean of the subsets, weighted by size",
}


def _show(model: str, pooling: str, result: STSResult) -> None:
    from sentcli.evaluation.significance import interval

    rows = []
    for task in result.tasks:
        between = "" if task.draws is None else "{:.2f} to {:.2f}".format(*interval(task.draws))
        numbers = (task.spearman, task.pearson, task.spearman_mean, task.spearman_wmean)
        rows.append([task.task, task.pairs, *(f"{number:.2f}" for number in numbers), between])
    if len(rows) > 1:
        draws = result.average_draws
        between = "" if draws is None else "{:.2f} to {:.2f}".format(*interval(draws))
        cells = ["", "", "", ""]
        cells[{"all": 0, "mean": 2, "wmean": 3}[result.aggregation]] = f"{result.average:.2f}"
        rows.append(["average", sum(task.pairs for task in result.tasks), *cells, between])
    what = "Spearman of concatenated subsets" + (" with 95 % interval" if rows[0][-1] else "")
    title = f"{model}: STS {result.split}, pooling {pooling}, {what}"
    columns = ["task", "pairs", "Spearman", "Pearson", "mean of subsets", "weighted mean", "interval"]
    console.table(title, columns if rows[0][-1] else columns[:-1], rows if rows[0][-1] else [row[:-1] for row in rows])


def _measured(results: list[STSResult]) -> tuple[dict[str, list[float]], dict[str, tuple[float, float]]]:
    """Return the scores of each task, one for each model, and the intervals of the first model's."""
    from sentcli.evaluation.significance import interval

    first = results[0]
    measured = {task.task: [r.tasks[i].spearman for r in results] for i, task in enumerate(first.tasks)}
    ranges = {task.task: interval(task.draws) for task in first.tasks if task.draws is not None}
    if first.average_draws is not None:
        ranges["average"] = interval(first.average_draws)
    if first.aggregation == "all" and len(first.tasks) > 1:
        measured["average"] = [result.average for result in results]
    return measured, ranges
