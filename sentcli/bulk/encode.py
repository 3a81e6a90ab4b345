"""The way of the rows from the inputs through an engine to the output."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from sentcli.bulk.distinct import encoded, open_spool
from sentcli.bulk.engines import Job, open_engine
from sentcli.bulk.inputs import Inputs
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import SentcliError
from sentcli.io.dataset import Counts, InputGroup, ShardShare
from sentcli.io.dataset_writer import DatasetWriter
from sentcli.io.readers import Block, blocks
from sentcli.io.writers import OutputPlan, Writer, open_writer, output_kind
from sentcli.model.encoding import EncodeStats, OnLong, Progress
from sentcli.smaller import Smaller

BLOCK_ROWS = 8192
GPU_BLOCK_ROWS = 65536
"""A large budget of tokens wants more texts of one length to choose from."""
UNSIGNED = ("stdout", ".npy", ".jsonl")
"""Outputs that have no place for the settings of the run."""


@dataclass(frozen=True)
class EncodeSettings:
    """How rows are encoded and written."""

    shard_rows: int = 100_000
    resume: bool = False
    append: bool = False
    part: ShardShare = field(default_factory=ShardShare)
    prompt: str = ""
    batch_tokens: int | None = None
    on_long: OnLong = "truncate"
    smaller: Smaller = field(default_factory=Smaller)
    devices: Sequence[str] = ()
    """Several have a process each; none is the encoder's own."""
    load: dict[str, Any] = field(default_factory=dict)
    """Arguments of `SentenceEncoder.load` for those processes."""


@dataclass(frozen=True)
class EncodeSummary:
    """What one call encoded."""

    output: str
    rows: int
    """That the output holds, or this machine's part of it."""
    dimension: int
    rows_before: int
    """Rows that earlier runs had written."""
    nulls_skipped: int
    counts: Counts
    """Of the rows that were encoded now."""
    damaged: list[str]
    """Shards that an earlier run had finished, that were torn, and that were made again."""
    seconds: float


def encode_files(
    encoder: SentenceEncoder, inputs: Inputs, output: str, settings: EncodeSettings, progress: Progress | None = None
) -> EncodeSummary:
    """Encode every row of the inputs, in order.

    Args:
        encoder: the model.
        inputs: from `read_inputs`.
        output: as `output_kind` understands it.
        settings: how.
        progress: called with the rows and tokens that were done.

    Raises:
        InputError: if what is there to resume was made from another input, model or setting; for a long text, with
            ``on_long="error"``.
        SentcliError: if the input changes while it is read, or an engine fails.
    """
    began = time.perf_counter()
    kind = output_kind(output)
    block_rows = BLOCK_ROWS if encoder.backend.device == "cpu" else GPU_BLOCK_ROWS
    plan = OutputPlan(
        rows=inputs.survey.rows,
        dimension=settings.smaller.dimension(encoder.dimension),
        column_types=inputs.survey.column_types,
        settings={} if kind in UNSIGNED else _described(encoder, inputs, settings, block_rows, kind),
        dtype=settings.smaller.dtype,
    )
    done = Counts()
    with _target(output, plan, inputs, settings) as target:
        before = target.rows_before
        if before and progress is not None:
            progress(EncodeStats(texts=before))
        job = Job(settings.prompt, settings.batch_tokens, settings.on_long)
        reader = blocks(
            inputs.sources,
            inputs.options,
            block_rows=min(block_rows, settings.shard_rows),
            shard_rows=settings.shard_rows,
            wanted=target.wanted,
            first_number=target.first_number,
            columns=list(plan.column_types),
        )
        opening = open_engine(encoder, job, progress, settings.devices, settings.load)
        with opening as engine, open_spool(output) as spool:
            for block, vectors, counts in encoded(reader, engine, spool, settings.on_long):
                target.write(block, settings.smaller.apply(vectors), counts)
                done.add(counts)
                if progress is not None:  # rows whose text had been encoded
                    progress(EncodeStats(texts=counts.duplicates))
        if done.rows != target.expected:
            raise SentcliError(f"the input has changed while it was read: {target.expected} rows, then {done.rows}")
    return EncodeSummary(
        output=output,
        rows=target.earlier + before + done.rows,
        dimension=plan.dimension,
        rows_before=target.earlier + before,
        nulls_skipped=inputs.survey.nulls,
        counts=done,
        damaged=target.damaged,
        seconds=time.perf_counter() - began,
    )


class _Target(Protocol):
    """An output of either kind."""

    wanted: Any
    first_number: int
    rows_before: int
    """Of these inputs."""
    earlier: int
    """Rows of inputs to which these are appended."""
    expected: int
    damaged: list[str]

    def write(self, block: Block, vectors: npt.NDArray[Any], counts: Counts) -> None:
        """Append rows."""


class _File:
    """One file, or standard output."""

    wanted = None
    first_number = rows_before = earlier = 0

    def __init__(self, writer: Writer, rows: int) -> None:
        self.writer, self.expected = writer, rows
        self.damaged: list[str] = []

    def write(self, block: Block, vectors: npt.NDArray[Any], counts: Counts) -> None:
        """Append rows."""
        self.writer.write(block, vectors)


class _Directory:
    """The shards of a part that are not there yet."""

    def __init__(self, writer: DatasetWriter) -> None:
        self.write = writer.write
        self.wanted, self.first_number = frozenset(writer.wanted), writer.first_number
        self.rows_before, self.damaged = writer.rows_before, writer.damaged
        self.earlier = writer.first_row
        rows, size = writer.plan.rows, writer.shard_rows
        self.expected = sum(min(size, rows - number * size) for number in writer.wanted)


@contextmanager
def _target(output: str, plan: OutputPlan, inputs: Inputs, settings: EncodeSettings) -> Iterator[_Target]:
    if output_kind(output) == "directory":
        group = InputGroup(inputs.described(), plan.rows, plan.rows + inputs.survey.nulls * _skips(inputs))
        writer = DatasetWriter(
            Path(output),
            plan,
            settings.shard_rows,
            group,
            part=settings.part,
            resume=settings.resume,
            append=settings.append,
        )
        with writer:
            yield _Directory(writer)
    else:
        with open_writer(output, plan) as file:
            yield _File(file, plan.rows)


def _skips(inputs: Inputs) -> int:
    return int(inputs.options.on_null == "skip")


def _described(
    encoder: SentenceEncoder, inputs: Inputs, settings: EncodeSettings, block_rows: int, kind: str
) -> dict[str, Any]:
    """Return everything that decides the vectors of a row and their order."""
    return {
        "model": encoder.model,
        "model_fingerprint": encoder.fingerprint(),
        **encoder.describe(),
        "prompt": settings.prompt,
        "on_long": settings.on_long,
        "batch_tokens": settings.batch_tokens or encoder.backend.default_batch_tokens,
        "block_rows": block_rows,
        **settings.smaller.described(),
        "text_field": inputs.options.text_field,
        "id_field": inputs.options.id_field,
        "on_null": inputs.options.on_null,
        **({} if kind == "directory" else {"inputs": inputs.described()}),
    }
