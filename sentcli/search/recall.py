"""The recall of an index against exact search over the same vectors, and the search parameter that is chosen by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sentcli.arrays import Float32Array, Int64Array, Vectors
from sentcli.model.spec import Similarity
from sentcli.search.exact import BLOCK, TopK, VectorSource, not_own, prepared
from sentcli.search.neighbours import Neighbours
from sentcli.table import Table

K = 10
"""The number of hits by which an index is compared with exact search."""
SAMPLE_ROWS = 1000
"""The number of rows that are queries where none are given."""
TARGET = 0.95
"""The recall that the search parameter is chosen for by default."""
ENOUGH = 0.995
"""The recall from which on no more effort is tried."""
EQUAL = 1e-5
"""Similarities that differ by less than this share of the largest one count as equal, because float32 sums depend on
their order."""


class IndexedSearch(Protocol):
    """A search through an index, whose recall can be measured."""

    @property
    def blocks(self) -> VectorSource:
        """The vectors of the index."""

    @property
    def similarity(self) -> Similarity:
        """The similarity that the index was made for."""

    @property
    def efforts_to_try(self) -> Sequence[dict[str, int]]:
        """The search parameters with which the index is measured, the least effort first."""

    def set(self, efforts: dict[str, int]) -> None:
        """Set search parameters."""

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Return the nearest rows of each query ``[queries, dim]``."""


@dataclass(frozen=True)
class Sample:
    """Queries whose exact neighbours are known."""

    queries: Vectors
    """The vectors of the queries, `prepared` ``[queries, dim]``."""
    own: Int64Array | None
    """The row that each query is, which does not count as its neighbour ``[queries]``; None if queries are no rows."""
    least: Float32Array
    """The least similarity of the `K` exact neighbours of each query, minus a tolerance ``[queries]``."""
    exact_rate: float
    """The queries per second of exact search, without the time for reading the vectors."""


def sample(
    blocks: VectorSource, similarity: Similarity, queries: Vectors | None = None, *, device: str = "cpu"
) -> Sample:
    """Search exactly for the neighbours of queries ``[queries, dim]``, or of random rows of the corpus."""
    own = None
    if queries is None:
        own, queries = blocks.sample(SAMPLE_ROWS)
    vectors = prepared(queries, similarity)
    top = TopK(vectors, K + 1, similarity=similarity, device=device)
    seconds = 0.0
    for block in blocks.since(0, BLOCK):
        began = time.perf_counter()
        top.add(block)
        seconds += time.perf_counter() - began
    began = time.perf_counter()
    best = top.best()  # waits for what a device has not done yet
    seconds += time.perf_counter() - began
    rate = len(vectors) / max(seconds, 1e-9)
    scores = best.scores
    if own is not None:
        scores = scores[not_own(best.positions, own)].reshape(len(own), -1)
    scores = scores[:, :K]
    if not scores.size:
        return Sample(vectors, own, np.zeros(len(vectors), np.float32), rate)
    largest = np.maximum(np.abs(best.scores).max(axis=1), 1)
    return Sample(vectors, own, scores.min(axis=1) - EQUAL * largest, rate)


def recall(blocks: VectorSource, similarity: Similarity, reference: Sample, positions: Int64Array) -> float:
    """Return recall@10: the share of the exact neighbours that were found.

    Rows of equal similarity count as the same neighbour.

    Args:
        blocks: the vectors of the corpus.
        similarity: ``cosine`` or ``dot``.
        reference: queries with their exact neighbours.
        positions: the `K` rows found for each query, or one more where the queries are rows of the corpus.
    """
    own = reference.own
    k = min(K, len(blocks) - (own is not None))
    if k < 1:
        return 1.0
    if own is not None:
        positions = np.where(positions == own[:, None], -1, positions)
        order = np.argsort(positions < 0, axis=1, kind="stable")  # rows that are none come last
        positions = np.take_along_axis(positions, order, 1)
    positions = positions[:, :k]
    hits = Neighbours(positions, np.zeros(positions.shape, np.float32))
    similarities = blocks.rescored(reference.queries, hits, similarity).scores
    is_neighbour = similarities >= reference.least[:, None]
    return float(is_neighbour.sum() / (k * len(similarities)))


def tune(
    index: IndexedSearch,
    reference: Sample,
    target: float = TARGET,
    fixed: dict[str, int] | None = None,
    step: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Measure an index at rising effort, and leave it at the least one that reaches a recall.

    Args:
        index: the search through the index.
        reference: queries with their exact neighbours.
        target: recall@10, 0 to 1; if no effort reaches it, the one with the best recall is kept.
        fixed: the only effort to measure and to keep.
        step: is told what is measured.

    Returns:
        Recall and speed at each effort, as the manifest of an index keeps them.
    """
    efforts = [fixed] if fixed else index.efforts_to_try
    queries = reference.queries
    are_rows = reference.own is not None
    points: list[dict[str, Any]] = []
    for effort in efforts:
        step(" ".join(f"{name} {value}" for name, value in effort.items()))
        index.set(effort)
        began = time.perf_counter()
        hits = index.search(queries, K + are_rows)
        seconds = time.perf_counter() - began
        rate = len(queries) / max(seconds, 1e-9)
        share = recall(index.blocks, index.similarity, reference, hits.positions)
        points.append({"effort": next(iter(effort.values()), None), "recall": share, "queries_per_second": rate})
        is_slow = rate < reference.exact_rate / 2
        if share >= ENOUGH or (is_slow and share >= target):
            break
    recalls = [point["recall"] for point in points]
    best = recalls.index(max(recalls))
    for number, share in enumerate(recalls):
        if share >= target:
            best = number
            break
    index.set(efforts[best])
    return {
        "parameter": next(iter(efforts[0]), None),
        "points": points,
        "chosen": points[best],
        "k": max(min(K, len(index.blocks) - are_rows), 1),  # a single row has no other one to find
        "queries": len(queries),
        "of": "rows of the corpus" if are_rows else "queries",
        "exact_queries_per_second": reference.exact_rate,
    }


def recall_table(kind: str, measured: dict[str, Any]) -> Table:
    """Return recall and speed at each search parameter that was tried."""
    parameter = measured["parameter"] or "search"
    recall = f"recall@{measured['k']}"
    chosen = measured["chosen"]
    queried = measured["of"]
    exact_rate = measured["exact_queries_per_second"]
    rows = []
    for point in measured["points"]:
        effort = f"{point['effort'] or ''}"
        if point == chosen:
            effort += " (used)"
        rows.append([effort, point["recall"], point["queries_per_second"]])
    rows.append(["exact", 1.0, exact_rate])
    notes = [f"Recall against exact search of {measured['queries']} {queried}."]
    if queried != "queries":
        notes.append(
            "Real queries are found less well than rows, which lie near others: --queries FILE measures yours."
        )
    if chosen["queries_per_second"] < exact_rate:
        notes.append(
            "Exact search is faster at this number of rows, and misses none: no index is needed (--index flat)."
        )
    formats = {recall: ".4f", "queries/s": ",.0f"}
    return Table(kind, [parameter, *formats], rows, formats=formats, notes=notes)
