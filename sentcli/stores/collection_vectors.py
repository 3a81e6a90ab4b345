"""The vectors of collections and the search through their indexes, while the recall of these is measured."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sentcli.arrays import Int64Array, Vectors, looked_up
from sentcli.model.spec import Similarity
from sentcli.search.exact import VectorSource
from sentcli.search.faiss_index import EFFORTS
from sentcli.search.neighbours import Neighbours
from sentcli.search.provenance import rows_to_compare
from sentcli.stores.collection_corpus import FoundRows, side_by_side
from sentcli.stores.record import CollectionRecord

EFFORT = {"hnsw": "ef", "ivf": "nprobe", "ivfpq": "nprobe", "sq8": "nprobe"}
"""The search parameter of each kind of index that is not exact."""


@dataclass(frozen=True)
class CollectionVectors(VectorSource):
    """The vectors of a collection; a position is the number of a row in an order that the database keeps."""

    collection: Any

    @property
    def dimension(self) -> int:
        """The dimension of the vectors."""
        return int(self.collection.record.dimension)

    def take(self, positions: Int64Array) -> Vectors:
        """Return the rows at some positions."""
        distinct, where = np.unique(positions, return_inverse=True)
        return self.of_rising(distinct)[where.reshape(-1)]

    @abstractmethod
    def of_rising(self, positions: Int64Array) -> Vectors:
        """Return the rows ``[n, dim]`` at positions that rise ``[n]``."""

    @abstractmethod
    def positions_of(self, hits: FoundRows) -> Int64Array:
        """Return the positions of rows that were found, -1 of one that came meanwhile ``[hits]``."""


@dataclass(frozen=True)
class NumberedVectors(CollectionVectors):
    """The vectors of a collection whose rows have numbers; a position is that of a row in their order."""

    @property
    @abstractmethod
    def numbers(self) -> Int64Array:
        """The numbers of all rows, rising ``[rows]``."""

    def __len__(self) -> int:
        return len(self.numbers)

    def of_rising(self, positions: Int64Array) -> Vectors:
        """Return the rows at positions that rise."""
        return self.of_numbers(self.numbers[positions])

    def of_numbers(self, wanted: Int64Array) -> Vectors:
        """Return the vectors ``[n, dim]`` of the rows with some numbers, which rise ``[n]``."""
        vectors = np.zeros((len(wanted), self.dimension), np.float32)
        for numbers, part in self.collection.vectors(wanted):
            vectors[np.searchsorted(wanted, numbers)] = part
        return vectors

    def positions_among(self, wanted: Int64Array) -> Int64Array:
        """Return the positions of rows by their numbers, -1 for those that are not there ``[wanted]``."""
        return looked_up(wanted, self.numbers)


@dataclass
class CollectionSearch:
    """The search through the index of a collection while its recall is measured; see `recall.IndexedSearch`."""

    collection: Any
    """A `DatabaseCollection`, whose record has the search parameters that are tried."""
    blocks: CollectionVectors

    @property
    def record(self) -> CollectionRecord:
        """The record of the collection."""
        record: CollectionRecord = self.collection.record
        return record

    @property
    def similarity(self) -> Similarity:
        """The similarity that the index was made for."""
        return self.record.similarity

    @property
    def efforts_to_try(self) -> list[dict[str, int]]:
        """The search parameters with which the index is measured, the least effort first."""
        parameter = EFFORT[self.record.kind]
        name_in_faiss = "efSearch" if parameter == "ef" else parameter
        return [{parameter: value} for value in EFFORTS[name_in_faiss]]

    def set(self, efforts: dict[str, int]) -> None:
        """Set search parameters."""
        self.collection = replace(self.collection, record=replace(self.record, efforts=efforts))

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Return the nearest rows of each query ``[queries, dim]``, of those that are compared."""
        compared = []
        for hits in self.collection.nearest(queries, k):
            positions = self.blocks.positions_of(hits)
            is_there = positions >= 0
            compared.append(FoundRows(positions[is_there], hits.keys[is_there], hits.scores[is_there]))
        return side_by_side(compared)


class CheckedIndex(CollectionSearch):
    """The search through the index of a collection as it is, at first with the effort that it has."""

    @property
    def efforts_to_try(self) -> list[dict[str, int]]:
        """The search parameters with which the index is measured, the one that it has first."""
        others = super().efforts_to_try
        if not self.record.efforts:
            return others
        return [self.record.efforts, *others]


def index_to_check(collection: Any, vectors: CollectionVectors) -> CheckedIndex | None:
    """Return the search through the index that is there; None if rows are compared exactly. See `CheckedCorpus`."""
    if collection.record.kind == "flat":
        return None
    return CheckedIndex(collection, vectors)


def rows_with_vectors(
    encoded: Iterable[tuple[Int64Array, Sequence[Any], Sequence[str]]], vectors: CollectionVectors, rows: int
) -> tuple[list[str], Vectors]:
    """Return what was encoded of the rows to compare with a model, and their vectors ``[n, dim]``.

    Args:
        encoded: yields the places, the keys and what was encoded of all rows.
        vectors: of the collection.
        rows: how many there are.
    """
    chosen = rows_to_compare(rows)
    texts: list[str] = []
    places: list[int] = []
    keys: list[Any] = []
    first = 0
    for of_places, of_keys, of_texts in encoded:
        behind = first + len(of_texts)
        for number in chosen[(chosen >= first) & (chosen < behind)] - first:
            texts.append(of_texts[number])
            places.append(of_places[number])
            keys.append(of_keys[number])
        first = behind
    scores = np.zeros(len(places), np.float32)
    hits = FoundRows(np.array(places, np.int64), np.array(keys), scores)
    return texts, vectors.take(vectors.positions_of(hits))
