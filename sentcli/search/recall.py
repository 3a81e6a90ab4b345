"""How much an index finds of what exact search finds, and at what speed."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sentcli.search import exact
from sentcli.search.blocks import Blocks
from sentcli.search.neighbours import Neighbours, Similarity, Vectors, not_own, prepared

K = 10
SAMPLE = 1000
TARGET = 0.95
ENOUGH = 0.995
"""Recall beyond which more effort is not tried."""
EQUAL = 1e-5
"""Rows that differ by less of the largest similarity are as good as each other: float32 sums differ by their order."""


class Index(Protocol):
    """What is measured."""

    @property
    def effort_name(self) -> str | None:
        """The parameter that says how hard it looks, if there is one."""

    @property
    def efforts_to_try(self) -> tuple[int | None, ...]:
        """Its values that make a difference; None if there is no parameter."""

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Return the best rows of each query."""

    def set(self, parameter: str, value: int) -> None:
        """Choose how hard it looks."""


@dataclass(frozen=True)
class Sample:
    """Queries whose exact neighbours are known."""

    queries: Vectors
    """``[queries, dim]``, `prepared`."""
    own: npt.NDArray[np.int64] | None
    """The row that each query is, which does not count ``[queries]``; None if they are none."""
    last: npt.NDArray[np.float32]
    """Similarity that counts as that of the exact neighbour number `K` ``[queries]``."""
    blocks: Blocks
    similarity: Similarity
    exact_rate: float
    """Queries a second of exact search."""

    @property
    def k(self) -> int:
        """Neighbours that count: `K`, or all there are."""
        return min(K, len(self.blocks) - (self.own is not None))


@dataclass(frozen=True)
class Point:
    """One setting of an index."""

    effort: int | None
    recall: float
    queries_per_second: float


@dataclass(frozen=True)
class Curve:
    """What was measured of an index."""

    parameter: str | None
    points: tuple[Point, ...]
    chosen: Point
    k: int
    queries: int
    of: str
    """What the queries were."""
    exact_queries_per_second: float

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def of_rows(blocks: Blocks, similarity: Similarity, count: int = SAMPLE) -> Sample:
    """Take random rows of the corpus as queries; each one's own row does not count."""
    own, vectors = blocks.sample(count)
    return _sample(vectors, own, blocks, similarity)


def of_queries(vectors: Vectors, blocks: Blocks, similarity: Similarity) -> Sample:
    """Take the vectors of real queries ``[queries, dim]``."""
    return _sample(vectors, None, blocks, similarity)


def _sample(vectors: Vectors, own: npt.NDArray[np.int64] | None, blocks: Blocks, similarity: Similarity) -> Sample:
    queries = prepared(vectors, similarity)
    began = time.perf_counter()
    best = exact.search(queries, blocks.since(0, exact.BLOCK), K + 1, similarity=similarity)
    rate = len(queries) / max(time.perf_counter() - began, 1e-9)
    kept = _without(best, own)
    if not kept.size:
        return Sample(queries, own, np.zeros(len(queries), np.float32), blocks, similarity, rate)
    last = np.sort(kept, axis=1)[:, ::-1][:, :K][:, -1]
    largest = np.maximum(np.abs(best.scores).max(axis=1), 1)
    return Sample(queries, own, last - EQUAL * largest, blocks, similarity, rate)


def _without(found: Neighbours, own: npt.NDArray[np.int64] | None) -> npt.NDArray[np.float32]:
    """Return the scores of the rows that are not the query's own, one less a query if there is an own one."""
    if own is None:
        return found.scores[:, :K]
    return found.scores[not_own(found.positions, own)].reshape(len(own), -1)


def recall_of(sample: Sample, found: Neighbours) -> float:
    """Return the share of the exact neighbours that was found, rows of equal similarity counting as each other.

    Args:
        sample: the queries.
        found: `K` rows of each, or one more where the queries are rows.
    """
    k = sample.k
    if k < 1:
        return 1.0
    positions = found.positions
    if sample.own is not None:
        positions = np.where(positions == sample.own[:, None], -1, positions)
        positions = np.take_along_axis(positions, np.argsort(positions < 0, axis=1, kind="stable"), 1)
    rows = Neighbours(positions[:, :k], np.zeros_like(positions[:, :k], np.float32))
    true = sample.blocks.rescored(sample.queries, rows, sample.similarity).scores
    return float((true >= sample.last[:, None]).sum() / (k * len(true)))


def tune(
    index: Index, sample: Sample, target: float = TARGET, of: str = "rows of the corpus", fixed: int | None = None
) -> Curve:
    """Measure an index at rising effort, and leave it at the least one that reaches a recall.

    Args:
        index: to be measured.
        sample: the queries.
        target: recall@10, 0 to 1; if none reaches it, the best stays.
        of: what the queries are.
        fixed: the effort to leave it at, instead.
    """
    name = index.effort_name
    points: list[Point] = []
    for effort in index.efforts_to_try if fixed is None else (fixed,):
        if name is not None and effort is not None:
            index.set(name, effort)
        began = time.perf_counter()
        found = index.search(sample.queries, K + (sample.own is not None))
        rate = len(sample.queries) / max(time.perf_counter() - began, 1e-9)
        points.append(Point(effort, recall_of(sample, found), rate))
        slow = points[-1].queries_per_second < sample.exact_rate / 2
        if points[-1].recall >= ENOUGH or (slow and points[-1].recall >= target):
            break
    good = [point for point in points if point.recall >= target]
    chosen = good[0] if good else max(points, key=lambda point: point.recall)
    if name is not None and chosen.effort is not None:
        index.set(name, chosen.effort)
    return Curve(name, tuple(points), chosen, sample.k, len(sample.queries), of, sample.exact_rate)
