"""``encode``: files in, vectors out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_doc import Doc
from annotated_types import Ge

from sentcli import console
from sentcli.errors import InputError, SentcliError, nearest
from sentcli.io import copies
from sentcli.model.options import LoadOptions
from sentcli.verbs.declaration import Flag, Group, verb
from sentcli.verbs.options import SERVED_HELP, ClusterOptions, Format, IdField, Overwrite, TextField, open_encoder
from sentcli.verbs.result import Result
from sentcli.waiting import busy_note

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.bulk import EncodeSummary, Inputs
    from sentcli.bulk.engines import EncodeTexts
    from sentcli.encoder.sentence_encoder import SentenceEncoder


def run_in_memory(run: Callable[[dict[str, Any]], Result], values: dict[str, Any]) -> Result:
    """Run the verb from Python; without an output the rows and their vectors are in the frame of the result."""
    if values["output"] is not None or values["check"] is not None or values["estimate"]:
        return run(values)
    import pyarrow.parquet as pq

    file = copies.scratch() / "vectors.parquet"
    try:
        result = run({**values, "output": str(file)})
        frame = _as_given(pq.read_table(file).to_pandas(), values["inputs"] or [], values["text_field"])
    finally:
        shutil.rmtree(file.parent, ignore_errors=True)
    result.make_frame = lambda: frame
    return result


def _as_given(frame: pd.DataFrame, inputs: list[str], text_field: str) -> pd.DataFrame:
    """Return the rows of a frame of pandas under its own index, without those of its rows that were left out."""
    from sentcli.io.in_memory import index_of
    from sentcli.io.readers import ReadOptions, rows
    from sentcli.io.sources import open_source

    index = index_of(inputs[0]) if len(inputs) == 1 else None
    if index is None:
        return frame
    if len(frame) != len(index):
        read = rows(open_source(inputs[0]), ReadOptions(text_field, on_null="skip"))
        index = index[[row is not None for row in read]]
    return frame.set_axis(index)


TAKES_LONG = 50_000
"""The rows from which encoding takes long enough to say what slows it down."""


@dataclass(frozen=True)
class InputOptions:
    """How input files are read.

    Attributes:
        input_format: Read every input as this, whatever its suffix.
        types: Types of other columns, such as year=int,code=text; default: what all values of the column are. One of
            text, int, float, bool, date, timestamp, timestamp-utc.
        null: Cells of other columns with this text, such as n/a, are missing values; may be given several times.
        on_null: What to do with a row that has no text.
        on_long: A text longer than the model reads: cut it, stop, or encode it in pieces and take their mean.
    """

    text_field: TextField = "text"
    id_field: IdField = None
    input_format: Format | None = None
    types: Annotated[list[str] | None, Flag(metavar="COLUMN=TYPE,...")] = None
    null: Annotated[list[str] | None, Flag(metavar="TEXT")] = None
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
        "pooling max_length output_dtype shard_rows shard resume append overwrite check estimate json"
    ),
    in_memory=run_in_memory,
)
def encode(
    inputs: Annotated[list[str] | None, Flag(metavar="INPUT...", positional=True)] = None,
    output: Annotated[str | None, Flag("-o", metavar="OUT")] = None,
    model: Annotated[list[str] | None, Flag("-m"), Doc(f"{SERVED_HELP}; several with --estimate.")] = None,
    reading: Annotated[InputOptions, Group("Input")] = InputOptions(),
    prompt_name: Annotated[str | None, Flag(panel="Model")] = None,
    prompt: Annotated[str | None, Flag(panel="Model")] = None,
    options: Annotated[LoadOptions, Group("Model")] = LoadOptions(),
    devices: Annotated[str | None, Flag(metavar="A,B", panel="Model", excludes="device ray")] = None,
    batch_tokens: Annotated[int | None, Ge(1), Flag(panel="Model")] = None,
    vectors: Annotated[VectorOptions, Group("Output")] = VectorOptions(),
    writing: Annotated[WriteOptions, Group("Output")] = WriteOptions(),
    check: Annotated[str | None, Flag(metavar="DIR|FILE", panel="Output")] = None,
    estimate: Annotated[
        bool,
        Flag(panel="Output", excludes="output devices batch_tokens ray shard resume append overwrite check on_long"),
    ] = False,
    cluster: Annotated[ClusterOptions, Group("Cluster")] = ClusterOptions(),
) -> Result:
    """Turn text files into vectors: row i of the output is row i of the input.

    The whole input is read and checked before anything is encoded. An output
    file appears when it is complete; a directory grows shard by shard, goes on
    with --resume and is verified with --check. http://HOST/v1#NAME is sent the texts.

    Args:
        inputs: txt, csv, tsv, jsonl, parquet, arrow; also .gz, .zst, .bz2, .xz; at s3://, gs://, az://, hf://, https://
            or here; folders of them; what encode wrote; - is standard input.
        output: A .npy, .parquet, .jsonl or .safetensors file, a directory of shards (no suffix; also s3://, gs://,
            az://) or - (JSON Lines).
        prompt_name: Put one of the model's prompts in front of each text, such as query.
        prompt: Put this text in front of each text.
        devices: A process on each of these, such as cuda:0,cuda:1 or cpu,cpu; the order of rows stays.
        batch_tokens: Token budget of one forward pass (512 or 1,024 on a CPU, 32,768 on a GPU, more in half precision).
        check: Encode nothing: verify what encode or export wrote; with -m also that model.
        estimate: Write nothing: measure 500 rows, and say what all of them take with each model, in fp32 and int8.

    \b
    Examples:
      sentcli encode sentences.txt -o vectors.npy -m minilm
      sentcli encode a.csv b.csv.gz --text-field body -o vectors.parquet -m minilm
      sentcli encode corpus.jsonl -o corpus-vectors -m minilm --resume
      sentcli encode corpus.jsonl -o corpus-vectors -m minilm --shard 2/8
      sentcli encode corpus-vectors -o new-vectors -m my-model
      sentcli encode --check corpus-vectors -m minilm
      sentcli encode corpus.jsonl --estimate -m minilm -m my-model
      sentcli encode "s3://bucket/*.jsonl" -o s3://bucket/vectors -m minilm
      cat sentences.txt | sentcli encode - -o - -m minilm
    """  # noqa: D301
    if check is not None:
        return _check(check, model, options, (prompt_name, prompt))
    from sentcli import bulk
    from sentcli.bulk.engines import parse_devices
    from sentcli.io.dataset import ShardShare
    from sentcli.io.folder import rows_so_far
    from sentcli.io.output_formats import DIRECTORY, output_format
    from sentcli.machine import threads
    from sentcli.smaller import Smaller

    if not inputs or not model or (output is None and not estimate):
        missing = "INPUT..." if not inputs else "--model / -m" if not model else "--output / -o"
        raise InputError(f"missing {missing}; see sentcli encode --help")
    if output is None:
        from sentcli.verbs.estimate import estimate as measured

        files, shard_rows = _read_inputs(inputs, "vectors", reading, writing)
        smaller = Smaller(vectors.output_dtype, vectors.truncate_dim)
        return measured(model, options, files, shard_rows, smaller, (prompt_name, prompt))
    name = _single(model)
    directory = output_format(output) is DIRECTORY
    if cluster.ray is not None:
        if not directory:
            raise InputError("--ray makes shards, so it needs a directory output (-o without a suffix)")
        from sentcli.cluster import check_address

        check_address(cluster.ray)
    names = parse_devices(devices) if devices is not None else []
    share = ShardShare.parse(writing.shard) if writing.shard is not None else ShardShare()
    bulk.check_target(output, overwrite=writing.overwrite, resume=writing.resume, append=writing.append, part=share)
    files, shard_rows = _read_inputs(inputs, output, reading, writing)
    rows = files.survey.rows
    result = Result("encode", name)
    load = replace(options, device=names[0]) if names else options
    with open_encoder(name, load, cluster, most=-(-rows // shard_rows)) as (encoder, pool):
        prompt = _prompt(encoder, prompt_name, prompt)
        smaller = Smaller(vectors.output_dtype, vectors.truncate_dim, renormalize=bool(encoder.spec.normalizes))
        ran = {"backend": encoder.backend.name, "precision": encoder.backend.precision}
        settings = bulk.EncodeSettings(
            shard_rows=shard_rows,
            prompt=prompt,
            batch_tokens=batch_tokens,
            on_long=reading.on_long,
            smaller=smaller,
            devices=names,
            load={k: v for k, v in {"model": name, **vars(options), **ran}.items() if k != "device"},
            encode=_kept(encoder, options),
            pool=pool,
            overwrite=writing.overwrite,
            resume=writing.resume,
            append=writing.append,
            part=share,
        )
        takes_long = rows >= TAKES_LONG and encoder.backend.device == "cpu" and pool is None
        if takes_long and (busy := busy_note(threads())):
            console.note(busy)
        place, replaces = str(output), writing.overwrite
        interrupted = result.kept_if_interrupted(lambda: rows_so_far(place, overwrite=replaces) if directory else {})
        with interrupted, console.resumable(output, can=directory), console.encoding("encoding", rows) as bar:
            summary = bulk.encode_files(encoder, files, output, settings, progress=bar)
        results = _summarise(summary, encoder, reading.on_long)
        results["repeated_ids"] = files.survey.repeated_ids + summary.repeated_ids
        result.overview = _overview(results)
        result.ran_on(encoder.backend.device, encoder.backend.precision, revision=encoder.provenance().get("revision"))
        choices = {key: getattr(reading, key) for key in ("text_field", "on_null", "on_long")}
        choices |= {"devices": names or None, "ray": cluster.ray, **smaller.protocol()}
        result.protocol = {**encoder.describe(), **encoder.provenance(), "prompt": prompt, **choices}
    return result.finish(results)


def _overview(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return what matters of the results of an encoding."""
    names = {"output": "output", "rows": "rows", "dimension": "dimensions", "rows_per_second": "rows/s"}
    counted = ("duplicates", "empty", "truncated", "rows_skipped", "repeated_ids")
    counts = {key.replace("_", " "): results[key] for key in counted if results[key]}
    return {name: results[key] or "a frame" for key, name in names.items()} | counts


def _kept(encoder: SentenceEncoder, options: LoadOptions) -> EncodeTexts | None:
    """Return how a model that is served encodes, so that its answers are kept whatever ends the command."""
    if encoder.sent is None:
        return None
    from sentcli.evaluation.evaluated import EvaluatedModel

    return EvaluatedModel.of(encoder, options).encode_distinct


def _single(models: list[str]) -> str:
    if len(models) > 1:
        raise InputError(f"-m {' -m '.join(models)}: one model makes the vectors; --estimate takes several")
    return models[0]


def _prompt(encoder: SentenceEncoder, name: str | None, text: str | None) -> str:
    """Return the text in front of each row, and warn if a model with prompts gets none."""
    prompt = encoder.prompt_text(name, text)
    if name is None and text is None and not prompt and any(encoder.spec.prompts.values()):
        known = ", ".join(name for name, text in encoder.spec.prompts.items() if text)
        console.warn(
            f"{encoder.model} was trained with prompts ({known}), and these rows get none; --prompt-name chooses one"
        )
    return prompt


def _read_inputs(inputs: list[str], output: str, reading: InputOptions, writing: WriteOptions) -> tuple[Inputs, int]:
    """Read and check the input files, and return them with the rows of a shard.

    Raises:
        InputError: for a row that is refused, or if ``--types`` names a column that the output does not have.
    """
    from sentcli import bulk
    from sentcli.io.column_types import parse_types
    from sentcli.io.readers import ReadOptions

    manifest = bulk.manifest_of(output) if (writing.resume or writing.append) and not writing.overwrite else None
    types = parse_types(reading.types or [])
    options = ReadOptions(
        reading.text_field,
        reading.id_field,
        reading.on_null,
        "; --on-null empty or skip accepts such rows",
        nulls=tuple(reading.null or []),
        types={**(manifest.types if manifest is not None else {}), **types},
    )
    files = bulk.read_inputs(inputs, options, reading.input_format, output=output)
    console.detail(f"{files.survey.rows} rows in {len(files.sources)} inputs")
    kept = files.survey.column_types
    if unknown := next((name for name in types if name not in kept), None):
        has = ", ".join(kept) or "none besides id and text"
        raise InputError(f"--types {unknown}: there is no such column{nearest(unknown, list(kept))}; there is {has}")
    if listed := ", ".join(f"{name} {kind}" for name, kind in files.survey.found.items() if name in kept):
        console.note(f"types of the columns: {listed} (--types chooses others)")
    for name, odd in files.survey.mixed.items():
        if name in kept:
            problem = f"most of its values are of another type, but not {odd}"
            console.warn(f"column {name!r} stays text: {problem} (--null TEXT names missing values)")
    default = manifest.shard_rows if manifest is not None else bulk.EncodeSettings.shard_rows
    return files, writing.shard_rows or default


def _summarise(summary: EncodeSummary, encoder: SentenceEncoder, on_long: str) -> dict[str, Any]:
    """Say what was encoded, and return it as JSON, without an output for what is in memory."""
    output = None if copies.is_scratch(Path(summary.output)) else summary.output
    rows, counts = summary.counts.rows, summary.counts
    for problem in summary.damaged:
        console.warn(f"{problem}: its shard was made again")
    before = f", {summary.rows_before} were there" if summary.rows_before else ""
    runs = f"{encoder.backend.name} on {encoder.backend.device}, {encoder.backend.precision}"
    if encoder.sent is not None:
        runs = f"{encoder.model} was sent {encoder.sent}"
    written = f"{output or 'a frame'} [{summary.rows}, {summary.dimension}]"
    console.note(
        f"{rows} rows{before} -> {written} in {summary.seconds:.1f} s "
        f"({rows / max(summary.seconds, 1e-9):,.0f} rows/s, {counts.duplicates} duplicate and {counts.empty} empty "
        f"rows; {runs})"
    )
    if summary.nulls_skipped:
        console.warn(f"{summary.nulls_skipped} rows without text were left out")
    if counts.truncated:
        cut = f"were cut, {counts.tokens_lost} tokens lost (--on-long, --max-length)"
        fate = "are the mean of their pieces" if on_long == "chunk-mean" else cut
        console.warn(f"{counts.truncated} rows are longer than {encoder.spec.max_length} tokens and {fate}")
    return {
        "output": output,
        "rows": summary.rows,
        "dimension": summary.dimension,
        "rows_encoded": rows,
        "rows_skipped": summary.nulls_skipped,
        "distinct": rows - counts.duplicates,
        **{key: getattr(counts, key) for key in ("duplicates", "empty", "tokens", "truncated", "tokens_lost")},
        "rows_per_second": rows / max(summary.seconds, 1e-9),
        **({"sent": asdict(encoder.sent)} if encoder.sent is not None else {}),
    }


def _check(
    folder: str, models: list[str] | None, options: LoadOptions, prompt: tuple[str | None, str | None]
) -> Result:
    """Verify a directory of shards, a file of vectors or an export, and with a model whether it makes the same vectors.

    Raises:
        SentcliError: if something is wrong; its outcome becomes the JSON.
    """
    from sentcli.io.dataset import CANARIES, read_manifest
    from sentcli.io.dataset_check import check_dataset, require_whole
    from sentcli.io.folder import open_folder
    from sentcli.io.output_formats import FILES
    from sentcli.io.places import is_remote
    from sentcli.model.exported import check_files, exports_in
    from sentcli.search.vector_file import open_vectors

    result, canaries = Result("encode"), None
    if not is_remote(folder) and not Path(folder).exists():
        raise InputError(
            f"--check {folder}: there is no such directory or file; it verifies what encode or export wrote"
        )
    if Path(folder).is_file() or (is_remote(folder) and Path(folder).suffix in FILES):
        vectors = open_vectors(folder)
        result.model, canaries = vectors.origin.model, vectors.origin.recorded()["canaries"]
        rows, dimension = len(vectors.blocks), vectors.blocks.dimension
        result.finish({"path": folder, "rows": rows, "dimension": dimension})
        console.note(f"{folder} is whole: {rows} rows, {dimension} dimensions")
    elif not is_remote(folder) and (exports := exports_in(Path(folder))):
        for export in exports:
            check_files(Path(folder), export)
            console.note(f"{folder} is whole: {export.dimension} dimensions, {export.precision}")
        result.model, canaries = exports[0].model, exports[0].canaries
        result.finish({"path": folder, "model": exports[0].model, "precision": exports[0].precision})
    else:
        dataset = check_dataset(open_folder(folder))
        result.model, canaries = dataset.model, read_manifest(open_folder(folder)).settings.get(CANARIES)
        result.finish(asdict(dataset))
        try:
            require_whole(dataset, folder)
        except SentcliError as error:
            error.outcome = result
            raise
        console.note(
            f"{folder} is whole: {dataset.rows} rows in {dataset.shards} shards, {dataset.dimension} dimensions of "
            f"{dataset.dtype}, {dataset.bytes / 1e6:,.1f} MB"
        )
    return result if models is None else _compare(result, folder, canaries, _single(models), options, prompt)


def _compare(
    result: Result,
    folder: str,
    kept: dict[str, Any] | None,
    model: str,
    options: LoadOptions,
    prompt: tuple[str | None, str | None],
) -> Result:
    """Say what a model is to the one that made vectors, by the vectors of a few fixed texts.

    Raises:
        SentcliError: if it makes other vectors than those.
    """
    from sentcli.encoder.announce import load_encoder
    from sentcli.model.canaries import Canaries

    before, encoder = Canaries.read(folder, kept), load_encoder(model, options)
    kinship, sentence = before.compare(Canaries.of(encoder.loaded, encoder.prompt_text(*prompt)))
    result.results["model_is"] = kinship
    message = f"{model} and the model of {folder}: {sentence}"
    if kinship in ("another pooling or prompt", "another model"):
        raise result.failed(f"{message}; their vectors do not compare")
    console.note(message)
    return result
