"""What the verbs with ``--ray`` share: the cluster, and the encoder of its workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from sentcli import console
from sentcli.model.options import LoadOptions
from sentcli.verbs.options import ClusterOptions

if TYPE_CHECKING:
    from sentcli.cluster_nodes import Node, Workers
    from sentcli.cluster_pool import Pool
    from sentcli.encoder.sentence_encoder import SentenceEncoder


@contextmanager
def open_encoder(
    model: str, options: LoadOptions, cluster: ClusterOptions, *, most: int
) -> Iterator[tuple[SentenceEncoder, Pool | None]]:
    """Load a model in this process, or in workers on Ray.

    Args:
        model: its name.
        options: how it is loaded.
        cluster: whether there is a cluster, and what its workers reserve.
        most: no more workers than this, because there is no work for them.

    Yields:
        The encoder, and the workers that make shards with it if that is not this process.
    """
    from sentcli.encoder.announce import announce, load_encoder

    if cluster.ray is None:
        yield load_encoder(model, options), None
        return
    from sentcli.bulk.shards import encoder_of, encoder_pool

    with ExitStack() as stack:
        found, workers = stack.enter_context(open_cluster(cluster, most=most, on_cpu=options.device == "cpu"))
        if not workers.gpus and any(node.gpus for node in found):
            options = replace(options, device="cpu")  # a GPU that is not reserved belongs to others
        pool = stack.enter_context(encoder_pool(found, workers, model, vars(options)))
        encoder = encoder_of(pool)
        announce(encoder)
        yield encoder, pool


@contextmanager
def open_cluster(cluster: ClusterOptions, *, most: int, on_cpu: bool) -> Iterator[tuple[list[Node], Workers]]:
    """Join a cluster, compare the versions of sentcli on its nodes, and plan the workers.

    Args:
        cluster: its address and what workers reserve.
        most: no more workers than this.
        on_cpu: whether the work needs no GPU where there is one.

    Yields:
        The nodes and the plan.
    """
    from sentcli.cluster import connected
    from sentcli.cluster_nodes import check_versions, nodes, plan_workers
    from sentcli.machine import usable_cores

    assert cluster.ray is not None
    most = max(most, 1)  # for no rows, too, a worker says what the model is
    asked = None if cluster.workers is None else min(cluster.workers, most)
    cpus = max(usable_cores(), (asked or 1) * (cluster.cpus_per_worker or 1))  # as --devices cpu,cpu
    with connected(cluster.ray, cpus):
        found = nodes()
        check_versions(found)
        gpus = 0.0 if on_cpu and cluster.gpus_per_worker is None else cluster.gpus_per_worker
        workers = plan_workers(found, asked, cluster.cpus_per_worker, gpus)
        workers = replace(workers, count=min(workers.count, most))
        gpus_each = f", GPUs of each {workers.gpus:g}" if workers.gpus else ""
        console.note(
            f"Ray ({cluster.ray}): nodes {len(found)}, workers {workers.count}, CPUs of each {workers.cpus}{gpus_each}"
        )
        yield found, workers
