"""``encode``: files in, vectors out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from sentcli import console
from sentcli.errors import InputError, SentcliError, nearest
from sentcli.model.options import LoadOptions
from sentcli.verbs.declaration import Flag, Group, verb
from sentcli.verbs.options import ClusterOptions, Format, IdField, OptionalModel, Overwrite, TextField
from sentcli.verbs.result import Result

if TYPE_CHECKING:
    from sentcli.bulk import EncodeSummary, Inputs
    from sentcli.encoder.sentence_encoder import SentenceEncoder


@dataclass(frozen=True)
class InputOptions:
    """How input files are read.

    Attributes:
        input_format: Read every input as this, whatever its suffix.
        types: Types of other columns, such as year=int,code=text; default: what all values of the column are. One of
            text, int, float, bool, date, timestamp, timestamp-utc.
        on_null: What to do with a row that has no text.
        on_long: A text longer than the model reads: cut it, stop, or encode it in pieces and take their mean.
    """

    text_field: TextField = "text"
    id_field: IdField = None
    input_format: Format | None = None
    types: Annotated[list[str] | None, Flag(metavar="COLUMN=TYPE,...")] = None
    on_null: Literal["error", "empty", "skip"] = "error"
    on_long: Literal["truncate", "error", "chunk-mean"] = "truncate"


@dataclass(frozen=True)
class VectorOptions:
    """How vectors are made smaller before they are written.

    Attributes:
        output_dtype: Elements of the vectors; binary packs eight signs into a byte.
        truncate_dim: Keep the first dimensions only.
    """

    output_dtype: Literal["float32", "float16", "int8", "binary"] = "float32"
    truncate_dim: Annotated[int | None, Ge(1)] = None


@dataclass(frozen=True)
class WriteOptions:
    """How vectors are written.

    Attributes:
        shard_rows: Rows in a shard of a directory output: 100,000, or as many as the directory that is continued has.
        shard: Make only this share of the shards; N machines make one directory.
        resume: Continue a directory output where it stopped.
        append: Add the rows of INPUT to a finished directory.
    """

    shard_rows: Annotated[int | None, Ge(1)] = None
    shard: Annotated[str | None, Flag(metavar="I/N")] = None
    resume: bool = False
    append: bool = False
    overwrite: Overwrite = False


@verb(
    "encode",
    common=(
        "inputs output model text_field id_field on_null prompt_name backend precision device "
        "pooling max_length output_dtype shard_rows shard resume append overwrite check json"
    ),
    in_memory="for vectors of texts in memory call SentenceEncoder.load(MODEL).encode(texts)",
)
def encode(
    inputs: Annotated[list[str] | None, Flag(metavar="INPUT...", positional=True)] = None,
    output: Annotated[str | None, Flag("-o", metavar="OUT")] = None,
    model: OptionalModel = None,
    reading: Annotated[InputOptions, Group("Input")] = InputOptions(),
    prompt_name: Annotated[str | None, Flag(panel="Model")] = None,
    prompt: Annotated[str | None, Flag(panel="Model")] = None,
    options: Annotated[LoadOptions, Group("Model")] = LoadOptions(),
    devices: Annotated[str | None, Flag(metavar="A,B", panel="Model", excludes="device ray")] = None,
    batch_tokens: Annotated[int | None, Ge(1), Flag(panel="Model")] = None,
    vectors: Annotated[VectorOptions, Group("Output")] = VectorOptions(),
    writing: Annotated[WriteOptions, Group("Output")] = WriteOptions(),
    check: Annotated[str | None, Flag(metavar="DIR", panel="Output")] = None,
    cluster: Annotated[ClusterOptions, Group("Cluster")] = ClusterOptions(),
) -> Result:
    """Turn text files into vectors: row i of the output is row i of the input.

    The whole input is read and checked before anything is encoded. An output
    file appears when it is complete; a directory grows shard by shard, goes on
    with --resume and is verified with --check.

    Args:
        inputs: txt, csv, tsv, jsonl or parquet files, also .gz, here or at s3://, gs://, az://, hf:// or https://; - is
            standard input.
        output: A .npy, .parquet, .jsonl or .safetensors file, a directory of shards (no suffix; here or at s3://, gs://
            or az://), or - (JSON Lines).
        prompt_name: Put one of the model's prompts in front of each text, such as query.
        prompt: Put this text in front of each text.
        devices: A process on each of these, such as cuda:0,cuda:1 or cpu,cpu; the order of rows stays.
        batch_tokens: Token budget of one forward pass (512 or 1,024 on a CPU, 32,768 on a GPU).
        check: Encode nothing: verify a directory that encode wrote.

    \b
    Examples:
      sentcli encode sentences.txt -o vectors.npy -m minilm
      sentcli encode a.csv b.csv.gz --text-field body -o vectors.parquet -m minilm
      sentcli encode corpus.jsonl -o corpus-vectors -m minilm --resume
      sentcli encode corpus.jsonl -o corpus-vectors -m minilm --shard 2/8
      sentcli encode corpus.jsonl -o corpus-vectors -m minilm --ray auto --resume
      sentcli encode --check corpus-vectors
      sentcli encode "s3://bucket/*.jsonl" -o s3://bucket/vectors -m minilm
      cat sentences.txt | sentcli encode - -o - -m minilm
    """  # noqa: D301
    if check is not None:
        return _check(check)
    from sentcli import bulk
    from sentcli.bulk.engines import parse_devices
    from sentcli.io.column_types import parse_types
    from sentcli.io.dataset import ShardShare
    from sentcli.io.readers import ReadOptions
    from sentcli.io.writers import output_kind
    from sentcli.smaller import Smaller
    from sentcli.verbs.options import open_encoder

    if not inputs or output is None or model is None:
        missing = "INPUT..." if not inputs else "--output / -o" if output is None else "--model / -m"
        raise InputError(f"missing {missing}; see sentcli encode --help")
    _check_cluster(cluster.ray, output)
    names = parse_devices(devices) if devices is not None else []
    share = ShardShare.parse(writing.shard) if writing.shard is not None else ShardShare()
    resume, append = writing.resume, writing.append
    bulk.check_target(output, overwrite=writing.overwrite, resume=resume, append=append, part=share)
    hint = "; --on-null empty or skip accepts such rows"
    types = parse_types(reading.types or [])
    there = bulk.manifest_of(output) if (resume or append) and not writing.overwrite else None
    shard_rows = writing.shard_rows or (there.shard_rows if there is not None else bulk.EncodeSettings.shard_rows)
    all_types = {**(there.types if there else {}), **types}
    read_options = ReadOptions(reading.text_field, reading.id_field, reading.on_null, hint, types=all_types)
    parsed_inputs = bulk.read_inputs(inputs, read_options, reading.input_format, output=output)
    console.detail(f"{parsed_inputs.survey.rows} rows in {len(parsed_inputs.sources)} inputs")
    _check_types(parsed_inputs, types)
    outcome = Result("encode", model)
    load = replace(options, device=names[0]) if names else options
    shards = -(-parsed_inputs.survey.rows // shard_rows)
    with open_encoder(model, load, cluster, most=shards) as (encoder, pool):
        outcome.protocol = encoder.describe()
        outcome.ran_on(encoder.backend.device, encoder.backend.precision)
        prefix = _prefix(encoder, prompt_name, prompt)
        smaller = Smaller(vectors.output_dtype, vectors.truncate_dim, renormalize=encoder.spec.normalizes)
        loaded = {"model": model, **vars(options), "backend": encoder.backend.name}
        loaded["precision"] = encoder.backend.precision
        settings = bulk.EncodeSettings(
            shard_rows=shard_rows,
            overwrite=writing.overwrite,
            resume=resume,
            append=append,
            part=share,
            prompt=prefix,
            batch_tokens=batch_tokens,
            on_long=reading.on_long,
            smaller=smaller,
            devices=names,
            load={key: value for key, value in loaded.items() if key != "device"},
            pool=pool,
        )
        directory = output_kind(output) == "directory"
        with console.resumable(output, can=directory), console.encoding("encoding", parsed_inputs.survey.rows) as bar:
            summary = bulk.encode_files(encoder, parsed_inputs, output, settings, progress=bar)
        _print_summary(summary, encoder, reading.on_long)
        choices = {key: getattr(reading, key) for key in ("text_field", "on_null", "on_long")}
        choices |= {"devices": names or None, "ray": cluster.ray, **smaller.described()}
        outcome.protocol |= {"prompt": prefix, **choices}
    return outcome.finish(_results(summary))


def _check_cluster(address: str | None, output: str) -> None:
    """Refuse an output that does not go with ``--ray``, or a cluster that does not answer."""
    from sentcli.cluster import check_address
    from sentcli.io.writers import output_kind

    if address is None:
        return
    if output_kind(output) != "directory":
        raise InputError("--ray makes shards, so it needs a directory output (-o without a suffix)")
    check_address(address)


def _prefix(encoder: SentenceEncoder, prompt_name: str | None, prompt: str | None) -> str:
    """Return the text in front of each row, and warn if a model with prompts gets none."""
    prefix = encoder.prompt_text(prompt_name, prompt)
    if prompt_name is None and prompt is None and not prefix and any(encoder.spec.prompts.values()):
        known = ", ".join(name for name, text in encoder.spec.prompts.items() if text)
        what = f"{encoder.model} was trained with prompts ({known}), and these rows get none"
        console.warn(f"{what}; --prompt-name chooses one")
    return prefix


def _check_types(inputs: Inputs, types: dict[str, str]) -> None:
    """Refuse types of columns that are not there, and print those that were found in CSV and TSV files.

    Raises:
        InputError: if `types` names a column that the output does not have.
    """
    kept, found = inputs.survey.column_types, inputs.survey.found
    if unknown := next((name for name in types if name not in kept), None):
        has = ", ".join(kept) or "none besides id and text"
        raise InputError(f"--types {unknown}: there is no such column{nearest(unknown, list(kept))}; there is {has}")
    if said := ", ".join(f"{name} {kind}" for name, kind in found.items() if name in kept):
        console.note(f"types of the columns: {said} (--types chooses others)")
    for name, odd in inputs.survey.mixed.items():
        if name in kept:
            console.warn(f"column {name!r} stays text: most of its values are of another type, but not {odd}")


def _print_summary(summary: EncodeSummary, encoder: SentenceEncoder, on_long: str) -> None:
    rows, counts = summary.counts.rows, summary.counts
    for problem in summary.damaged:
        console.warn(f"{problem}: its shard was made again")
    before = f", {summary.rows_before} were there" if summary.rows_before else ""
    console.note(
        f"{rows} rows{before} -> {summary.output} [{summary.rows}, {summary.dimension}] in {summary.seconds:.1f} s "
        f"({rows / max(summary.seconds, 1e-9):,.0f} rows/s, {counts.duplicates} duplicate and {counts.empty} empty "
        f"rows; {encoder.backend.name} on {encoder.backend.device}, {encoder.backend.precision})"
    )
    if summary.nulls_skipped:
        console.warn(f"{summary.nulls_skipped} rows without text were left out")
    if counts.truncated:
        cut = f"were cut, {counts.tokens_lost} tokens lost (--on-long, --max-length)"
        fate = "are the mean of their pieces" if on_long == "chunk-mean" else cut
        console.warn(f"{counts.truncated} rows are longer than {encoder.spec.max_length} tokens and {fate}")


def _results(summary: EncodeSummary) -> dict[str, Any]:
    counts = summary.counts
    return {
        **{key: getattr(summary, key) for key in ("output", "rows", "dimension")},
        "rows_encoded": counts.rows,
        "rows_skipped": summary.nulls_skipped,
        "distinct": counts.rows - counts.duplicates,
        **{key: getattr(counts, key) for key in ("duplicates", "empty", "tokens", "truncated", "tokens_lost")},
        "rows_per_second": counts.rows / max(summary.seconds, 1e-9),
    }


def _check(folder: str) -> Result:
    """Verify a directory of shards.

    Raises:
        SentcliError: if something is wrong; its outcome becomes the JSON.
    """
    from sentcli.io.dataset_writer import check_dataset, require_whole
    from sentcli.io.folder import open_folder
    from sentcli.io.places import is_remote

    outcome = Result("encode")
    if not is_remote(folder) and not Path(folder).is_dir():
        raise InputError(f"--check {folder}: there is no such directory; it verifies one that encode wrote")
    checked = check_dataset(open_folder(folder))
    outcome.model = checked.model
    outcome.finish(asdict(checked))
    try:
        require_whole(checked, folder)
    except SentcliError as error:
        error.outcome = outcome
        raise
    console.note(
        f"{folder} is whole: {checked.rows} rows in {checked.shards} shards, {checked.dimension} dimensions of "
        f"{checked.dtype}, {checked.bytes / 1e6:,.1f} MB"
    )
    return outcome
