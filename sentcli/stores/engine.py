"""What encodes texts in the background: a thread of this process, or several processes with a device each."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.machine import usable_cores
from sentcli.model.encoding import Encoded, EncodeStats, Progress
from sentcli.model.options import LoadOptions

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


class Pending(Protocol):
    """Vectors that are being made."""

    def result(self) -> Encoded:
        """Wait for them."""


@dataclass(frozen=True)
class Engine:
    """Encodes the texts of blocks in the background."""

    submit: Callable[[Sequence[str]], Pending]
    ahead: int
    """The number of submitted blocks that keep the engine busy."""


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
