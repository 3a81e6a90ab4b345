"""``encode --estimate``: what encoding takes with each model, before anything is written."""

from __future__ import annotations

from sentcli.command.result import Clock, Record, Result
from sentcli.compression import Compression
from sentcli.evaluation.estimate import estimate_encoding
from sentcli.machine import environment
from sentcli.model.options import LoadOptions
from sentcli.stores.inputs import read_rows
from sentcli.stores.options import InputOptions, VectorOptions, WriteOptions, WriteSettings


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
    clock = Clock()
    files = read_rows(inputs, reading, input_format=reading.input_format)
    shard_rows = writing.shard_rows or WriteSettings.shard_rows
    compression = Compression(vectors.output_dtype, vectors.truncate_dim)
    estimates = estimate_encoding(models, options, files, shard_rows, compression, prompt)
    protocol = {"estimate": True, "sample": len(estimates.sample.texts), **compression.protocol()}
    ran_on = environment(estimates.models[0].device, None)
    record = Record("encode", ", ".join(models), protocol, estimates.to_dict(), ran_on, clock.seconds)
    return Result.of(record, estimates.tables())
