"""Measure the index of a collection of Milvus against exact search over its vectors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sentcli.search.ann import EFFORTS
from sentcli.search.exact import TopK, not_own, prepared
from sentcli.search.milvus import EFFORT, MilvusCollection
from sentcli.search.milvus_rows import ID, VECTORS
from sentcli.search.searcher import ENOUGH, EQUAL, SAMPLE, K


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
    ids = [row[ID] for batch in collection.rows([]) for row in batch]
    own = [ids[i] for i in np.random.default_rng(0).choice(len(ids), min(SAMPLE, len(ids)), replace=False)]
    vectors = {row[ID]: row[VECTORS] for row in collection.fields(own, [VECTORS])}
    similarity = collection.record.similarity
    queries = prepared(np.array([vectors[key] for key in own], np.float32), similarity)
    step("exact search")
    places: dict[str, int] = {}
    seconds = 0.0
    top = TopK(queries, K + 1, similarity=similarity)
    for batch in collection.rows([VECTORS]):
        places.update({row[ID]: len(places) + i for i, row in enumerate(batch)})
        block, began = np.array([row[VECTORS] for row in batch], np.float32), time.perf_counter()
        top.add(block)
        seconds += time.perf_counter() - began
    best = top.best()
    others = not_own(best.positions, np.array([places[key] for key in own]))
    exact = best.scores[others].reshape(len(own), -1)
    least = exact.min(axis=1, initial=np.inf) - EQUAL * np.abs(best.scores).max()
    parameter, points = EFFORT[collection.record.kind], []
    for effort in EFFORTS["efSearch" if parameter == "ef" else "nprobe"]:
        step(f"{parameter} {effort}")
        began = time.perf_counter()
        hits = collection.nearest(queries, K + 1, efforts={parameter: effort})
        rate = len(queries) / max(time.perf_counter() - began, 1e-9)
        found = [[key for key, _ in row if key != mine][:K] for row, mine in zip(hits, own, strict=True)]
        missing = list({key for row in found for key in row} - vectors.keys())
        vectors.update({row[ID]: row[VECTORS] for row in collection.fields(missing, [VECTORS])})
        enough = 0  # equal texts have equal vectors: any of them is as good
        for query, row, limit in zip(queries, found, least, strict=True):
            if row:
                rows = prepared(np.array([vectors[key] for key in row], np.float32), similarity)
                enough += int((rows @ query >= limit).sum())
        points.append({"effort": effort, "recall": enough / max(exact.size, 1), "queries_per_second": rate})
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
        "exact_queries_per_second": len(queries) / max(seconds, 1e-9),
        "measured_rows": len(ids),
    }
