"""``sentcli train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentcli.cli import console, options
from sentcli.cli.base import command
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.methods.recipes import Recipe
    from sentcli.training.loop import Moment, TrainResult
    from sentcli.training.run import Prepared

LOG_EVERY = 100
"""Steps between two lines where no progress bar is shown."""


METHODS_HELP = (
    "simcse, informin-cl, micse, infocse, is-bert, whitenedcse; ct, mirror-bert, mlm, sts-regression; whitening, "
    "first-last-avg."
)
METHOD, DATA, TRAINING = "Method", "Data", "Training"


@command("train")
def train(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="The folder of the trained model.", show_default=False),
    ],
    method: Annotated[str | None, typer.Option(help=METHODS_HELP, show_default=False)] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A model folder, a short name (sentcli doctor lists them), or a hub id.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE...",
            help="Text files, one sentence a line, or tables; - is standard input.",
            show_default=False,
        ),
    ] = None,
    more_data: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="More text files, as for --data.", show_default=False)
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.toml",
            help="A paper's method, model and settings, such as micse-bert-base (docs/recipes.md lists them).",
            rich_help_panel=METHOD,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any setting of the method or of the training; objectives+=ami adds a term to the loss.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(help="infocse: pretrain, its first stage.", rich_help_panel=METHOD),
    ] = None,
    aux_init: Annotated[
        str | None,
        typer.Option(
            metavar="copy-top|random|DIR",
            help="infocse: where the auxiliary network starts; DIR is the result of --stage pretrain.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="As for encode; own is what the folder says. By default cls, but is-bert's CNN, first-last-avg for "
            "whitening and the method of that name, own for sts-regression.",
            rich_help_panel="Model",
        ),
    ] = None,
    text_field: Annotated[
        str, typer.Option(help="Column of a table that holds the text.", rich_help_panel=DATA)
    ] = "text",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Train on the first N sentences.", rich_help_panel=DATA)
    ] = None,
    fraction: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Train on this share of the sentences, the first.", rich_help_panel=DATA),
    ] = None,
    subset_seed: Annotated[
        int | None,
        typer.Option(min=0, help="Draw those of --limit or --fraction at random instead.", rich_help_panel=DATA),
    ] = None,
    eval_data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A SentEval data/downstream folder: scores STS-B dev and keeps the best weights.",
            rich_help_panel=DATA,
        ),
    ] = None,
    eval_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between two scores.", rich_help_panel=TRAINING)
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data.", rich_help_panel=TRAINING)] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(min=1, help="Optimiser steps, instead of epochs.", rich_help_panel=TRAINING),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Sentences a step.", rich_help_panel=TRAINING)] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak rate.", rich_help_panel=TRAINING)] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=3,
            help="Tokens a sentence in training. Encoding keeps the start model's length.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Same seed, machine and versions: same weights.", rich_help_panel=TRAINING),
    ] = None,
    device: options.Device = "auto",
    save_every: Annotated[
        int, typer.Option(min=0, help="Steps between two checkpoints; 0 for none.", rich_help_panel=TRAINING)
    ] = 500,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on after an interruption, to the same weights.", rich_help_panel=options.OUTPUT
        ),
    ] = False,
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Train a sentence encoder, on plain text unless the method is supervised.

    Every setting that is not given is the paper's; -v lists them all. (Only ct
    and mirror-bert were made for --pooling mean; they take cls unless told.)
    The folder opens with this tool and with sentence-transformers, and its
    metrics.jsonl gets one line a step. The head of the training is stored apart
    and never encodes unasked.

    \b
    Examples:
      sentcli train --method simcse -m minilm --data sentences.txt -o model
      sentcli train --method micse -m bert-base --data a.txt b.csv -o micse \\
        --eval-data SentEval/data/downstream --set ami.weight=1e-3
      sentcli train --method informin-cl --set objectives+=ami \\
        -m minilm --data sentences.txt -o both
      sentcli train --recipe whitenedcse-bert-base --data wiki1m.txt -o white
    """  # noqa: D301
    from sentcli.report import Report, environment, write_report
    from sentcli.training.data import Subset
    from sentcli.training.run import TrainRequest, prepare, run

    cooked = _recipe(recipe)
    method, model = _choice("method", method, cooked), _choice("model", model, cooked, replaceable=True)
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
        data=[str(path) for path in (*(data or []), *(more_data or []))],  # --data a b gives b as an argument
        output=output,
        stage=stage or (cooked.stage if cooked else None),
        pooling=pooling or (cooked.pooling if cooked else None),
        text_field=text_field,
        subset=Subset(limit, fraction, subset_seed),
        eval_data=eval_data,
        device=device,
        overwrite=overwrite,
        resume=resume,
        save_every=save_every,
        assignments=[
            *_key_values(set_ or []),
            *([("aux_init", aux_init)] if aux_init is not None else []),
            *((f"settings.{key}", value) for key, value in given.items() if value is not None),
        ],
        recipe=cooked,
    )
    prepared = prepare(request)
    encoder, settings = prepared.encoder, prepared.method.settings
    report.protocol = {
        **encoder.describe(),
        "encoding_max_length": encoder.spec.max_length,
        "method": method,
        "recipe": recipe,
        **prepared.method.describe(),
        **(vars(settings) if prepared.model is not None else {}),
        "data": list(prepared.corpus.files),
    }
    report.environment = environment(encoder.backend.device, "fp32", settings.seed)
    _introduce(prepared)
    with console.training(prepared.steps) as update:
        result = run(prepared, _Display(update))
    _summary(result, output)
    if cooked is not None and cooked.published and model == cooked.model:
        scores = ", ".join(f"{name} {score.value:.2f}" for name, score in cooked.published.items())
        console.note(f"published for {cooked.name}, trained on {cooked.data or 'unnamed data'}: {scores}")
    if result.truncated:
        console.note(f"{result.truncated} times a sentence was cut to {settings.max_length} tokens (--max-length)")
    report.results = result.to_dict()
    if json is not None:
        write_report(report.to_dict(), json)


def _recipe(name: str | None) -> Recipe | None:
    from sentcli.methods.recipes import load_recipe

    return None if name is None else load_recipe(name)


def _choice(what: str, given: str | None, recipe: Recipe | None, *, replaceable: bool = False) -> str:
    """Return the option, or what the recipe says; a recipe's method cannot be replaced."""
    cooked = getattr(recipe, what, None)
    if given is not None and cooked is not None and given != cooked and not replaceable:
        raise InputError(f"--{what} {given}: the recipe is for {cooked}")
    chosen = given or cooked
    if chosen is None:
        raise InputError(f"--{what} is missing (or a --recipe that says it)")
    return str(chosen)


def _introduce(prepared: Prepared) -> None:
    """Say what will be trained."""
    encoder, method, request = prepared.encoder, prepared.method, prepared.request
    work = f"{prepared.steps} steps of {method.settings.batch_size}" if prepared.model else "fitted"
    terms = " + ".join(f"{o.weight:g} x {name}" if o.weight != 1 else name for name, o in method.objectives.items())
    console.note(
        f"{method.name}{f' ({terms})' if terms else ''} from {request.model}, pooling {encoder.spec.pooling}: "
        f"{len(prepared.corpus.sentences)} {'pairs' if prepared.corpus.scores else 'sentences'}, {work} on "
        f"{encoder.backend.device}"
    )
    for section, values in {**method.describe(), "settings": vars(method.settings)}.items():
        if isinstance(values, dict):
            console.detail(f"{section}: {', '.join(f'{key} {value}' for key, value in values.items())}")
    for note in prepared.notes:
        console.warn(note)
    if prepared.corpus.blank:
        console.warn(f"{prepared.corpus.blank} blank rows were left out")


def _key_values(pairs: list[str]) -> list[tuple[str, str]]:
    for pair in pairs:
        if "=" not in pair:
            raise InputError(f"--set {pair}: expected KEY=VALUE, for example --set temperature=0.1")
    split = [pair.split("=", 1) for pair in pairs]
    return [(key.strip(), value) for key, value in split]


class _Display:
    """Shows steps in the progress bar, and each score of the dev set on a line of its own."""

    def __init__(self, update: Any) -> None:
        self.update, self.dev = update, ""

    def resumed(self, step: int, notes: list[str]) -> None:
        for note in notes:
            console.warn(note)
        console.note(f"going on from the checkpoint of step {step}" if step else "there is no checkpoint: starting anew")

    def step(self, moment: Moment) -> None:
        losses = ", ".join(f"{name} {value:.4f}" for name, value in moment.values.items())
        status = f"{losses}{self.dev}, {moment.sentences_per_second:.0f} sentences/s"
        self.update(moment.step, status)
        if console.state.live is None and moment.step % LOG_EVERY == 0:  # a log file gets lines instead of a bar
            console.note(f"step {moment.step} of {moment.total}: {status}")

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
