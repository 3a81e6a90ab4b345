"""From blocks of rows to a writer: the texts go to an engine, their vectors come back in order.

An engine is a thread of this process, or several processes with a device each; `on_ray` has workers on a cluster.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from sentcli.compression import Compression
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import room_explained
from sentcli.io.blocks import Block, Counts, ShardShare
from sentcli.io.places import is_remote
from sentcli.io.writers import DIRECTORY, STDOUT, output_format
from sentcli.machine import usable_cores
from sentcli.model.encoding import Encoded, EncodeStats, LongTextError, OnLong, Progress, RefusedTextError
from sentcli.model.options import LoadOptions

if TYPE_CHECKING:
    from sentcli.arrays import AnyArray, Int64Array, Vectors
    from sentcli.bulk.stored_texts import Pending, StoredTexts
    from sentcli.cluster.pool import Pool
    from sentcli.encoder.vector_facts import Passages

EncodeTexts = Callable[..., Encoded]
"""`SentenceEncoder.encode_distinct`, or what takes its arguments."""


def parse_devices(text: str) -> list[str]:
    """Read the value of ``--devices``, names separated by commas.

    Raises:
        InputError: for a name that is no device.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
            raise InputError(f"--devices {text!r}: {name!r} is no device; give for example cuda:0,cuda:1 or cpu,cpu")
    return names


@dataclass(frozen=True)
class EncodeSettings:
    """How rows are encoded and written."""

    shard_rows: int = 100_000
    overwrite: bool = False
    """Whether a directory that is there is replaced, once the new one is complete."""
    stays_beside: bool = False
    """Whether the new directory is left in `Folder.staging` with `overwrite`, for an index to be built in it."""
    resume: bool = False
    append: bool = False
    part: ShardShare = field(default_factory=ShardShare)
    prompt: str = ""
    batch_tokens: int | None = None
    on_long: OnLong = "truncate"
    compression: Compression = field(default_factory=Compression)
    passages: Passages | None = None
    """How documents were cut into the rows; None if each row is one."""
    devices: Sequence[str] = ()
    """Several devices have a process each; an empty sequence takes that of the encoder."""
    load: LoadOptions = field(default_factory=LoadOptions)
    """How these processes load the model, each on a device of its own."""
    encode: EncodeTexts | None = None
    """Encodes texts in this process, instead of `SentenceEncoder.encode_distinct`, whose arguments it takes."""
    stored: StoredTexts | None = None
    """A directory whose texts keep their vectors, if it is updated."""
    pool: Pool | None = None
    """Workers on a cluster that make the shards, if not this process; for the output of a directory."""

    @property
    def encoding(self) -> dict[str, Any]:
        """The arguments of `SentenceEncoder.encode_distinct`."""
        return {"prompt": self.prompt, "batch_tokens": self.batch_tokens, "on_long": self.on_long}


@dataclass(frozen=True)
class Engine:
    """Encodes the texts of blocks in the background."""

    submit: Callable[[Sequence[str]], Pending]
    ahead: int
    """The number of submitted blocks that keep the engine busy."""


def open_engine(
    encoder: SentenceEncoder, settings: EncodeSettings, progress: Progress
) -> AbstractContextManager[Engine]:
    """Open the engine of a model for the devices of the settings; several devices have a process each.

    Args:
        encoder: the model, as it is loaded in this process.
        settings: the devices, and how texts are encoded.
        progress: called with the counts of what was encoded.
    """
    if len(settings.devices) > 1:
        return open_processes(encoder.model, settings.load, settings.devices, settings.encoding, progress)
    return open_thread(settings.encode or encoder.encode_distinct, settings.encoding, progress)


@contextmanager
def open_thread(encode: EncodeTexts, options: dict[str, Any], progress: Progress) -> Iterator[Engine]:
    """Run an encoder in a thread of this process, while others read and write."""
    stopped = threading.Event()
    pool = ThreadPoolExecutor(1, thread_name_prefix="engine")

    def advance(added: EncodeStats) -> None:
        if stopped.is_set():
            raise SentcliError("stopped")  # ends the encoding, whose result nobody waits for
        progress(added)

    try:
        yield Engine(lambda texts: pool.submit(encode, texts, **options, progress=advance), ahead=2)
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def open_processes(
    model: str, load: LoadOptions, devices: Sequence[str], options: dict[str, Any], progress: Progress
) -> Iterator[Engine]:
    """Run a process with an encoder for each device; a block goes to the first process that is free.

    Args:
        model: its name.
        load: how the processes load it, each on a device of its own.
        devices: their names.
        options: arguments of `SentenceEncoder.encode_distinct`.
        progress: called with the counts of what was encoded.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")
    names = context.SimpleQueue()
    for device in devices:
        names.put(device)
    on_cpu = list(devices).count("cpu")
    threads = 0  # the default
    if on_cpu:
        threads = max(usable_cores() // on_cpu, 1)
    arguments = (model, load, names, threads)
    pool = ProcessPoolExecutor(len(devices), mp_context=context, initializer=_start, initargs=arguments)

    def submit(texts: Sequence[str]) -> Future[Encoded]:
        try:
            with _ctrl_c_held():  # this may start a process
                future = pool.submit(_encode_in_process, list(texts), options)
        except BrokenExecutor as error:
            raise SentcliError("a process that encodes has died (out of memory?)") from error
        future.add_done_callback(advance)
        return future

    def advance(future: Future[Encoded]) -> None:
        if not future.cancelled() and future.exception() is None:
            result = future.result()
            progress(EncodeStats(texts=len(result.vectors), tokens=result.tokens))

    try:
        yield Engine(submit, ahead=2 * len(devices))
    finally:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            with suppress(Exception):
                process.terminate()
        for process in processes:
            process.join(10)


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Keep Ctrl-C from processes that start inside the block, until they can ignore it themselves (not on Windows)."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_encoder: SentenceEncoder | Exception | None = None
"""The encoder of a worker process, or the error of loading it."""


def _start(model: str, load: LoadOptions, devices: Any, threads: int) -> None:
    """Load the encoder of a worker process, which ends when its parent ends.

    Args:
        model: its name.
        load: how it is loaded.
        devices: a queue with a device for each process.
        threads: the number of threads; 0 for the default.
    """
    global _encoder
    from multiprocessing import parent_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the parent handles it
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        _encoder = SentenceEncoder.load_with(model, replace(load, device=devices.get()))
    except Exception as error:  # raised by the first encoding: an error of an initializer would only be printed
        _encoder = error


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _encode_in_process(texts: list[str], options: dict[str, Any]) -> Encoded:
    if isinstance(_encoder, Exception):
        raise _encoder
    assert _encoder is not None
    return _encoder.encode_distinct(texts, **options)


@dataclass
class _Underway:
    """A block whose new texts are being encoded."""

    block: Block
    numbers: Int64Array
    """The number of each row's text among the shard's distinct texts ``[rows]``."""
    first: int
    """The number of the first new text."""
    new: list[int]
    """The row that each new text is from."""
    future: Pending


def advice_on_room(output: str) -> str:
    """Return what to do if the disk of an output is full; a directory keeps its finished shards."""
    goes_on = output_format(output) is DIRECTORY
    return f"make room{' and go on with --resume' if goes_on else ', then give the same command again'}"


def encode_blocks(
    reader: Iterable[Block],
    engine: Engine,
    output: str,
    settings: EncodeSettings,
    progress: Progress = lambda added: None,
) -> Iterator[tuple[Block, Vectors, Counts]]:
    """Yield blocks with their vectors and counts in order, while further blocks are read and encoded.

    The vectors of a shard's texts are kept in a temporary file beside the output, whose disk has to have room for them.
    Those of texts that `EncodeSettings.stored` has are any.
    """
    stored = settings.stored
    underway: deque[_Underway] = deque()
    seen: dict[bytes, int] = {}
    shard: int | None = None
    elsewhere = output_format(output) is STDOUT or is_remote(output)
    folder = None if elsewhere else Path(output).resolve().parent
    with (
        room_explained(f"{output} (a temporary file beside it)", advice_on_room(output)),
        tempfile.TemporaryFile(dir=folder, prefix=".sentcli-spool-") as handle,
    ):
        spool = _Spool(handle)
        for block in reader:
            if block.shard != shard:
                shard, seen = block.shard, {}
            # only texts that the shard has not had before are encoded; `seen` has their numbers by their hashes
            first = len(seen)
            texts = block.encoded_texts
            keys = block.digests.tolist()
            numbers = np.fromiter((seen.setdefault(key, len(seen)) for key in keys), np.int64, len(block))
            first_rows = np.unique(numbers[numbers >= first], return_index=True)[1]
            new = np.flatnonzero(numbers >= first)[first_rows].tolist()
            new_texts = [texts[row] for row in new]
            if stored is None:
                future = engine.submit(new_texts)
            else:
                future = stored.encode(engine.submit, new_texts, block.digests[new], progress)
            underway.append(_Underway(block, numbers, first, new, future))
            if len(underway) > engine.ahead:
                yield _receive(underway.popleft(), spool, settings.on_long)
        while underway:
            yield _receive(underway.popleft(), spool, settings.on_long)


def _receive(underway: _Underway, spool: _Spool, on_long: OnLong) -> tuple[Block, Vectors, Counts]:
    """Wait for the new texts of a block, and return the block with its vectors and counts."""
    block = underway.block
    try:
        texts = underway.future.result()
    except LongTextError as error:
        row = underway.new[error.number]
        name, place = block.places[row]
        raise InputError(
            f"{name}, row {place} (id {block.ids[row]}): its text has {error.tokens} tokens, "
            f"more than {error.limit} (--on-long truncate or chunk-mean accepts it, --max-length changes the limit)"
        ) from error
    except RefusedTextError as error:
        row = underway.new[error.number]
        name, place = block.places[row]
        raise SentcliError(f"{name}, row {place} (id {block.ids[row]}): {error.problem}") from error
    except BrokenExecutor as error:
        raise SentcliError("a process that encodes has died, perhaps for lack of memory") from error
    vectors, excess_tokens = spool.recall(underway.numbers, underway.first, texts)
    counts = Counts(
        rows=len(block),
        empty=sum(not text.strip() for text in block.texts),
        duplicates=len(block) - len(underway.new),
        truncated=int(np.count_nonzero(excess_tokens)),
        tokens_lost=0 if on_long == "chunk-mean" else int(excess_tokens.sum()),
        tokens=texts.tokens,
    )
    return block, vectors, counts


class _Spool:
    """The vectors of the distinct texts of a shard, kept on disk for rows that repeat one of these texts."""

    def __init__(self, handle: IO[bytes]) -> None:
        self.handle = handle
        self.excess_tokens = array("q")

    def recall(self, numbers: Int64Array, first: int, texts: Encoded) -> tuple[Vectors, Int64Array]:
        """Keep the vectors of new texts, and return the vectors of all rows of a block.

        Args:
            numbers: the number of each row's text ``[rows]``.
            first: the number of the first new text.
            texts: the new texts, encoded.

        Returns:
            The vectors ``[rows, dim]``, and the numbers of tokens beyond the maximum length ``[rows]``.
        """
        if first == 0:  # another shard begins
            self.handle.seek(0)
            self.handle.truncate()
            self.excess_tokens = array("q")
        width = texts.vectors.shape[1]
        vectors = np.empty((len(numbers), width), np.float32)
        is_new = numbers >= first
        vectors[is_new] = texts.vectors[numbers[is_new] - first]
        for row in np.flatnonzero(~is_new):
            self.handle.seek(int(numbers[row]) * width * 4)
            vectors[row] = np.frombuffer(self.handle.read(width * 4), np.float32)
        self.handle.seek(0, 2)
        self.handle.write(texts.vectors.data)
        self.excess_tokens.extend(texts.excess_tokens.tolist())
        return vectors, np.array(self.excess_tokens, np.int64)[numbers]


class BlockWriter(Protocol):
    """Takes blocks with their vectors and counts."""

    def write(self, block: Block, vectors: AnyArray, counts: Counts) -> None:
        """Append rows."""


def write_blocks(
    reader: Iterable[Block],
    engine: Engine,
    writer: BlockWriter,
    output: str,
    settings: EncodeSettings,
    progress: Progress,
) -> Counts:
    """Encode blocks and write them.

    Args:
        reader: the blocks.
        engine: encodes them.
        writer: takes them with their vectors.
        output: the path beside which texts that repeat are kept; see `encode_blocks`.
        settings: how they are encoded and written.
        progress: called with the rows that repeat a text; the engine counts the distinct texts.

    Returns:
        The counts over all blocks.
    """
    counts = Counts()
    encoded = encode_blocks(reader, engine, output, settings, progress)
    if settings.stored is not None:
        encoded = settings.stored.completed(encoded)
    for block, vectors, block_counts in encoded:
        written = settings.compression.apply(vectors)
        if settings.stored is not None:
            settings.stored.put_back(block, written)
        writer.write(block, written, block_counts)
        counts += block_counts
        progress(EncodeStats(texts=block_counts.duplicates))
    return counts
