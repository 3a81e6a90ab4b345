"""``sentcli sts-eval``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sentcli.cli import console, options
from sentcli.cli.base import command


@command("sts-eval")
def sts_eval(
    model: options.Model,
    data: Annotated[Path, typer.Option(help="A SentEval data/downstream folder.", show_default=False)],
    tasks: Annotated[str | None, typer.Option(help="Comma-separated; default: all that have the split.")] = None,
    split: Annotated[
        Literal["test", "dev", "train"], typer.Option(help="dev and train: STSBenchmark and SICKRelatedness.")
    ] = "test",
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    json: options.Json = None,
) -> None:
    """Score the seven semantic textual similarity tasks by the protocol of the SimCSE papers.

    Spearman correlation (x 100) of the cosine similarity with the gold score,
    over the concatenation of a task's subsets. The mean over the subsets, plain
    and weighted by size, stands beside it, because some papers print those.

    \b
    Examples:
      sentcli sts-eval -m minilm --data SentEval/data/downstream
      sentcli sts-eval -m minilm --data downstream --pooling cls --tasks STS12,STS13
      sentcli sts-eval -m my-model --data downstream --split dev --json dev.json
    """  # noqa: D301
    from sentcli.errors import InputError
    from sentcli.evaluation import sts
    from sentcli.report import Report, environment, write_report

    report = Report("sts-eval", model)
    chosen = [name.strip() for name in tasks.split(",") if name.strip()] if tasks else None
    if chosen == []:
        raise InputError("--tasks names no task")
    loaded = sts.load_tasks(data, chosen, split)
    encoder = options.load(model, backend, precision, device, pooling, None, max_length, make_export=False)
    protocol = {
        "correlation": "spearman",
        "aggregation": "all (subsets concatenated)",
        "similarity": "cosine",
        "split": split,
        **encoder.describe(),
    }
    report.protocol, report.environment = protocol, environment(encoder.backend.device, encoder.backend.precision)
    with console.encoding("encoding", sts.distinct_sentences(loaded)) as bar:
        result = sts.evaluate(encoder, loaded, split, bar)
    report.results = {task.task: task.to_dict() for task in result.tasks}
    report.average = result.average
    protocol["truncated_texts"] = result.truncated
    rows = [
        [t.task, t.pairs, *(f"{x:.2f}" for x in (t.spearman, t.pearson, t.spearman_mean, t.spearman_wmean))]
        for t in result.tasks
    ]
    if len(rows) > 1:
        rows.append(["average", sum(t.pairs for t in result.tasks), f"{result.average:.2f}", "", "", ""])
    title = f"{model}: STS {split}, pooling {encoder.spec.pooling}, subsets concatenated"
    console.table(title, ["task", "pairs", "Spearman", "Pearson", "mean of subsets", "weighted mean"], rows)
    options.warn_truncated(encoder, result.truncated)
    if json is not None:
        write_report(report.to_dict(), json)
