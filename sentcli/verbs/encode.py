"""``encode``: files in, vectors out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from annotated_doc import Doc
from annotated_types import Ge

from sentcli.bounds import Holds
from sentcli.cluster import ClusterOptions
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Result
from sentcli.errors import InputError
from sentcli.model.options import SERVED_HELP, LoadOptions
from sentcli.stores.options import InputOptions, PassageOptions, UpdateOptions, VectorOptions, WriteOptions


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
    if estimate:
        from sentcli.verbs.encode_estimate import estimated

        _require(("INPUT...", inputs), ("--model / -m", model))
        return estimated(inputs or [], model or [], options, reading, writing, vectors, (prompt_name, prompt))
    name = _single_model(model or [])
    if check is not None:
        from sentcli.verbs.encode_check import check_vectors

        return check_vectors(check, name, options, (prompt_name, prompt))
    from sentcli.stores.engine import parse_devices
    from sentcli.verbs.encode_rows import EncodeJob

    _require(("INPUT...", inputs), ("--model / -m", name), ("--output / -o", output))
    job = EncodeJob(
        inputs=inputs or [],
        output=str(output),
        model=str(name),
        reading=reading,
        prompt=(prompt_name, prompt),
        load=options,
        devices=[] if devices is None else parse_devices(devices),
        batch_tokens=batch_tokens,
        passages=passages,
        compression=vectors,
        writing=writing,
        updating=updating,
        cluster=cluster,
    )
    return job.run()


def _require(*given: tuple[str, Any]) -> None:
    """Refuse a command that lacks an argument, given the options and their values.

    Raises:
        InputError: which names the first that is missing.
    """
    for option, value in given:
        if not value:
            raise InputError(f"missing {option}; see sentcli encode --help")


def _single_model(models: list[str]) -> str | None:
    """Return the one model that makes vectors, if there is one.

    Raises:
        InputError: if there are several.
    """
    if len(models) > 1:
        raise InputError(f"-m {' -m '.join(models)}: one model makes the vectors; --estimate takes several")
    return models[0] if models else None
