"""Work on a Ray cluster: its options, joining one or starting one, its nodes, and a pool of workers on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from sentcli.bounds import Flag


@dataclass(frozen=True)
class ClusterOptions:
    """Work on a Ray cluster.

    Attributes:
        ray: Work on Ray (docs/scaling.md): local starts one on this machine, auto is the cluster that this machine
            belongs to; or its address.
        workers: Processes that work at the same time; default: one a GPU, else one a node.
        cpus_per_worker: CPUs that each reserves, and threads that it computes with; default: its share of a node.
        gpus_per_worker: GPUs that each reserves; default: 1 if there are any.
    """

    ray: Annotated[str | None, Flag(metavar="local|auto|HOST:PORT")] = None
    workers: Annotated[int | None, Ge(1), Flag(needs="ray")] = None
    cpus_per_worker: Annotated[int | None, Ge(1), Flag(needs="ray")] = None
    gpus_per_worker: Annotated[float | None, Ge(0), Flag(needs="ray")] = None
