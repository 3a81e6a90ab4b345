"""The nodes of the connected Ray cluster: what they offer, and whether they have the same software."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sentcli import __version__
from sentcli.cluster.joining import require_ray
from sentcli.errors import InputError, SentcliError, one_line


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
            # How long a node may take to start a process and to look at the files of a model, which it may have to
            # download.
            answers.append(ray.get(answer, timeout=600.0))
        except ray.exceptions.RayTaskError as error:
            raise SentcliError(f"node {node.name}: {one_line(error.cause)}") from error
        except ray.exceptions.RayError as error:
            raise SentcliError(f"node {node.name} does not answer: {one_line(error)}") from error
    return answers


def was_taken_away(error: Exception) -> bool:
    """Tell whether an actor or a task has died because its node was preempted, which says nothing about its work.

    The error of an actor says so. That of a task names its node, which the head knows to be dead some seconds later.
    """
    from ray.core.generated.common_pb2 import NodeDeathInfo

    named = re.search(r"node ID: ([0-9a-f]+)", str(error))
    if named is None or getattr(error, "preempted", False):
        return getattr(error, "preempted", False)
    # How long the head of a cluster may take to notice that a node is dead
    for _ in range(60):
        node = next((node for node in require_ray().nodes() if node["NodeID"] == named[1]), {"Alive": False})
        if not node["Alive"]:
            return bool(node.get("DeathReason") == NodeDeathInfo.AUTOSCALER_DRAIN_PREEMPTED)
        time.sleep(1)
    return False


def check_versions(found: list[Node]) -> None:
    """Compare the sentcli of every node with that of this process.

    Raises:
        SentcliError: naming the first node that has none or another version.
    """

    def version() -> str | None:
        from importlib import import_module

        try:
            return str(import_module("sentcli").__version__)
        except ImportError:
            return None

    for node, installed in zip(found, ask_nodes(found, version), strict=True):
        if installed != __version__:
            has = f"sentcli {installed}" if installed else "no sentcli"
            raise SentcliError(f"node {node.name} has {has}, this process {__version__}: install the same everywhere")
