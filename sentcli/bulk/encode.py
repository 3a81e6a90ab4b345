"""The way of the rows from the inputs through an engine to the output."""

from __future__ import annotations

import hashlib
import tempfile
import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from sentcli.bulk.engines import Engine, Job, open_engine
from sentcli.bulk.inputs import Inputs
from sentcli.encoder.encoding import Encoded, EncodeStats, LongTextError, OnLong, Progress
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.io.dataset import Counts, Group, Part
from sentcli.io.dataset_writer import DatasetWriter
from sentcli.io.readers import Block, blocks
from sentcli.io.writers import Plan, Writer, open_writer, output_kind
from sentcli.smaller import Smaller

BLOCK_ROWS = 8192
GPU_BLOCK_ROWS = 65536
"""A large budget of tokens wants more texts of one length to choose from."""
UNSIGNED = ("stdout", ".npy", ".jsonl")
"""Outputs that have no place for the settings of the run."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Settings:
    """How rows are encoded and written."""

    shard_rows: int = 100_000
    resume: bool = False
    append: bool = False
    part: Part = field(default_factory=Part)
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
    encoder: SentenceEncoder, inputs: Inputs, output: str, settings: Settings, progress: Progress | None = None
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
    plan = Plan(
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
        with open_engine(encoder, job, progress, settings.devices, settings.load) as engine, _spool(output) as spool:
            for block, vectors, counts in _encoded(reader, engine, spool, settings.on_long):
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
def _target(output: str, plan: Plan, inputs: Inputs, settings: Settings) -> Iterator[_Target]:
    if output_kind(output) == "directory":
        group = Group(inputs.described(), plan.rows, plan.rows + inputs.survey.nulls * _skips(inputs))
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


@dataclass
class _Underway:
    """A block whose new texts are being encoded."""

    block: Block
    where: npt.NDArray[np.int64]
    """The number of each row's text among the shard's distinct texts."""
    first: int
    """The number of the first text that is new."""
    new: list[int]
    """Rows that brought a new text."""
    future: Future[Encoded]


def _encoded(
    reader: Iterable[Block], engine: Engine, spool: Spool, on_long: OnLong
) -> Iterator[tuple[Block, Floats, Counts]]:
    """Yield blocks with their vectors in order; some are read and encoded ahead."""
    underway: deque[_Underway] = deque()
    seen: dict[bytes, int] = {}
    shard: int | None = None
    for block in reader:
        if block.shard != shard:
            shard, seen = block.shard, {}
        underway.append(_send(block, seen, engine))
        if len(underway) > engine.ahead:
            yield _receive(underway.popleft(), spool, on_long)
    while underway:
        yield _receive(underway.popleft(), spool, on_long)


def _send(block: Block, seen: dict[bytes, int], engine: Engine) -> _Underway:
    first = len(seen)
    keys = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in block.texts)
    where = np.fromiter((seen.setdefault(key, len(seen)) for key in keys), np.int64, len(block))
    brought = np.unique(where[where >= first], return_index=True)[1]
    new = np.flatnonzero(where >= first)[brought].tolist()
    return _Underway(block, where, first, new, engine.submit([block.texts[row] for row in new]))


def _receive(sent: _Underway, spool: Spool, on_long: OnLong) -> tuple[Block, Floats, Counts]:
    block = sent.block
    try:
        found = sent.future.result()
    except LongTextError as error:
        row = sent.new[error.number]
        name, place = block.places[row]
        raise InputError(
            f"{name}, row {place} (id {block.ids[row]}): its text has {error.tokens} tokens, "
            f"more than {error.limit} (--on-long truncate or chunk-mean accepts it, --max-length changes the limit)"
        ) from error
    except BrokenProcessPool as error:
        raise SentcliError("a process that encodes has died, perhaps for lack of memory") from error
    if sent.first == 0:
        spool.clear()
    vectors, beyond = spool.recall(sent.where, sent.first, found)
    counts = Counts(
        rows=len(block),
        empty=sum(not text.strip() for text in block.texts),
        duplicates=len(block) - len(sent.new),
        truncated=int(np.count_nonzero(beyond)),
        tokens_lost=0 if on_long == "chunk-mean" else int(beyond.sum()),
        tokens=found.tokens,
    )
    return block, vectors, counts


class Spool:
    """The vectors of the distinct texts of a shard, on disk, for rows that name one of them again."""

    def __init__(self, handle: IO[bytes]) -> None:
        self.handle = handle
        self.beyond = array("q")

    def clear(self) -> None:
        """Begin another shard."""
        self.handle.seek(0)
        self.handle.truncate()
        self.beyond = array("q")

    def recall(self, where: npt.NDArray[np.int64], first: int, found: Encoded) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Keep new vectors, and return those of all rows with the tokens beyond the maximum length.

        Args:
            where: the number of each row's text ``[rows]``.
            first: the number of the first new one.
            found: the new texts, encoded.
        """
        width = found.vectors.shape[1]
        vectors = np.empty((len(where), width), np.float32)
        fresh = where >= first
        vectors[fresh] = found.vectors[where[fresh] - first]
        for row in np.flatnonzero(~fresh):
            self.handle.seek(int(where[row]) * width * 4)
            vectors[row] = np.frombuffer(self.handle.read(width * 4), np.float32)
        self.handle.seek(0, 2)
        self.handle.write(found.vectors.data)
        self.beyond.extend(found.beyond.tolist())
        return vectors, np.array(self.beyond, np.int64)[where]


@contextmanager
def _spool(output: str) -> Iterator[Spool]:
    """Yield a spool beside the output, where there is room for the vectors."""
    path = None if output_kind(output) == "stdout" else Path(output).resolve().parent
    with tempfile.TemporaryFile(dir=path, prefix=".sentcli-spool-") as handle:
        yield Spool(handle)


def _described(
    encoder: SentenceEncoder, inputs: Inputs, settings: Settings, block_rows: int, kind: str
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
