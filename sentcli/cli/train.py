"""``sentcli train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentcli.cli import console, options
from sentcli.cli.base import command
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.training.loop import TrainResult

LOG_EVERY = 100
"""Steps between two lines where no progress bar is shown."""


@command("train")
def train(
    method: Annotated[str, typer.Option(help="simcse.", show_default=False)],
    model: options.Model,
    data: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE...",
            help="Text files, one sentence a line, or tables; - is standard input.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="The folder of the trained model.", show_default=False),
    ],
    more_data: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="More text files, as for --data.", show_default=False)
    ] = None,
    pooling: Annotated[str, typer.Option(help=options.POOLING_HELP, rich_help_panel="Model")] = "cls",
    text_field: Annotated[
        str, typer.Option(help="Column of a table that holds the text.", rich_help_panel="Data")
    ] = "text",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Train on the first N sentences.", rich_help_panel="Data")
    ] = None,
    eval_data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A SentEval data/downstream folder: scores STS-B dev and keeps the best weights.",
            rich_help_panel="Data",
        ),
    ] = None,
    eval_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between two scores.", rich_help_panel="Training")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data.", rich_help_panel="Training")] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(min=1, help="Optimiser steps, instead of epochs.", rich_help_panel="Training"),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Sentences a step.", rich_help_panel="Training")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak rate of AdamW.", rich_help_panel="Training")] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=3,
            help="Tokens a sentence in training. Encoding keeps the start model's length.",
            rich_help_panel="Training",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Same seed, machine and versions: same weights.", rich_help_panel="Training"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any setting of the method or of the training.",
            rich_help_panel="Training",
        ),
    ] = None,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Train a sentence encoder on plain text, without labels.

    Every setting that is not given is the paper's. The folder opens with this
    tool and with sentence-transformers; metrics.jsonl in it gets one line a
    step. The head of the training is stored apart and never encodes unasked.

    \b
    Examples:
      sentcli train --method simcse -m minilm --data sentences.txt -o model
      sentcli train --method simcse -m bert-base --data a.txt b.csv -o simcse \\
        --eval-data SentEval/data/downstream --set temperature=0.1
    """  # noqa: D301
    from sentcli.report import Report, environment, write_report
    from sentcli.training.run import TrainRequest, prepare, run

    report = Report("train", model)
    given = {
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "epochs": epochs,
        "max_steps": max_steps,
        "max_length": max_length,
        "eval_every": eval_every,
        "seed": seed,
    }
    request = TrainRequest(
        method=method,
        model=model,
        data=[str(path) for path in (*data, *(more_data or []))],  # --data a b c gives b and c as arguments
        output=output,
        pooling=pooling,
        text_field=text_field,
        limit=limit,
        eval_data=eval_data,
        device=device,
        overwrite=overwrite,
        settings={key: value for key, value in given.items() if value is not None},
        overrides=_key_values(set_ or []),
    )
    prepared = prepare(request)
    encoder, settings = prepared.encoder, prepared.settings
    protocol = {
        **encoder.describe(),
        "encoding_max_length": encoder.spec.max_length,
        "method": method,
        **vars(prepared.method),
        **vars(settings),
        "data": list(prepared.corpus.files),
    }
    report.protocol, report.environment = protocol, environment(encoder.backend.device, "fp32", settings.seed)
    console.note(
        f"{method} from {model}, pooling {encoder.spec.pooling}: {len(prepared.corpus.sentences)} sentences, "
        f"{prepared.steps} steps of {settings.batch_size} on {encoder.backend.device}"
    )
    if prepared.corpus.blank:
        console.warn(f"{prepared.corpus.blank} blank rows were left out")
    with console.training(prepared.steps) as update:
        result = run(prepared, _Display(update))
    _summary(result, output)
    if result.truncated:
        console.note(f"{result.truncated} times a sentence was cut to {settings.max_length} tokens (--max-length)")
    report.results = result.to_dict()
    if json is not None:
        write_report(report.to_dict(), json)


def _key_values(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise InputError(f"--set {pair}: expected KEY=VALUE, for example --set temperature=0.1")
    return dict(pair.split("=", 1) for pair in pairs)


class _Display:
    """Shows steps in the progress bar, and each score of the dev set on a line of its own."""

    def __init__(self, update: Any) -> None:
        self.update, self.dev = update, ""

    def step(self, step: int, total: int, terms: dict[str, float], sentences_per_second: float) -> None:
        losses = ", ".join(f"{name} {value:.4f}" for name, value in terms.items())
        status = f"{losses}{self.dev}, {sentences_per_second:.0f} sentences/s"
        self.update(step, status)
        if console.state.live is None and step % LOG_EVERY == 0:  # a log file gets lines instead of a bar
            console.note(f"step {step} of {total}: {status}")

    def scored(self, step: int, score: float, best: bool) -> None:
        self.dev = f", dev {score:.2f}"
        console.note(f"step {step}: STS-B dev {score:.2f}{' (best so far)' if best and step else ''}")


def _summary(result: TrainResult, output: Path) -> None:
    scores = ""
    if result.best_dev_spearman is not None:
        scores = (
            f"; STS-B dev {result.start_dev_spearman:.2f} -> {result.best_dev_spearman:.2f} at step {result.best_step}"
        )
    console.note(f"{result.steps} steps, {result.sentences_per_second:.0f} sentences/s{scores}; model in {output}")
