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
    text is encoded once. full trains 400 classifiers for each of MR, CR, SUBJ
    and MPQA (ten folds in ten folds, four penalties), fast 100.

    \b
    Examples:
      sentcli senteval -m minilm --data SentEval/data/downstream
      sentcli senteval -m minilm --data downstream --protocol lbfgs --tasks MR,TREC
      sentcli senteval -m my-model --data downstream --json senteval.json --against infocse-bert-base
    """  # noqa: D301
    from sentcli.errors import InputError
    from sentcli.evaluation import published, transfer, transfer_tasks
    from sentcli.evaluation.probe import PROTOCOLS, SEED
    from sentcli.report import Report, environment

    found = scores.system(against)
    chosen = [name.strip() for name in tasks.split(",") if name.strip()] if tasks else None
    if chosen == []:
        raise InputError("--tasks names no task")
    loaded = transfer_tasks.load_tasks(data, chosen)
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
        reports.append(report)
        results.append(result)
    measured = {task.task: [r.tasks[i].accuracy for r in results] for i, task in enumerate(results[0].tasks)}
    measured["average"] = [result.average for result in results]
    if len(results) > 1:
        differences = [transfer.compare(result, results[0]) for result in results[1:]]
        for report, difference in zip(reports[1:], differences, strict=True):
            report.compared = {"with": model[0], **{task: each.to_dict() for task, each in difference.items()}}
        scores.show_models("Accuracy", model, measured, differences)
    ranges = {task.task: task.interval for task in results[0].tasks}
    compared = published.compare(found, "senteval", measured, ranges) if found is not None else None
    scores.write(reports, found, compared, json)


def _show(title: str, result: TransferResult) -> None:
    rows = []
    for task in result.tasks:
        numbers = [f"{task.dev_accuracy:.2f}", f"{task.accuracy:.2f}", "{:.2f} to {:.2f}".format(*task.interval)]
        rows.append([task.task, task.train, task.test, *numbers, "" if task.f1 is None else f"{task.f1:.2f}"])
    if len(rows) > 1:
        rows.append(["average", "", "", "", f"{result.average:.2f}", "", ""])
    console.table(title, ["task", "train", "test", "dev accuracy", "accuracy", "95 % interval", "F1"], rows)
