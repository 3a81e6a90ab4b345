"""Options that several commands share, and loading the model that they describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sentcli import console

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.evaluation.candidate import Candidate

POOLING_HELP = (
    "cls, cls-head, mean, max, first-last-avg, layer1-last-avg or another of docs/models.md, instead of what the "
    "model says."
)
MODEL, OUTPUT = "Model", "Output"

_MODEL = typer.Option(
    "--model",
    "-m",
    help="A model folder, a short name (sentcli doctor lists them), or a hub id.",
    show_default=False,
)
Model = Annotated[str, _MODEL]
OptionalModel = Annotated[str | None, _MODEL]
Pooling = Annotated[str | None, typer.Option(help=POOLING_HELP, rich_help_panel=MODEL)]
Normalize = Annotated[
    bool | None,
    typer.Option("--normalize/--no-normalize", help="Force vectors of length 1 on or off.", rich_help_panel=MODEL),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        min=3, help="Tokens a text, special ones included; longer texts are cut and counted.", rich_help_panel=MODEL
    ),
]
Backend = Annotated[
    Literal["auto", "torch", "onnx", "openvino"],
    typer.Option(
        help="What runs the model: auto takes the fastest that gives the same vectors and says which.",
        rich_help_panel=MODEL,
    ),
]
Precision = Annotated[
    Literal["auto", "fp32", "fp16", "bf16", "int8"],
    typer.Option(
        help="auto is fp32, or what an export is in; int8 with onnx and openvino, bf16 and fp16 where the hardware "
        "computes in them.",
        rich_help_panel=MODEL,
    ),
]
CpuFallback = Annotated[
    bool,
    typer.Option(
        "--allow-cpu-fallback",
        help="Take the CPU if --device is not there, instead of an error.",
        rich_help_panel=MODEL,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.", rich_help_panel=MODEL)]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Token budget of one forward pass (512 or 1,024 on a CPU, 32,768 on a GPU).", rich_help_panel=MODEL
    ),
]
QueryPrompt = Annotated[
    str | None, typer.Option(help="Text in front of each query; default: the model's own.", rich_help_panel=MODEL)
]
DocPrompt = Annotated[
    str | None, typer.Option(help="Text in front of each document; default: the model's own.", rich_help_panel=MODEL)
]
Json = Annotated[
    str | None,
    typer.Option(
        "--json", metavar="FILE", help="Write the result as JSON; - is standard output.", rich_help_panel=OUTPUT
    ),
]
Rerun = Annotated[
    bool,
    typer.Option(
        "--rerun", help="Encode and score anew, also what was measured before and is kept.", rich_help_panel=OUTPUT
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.", rich_help_panel=OUTPUT)]


def load(
    model: str,
    backend: str = "auto",
    precision: str = "auto",
    device: str = "auto",
    pooling: str | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    *,
    make_export: bool = True,
    allow_cpu_fallback: bool = False,
) -> SentenceEncoder:
    """Load the model of a command and say what was loaded."""
    from sentcli.encoder.sentence_encoder import SentenceEncoder

    encoder = SentenceEncoder.load(
        model,
        backend=backend,
        precision=precision,
        device=device,
        pooling=pooling,
        normalize=normalize,
        max_length=max_length,
        make_export=make_export,
        allow_cpu_fallback=allow_cpu_fallback,
        notice=console.note,
    )
    if encoder.spec.assumed_pooling:
        console.warn(f"{model} does not say how it pools; taking mean (--pooling chooses)")
    facts = ", ".join(f"{key} {value}" for key, value in encoder.describe().items())
    console.detail(f"{model}: {facts}, device {encoder.backend.device}, {encoder.dimension} dimensions")
    return encoder


def candidate(
    model: str,
    backend: str,
    precision: str,
    device: str,
    pooling: str | None,
    normalize: bool | None,
    max_length: int | None,
    *,
    rerun: bool,
) -> Candidate:
    """Return a model to be measured, which is not loaded yet.

    Raises:
        InputError: if it is not there, or does not pool as asked.
    """
    from sentcli.encoder.loading import read_model
    from sentcli.evaluation.candidate import Candidate
    from sentcli.model.options import LoadOptions

    chosen = LoadOptions(pooling, normalize, max_length, backend, precision, device)  # type: ignore[arg-type]
    return Candidate(
        model,
        read_model(model, chosen),
        chosen,
        lambda: load(model, backend, precision, device, pooling, normalize, max_length),
        rerun=rerun,
    )


def warn_truncated(limit: int | None, truncated: int, lost: int | None = None, *, what: str = "distinct texts") -> None:
    """Say how many texts were cut."""
    if truncated:
        tokens = f", {lost} tokens lost" if lost is not None else ""
        console.warn(f"{truncated} {what} are longer than {limit} tokens and were cut{tokens} (--max-length)")
