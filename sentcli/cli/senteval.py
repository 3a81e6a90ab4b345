"""``sentcli senteval``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sentcli import console
from sentcli.cli import options, scores
from sentcli.cli.base import command

if TYPE_CHECKING:
    from sentcli.evaluation.candidate import Measurement
    from sentcli.evaluation.transfer import TransferResult


@command("senteval")
def senteval(
    model: scores.Models,
    data: Annotated[
        Path,
        typer.Option(help="A SentEval data/downstream folder, or senteval once it is fetched.", show_default=False),
    ],
    tasks: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated; default: the seven of the papers. Also SST5, SICKEntailment, and with a regression "
            "SICKRelatedness and STSBenchmark."
        ),
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
    rerun: options.Rerun = False,
    json: options.Json = None,
    pages: scores.Pages = None,
) -> None:
    """Score SentEval's transfer tasks: a linear classifier on frozen vectors.

    The vectors are those before any final normalisation, as in the original
    toolkit, whose folds, shuffles and first weights are kept. Every distinct
    text is encoded once. full trains 410 classifiers for each of MR, CR, SUBJ
    and MPQA (ten folds in ten folds, four penalties), fast 105. What was
    measured before is not measured again.

    \b
    Examples:
      sentcli senteval -m minilm --data SentEval/data/downstream
      sentcli senteval -m minilm --data downstream --protocol lbfgs --tasks MR,TREC
      sentcli senteval -m my-model --data downstream --json senteval.json --against infocse-bert-base
    """  # noqa: D301
    from sentcli.cli.json_report import Report
    from sentcli.data import located
    from sentcli.errors import InputError
    from sentcli.evaluation import probe, relatedness, significance, sts, transfer, transfer_tasks

    data = located(data)
    chosen = scores.task_names(tasks) or list(transfer_tasks.AVERAGED)
    classified = transfer_tasks.load_tasks(data, [name for name in chosen if name not in sts.SPLITS])
    graded = relatedness.load_tasks(data, [name for name in chosen if name in sts.SPLITS])
    found = scores.system(against, "senteval", [task.name for task in classified])
    if found is not None and protocol != "full":
        raise InputError("--against: papers print the protocol full, so leave that as it is")
    candidates = [
        options.candidate(name, backend, precision, device, pooling, False, max_length, rerun=rerun) for name in model
    ]
    trained: list[Measurement[Any]] = [transfer.measurement(protocol, task, console.counting) for task in classified]
    heads = [relatedness.measurement(task, significance.DRAWS, console.counting) for task in graded]
    settings = {
        "name": protocol,
        "features": "pooled vectors before normalisation; |u - v| and u * v of pairs",
        **(transfer.PROTOCOLS[protocol].describe() if trained else {}),
        **({"regression": relatedness.PROTOCOL} if heads else {}),
    }
    reports, results, regressions = [], [], []
    for candidate in candidates:
        report = Report("senteval", candidate.name)
        measured: list[Any] = candidate.measure([*trained, *heads], console.encoding_texts)
        result = transfer.TransferResult(tuple(measured[: len(trained)]))
        regression = sts.STSResult("test", tuple(measured[len(trained) :]))
        if result.tasks:
            report.average = result.average
            report.average_interval = result.average_interval if len(result.tasks) > 1 else None
            pooling_named = f"pooling {candidate.spec.pooling}, before normalisation"
            _show(f"{candidate.name}: SentEval {protocol}, {pooling_named}", result)
        if regression.tasks:
            scores.show_regression(candidate.name, regression)
        tested: dict[str, Any] = {one.task: one.to_dict() for one in result.tasks}
        tested |= {one.task: one.to_dict() for one in regression.tasks}
        scores.end(report, candidate, settings, {name: tested[name] for name in chosen}, probe.SEED)
        reports.append(report)
        results.append(result)
        regressions.append(regression)
    kinds = [*([_measured(results)] if trained else []), *([scores.correlations(regressions)] if heads else [])]
    scores.finish(reports, kinds, found, json, pages)


def _measured(results: list[TransferResult]) -> scores.Measured:
    """Return the accuracies of all models, and what sets the later ones apart from the first."""
    from sentcli.evaluation import transfer

    first = results[0]
    found = {task.task: [r.tasks[i].accuracy for r in results] for i, task in enumerate(first.tasks)}
    intervals = {task.task: task.interval for task in first.tasks}
    if len(first.tasks) > 1:
        found["average"] = [result.average for result in results]
        intervals["average"] = first.average_interval
    return scores.Measured("Accuracy", found, intervals, [transfer.compare(result, first) for result in results[1:]])


def _show(title: str, result: TransferResult) -> None:
    rows = []
    for task in result.tasks:
        numbers = [f"{task.dev_accuracy:.2f}", f"{task.accuracy:.2f}", "{:.2f} to {:.2f}".format(*task.interval)]
        rows.append([task.task, task.train, task.test, *numbers, "" if task.f1 is None else f"{task.f1:.2f}"])
    if len(rows) > 1:
        between = "{:.2f} to {:.2f}".format(*result.average_interval)
        rows.append(["average", "", "", "", f"{result.average:.2f}", between, ""])
    console.table(title, ["task", "train", "test", "dev accuracy", "accuracy", "95 % interval", "F1"], rows)
