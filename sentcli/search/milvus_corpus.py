"""A collection of Milvus as a corpus: vectors and words are searched there, and fused here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sentcli.search.corpus import Document, Hit, ranked
from sentcli.search.exact import Neighbours, Vectors
from sentcli.search.fusion import Way, depth, fuse
from sentcli.search.milvus import MilvusCollection

MOST = 16_384
"""Milvus returns at most so many hits for a query."""


@dataclass(frozen=True)
class MilvusCorpus:
    """The rows of a collection that meet a condition, to be searched as `corpus.Corpus` is."""

    collection: MilvusCollection
    condition: str = ""
    """A filter of Milvus; empty stands for all rows."""

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return documents by their ids, of those that are there."""
        return self.collection.documents(ids)

    def search(
        self, way: Way, queries: Sequence[str], vectors: Vectors | None, k: int, dense_weight: float = 0.5
    ) -> list[list[Hit]]:
        """Return the best hits of each query, at most `k`; the arguments are those of `corpus.Corpus.search`."""
        candidates = min(depth([way], k), MOST)
        found: list[list[list[tuple[str, float]]]] = []
        if way != "bm25":
            assert vectors is not None
            origin = self.collection.origin
            vectors = origin.fitted(vectors, normalized=bool(origin.normalize)) if origin.described() else vectors
            found.append(self.collection.nearest(vectors, candidates, self.condition))
        if way != "dense":
            found.append(self.collection.by_words(queries, candidates, self.condition))
        numbers: dict[str, int] = {}  # fusion and hits go by numbers
        parts = [_neighbours(hits_by_query, numbers) for hits_by_query in found]
        hits = parts[0] if len(parts) == 1 else fuse(way, parts[0], parts[1], k, dense_weight)
        ids = list(numbers)
        needed = np.unique(hits.positions[hits.positions >= 0]).tolist()
        rows = self.collection.documents([ids[number] for number in needed])
        gone = [number for number in needed if ids[number] not in rows]  # deleted since they were found
        hits = Neighbours(np.where(np.isin(hits.positions, gone), -1, hits.positions), hits.scores)
        return ranked(hits, {number: rows[ids[number]] for number in needed if ids[number] in rows})


def _neighbours(hits_by_query: list[list[tuple[str, float]]], numbers: dict[str, int]) -> Neighbours:
    """Return hits with a number for each id, which stand in `numbers`."""
    width = max(map(len, hits_by_query), default=0)
    positions = np.full((len(hits_by_query), width), -1, np.int64)
    scores = np.zeros(positions.shape, np.float32)
    for query, hits in enumerate(hits_by_query):
        for place, (key, score) in enumerate(hits):
            positions[query, place], scores[query, place] = numbers.setdefault(key, len(numbers)), score
    return Neighbours(positions, scores)
