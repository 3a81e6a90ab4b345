"""A Ray cluster: how a process joins it, what its nodes offer, and whether they have the same software.

What is computed there is in `bulk/on_ray.py` and its kind; Ray is imported when it is asked for.
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sentcli.errors import InputError, MissingExtraError, SentcliError, one_line, required
from sentcli.machine import usable_cores
from sentcli.version import __version__

ANSWER_SECONDS = 10.0
"""How long the address of a cluster may take to accept a connection, and then to answer."""
NODE_SECONDS = 600.0
"""How long a node may take to start a process and to look at the files of a model, which it may have to download."""
ENDING = (signal.SIGINT, signal.SIGTERM)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The first bytes of an HTTP/2 client (RFC 9113, section 3.4). A server answers with a frame of SETTINGS, of type 4."""


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    name: str
    key: str
    """The id that Ray has given it."""
    cpus: float
    gpus: float


@dataclass(frozen=True)
class Workers:
    """How many workers there are, and what each of them reserves."""

    count: int
    cpus: int
    gpus: float = 0


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
        InputError: as for `check_address`, or if this machine is no node of the cluster.
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
        stack.callback(ray.shutdown)
        with _undisturbed(ray):
            try:
                ray.init(**arguments, log_to_driver=False, logging_level="error")
            except Exception as error:  # Ray raises ConnectionError, RuntimeError, ValueError and others
                raise InputError(f"--ray {address}: {one_line(error)}") from error
        with _exit_code_kept():
            yield


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
def _undisturbed(ray: Any) -> Iterator[None]:
    """Let a signal wait until Ray has started, so that all of it can be ended, and leave this process as it was.

    Ray would set a handler of its own for SIGTERM, which ends with another code or is swallowed, and it takes the
    process out of its group, so that Ctrl-C in a terminal would not reach it in a pipe.
    """
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield
        return
    held: list[int] = []
    handlers = {kind: signal.signal(kind, lambda number, _: held.append(number)) for kind in ENDING}
    group = os.getpgrp()
    try:
        with patch.object(ray._private.utils, "set_sigterm_handler", lambda handler: None, create=True):
            yield
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
        with _in_environment(settings):
            yield {
                "include_dashboard": False,
                "num_cpus": cpus,
                "_node_ip_address": "127.0.0.1",
                "_temp_dir": folder,
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _in_environment(settings: dict[str, str]) -> Iterator[None]:
    """Set variables of the environment inside the block."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
        with socket.create_connection((host, int(port)), ANSWER_SECONDS) as connection:
            connection.settimeout(ANSWER_SECONDS)
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


def nodes() -> list[Node]:
    """Return the nodes that are alive and have CPUs to give, in the order of their names."""
    found = [
        Node(
            name=node["NodeManagerHostname"],
            key=node["NodeID"],
            cpus=node["Resources"].get("CPU", 0),
            gpus=node["Resources"].get("GPU", 0),
        )
        for node in require_ray().nodes()
        if node["Alive"]
    ]
    return sorted((node for node in found if node.cpus >= 1), key=lambda node: (node.name, node.key))


def plan_workers(found: list[Node], count: int | None, cpus: int | None, gpus: float | None) -> Workers:
    """Return the workers for some nodes: as asked for, else one for each GPU, else one for each node.

    Args:
        found: the nodes.
        count: the number of workers.
        cpus: the CPUs of each; None shares out those of the smallest node if there are no GPUs.
        gpus: the GPUs of each; None takes one if there are any.

    Raises:
        InputError: if no node has room for a worker.
    """
    if gpus is None:
        gpus = 1.0 if any(node.gpus >= 1 for node in found) else 0.0
    fitting = [node for node in found if node.gpus >= gpus and node.cpus >= (cpus or 1)]
    if not fitting:
        room = ", ".join(f"{node.name} has {node.cpus:g} CPUs and {node.gpus:g} GPUs" for node in found[:5])
        raise InputError(f"no node has room for a worker of {cpus or 1} CPUs and {gpus:g} GPUs ({room or 'no nodes'})")
    if gpus:
        return Workers(count or sum(int(node.gpus / gpus) for node in fitting), cpus or 1, gpus)
    count = count or len(fitting)
    on_a_node = -(-count // len(fitting))
    return Workers(count, cpus or max(int(min(node.cpus for node in fitting)) // on_a_node, 1))


def ask_nodes(found: list[Node], question: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call a function once on every node, and return the answers in order.

    Args:
        found: the nodes.
        question: a function inside another function, which Ray sends as it is, so that a node needs no sentcli that
            has it.
        arguments: of the function; plain values for the same reason.

    Raises:
        SentcliError: if the function fails on a node, which is named.
    """
    ray = require_ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=2)(question)
    asked = [
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.key, soft=False)).remote(*arguments)
        for node in found
    ]
    answers = []
    for node, answer in zip(found, asked, strict=True):
        try:
            answers.append(ray.get(answer, timeout=NODE_SECONDS))
        except ray.exceptions.RayTaskError as error:
            raise SentcliError(f"node {node.name}: {one_line(error.cause)}") from error
        except ray.exceptions.RayError as error:
            raise SentcliError(f"node {node.name} does not answer: {one_line(error)}") from error
    return answers


def check_versions(found: list[Node]) -> None:
    """Compare the sentcli of every node with that of this process.

    Raises:
        SentcliError: naming the first node that has none or another version.
    """

    def version() -> str | None:
        from importlib import import_module

        try:
            return str(import_module("sentcli.version").__version__)
        except ImportError:
            return None

    for node, installed in zip(found, ask_nodes(found, version), strict=True):
        if installed != __version__:
            has = f"sentcli {installed}" if installed else "no sentcli"
            raise SentcliError(f"node {node.name} has {has}, this process {__version__}: install the same everywhere")


def require_same(found: list[Node], values: list[Any], what: str) -> None:
    """Compare what the nodes have with what the first of them has.

    Args:
        found: the nodes.
        values: of each node.
        what: the values are, in the words of an error.

    Raises:
        SentcliError: naming the first node that differs.
    """
    for node, value in zip(found, values, strict=True):
        if value != values[0]:
            raise SentcliError(f"node {node.name} has {what} than {found[0].name}: copy the same to every node")
