"""Files in, vectors on disk: what `sentcli encode` does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli.encoder.checkpoint import file_digest
from sentcli.encoder.sentence_encoder import EncodeStats, Progress, SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import check_output
from sentcli.io.readers import ReadOptions, Survey, blocks, survey
from sentcli.io.sources import Source, open_source
from sentcli.io.writers import MANIFEST, DatasetWriter, Plan, Writer, open_writer, output_kind

BLOCK_ROWS = 8192
UNSIGNED = ("stdout", ".npy", ".jsonl")
"""Outputs that have no place for the settings of the run."""
RESERVED = ("id", "text", "embedding")
"""Columns that the output adds itself."""


@dataclass(frozen=True)
class Inputs:
    """Input files that have been read once and found in order."""

    sources: list[Source]
    options: ReadOptions
    survey: Survey


@dataclass(frozen=True)
class EncodeSummary:
    """What one call encoded."""

    output: str
    rows: int
    dimension: int
    rows_before: int
    """Rows that an earlier, interrupted run had written."""
    nulls_skipped: int
    stats: EncodeStats
    seconds: float


def check_target(output: str, *, overwrite: bool, resume: bool) -> None:
    """Refuse an output that may not be written, before anything is read.

    Raises:
        InputError: if it exists (without a flag), cannot be created, or is a single file to resume.
    """
    kind = output_kind(output)
    if kind == "stdout":
        return
    if overwrite and resume:
        raise InputError("--overwrite starts again and --resume goes on: give one of them")
    path = Path(output)
    if resume and kind != "directory" and path.exists():
        raise InputError(f"{path} exists and is complete; only a directory output (-o without a suffix) is resumed")
    if kind == "directory" and path.is_dir() and not any(path.iterdir()):
        overwrite = True  # an empty folder holds nothing to lose
    if kind == "directory" and path.exists() and not overwrite and not resume:
        raise InputError(f"{path} exists; --resume continues it, --overwrite replaces it")
    check_output(path, overwrite=overwrite, resume=resume, folder=kind == "directory")
    if kind == "directory" and path.is_dir() and any(path.iterdir()) and not (path / MANIFEST).exists():
        raise InputError(f"{path} holds files, but no {MANIFEST} of sentcli encode; choose another -o")


def read_inputs(
    names: Sequence[str], options: ReadOptions, input_format: str | None = None, *, output: str = "vectors"
) -> Inputs:
    """Open and survey the input files.

    Args:
        names: paths, or ``-``.
        options: fields and null handling.
        input_format: as in `open_source`.
        output: where the vectors will go; formats that keep the other columns refuse one named like their own.

    Raises:
        InputError: as the readers: every bad row is found here, before any encoding.
    """
    sources = [open_source(name, input_format) for name in names]
    target = Path(output).resolve()
    for source in sources:
        if target in (source.path.resolve(), source.path.resolve().parent) and output_kind(output) != "stdout":
            raise InputError(f"-o {output} would replace {source.name}, which is read; choose another -o")
    found = survey(sources, options)
    if not _keeps_columns(output):
        found.column_types = {}
    clash = [name for name in found.column_types if name in RESERVED]
    if clash:
        fields = f"--text-field {options.text_field}, --id-field {options.id_field or 'id'}"
        raise InputError(f"{sources[0].name}: column {clash[0]!r} would stand twice in the output ({fields})")
    return Inputs(sources, options, found)


def _keeps_columns(output: str) -> bool:
    return output_kind(output) not in (".npy", ".safetensors")


def encode_files(
    encoder: SentenceEncoder,
    inputs: Inputs,
    output: str,
    *,
    shard_rows: int = 100_000,
    resume: bool = False,
    prompt: str = "",
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> EncodeSummary:
    """Encode every row of the inputs, in order.

    Args:
        encoder: the model.
        inputs: from `read_inputs`.
        output: as `output_kind` understands it.
        shard_rows: rows in a shard of a directory output.
        resume: continue a directory output where it stopped.
        prompt: text put in front of each row.
        batch_tokens: token budget of a forward pass.
        progress: called after every batch with the rows and tokens it added.

    Raises:
        InputError: if what is there to resume was made from another input, model or setting.
    """
    began = time.perf_counter()
    plan = Plan(
        rows=inputs.survey.rows,
        dimension=encoder.dimension,
        column_types=inputs.survey.column_types,
        settings={} if output_kind(output) in UNSIGNED else _settings(encoder, inputs, prompt),
    )
    stats = EncodeStats()
    with _writer(output, plan, shard_rows, resume) as (writer, done):
        if done and progress is not None:
            progress(EncodeStats(texts=done))
        reader = blocks(
            inputs.sources,
            inputs.options,
            block_rows=min(BLOCK_ROWS, shard_rows),
            break_every=shard_rows,
            skip_rows=done,
            columns=list(plan.column_types),
        )
        for block in reader:
            vectors, counted = encoder.encode_counted(
                block.texts, prompt=prompt, batch_tokens=batch_tokens, progress=progress
            )
            if progress is not None:  # rows whose text stood in the block before
                progress(EncodeStats(texts=counted.texts - counted.distinct))
            writer.write(block, vectors)
            stats += counted
        if done + stats.texts != plan.rows:
            raise SentcliError(f"the input has changed while it was read: {plan.rows} rows, then {done + stats.texts}")
    seconds = time.perf_counter() - began
    return EncodeSummary(output, plan.rows, plan.dimension, done, inputs.survey.nulls, stats, seconds)


@contextmanager
def _writer(output: str, plan: Plan, shard_rows: int, resume: bool) -> Iterator[tuple[Writer, int]]:
    if output_kind(output) == "directory":
        with DatasetWriter(Path(output), plan, shard_rows, resume=resume) as dataset:
            yield dataset, dataset.rows_done
    else:
        with open_writer(output, plan) as writer:
            yield writer, 0


def _settings(encoder: SentenceEncoder, inputs: Inputs, prompt: str) -> dict[str, Any]:
    """Return everything that decides the vectors of a row and their order."""
    return {
        "model": encoder.model,
        "model_fingerprint": encoder.fingerprint(),
        **encoder.describe(),
        "prompt": prompt,
        "inputs": [
            {
                "name": Path(source.name).name,
                "format": source.format,
                "bytes": source.path.stat().st_size,
                "sha256": file_digest(source.path),
            }
            for source in inputs.sources
        ],
        "text_field": inputs.options.text_field,
        "id_field": inputs.options.id_field,
        "on_null": inputs.options.on_null,
    }
