"""The way of the rows from the inputs through an engine to the output."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from sentcli.bulk.distinct import encoded
from sentcli.bulk.engines import open_engine
from sentcli.bulk.inputs import Inputs
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import SentcliError
from sentcli.io.atomic import check_output
from sentcli.io.dataset import Counts, InputGroup, ShardShare
from sentcli.io.dataset_writer import DatasetWriter
from sentcli.io.readers import Block, blocks
from sentcli.io.writers import OutputPlan, Writer, open_writer, output_kind
from sentcli.model.encoding import EncodeStats, OnLong, Progress
from sentcli.smaller import Smaller, fit_pca

BLOCK_ROWS = 8192
GPU_BLOCK_ROWS = 65536
"""A large budget of tokens wants more texts of one length to choose from."""
SAMPLE_ROWS = 10_000
"""From which principal components are learned."""
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
        how = {"prompt": settings.prompt, "batch_tokens": settings.batch_tokens, "on_long": settings.on_long}
        reader = blocks(
            inputs.sources,
            inputs.options,
            block_rows=min(block_rows, settings.shard_rows),
            shard_rows=settings.shard_rows,
            wanted=target.wanted,
            first_number=target.first_number,
            columns=list(plan.column_types),
        )
        with open_engine(encoder, how, progress, settings.devices, settings.load) as engine:
            for block, vectors, counts in encoded(reader, engine, output, settings.on_long):
                target.write(block, settings.smaller.apply(vectors), counts)
                done += counts
                if progress is not None:  # rows whose text had been encoded
                    progress(EncodeStats(texts=counts.duplicates))
        if done.rows != target.expected:
            raise SentcliError(f"the input has changed while it was read: {target.expected} rows, then {done.rows}")
    return EncodeSummary(
        output=output,
        rows=target.first_row + before + done.rows,
        dimension=plan.dimension,
        rows_before=target.first_row + before,
        nulls_skipped=inputs.survey.nulls,
        counts=done,
        damaged=target.damaged,
        seconds=time.perf_counter() - began,
    )


@dataclass
class _File:
    """One file, or standard output, with what a `DatasetWriter` says about a directory."""

    writer: Writer
    expected: int
    wanted = None
    first_row = first_number = rows_before = 0
    damaged: list[str] = field(default_factory=list)

    def write(self, block: Block, vectors: npt.NDArray[Any], counts: Counts) -> None:
        """Append rows."""
        self.writer.write(block, vectors)


@contextmanager
def _target(output: str, plan: OutputPlan, inputs: Inputs, settings: EncodeSettings) -> Iterator[DatasetWriter | _File]:
    if output_kind(output) != "directory":
        with open_writer(output, plan) as file:
            yield _File(file, plan.rows)
        return
    read = plan.rows + (inputs.survey.nulls if inputs.options.on_null == "skip" else 0)
    group = InputGroup(inputs.described(), plan.rows, read)
    size, part, resume, append = settings.shard_rows, settings.part, settings.resume, settings.append
    with DatasetWriter(Path(output), plan, size, group, part=part, resume=resume, append=append) as writer:
        yield writer


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


def learn_components(encoder: SentenceEncoder, inputs: Inputs, prompt: str, dimension: int, path: Path) -> int:
    """Encode up to 10,000 rows spread over the inputs, write their principal components, and return their number.

    Raises:
        InputError: if there are too few rows or dimensions.
    """
    check_output(path)
    step = max(inputs.survey.rows // SAMPLE_ROWS, 1)
    texts: dict[str, None] = {}
    for block in blocks(inputs.sources, inputs.options):
        texts.update(dict.fromkeys(block.texts[-block.first_row % step :: step]))
    sample = list(texts)[: 2 * SAMPLE_ROWS]
    fit_pca(encoder.encode(sample, prompt=prompt), dimension).save(path)
    return len(sample)
