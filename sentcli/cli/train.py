"""``sentcli train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentcli import console
from sentcli.cli import options, train_runs
from sentcli.cli.base import command
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.methods.recipes import Recipe

METHODS_HELP = (
    "simcse, informin-cl, micse, infocse, is-bert, whitenedcse; ct, mirror-bert, mlm, sts-regression; whitening, "
    "first-last-avg."
)
METHOD, DATA, TRAINING, MANY = "Method", "Data", "Training", "Several runs"


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
    text_of: Annotated[
        str | None,
        typer.Option(
            metavar="TASK,...|pairs",
            help="Train on sentences of --data without their labels: of tasks such as MR,CR of a SentEval folder, or "
            "of scored pairs.",
            rich_help_panel=DATA,
        ),
    ] = None,
    hold_out: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|N/K|topics|K-fold",
            help="sts-regression: leave out a file of --data or a fold, and score it at the end; topics and 10-fold "
            "are one run for each.",
            rich_help_panel=DATA,
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="sts-regression: train this method first on the sentences of the pairs; its settings are --set "
            "before.KEY=VALUE.",
            rich_help_panel=METHOD,
        ),
    ] = None,
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
    eval_text: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="mlm and other losses on masked words: log their perplexity on this text.",
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
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="One run a seed, with mean and sd.", rich_help_panel=MANY),
    ] = None,
    sweep: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml", help="Many runs: a grid over any setting (docs/train.md).", rich_help_panel=MANY
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="A line a finished run; runs with a line are not run again. DIR/results.jsonl by default.",
            rich_help_panel=MANY,
        ),
    ] = None,
    sts: Annotated[
        bool, typer.Option("--sts", help="Score the seven STS tasks of --eval-data at the end.", rich_help_panel=DATA)
    ] = False,
    log_geometry: Annotated[
        bool,
        typer.Option(
            "--log-geometry",
            help="Also log alignment and uniformity of STS-B dev at every evaluation (for analyze geometry).",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    log_to: Annotated[
        list[str] | None,
        typer.Option(metavar="tensorboard|wandb", help="Also log to this tracker.", rich_help_panel=options.OUTPUT),
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
      sentcli train --method micse -m minilm --data sentences.txt -o low-shot \\
        --fraction 0.01 --subset-seed 48 --max-steps 1000 --seeds 48,49,50
      sentcli train --method is-bert -m bert-base --data downstream --text-of MR -o is-bert-mr
      sentcli train --method sts-regression --after is-bert -m bert-base --data downstream \\
        --eval-data downstream -o ssl-ft
      sentcli train --method sts-regression -m bert-base --data AFS --hold-out topics -o cross-topic
      torchrun --nproc-per-node 8 -m sentcli train --method simcse -m bert-base \\
        --data wiki1m.txt -o big --set precision=bf16
    """  # noqa: D301
    from sentcli.data import located
    from sentcli.processes import is_first, together
    from sentcli.training.data import Subset
    from sentcli.training.prepare import TrainRequest

    cooked = _recipe(recipe)
    files = [str(located(path)) for path in (*(data or []), *(more_data or []))]  # --data a b: b is an argument
    points, sweep_seeds = train_runs.points_and_seeds(sweep, seeds, hold_out, files)
    varied = {key for point in points for key in point}
    if results is not None and not points:
        raise InputError("--results belongs to --seeds or --sweep; a single run has metrics.jsonl and --json")
    if seed is not None and sweep_seeds:
        raise InputError("--seed and the seeds of a sweep: give one of them")
    if subset_seed is not None and not (limit or fraction or varied & {"limit", "fraction"}):
        raise InputError("--subset-seed draws the sentences of --limit or --fraction: give one of them")
    given = {
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "epochs": epochs,
        "max_steps": max_steps,
        "max_length": max_length,
        "eval_every": eval_every,
        "seed": seed,
    }
    with together(device) as device:
        console.state.quiet |= not is_first()
        request = TrainRequest(
            method=_choice("method", method, cooked, varied=bool(varied & {"method", "recipe"})),
            model=_choice("model", model, cooked, replaceable=True, varied=bool(varied & {"model", "recipe"})),
            data=files,
            output=output,
            stage=stage or (cooked.stage if cooked else None),
            pooling=pooling or (cooked.pooling if cooked else None),
            text_field=text_field,
            text_of=text_of,
            hold_out=hold_out,
            after=after,
            subset=Subset(limit, fraction, subset_seed),
            eval_data=located(eval_data) if eval_data is not None else None,
            eval_text=str(located(Path(eval_text))) if eval_text is not None else None,
            device=device,
            overwrite=overwrite,
            resume=resume,
            save_every=save_every,
            sts=sts,
            log_geometry=log_geometry,
            assignments=[
                *_key_values(set_ or []),
                *([("aux_init", aux_init)] if aux_init is not None else []),
                *((f"settings.{key}", value) for key, value in given.items() if value is not None),
            ],
            recipe=cooked,
        )
        if points:
            train_runs.run_many(request, points, sweep_seeds, results or output / "results.jsonl", log_to or [], json)
        else:
            train_runs.run_one(request, log_to or [], json)


def _recipe(name: str | None) -> Recipe | None:
    from sentcli.methods.recipes import load_recipe

    return None if name is None else load_recipe(name)


def _choice(
    what: str, given: str | None, recipe: Recipe | None, *, replaceable: bool = False, varied: bool = False
) -> str:
    """Return the option, or what the recipe says; a recipe's method cannot be replaced, a sweep may say it."""
    cooked = getattr(recipe, what, None)
    if given is not None and cooked is not None and given != cooked and not replaceable:
        raise InputError(f"--{what} {given}: the recipe is for {cooked}")
    chosen = given or cooked
    if chosen is None and not varied:
        raise InputError(f"--{what} is missing (or a --recipe that says it)")
    return chosen or ""


def _key_values(pairs: list[str]) -> list[tuple[str, str]]:
    for pair in pairs:
        if "=" not in pair:
            raise InputError(f"--set {pair}: expected KEY=VALUE, for example --set temperature=0.1")
    split = [pair.split("=", 1) for pair in pairs]
    return [(key.strip(), value) for key, value in split]
