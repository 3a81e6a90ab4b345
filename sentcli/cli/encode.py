"""``sentcli encode``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sentcli import console
from sentcli.cli import options
from sentcli.cli.base import command

if TYPE_CHECKING:
    from sentcli.bulk import EncodeSummary, Inputs
    from sentcli.cli.json_report import Report
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.smaller import Smaller


@command("encode")
def encode(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT...",
            help="txt, csv, tsv, jsonl or parquet files, also .gz; - is standard input.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="A .npy, .parquet, .jsonl or .safetensors file, a directory of shards (no suffix), or - (JSON Lines).",
            show_default=False,
        ),
    ] = None,
    model: options.OptionalModel = None,
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
    allow_cpu_fallback: options.CpuFallback = False,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="A process on each of these, such as cuda:0,cuda:1 or cpu,cpu; the order of rows stays.",
            rich_help_panel="Model",
        ),
    ] = None,
    batch_tokens: options.BatchTokens = None,
    on_long: Annotated[
        Literal["truncate", "error", "chunk-mean"],
        typer.Option(
            help="A text longer than the model reads: cut it, stop, or encode it in pieces and take their mean.",
            rich_help_panel="Input",
        ),
    ] = "truncate",
    output_dtype: Annotated[
        Literal["float32", "float16", "int8", "binary"],
        typer.Option(help="Elements of the vectors; binary packs eight signs into a byte.", rich_help_panel="Output"),
    ] = "float32",
    truncate_dim: Annotated[
        int | None, typer.Option(min=1, help="Keep the first dimensions only.", rich_help_panel="Output")
    ] = None,
    pca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Project on the principal components in FILE.", rich_help_panel="Output"),
    ] = None,
    pca_dim: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Learn so many components from this input first, and keep them in --pca.",
            rich_help_panel="Output",
        ),
    ] = None,
    shard_rows: Annotated[
        int, typer.Option(min=1, help="Rows in a shard of a directory output.", rich_help_panel="Output")
    ] = 100_000,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Make only this share of the shards; N machines make one directory.",
            rich_help_panel="Output",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue a directory output where it stopped.", rich_help_panel="Output"),
    ] = False,
    append: Annotated[
        bool,
        typer.Option("--append", help="Add the rows of INPUT to a finished directory.", rich_help_panel="Output"),
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Encode nothing: verify a directory that encode wrote.", rich_help_panel="Output"
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Turn text files into vectors: row i of the output is row i of the input.

    The whole input is read and checked before anything is encoded. An output
    file appears when it is complete; a directory grows shard by shard, goes on
    with --resume and is verified with --check.

    \b
    Examples:
      sentcli encode sentences.txt -o vectors.npy -m minilm
      sentcli encode a.csv b.csv.gz --text-field body -o vectors.parquet -m minilm
      sentcli encode corpus.jsonl -o corpus-vectors -m minilm --resume
      sentcli encode corpus.jsonl -o corpus-vectors -m minilm --shard 2/8
      sentcli encode --check corpus-vectors
      cat sentences.txt | sentcli encode - -o - -m minilm
    """  # noqa: D301
    from sentcli.cli.json_report import Report
    from sentcli.io.json_files import finite, write_json

    report = Report("encode", model or "")
    if check is not None:
        _check(check, report, json)
        return
    from sentcli import bulk
    from sentcli.bulk.engines import parse_devices
    from sentcli.errors import InputError
    from sentcli.io.dataset import Part
    from sentcli.io.readers import ReadOptions
    from sentcli.machine import environment

    if not inputs or output is None or model is None:
        missing = "INPUT..." if not inputs else "--output / -o" if output is None else "--model / -m"
        raise InputError(f"missing {missing}; see sentcli encode --help")
    if output == "-" and json == "-":
        raise InputError("-o - and --json - would both write to standard output")
    if devices is not None and device != "auto":
        raise InputError("--device and --devices: give one of them")
    names = parse_devices(devices) if devices is not None else []
    part = Part.parse(shard) if shard is not None else Part()
    bulk.check_target(output, overwrite=overwrite, resume=resume, append=append, part=part)
    found = bulk.read_inputs(
        inputs,
        ReadOptions(text_field, id_field, on_null, "; --on-null empty or skip accepts such rows"),
        input_format,
        output=output,
    )
    console.detail(f"{found.survey.rows} rows in {len(inputs)} inputs")
    encoder = options.load(
        model,
        backend,
        precision,
        names[0] if names else device,
        pooling,
        normalize,
        max_length,
        allow_cpu_fallback=allow_cpu_fallback,
    )
    report.protocol = encoder.describe()
    report.environment = environment(encoder.backend.device, encoder.backend.precision)
    prefix = encoder.prompt_text(prompt_name, prompt)
    settings = bulk.Settings(
        shard_rows=shard_rows,
        resume=resume,
        append=append,
        part=part,
        prompt=prefix,
        batch_tokens=batch_tokens,
        on_long=on_long,
        smaller=_smaller(encoder, found, prefix, output_dtype, truncate_dim, pca, pca_dim, goes_on=resume or append),
        devices=names,
        load={
            "model": model,
            "backend": encoder.backend.name,
            "precision": encoder.backend.precision,
            "pooling": pooling,
            "normalize": normalize,
            "max_length": max_length,
            "allow_cpu_fallback": allow_cpu_fallback,
        },
    )
    with console.resumable(output, can=_is_directory(output)), console.encoding("encoding", found.survey.rows) as bar:
        summary = bulk.encode_files(encoder, found, output, settings, progress=bar)
    _say(summary, encoder, on_long)
    if json is not None:
        report.protocol |= {
            "prompt": prefix,
            "text_field": text_field,
            "on_null": on_null,
            "on_long": on_long,
            "devices": names or None,
            **settings.smaller.described(),
        }
        report.results = _results(summary)
        write_json(json, finite(report.to_dict()))


def _is_directory(output: str) -> bool:
    from sentcli.io.writers import output_kind

    return output_kind(output) == "directory"


def _smaller(
    encoder: SentenceEncoder,
    found: Inputs,
    prompt: str,
    output_type: Any,
    truncate_dim: int | None,
    file: Path | None,
    components: int | None,
    *,
    goes_on: bool,
) -> Smaller:
    """Put together what makes the vectors smaller; principal components are learned here if that is asked for.

    A run that goes on with an earlier one takes the components that the earlier one has learned.
    """
    from sentcli.errors import InputError
    from sentcli.smaller import Smaller, read_pca

    if components is not None:
        if file is None:
            raise InputError("--pca-dim needs --pca FILE, where the components are kept")
        if file.exists() and not goes_on:
            raise InputError(f"{file} exists; leave --pca-dim out to use it")
        if not file.exists():
            from sentcli.bulk.sample import learn_components

            count = learn_components(encoder, found, prompt, components, file)
            console.note(f"{components} principal components of {count} texts -> {file}")
    return Smaller(
        output_type=output_type,
        truncate_dim=truncate_dim,
        pca=read_pca(file) if file is not None else None,
        pca_file=file,
        renormalize=encoder.spec.normalizes,
    )


def _say(summary: EncodeSummary, encoder: SentenceEncoder, on_long: str) -> None:
    rows, counts = summary.counts.rows, summary.counts
    for problem in summary.damaged:
        console.warn(f"{problem}: its shard was made again")
    before = f", {summary.rows_before} were there" if summary.rows_before else ""
    found = f"{counts.duplicates} duplicate and {counts.empty} empty rows"
    console.note(
        f"{rows} rows{before} -> {summary.output} [{summary.rows}, {summary.dimension}] in {summary.seconds:.1f} s "
        f"({rows / max(summary.seconds, 1e-9):,.0f} rows/s, {found}; "
        f"{encoder.backend.name} on {encoder.backend.device}, {encoder.backend.precision})"
    )
    if summary.nulls_skipped:
        console.warn(f"{summary.nulls_skipped} rows without text were left out")
    if counts.truncated:
        limit = encoder.spec.max_length
        fate = (
            "are the mean of their pieces"
            if on_long == "chunk-mean"
            else f"were cut, {counts.tokens_lost} tokens lost (--on-long, --max-length)"
        )
        console.warn(f"{counts.truncated} rows are longer than {limit} tokens and {fate}")


def _results(summary: EncodeSummary) -> dict[str, Any]:
    counts = summary.counts
    return {
        "output": summary.output,
        "rows": summary.rows,
        "rows_encoded": counts.rows,
        "rows_skipped": summary.nulls_skipped,
        "dimension": summary.dimension,
        "distinct": counts.rows - counts.duplicates,
        "duplicates": counts.duplicates,
        "empty": counts.empty,
        "tokens": counts.tokens,
        "truncated": counts.truncated,
        "tokens_lost": counts.tokens_lost,
        "rows_per_second": counts.rows / max(summary.seconds, 1e-9),
    }


def _check(folder: Path, report: Report, json: str | None) -> None:
    """Verify a directory of shards."""
    from dataclasses import asdict

    from sentcli.io.dataset_check import check_dataset, require_whole
    from sentcli.io.json_files import finite, write_json

    checked = check_dataset(folder)
    if json is not None:
        report.model = checked.model
        report.results = asdict(checked)
        write_json(json, finite(report.to_dict()))
    require_whole(checked, folder)
    console.note(
        f"{folder} is whole: {checked.rows} rows in {checked.shards} shards, {checked.dimension} dimensions of "
        f"{checked.dtype}, {checked.bytes / 1e6:,.1f} MB"
    )
