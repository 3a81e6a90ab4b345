"""How a process joins a Ray cluster, or starts a Ray of its own. Ray is imported when it is asked for.

`nodes` is about the machines of the cluster, and `pool` computes on them.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any

from sentcli import console
from sentcli.errors import InputError, MissingExtraError, one_line, required
from sentcli.machine import usable_cores
from sentcli.printable import without_secrets

_ANSWER_SECONDS = 10.0
"""How long the address of a cluster may take to accept a connection, and then to answer."""
JOIN_SECONDS = 60
"""How long a process may take to join a cluster."""
TRIAL = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level='error')"
ENDING = (signal.SIGINT, signal.SIGTERM)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The first bytes of an HTTP/2 client (RFC 9113, section 3.4). A server answers with a frame of SETTINGS, of type 4."""


def require_ray() -> Any:
    """Import Ray.

    Raises:
        MissingExtraError: if it is not installed.
    """
    return required("ray", "ray", "cluster", "--ray")


@contextmanager
def connected(address: str, cpus: int | None = None) -> Iterator[None]:
    """Be a driver of a Ray cluster inside the block.

    Args:
        address: ``local`` starts a Ray of its own, which listens on 127.0.0.1 and ends with the block; ``auto`` is the
            cluster that this machine belongs to, or this process is connected to; else HOST:PORT of a cluster.
        cpus: the number of CPUs that ``local`` hands out; None takes those of this process.

    Raises:
        InputError: as for `check_address` and `_join_on_trial`, or if this machine is no node of the cluster.
    """
    check_address(address)
    with ExitStack() as stack:
        arguments: dict[str, Any] = {"address": address}
        if address == "local":
            arguments |= stack.enter_context(_own_ray(cpus or usable_cores()))
        ray = require_ray()
        if ray.is_initialized():
            if address != "auto":
                raise InputError(f"--ray {address}: this process is connected to a Ray already, which auto uses")
            yield
            return
        if address != "local":
            _join_on_trial(address)
        stack.enter_context(redirect_stdout(_Detail()))
        stack.callback(ray.shutdown)
        with _undisturbed():
            try:
                ray.init(**arguments, log_to_driver=False, logging_level="error")
            except Exception as error:  # Ray raises ConnectionError, RuntimeError, ValueError and others
                raise InputError(f"--ray {address}: {one_line(error)}") from error
        with _exit_code_kept():
            yield


def _join_on_trial(address: str) -> None:
    """Join a cluster in a process of its own, which can be ended, and leave it again.

    Where the head answers but its other processes do not, ``ray.init`` heeds no signal, takes minutes, or ends the
    process without an exception (Ray 2.60).

    Raises:
        InputError: if it cannot be joined in time; a token that is missing or wrong is named.
    """
    command = [sys.executable, "-P", "-c", TRIAL, address]
    environment = {"RAY_NUM_REDIS_GET_RETRIES": "5", **os.environ}  # a second each, with a token that is refused
    try:
        ended = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=JOIN_SECONDS
        )
    except subprocess.TimeoutExpired:
        reason = f"Ray could not be joined within {JOIN_SECONDS} seconds; `ray status` on its head says what is missing"
    else:
        if ended.returncode == 0:
            return
        said = ended.stderr.decode(errors="replace").strip() or f"ray.init ended with code {ended.returncode}"
        reason = without_secrets(said, of_host=True).splitlines()[-1][:300]
        if re.search("InvalidAuthToken|AuthenticationError", said):
            reason = "the cluster asks for another token: set RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN"
    raise InputError(f"--ray {address}: {reason}")


class _Detail(io.TextIOBase):
    """Shows what Ray prints to standard output, where there may be JSON; what matters of it is said by us."""

    def write(self, text: str) -> int:
        """Show lines."""
        for line in filter(str.strip, text.splitlines()):
            console.detail(f"Ray: {line}")
        return len(text)


@contextmanager
def _exit_code_kept() -> Iterator[None]:
    """Raise the SystemExit of a SIGTERM anew, because the one that comes through `ray.get` has another code."""
    handler = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        received.append(number)
        handler(number, frame)

    signal.signal(signal.SIGTERM, note)
    try:
        yield
    except SystemExit:
        if received:
            handler(received[0], None)
        raise
    finally:
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let a signal wait until Ray has started, so that all of it can be ended, and leave this process as it was.

    Ray sets a handler of its own for SIGTERM, which ends with another code, and it takes the process out of its group,
    so that Ctrl-C in a terminal would not reach it in a pipe.
    """
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield
        return
    held: list[int] = []
    handlers = {kind: signal.signal(kind, lambda number, _: held.append(number)) for kind in ENDING}
    group = os.getpgrp()
    try:
        yield
    except SystemExit:  # of Ray's handler
        held.append(signal.SIGTERM)
    finally:
        for kind, handler in handlers.items():
            signal.signal(kind, handler or signal.SIG_DFL)
        if os.getpgrp() != group:
            with suppress(OSError):
                os.setpgid(0, group)
        if held:
            signal.raise_signal(held[0])


@contextmanager
def _own_ray(cpus: int) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `ray.init` for a Ray that only this process uses; its files are deleted at the end."""
    settings = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # what makes Ray listen on 127.0.0.1 alone
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": _token(),  # or it would write one into the home folder
    }
    place = Path("/tmp")  # paths of sockets have at most 107 bytes
    folder = tempfile.mkdtemp(prefix="sentcli-ray-", dir=place if place.is_dir() else None)
    try:
        from unittest.mock import patch  # which loads argparse and more

        with patch.dict(os.environ, settings):
            yield {"include_dashboard": False, "num_cpus": cpus, "_node_ip_address": "127.0.0.1", "_temp_dir": folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _token() -> str:
    """Return the token of this process, which Ray remembers: another one would not be taken."""
    return secrets.token_hex(32)


def check_address(address: str) -> None:
    """Find out within seconds whether there is a Ray, for which Ray itself takes minutes.

    Args:
        address: as for `connected`.

    Raises:
        MissingExtraError: if Ray is not installed.
        InputError: if the address is none, or no Ray answers there.
    """
    if importlib.util.find_spec("ray") is None:  # it is imported when its settings are in the environment
        raise MissingExtraError("ray", "cluster", "--ray")
    if not re.fullmatch(r"local|auto|[^\s:/]+:\d+", address):
        raise InputError(f"--ray {address}: give local, auto, or HOST:PORT of a cluster, such as 10.0.0.1:6379")
    if address == "auto":
        known = os.environ.get("RAY_ADDRESS") or _noted_address()
        address = known if known and re.fullmatch(r"[^\s:/]+:\d+", known) else ""
    host, _, port = address.partition(":")
    if not port:
        return
    try:
        with socket.create_connection((host, int(port)), _ANSWER_SECONDS) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            connection.sendall(PREFACE)
            answer = connection.recv(9)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"--ray {address} does not answer ({one_line(error)}): is a Ray head running there?"
        ) from error
    if answer[3:4] != b"\x04" and os.environ.get("RAY_USE_TLS", "0") == "0":
        raise InputError(f"--ray {address}: something else than Ray answers there (its usual port is 6379)")


def _noted_address() -> str | None:
    """Return the address that ``ray start`` has noted on this machine."""
    try:
        return Path("/tmp/ray/ray_current_cluster").read_text("utf-8").strip()
    except OSError:
        return None
