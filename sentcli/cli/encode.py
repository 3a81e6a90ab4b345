"""``sentcli encode``."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from sentcli.cli import console, options
from sentcli.cli.base import command


@command("encode")
def encode(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="txt, csv, tsv, jsonl or parquet files, also .gz; - is standard input.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="A .npy, .parquet, .jsonl or .safetensors file, a directory of shards (no suffix), or - (JSON Lines).",
            show_default=False,
        ),
    ],
    model: options.Model,
    text_field: Annotated[str, typer.Option(help="Column that holds the text.", rich_help_panel="Input")] = "text",
    id_field: Annotated[
        str | None,
        typer.Option(help="Column that holds the id: id, else _id, else the row number.", rich_help_panel="Input"),
    ] = None,
    input_format: Annotated[
        Literal["txt", "csv", "tsv", "jsonl", "parquet"] | None,
        typer.Option(help="Read every input as this, whatever its suffix.", rich_help_panel="Input"),
    ] = None,
    on_null: Annotated[
        Literal["error", "empty", "skip"],
        typer.Option(help="What to do with a row that has no text.", rich_help_panel="Input"),
    ] = "error",
    prompt_name: Annotated[
        str | None,
        typer.Option(
            help="Put one of the model's prompts in front of each text, such as query.",
            rich_help_panel="Model",
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Put this text in front of each text.", rich_help_panel="Model")
    ] = None,
    pooling: options.Pooling = None,
    normalize: options.Normalize = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    batch_tokens: options.BatchTokens = None,
    shard_rows: Annotated[
        int, typer.Option(min=1, help="Rows in a shard of a directory output.", rich_help_panel="Output")
    ] = 100_000,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue a directory output where it stopped.", rich_help_panel="Output"),
    ] = False,
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Turn text files into vectors: row i of the output is row i of the input.

    The whole input is read and checked before anything is encoded. An output
    file appears when it is complete; a directory grows shard by shard and is
    continued with --resume.

    \b
    Examples:
      sentcli encode sentences.txt -o vectors.npy -m minilm
      sentcli encode a.csv b.csv.gz --text-field body -o vectors.parquet -m minilm
      sentcli encode corpus.jsonl -o corpus-vectors -m minilm --resume
      cat sentences.txt | sentcli encode - -o - -m minilm
    """  # noqa: D301
    from sentcli import bulk
    from sentcli.errors import InputError
    from sentcli.io.readers import ReadOptions
    from sentcli.report import Report, environment, write_report

    report = Report("encode", model)
    if output == "-" and json == "-":
        raise InputError("-o - and --json - would both write to standard output")
    bulk.check_target(output, overwrite=overwrite, resume=resume)
    found = bulk.read_inputs(
        inputs,
        ReadOptions(text_field, id_field, on_null, "; --on-null empty or skip accepts such rows"),
        input_format,
        output=output,
    )
    console.detail(f"{found.survey.rows} rows in {len(inputs)} inputs")
    encoder = options.load(model, backend, precision, device, pooling, normalize, max_length)
    report.protocol = encoder.describe()
    report.environment = environment(encoder.backend.device, encoder.backend.precision)
    prefix = encoder.prompt_text(prompt_name, prompt)
    with console.encoding("encoding", found.survey.rows) as bar:
        summary = bulk.encode_files(
            encoder,
            found,
            output,
            shard_rows=shard_rows,
            resume=resume,
            prompt=prefix,
            batch_tokens=batch_tokens,
            progress=bar,
        )
    rows = summary.rows - summary.rows_before
    before = f", {summary.rows_before} were there" if summary.rows_before else ""
    console.note(
        f"{rows} rows{before} -> {output} [{summary.rows}, {summary.dimension}] in {summary.seconds:.1f} s "
        f"({rows / max(summary.seconds, 1e-9):,.0f} rows/s, {summary.stats.distinct} distinct texts; "
        f"{encoder.backend.name} on {encoder.backend.device}, {encoder.backend.precision})"
    )
    if summary.nulls_skipped:
        console.warn(f"{summary.nulls_skipped} rows without text were left out")
    options.warn_truncated(encoder, summary.stats.truncated, summary.stats.tokens_lost)
    if json is not None:
        report.protocol |= {"prompt": prefix, "text_field": text_field, "on_null": on_null}
        report.results = {
            "output": output,
            "rows": summary.rows,
            "rows_encoded": rows,
            "rows_skipped": summary.nulls_skipped,
            "dimension": summary.dimension,
            "distinct": summary.stats.distinct,
            "tokens": summary.stats.tokens,
            "truncated": summary.stats.truncated,
            "tokens_lost": summary.stats.tokens_lost,
            "rows_per_second": rows / max(summary.seconds, 1e-9),
        }
        write_report(report.to_dict(), json)
