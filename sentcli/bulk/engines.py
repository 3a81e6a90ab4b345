"""What runs the texts of a block: this process, or several processes with a device each."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.machine import usable_cores
from sentcli.model.encoding import Encoded, EncodeStats, Progress


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


class LocalEngine:
    """An encoder in a thread of this process, so that reading and writing go on beside it."""

    ahead = 2
    """Blocks that keep it busy."""

    def __init__(self, encoder: SentenceEncoder, how: dict[str, Any], progress: Progress | None) -> None:
        self.encoder, self.how, self.progress = encoder, how, progress
        self.stopped = threading.Event()
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="engine")

    def submit(self, texts: Sequence[str]) -> Future[Encoded]:
        """Encode texts after those that were given before."""
        return self.pool.submit(self.encoder.encode_distinct, texts, **self.how, progress=self._advance)

    def _advance(self, added: EncodeStats) -> None:
        if self.stopped.is_set():
            raise _StoppedError("stopped")
        if self.progress is not None:
            self.progress(added)

    def close(self) -> None:
        """Give up what has not been done."""
        self.stopped.set()
        self.pool.shutdown(wait=True, cancel_futures=True)


class ProcessEngine:
    """Processes with an encoder each; a block goes to the first that is free."""

    def __init__(
        self, load: dict[str, Any], devices: Sequence[str], how: dict[str, Any], progress: Progress | None
    ) -> None:
        """Start the processes.

        Args:
            load: arguments of `SentenceEncoder.load`, without the device.
            devices: one for each process.
            how: every text is encoded, arguments of `SentenceEncoder.encode_distinct`.
            progress: called after every block.
        """
        self.ahead, self.how, self.progress = 2 * len(devices), how, progress
        context = multiprocessing.get_context("spawn")
        names = context.SimpleQueue()
        for device in devices:
            names.put(device)
        on_cpu = sum(name == "cpu" for name in devices)
        share = max(usable_cores() // on_cpu, 1) if on_cpu else 0
        self.pool = ProcessPoolExecutor(
            len(devices), mp_context=context, initializer=_start, initargs=(load, names, share)
        )

    def submit(self, texts: Sequence[str]) -> Future[Encoded]:
        """Encode texts in the next process that is free."""
        try:
            with _ctrl_c_held():  # this may start a process
                future = self.pool.submit(_encode_in_process, list(texts), self.how)
        except BrokenProcessPool as error:
            raise SentcliError("a process that encodes has died (out of memory?)") from error
        if self.progress is not None:
            future.add_done_callback(self._advance)
        return future

    def _advance(self, future: Future[Encoded]) -> None:
        if not future.cancelled() and future.exception() is None and self.progress is not None:
            found = future.result()
            self.progress(EncodeStats(texts=len(found.vectors), tokens=found.tokens))

    def close(self) -> None:
        """Give up what has not been done, and end the processes."""
        processes = list((self.pool._processes or {}).values())
        self.pool.shutdown(wait=False, cancel_futures=True)
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


Engine = LocalEngine | ProcessEngine
"""Takes the texts of a block at a time."""


@contextmanager
def open_engine(
    encoder: SentenceEncoder, how: dict[str, Any], progress: Progress | None, devices: Sequence[str], load: Any
) -> Iterator[Engine]:
    """Yield the engine for some devices: several of them have a process each.

    Args:
        encoder: loaded in this process.
        how: every text is encoded, arguments of `SentenceEncoder.encode_distinct`.
        progress: called with what was done.
        devices: several, or none for the encoder's own.
        load: arguments of `SentenceEncoder.load`, for the processes.
    """
    several = len(devices) > 1
    engine = ProcessEngine(load, devices, how, progress) if several else LocalEngine(encoder, how, progress)
    try:
        yield engine
    finally:
        engine.close()
