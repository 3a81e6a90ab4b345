"""What runs the texts of a block: this process, or several processes with a device each."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import signal
import tempfile
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.io.dataset import Counts
from sentcli.io.readers import Block
from sentcli.io.writers import output_kind
from sentcli.machine import usable_cores
from sentcli.model.encoding import Encoded, EncodeStats, LongTextError, OnLong, Progress, Vectors


def parse_devices(text: str) -> list[str]:
    """Read the value of ``--devices``: names with commas between them.

    Raises:
        InputError: for one that is none, before anything is loaded.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
            raise InputError(f"--devices {text!r}: {name!r} is no device; give for example cuda:0,cuda:1 or cpu,cpu")
    return names


class _StoppedError(SentcliError):
    """The work was given up from outside."""


@dataclass(frozen=True)
class Engine:
    """Takes the texts of a block at a time, which are encoded in the order in which they come."""

    submit: Callable[[Sequence[str]], Future[Encoded]]
    ahead: int
    """Blocks that keep it busy."""


def open_engine(
    encoder: SentenceEncoder, how: dict[str, Any], progress: Progress, devices: Sequence[str], load: Any
) -> AbstractContextManager[Engine]:
    """Open the engine for some devices: several of them have a process each.

    Args:
        encoder: loaded in this process.
        how: every text is encoded, arguments of `SentenceEncoder.encode_distinct`.
        progress: called with what was done.
        devices: several, or none for the encoder's own.
        load: arguments of `SentenceEncoder.load`, for the processes, without the device.
    """
    return open_processes(load, devices, how, progress) if len(devices) > 1 else open_thread(encoder, how, progress)


@contextmanager
def open_thread(encoder: SentenceEncoder, how: dict[str, Any], progress: Progress) -> Iterator[Engine]:
    """Run an encoder in a thread of this process, so that reading and writing go on beside it."""
    stopped = threading.Event()
    pool = ThreadPoolExecutor(1, thread_name_prefix="engine")

    def advance(added: EncodeStats) -> None:
        if stopped.is_set():
            raise _StoppedError("stopped")
        progress(added)

    try:
        yield Engine(lambda texts: pool.submit(encoder.encode_distinct, texts, **how, progress=advance), ahead=2)
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def open_processes(
    load: dict[str, Any], devices: Sequence[str], how: dict[str, Any], progress: Progress
) -> Iterator[Engine]:
    """Run processes with an encoder each; a block goes to the first that is free."""
    context = multiprocessing.get_context("spawn")
    names = context.SimpleQueue()
    for device in devices:
        names.put(device)
    on_cpu = sum(name == "cpu" for name in devices)
    share = max(usable_cores() // on_cpu, 1) if on_cpu else 0
    pool = ProcessPoolExecutor(len(devices), mp_context=context, initializer=_start, initargs=(load, names, share))

    def submit(texts: Sequence[str]) -> Future[Encoded]:
        try:
            with _ctrl_c_held():  # this may start a process
                future = pool.submit(_encode_in_process, list(texts), how)
        except BrokenProcessPool as error:
            raise SentcliError("a process that encodes has died (out of memory?)") from error
        future.add_done_callback(advance)
        return future

    def advance(future: Future[Encoded]) -> None:
        if not future.cancelled() and future.exception() is None:
            done = future.result()
            progress(EncodeStats(texts=len(done.vectors), tokens=done.tokens))

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
    """Hold Ctrl-C back from processes that are started here while they cannot yet ignore it (not on Windows)."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it would let go of the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_encoder: SentenceEncoder | Exception | None = None
"""Of a worker process: what encodes, or why there is nothing that does."""


def _start(load: dict[str, Any], devices: Any, threads: int) -> None:
    """Load the encoder of a worker process; it ends when the process that started it is gone, or says so."""
    global _encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the first one acts
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        _encoder = SentenceEncoder.load(**load, device=devices.get())
    except Exception as error:  # raised where a result is awaited: an initializer could only print it
        _encoder = error


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _encode_in_process(texts: list[str], how: dict[str, Any]) -> Encoded:
    if isinstance(_encoder, Exception):
        raise _encoder
    assert _encoder is not None
    return _encoder.encode_distinct(texts, **how)


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


def encoded(
    reader: Iterable[Block], engine: Engine, output: str, on_long: OnLong
) -> Iterator[tuple[Block, Vectors, Counts]]:
    """Yield blocks with their vectors in order; some are read and encoded ahead.

    The vectors of a shard's texts are kept beside the output, where there is room for them.
    """
    underway: deque[_Underway] = deque()
    seen: dict[bytes, int] = {}
    shard: int | None = None
    folder = None if output_kind(output) == "stdout" else Path(output).resolve().parent
    with tempfile.TemporaryFile(dir=folder, prefix=".sentcli-spool-") as handle:
        spool = _Spool(handle)
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


def _receive(sent: _Underway, spool: _Spool, on_long: OnLong) -> tuple[Block, Vectors, Counts]:
    block = sent.block
    try:
        texts = sent.future.result()
    except LongTextError as error:
        row = sent.new[error.number]
        name, place = block.places[row]
        raise InputError(
            f"{name}, row {place} (id {block.ids[row]}): its text has {error.tokens} tokens, "
            f"more than {error.limit} (--on-long truncate or chunk-mean accepts it, --max-length changes the limit)"
        ) from error
    except BrokenProcessPool as error:
        raise SentcliError("a process that encodes has died, perhaps for lack of memory") from error
    vectors, beyond = spool.recall(sent.where, sent.first, texts)
    counts = Counts(
        rows=len(block),
        empty=sum(not text.strip() for text in block.texts),
        duplicates=len(block) - len(sent.new),
        truncated=int(np.count_nonzero(beyond)),
        tokens_lost=0 if on_long == "chunk-mean" else int(beyond.sum()),
        tokens=texts.tokens,
    )
    return block, vectors, counts


class _Spool:
    """The vectors of the distinct texts of a shard, on disk, for rows that name one of them again."""

    def __init__(self, handle: IO[bytes]) -> None:
        self.handle = handle
        self.beyond = array("q")

    def recall(self, where: npt.NDArray[np.int64], first: int, texts: Encoded) -> tuple[Vectors, npt.NDArray[np.int64]]:
        """Keep new vectors, and return those of all rows with the tokens beyond the maximum length.

        Args:
            where: the number of each row's text ``[rows]``.
            first: the number of the first new one.
            texts: the new ones, encoded.
        """
        if first == 0:  # another shard begins
            self.handle.seek(0)
            self.handle.truncate()
            self.beyond = array("q")
        width = texts.vectors.shape[1]
        vectors = np.empty((len(where), width), np.float32)
        fresh = where >= first
        vectors[fresh] = texts.vectors[where[fresh] - first]
        for row in np.flatnonzero(~fresh):
            self.handle.seek(int(where[row]) * width * 4)
            vectors[row] = np.frombuffer(self.handle.read(width * 4), np.float32)
        self.handle.seek(0, 2)
        self.handle.write(texts.vectors.data)
        self.beyond.extend(texts.beyond.tolist())
        return vectors, np.array(self.beyond, np.int64)[where]
