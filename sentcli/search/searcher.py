"""Search by meaning over one corpus: exact, or with an index, or with both where an index lacks the newest rows.

How much an index finds of what exact search finds is measured here, and how hard it looks is chosen by that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.search import ann, exact
from sentcli.search.ann import FaissIndex, FaissRecipe
from sentcli.search.exact import Blocks, Neighbours, Similarity, Vectors, merge, not_own, prepared

HELD = 2**22
"""Hits that are held at a time: about 4,000 queries with a thousand each."""
RESCORED = 100
"""Rows that are compared exactly, at least, where an index holds codes."""
K = 10
"""Hits by which an index is compared with exact search."""
SAMPLE = 1000
TARGET = 0.95
ENOUGH = 0.995
"""Recall beyond which more effort is not tried."""
EQUAL = 1e-5
"""Rows that differ by less of the largest similarity are as good as each other: float32 sums differ by their order."""


@dataclass
class Searcher:
    """Finds the nearest rows of a corpus."""

    parts: Sequence[FaissIndex]
    """Indexes over consecutive rows from the first one on; none is exact search."""
    recipe: FaissRecipe
    """How they were built."""
    blocks: Blocks
    """The vectors."""
    similarity: Similarity = "cosine"
    device: str = "cpu"
    """Where exact search runs."""

    def search(self, queries: npt.NDArray[np.generic], k: int) -> Neighbours:
        """Return the `k` nearest rows of each query ``[queries, dim]``; position -1 where an index found fewer.

        Raises:
            InputError: if the queries have another dimension.
        """
        k = min(k, len(self.blocks))
        together = max(HELD // max(self._candidates(k), 1), 1)
        starts = range(0, max(len(queries), 1), together)
        rounds = [self._search(queries[start : start + together], k) for start in starts]
        return Neighbours(
            np.concatenate([hits.positions for hits in rounds]), np.concatenate([hits.scores for hits in rounds])
        )

    def _candidates(self, k: int) -> int:
        """Return how many rows an index is to find for `k` hits."""
        return max(k * self.recipe.rescore, RESCORED) if self.recipe.rescore else k

    def _search(self, queries: npt.NDArray[np.generic], k: int) -> Neighbours:
        indexed = sum(map(len, self.parts))
        helps = k < indexed  # for all of its rows an index is no help, and a graph may not reach each
        lists = [self._approximate(queries, k)] if helps else []
        first = indexed if helps else 0
        if first < len(self.blocks):
            rest = self.blocks.since(first, exact.BLOCK)
            best = exact.search(queries, rest, k, similarity=self.similarity, device=self.device)
            lists.append(Neighbours(best.positions + first, best.scores))
        return merge(lists, k) if lists else Neighbours.none(len(queries))

    def _approximate(self, queries: npt.NDArray[np.generic], k: int) -> Neighbours:
        candidates = self._candidates(k)
        first, best = 0, Neighbours.none(len(queries))
        for part in self.parts:
            hits = part.search(queries, candidates)
            shifted = Neighbours(np.where(hits.positions < 0, -1, hits.positions + first), hits.scores)
            best = merge([best, shifted], candidates)
            first += len(part)
        if self.recipe.rescore:
            best = self.blocks.rescored(prepared(queries, self.similarity), best, self.similarity)
        return merge([best], k)

    def set(self, efforts: dict[str, int]) -> None:
        """Set parameters of every index; see `FaissIndex.set`."""
        for part in self.parts:
            for parameter, value in efforts.items():
                part.set(parameter, value)

    @property
    def efforts(self) -> dict[str, int]:
        """Search parameters that were set."""
        return self.parts[0].efforts if self.parts else {}

    def described(self) -> dict[str, Any]:
        """Return what moves a number, for protocols."""
        if not self.parts:
            return {"kind": ann.FLAT}
        rescore = {"rescore": self.recipe.rescore} if self.recipe.rescore else {}
        return {"kind": self.recipe.kind, "factory": self.recipe.factory, **self.efforts, **rescore}


def build(kind: str, vectors: npt.NDArray[np.generic], similarity: Similarity = "cosine") -> Searcher:
    """Return a search over vectors ``[n, dim]`` in memory, tuned on a sample of them.

    Args:
        kind: as in `ann.recipe`.
        vectors: of the corpus.
        similarity: ``cosine`` or ``dot``.

    Raises:
        InputError: as `ann.recipe`; also if the rows are too few for it.
    """
    blocks = Blocks([vectors])
    recipe = ann.recipe(kind, len(vectors), vectors.shape[1])
    if recipe.kind == ann.FLAT or not len(vectors):
        return Searcher([], recipe, blocks, similarity)
    index = FaissIndex.empty(recipe.factory, vectors.shape[1], similarity)
    index.train(blocks)
    for block in blocks.since(0, exact.BLOCK):
        index.add(block)
    searcher = Searcher([index], recipe, blocks, similarity)
    tune(searcher, sample(blocks, similarity))
    return searcher


@dataclass(frozen=True)
class Sample:
    """Queries whose exact neighbours are known."""

    queries: Vectors
    """``[queries, dim]``, `prepared`."""
    own: npt.NDArray[np.int64] | None
    """The row that each query is, which does not count ``[queries]``; None if they are none."""
    last: npt.NDArray[np.float32]
    """Similarity that counts as that of the exact neighbour number `K` ``[queries]``."""
    exact_rate: float
    """Queries a second of exact search."""


def sample(blocks: Blocks, similarity: Similarity, queries: Vectors | None = None) -> Sample:
    """Search exactly for the neighbours of queries ``[queries, dim]``, or of random rows, whose own row is none."""
    own, vectors = blocks.sample(SAMPLE) if queries is None else (None, queries)
    vectors = prepared(vectors, similarity)
    began = time.perf_counter()
    best = exact.search(vectors, blocks.since(0, exact.BLOCK), K + 1, similarity=similarity)
    rate = len(vectors) / max(time.perf_counter() - began, 1e-9)
    scores = best.scores[:, :K] if own is None else best.scores[not_own(best.positions, own)].reshape(len(own), -1)
    if not scores.size:
        return Sample(vectors, own, np.zeros(len(vectors), np.float32), rate)
    largest = np.maximum(np.abs(best.scores).max(axis=1), 1)
    return Sample(vectors, own, scores[:, :K].min(axis=1) - EQUAL * largest, rate)


def tune(
    searcher: Searcher, known: Sample, target: float = TARGET, fixed: dict[str, int] | None = None
) -> dict[str, Any]:
    """Measure an index at rising effort, and leave it at the least one that reaches a recall.

    Args:
        searcher: to be measured.
        known: the queries.
        target: recall@10, 0 to 1; if none reaches it, the best stays.
        fixed: the effort to leave it at, instead.

    Returns:
        Recall and speed at each effort, as the manifest of an index keeps them.
    """
    tried = [fixed] if fixed else searcher.parts[0].efforts_to_try
    k = min(K, len(searcher.blocks) - (known.own is not None))
    points: list[dict[str, Any]] = []
    for effort in tried:
        searcher.set(effort)
        began = time.perf_counter()
        hits = searcher.search(known.queries, K + (known.own is not None))
        rate = len(known.queries) / max(time.perf_counter() - began, 1e-9)
        recall = _recall(searcher, known, hits.positions, k)
        points.append({"effort": next(iter(effort.values()), None), "recall": recall, "queries_per_second": rate})
        if recall >= ENOUGH or (rate < known.exact_rate / 2 and recall >= target):
            break
    good = [number for number, point in enumerate(points) if point["recall"] >= target]
    best = good[0] if good else max(range(len(points)), key=lambda number: points[number]["recall"])
    searcher.set(tried[best])
    return {
        "parameter": next(iter(tried[0]), None),
        "points": points,
        "chosen": points[best],
        "k": k,
        "queries": len(known.queries),
        "of": "queries" if known.own is None else "rows of the corpus",
        "exact_queries_per_second": known.exact_rate,
    }


def _recall(searcher: Searcher, known: Sample, positions: npt.NDArray[np.int64], k: int) -> float:
    """Return the share of the exact neighbours that was found, rows of equal similarity counting as each other.

    Args:
        searcher: what found them.
        known: the queries.
        positions: `K` rows of each, or one more where the queries are rows.
        k: neighbours that count: `K`, or all there are.
    """
    if k < 1:
        return 1.0
    if known.own is not None:
        positions = np.where(positions == known.own[:, None], -1, positions)
        positions = np.take_along_axis(positions, np.argsort(positions < 0, axis=1, kind="stable"), 1)
    hits = Neighbours(positions[:, :k], np.zeros_like(positions[:, :k], np.float32))
    true = searcher.blocks.rescored(known.queries, hits, searcher.similarity).scores
    return float((true >= known.last[:, None]).sum() / (k * len(true)))
