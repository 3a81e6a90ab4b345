"""``sentcli senteval``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sentcli.cli import console, options, scores
from sentcli.cli.base import command

if TYPE_CHECKING:
    from sentcli.evaluation.transfer import TransferResult


@command("senteval")
def senteval(
    model: scores.Models,
    data: Annotated[Path, typer.Option(help="A SentEval data/downstream folder.", show_default=False)],
    tasks: Annotated[
        str | None,
        typer.Option(help="Comma-separated; default: the seven of the papers. Also SST5 and SICKEntailment."),
    ] = None,
    protocol: Annotated[
        Literal["full", "fast", "lbfgs"],
        typer.Option(help="full is the papers', fast the toolkit's quick one, lbfgs trains to the end."),
    ] = "full",
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    against: scores.AgainstOption = None,
    json: options.Json = None,
) -> None:
    """Score SentEval's transfer tasks: a linear classifier on frozen vectors.

    The vectors are those before any final normalisation, as in the original
    toolkit, whose folds, shuffles and first weights are kept. Every distinct
    text is encoded once. full trains 410 classifiers for each of MR, CR, SUBJ
    and MPQA (ten folds in ten folds, four penalties), fast 105.

    \b
    Examples:
      sentcli senteval -m minilm --data SentEval/data/downstream
      sentcli senteval -m minilm --data downstream --protocol lbfgs --tasks MR,TREC
      sentcli senteval -m my-model --data downstream --json senteval.json --against infocse-bert-base
    """  # noqa: D301
    from sentcli.data import located
    from sentcli.errors import InputError
    from sentcli.evaluation import transfer, transfer_tasks
    from sentcli.evaluation.probe import PROTOCOLS, SEED
    from sentcli.report import Report, environment

    loaded = transfer_tasks.load_tasks(located(data), scores.task_names(tasks))
    found = scores.system(against, "senteval", [task.name for task in loaded])
    if found is not None and protocol != "full":
        raise InputError("--against: papers print the protocol full, so leave that as it is")
    scores.check_models(model, pooling, False)
    trainer = PROTOCOLS[protocol]
    reports, results = [], []
    for name in model:
        report = Report("senteval", name)
        encoder = options.load(name, backend, precision, device, pooling, False, max_length, make_export=False)
        report.environment = environment(encoder.backend.device, encoder.backend.precision, SEED)
        with console.encoding("encoding", len(transfer_tasks.distinct_texts(loaded))) as bar:
            vectors = transfer.encode(encoder, loaded, bar)
        tested = []
        for task in loaded:
            with console.counting(f"{task.name}: classifiers", transfer.classifiers(trainer, task)) as finished:
                tested.append(transfer.score(trainer, task, vectors, finished))
        result = transfer.TransferResult(tuple(tested), vectors.truncated)
        report.protocol = {
            "name": protocol,
            "features": "pooled vectors before normalisation; |u - v| and u * v of pairs",
            **trainer.describe(),
            **encoder.describe(),
            "truncated_texts": result.truncated,
        }
        report.results = {task.task: task.to_dict() for task in result.tasks}
        report.average = result.average
        _show(f"{name}: SentEval {protocol}, pooling {encoder.spec.pooling}, before normalisation", result)
        options.warn_truncated(encoder, result.truncated)
        report.finish()
        reports.append(report)
        results.append(result)
    measured = {task.task: [r.tasks[i].accuracy for r in results] for i, task in enumerate(results[0].tasks)}
    ranges = {task.task: task.interval for task in results[0].tasks}
    if len(loaded) > 1:
        measured["average"] = [result.average for result in results]
        ranges["average"] = results[0].average_interval
    differences = [transfer.compare(result, results[0]) for result in results[1:]]
    scores.finish("Accuracy", reports, measured, differences, ranges, found, json)


def _show(title: str, result: TransferResult) -> None:
    rows = []
    for task in result.tasks:
        numbers = [f"{task.dev_accuracy:.2f}", f"{task.accuracy:.2f}", "{:.2f} to {:.2f}".format(*task.interval)]
        rows.append([task.task, task.train, task.test, *numbers, "" if task.f1 is None else f"{task.f1:.2f}"])
    if len(rows) > 1:
        between = "{:.2f} to {:.2f}".format(*result.average_interval)
        rows.append(["average", "", "", "", f"{result.average:.2f}", between, ""])
    console.table(title, ["task", "train", "test", "dev accuracy", "accuracy", "95 % interval", "F1"], rows)
