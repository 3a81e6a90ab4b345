"""``encode``: files in, vectors out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from annotated_doc import Doc
from annotated_types import Ge

from sentcli import console
from sentcli.bounds import Holds
from sentcli.bulk.options import InputOptions, PassageOptions, UpdateOptions, VectorOptions, WriteOptions
from sentcli.cluster import ClusterOptions
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Clock, Record, Result, kept_if_interrupted
from sentcli.errors import InputError
from sentcli.machine import environment, threads
from sentcli.model.options import SERVED_HELP, LoadOptions
from sentcli.waiting import busy_note

if TYPE_CHECKING:
    from sentcli.bulk import EncodeTexts
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.encoder.vector_facts import Passages
    from sentcli.model.passages import PassageRows


TAKES_LONG = 50_000
"""The rows from which encoding takes long enough to say what slows it down."""


def _in_memory(run: Callable[[dict[str, Any]], Result], values: dict[str, Any]) -> Result:
    """Run the verb from Python; without an output its result holds the rows and their vectors."""
    from sentcli.command.in_memory import encoded_in_memory

    return encoded_in_memory(run, values)


@verb(
    "encode",
    common=(
        "inputs output model text_field id_field on_null prompt_name backend precision device "
        "pooling max_length output_dtype shard_rows shard resume append overwrite check estimate json"
    ),
    in_memory=_in_memory,
)
def encode(
    inputs: Annotated[list[str] | None, Holds.TEXT_FILE, Flag(metavar="INPUT...", positional=True)] = None,
    output: Annotated[str | None, Holds.OUTPUT, Flag("-o", metavar="OUT")] = None,
    model: Annotated[list[str] | None, Holds.MODEL, Flag("-m"), Doc(f"{SERVED_HELP}; several with --estimate.")] = None,
    reading: Annotated[InputOptions, Group("Input")] = InputOptions(),
    prompt_name: Annotated[str | None, Holds.WORDS, Flag(panel="Model")] = None,
    prompt: Annotated[str | None, Holds.WORDS, Flag(panel="Model")] = None,
    options: Annotated[LoadOptions, Group("Model")] = LoadOptions(),
    devices: Annotated[str | None, Flag(metavar="A,B", panel="Model", excludes="device ray")] = None,
    batch_tokens: Annotated[int | None, Ge(1), Flag(panel="Model")] = None,
    passages: Annotated[PassageOptions, Group("Passages")] = PassageOptions(),
    vectors: Annotated[VectorOptions, Group("Output")] = VectorOptions(),
    writing: Annotated[WriteOptions, Group("Output")] = WriteOptions(),
    updating: Annotated[UpdateOptions, Group("Output")] = UpdateOptions(),
    check: Annotated[str | None, Flag(metavar="DIR|FILE", panel="Output")] = None,
    estimate: Annotated[
        bool,
        Flag(
            panel="Output",
            excludes="output devices batch_tokens ray shard resume append overwrite check on_long passages",
        ),
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
      sentcli encode corpus.jsonl -o corpus-vectors -m minilm --update
      sentcli encode handbook/ -o handbook-vectors -m minilm --passages --context headings
      sentcli encode --check corpus-vectors -m minilm
      sentcli encode corpus.jsonl --estimate -m minilm -m my-model
      sentcli encode "s3://bucket/*.jsonl" -o s3://bucket/vectors -m minilm
      cat sentences.txt | sentcli encode - -o - -m minilm
    """  # noqa: D301
    if check is not None:
        from sentcli.verbs.encode_check import check_vectors

        return check_vectors(check, model, options, (prompt_name, prompt))
    from sentcli import bulk
    from sentcli.compression import Compression
    from sentcli.encoder import prompt_of_rows
    from sentcli.io.blocks import ShardShare
    from sentcli.io.writers import DIRECTORY, output_format

    if not inputs:
        raise InputError("missing INPUT...; see sentcli encode --help")
    if not model:
        raise InputError("missing --model / -m; see sentcli encode --help")
    if output is None:
        if not estimate:
            raise InputError("missing --output / -o; see sentcli encode --help")
        return estimated(inputs, model, options, reading, writing, vectors, (prompt_name, prompt))
    name = bulk.single_model(model)
    is_directory = output_format(output) is DIRECTORY
    _check_ray(cluster, is_directory=is_directory)
    names = [] if devices is None else bulk.parse_devices(devices)
    share = ShardShare() if writing.shard is None else ShardShare.parse(writing.shard)
    replaces = writing.overwrite or updating.update
    bulk.check_target(output, overwrite=replaces, resume=writing.resume, append=writing.append, part=share)
    _check_update(updating, is_directory=is_directory)

    cut, cut_facts = _passages(name, options, passages, (prompt_name, prompt), (output, writing, updating))
    files, shard_rows = bulk.read_checked(inputs, output, reading, writing, cut, update=updating.update)
    rows = files.survey.rows
    clock = Clock()
    load = replace(options, device=names[0]) if names else options
    with bulk.open_encoder(name, load, cluster, most=-(-rows // shard_rows)) as (encoder, pool):
        prompt = prompt_of_rows(encoder, prompt_name, prompt)
        compression = Compression(vectors.output_dtype, vectors.truncate_dim, renormalize=bool(encoder.spec.normalizes))
        settings = bulk.EncodeSettings(
            shard_rows=shard_rows,
            prompt=prompt,
            batch_tokens=batch_tokens,
            on_long=reading.on_long,
            compression=compression,
            passages=cut_facts,
            devices=names,
            load=encoder.same_choices(options),
            encode=_cached_encode(encoder, options),
            pool=pool,
            stored=bulk.open_stored_texts(output, encoder, prompt, reading.on_long) if updating.update else None,
            overwrite=replaces,
            resume=writing.resume,
            append=writing.append,
            part=share,
        )
        takes_long = rows >= TAKES_LONG and encoder.backend.device == "cpu" and pool is None
        busy = busy_note(threads()) if takes_long else None
        if busy is not None:
            console.note(busy)
        if updating.dry_run:
            results = bulk.dry_run(encoder, files, output, settings)
            record = Record("encode", name, {"dry_run": True}, results, encoder.environment(), clock.seconds)
            return Result.of(record)
        place = str(output)

        def so_far() -> dict[str, Any]:
            if not is_directory:
                return {}
            from sentcli.io.folder import rows_so_far

            return rows_so_far(place, overwrite=replaces)

        interrupted = kept_if_interrupted(Record("encode", name), clock, so_far)

        resumable = console.resumable(output, can=is_directory, is_whole=partial(_is_whole, place))
        with interrupted, resumable, console.encoding("encoding", rows) as bar:
            summary = bulk.encode_files(encoder, files, output, settings, progress=bar)
        summary.say(encoder, reading.on_long)
        results = summary.to_dict(encoder)
        results["repeated_ids"] = files.survey.repeated_ids + summary.repeated_ids
        provenance = encoder.provenance()
        protocol = {**encoder.describe(), **provenance, "prompt": prompt}
        protocol |= {"text_field": reading.text_field, "on_null": reading.on_null, "on_long": reading.on_long}
        protocol |= {
            **passages.protocol(settings.passages),
            "devices": names or None,
            "ray": cluster.ray,
            **compression.protocol(),
        }
        device, precision = encoder.backend.device, encoder.backend.precision
        ran_on = partial(environment, device, precision, revision=provenance.get("revision"))
        record = Record("encode", name, protocol, results, ran_on, clock.seconds)
    return Result.of(record, overview=_overview(results))


def _passages(
    model: str,
    options: LoadOptions,
    passages: PassageOptions,
    prompt: tuple[str | None, str | None],
    target: tuple[str, WriteOptions, UpdateOptions],
) -> tuple[PassageRows | None, Passages | None]:
    """Return what cuts documents into passages, and what manifests say of it; None twice if each row is a document."""
    output, writing, updating = target
    update = updating.update
    if not (passages.passages or update):
        return None, None
    from sentcli import bulk

    cut, there = bulk.rows_into(
        output,
        model,
        options,
        passages,
        lambda spec: spec.chosen_prompt(*prompt),
        update=update,
        overwrite=writing.overwrite,
    )
    return cut, bulk.facts_of(cut, there if writing.append else None)


def _is_whole(output: str) -> bool:
    """Whether a directory has all of its rows; asked only after an interruption."""
    from sentcli.io.folder import is_whole

    return is_whole(output)


def estimated(
    inputs: list[str],
    models: list[str],
    options: LoadOptions,
    reading: InputOptions,
    writing: WriteOptions,
    vectors: VectorOptions,
    prompt: tuple[str | None, str | None],
) -> Result:
    """Say what encoding will take with each model, and write nothing."""
    from sentcli import bulk
    from sentcli.compression import Compression
    from sentcli.evaluation.estimate import estimate_encoding

    clock = Clock()
    files, shard_rows = bulk.read_checked(inputs, "vectors", reading, writing)
    compression = Compression(vectors.output_dtype, vectors.truncate_dim)
    estimates = estimate_encoding(models, options, files, shard_rows, compression, prompt)
    protocol = {"estimate": True, "sample": len(estimates.sample.texts), **compression.protocol()}
    ran_on = environment(estimates.models[0].device, None)
    record = Record("encode", ", ".join(models), protocol, estimates.to_dict(), ran_on, clock.seconds)
    return Result.of(record, estimates.tables())


def _check_ray(cluster: ClusterOptions, *, is_directory: bool) -> None:
    """Refuse a cluster that is not there, or an output that it cannot make."""
    if cluster.ray is None:
        return
    if not is_directory:
        raise InputError("--ray makes shards, so it needs a directory output (-o without a suffix)")
    from sentcli.cluster.joining import check_address

    check_address(cluster.ray)


def _check_update(updating: UpdateOptions, *, is_directory: bool) -> None:
    """Refuse an update of what is no directory."""
    if updating.update and not is_directory:
        raise InputError("--update brings a directory up to date (-o without a suffix); a single file is made anew")


def _overview(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is printed of the results of an encoding; a place that is None is a frame in memory."""
    overview = {}
    names = {"output": "output", "rows": "rows", "dimension": "dimensions", "rows_per_second": "rows/s"}
    for key, name in names.items():
        overview[name] = results[key] or "a frame"
    for key in ("duplicates", "empty", "truncated", "rows_skipped", "repeated_ids"):
        if results[key]:
            overview[key.replace("_", " ")] = results[key]
    return overview


def _cached_encode(encoder: SentenceEncoder, options: LoadOptions) -> EncodeTexts | None:
    """Return how a model that is served encodes, so that its answers are kept whatever ends the command."""
    if encoder.sent is None:
        return None
    from sentcli.stores.cached_encoder import CachedEncoder

    return CachedEncoder.of(encoder, options).encode_distinct
