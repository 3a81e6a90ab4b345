"""Measure the index of a collection of Milvus against exact search over its vectors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sentcli.search.ann import EFFORTS
from sentcli.search.exact import TopK
from sentcli.search.milvus import EFFORT, MilvusCollection
from sentcli.search.milvus_rows import VECTORS
from sentcli.search.searcher import ENOUGH, SAMPLE, K


def tune(
    collection: MilvusCollection, target: float, step: Callable[[str], object] = lambda text: None
) -> dict[str, Any]:
    """Measure recall@10 of random rows as queries, which do not count as their own hits, at rising effort.

    Args:
        collection: with an index that is not exact.
        target: the recall from 0 to 1 to reach with the least effort; if none does, the best is chosen.
        step: is told what is done.

    Returns:
        What `searcher.tune` returns: recall and speed at each effort, and the chosen one.
    """
    step("random rows")
    ids = np.array([row["id"] for batch in collection.rows([]) for row in batch])
    own = np.random.default_rng(0).choice(ids, min(SAMPLE, len(ids)), replace=False).tolist()
    found = {row["id"]: row[VECTORS] for row in collection.fields(own, [VECTORS])}
    queries = np.array([found[key] for key in own], np.float32)
    step("exact search")
    top, order = TopK(queries, K + 1, similarity=collection.record.similarity), []
    began = time.perf_counter()
    for batch in collection.rows([VECTORS]):
        order += [row["id"] for row in batch]
        top.add(np.array([row[VECTORS] for row in batch], np.float32))
    exact_rate = len(queries) / max(time.perf_counter() - began, 1e-9)
    nearest = [{order[position] for position in row} for row in top.best().positions.tolist()]
    wanted = [hits - {key} for hits, key in zip(nearest, own, strict=True)]
    parameter, points = EFFORT[collection.record.kind], []
    for effort in EFFORTS["efSearch" if parameter == "ef" else "nprobe"]:
        step(f"{parameter} {effort}")
        began = time.perf_counter()
        hits = collection.nearest(queries, K + 1, efforts={parameter: effort})
        rate = len(queries) / max(time.perf_counter() - began, 1e-9)
        shares = [
            len(best & {key for key, _ in row}) / max(len(best), 1) for best, row in zip(wanted, hits, strict=True)
        ]
        points.append({"effort": effort, "recall": float(np.mean(shares)), "queries_per_second": rate})
        if points[-1]["recall"] >= max(target, ENOUGH):
            break
    reached = [point for point in points if point["recall"] >= target]
    return {
        "k": K,
        "queries": len(own),
        "of": "random rows",
        "parameter": parameter,
        "points": points,
        "chosen": reached[0] if reached else max(points, key=lambda point: point["recall"]),
        "exact_queries_per_second": exact_rate,
        "measured_rows": len(ids),
    }
