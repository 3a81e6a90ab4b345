"""What corpora in databases have in common: whose queries they take, and how the index of one is measured."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sentcli import console
from sentcli.arrays import AnyArray, Float32Array, Int64Array, Vectors
from sentcli.errors import InputError
from sentcli.model.spec import Similarity
from sentcli.search.bm25 import BM25
from sentcli.search.exact import VectorSource
from sentcli.search.faiss_index import EFFORTS
from sentcli.search.neighbours import MORE_HITS, Neighbours, order_of_rows
from sentcli.search.options import CorpusOptions, SearchOptions
from sentcli.search.provenance import Provenance
from sentcli.search.rows import Document
from sentcli.stores.record import CollectionRecord

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

EFFORT = {"hnsw": "ef", "ivf": "nprobe", "ivfpq": "nprobe", "sq8": "nprobe"}
"""The search parameter of each kind of index that is not exact."""


def protocol_of(
    record: CollectionRecord, origin: Provenance, search: SearchOptions, encoder: SentenceEncoder
) -> dict[str, Any]:
    """Return every choice of a search by vectors that moves a score, after comparing the encoder with the vectors.

    Args:
        record: what the collection says about itself.
        origin: how its vectors were made.
        search: how queries and documents are compared.
        encoder: of the queries.

    Raises:
        InputError: if the vectors of the encoder do not compare with those of the collection.
    """
    similarity = record.similarity
    if search.similarity not in (None, similarity):
        raise InputError(f"{origin.name} was made for similarity {similarity!r}, not {search.similarity!r}")
    query, document = search.prompts(encoder)
    origin.check_encoder(encoder, document, record.dimension)
    measured = record.recall
    if measured is not None:
        recall = f"recall@{measured['k']} {measured['chosen']['recall']:.3f}"
        console.note(f"index {record.kind}: {recall} against exact search when it was measured")
    return {
        "similarity": similarity,
        "index": {"kind": record.kind, **record.efforts},
        "query_prompt": query,
        "document_prompt": record.settings.get("prompt") or "",
    }


def fitted_queries(queries: Vectors, origin: Provenance) -> Vectors:
    """Return vectors of queries ``[queries, dim]`` made as small as those of the collection are."""
    if not origin.made_smaller():
        return queries
    return origin.compress(queries, normalized=bool(origin.normalize))


@dataclass(frozen=True)
class FoundRows:
    """The rows that were found for one query, best first and of equal ones the first row first, each ``[hits]``."""

    places: Int64Array
    keys: AnyArray
    """By what the database returns the rows."""
    scores: Float32Array

    @classmethod
    def ranked(cls, places: Int64Array, keys: AnyArray, scores: Float32Array) -> FoundRows:
        """Return rows in order, which are in any order.

        Args:
            places: of the rows.
            keys: of the rows.
            scores: of the rows; those that differ by rounding alone get one.
        """
        falling = np.argsort(-scores, kind="stable")
        order, settled = order_of_rows(places[None, falling], scores[None, falling])
        rows = falling[order[0]]
        return cls(places[rows], keys[rows], settled[0])


def best_found(ask: Callable[[int], list[FoundRows]], k: int, most: int = sys.maxsize) -> list[FoundRows]:
    """Return the `k` best rows of each query; more and more are asked for until no row behind is as good as the last.

    Args:
        ask: returns so many rows of each query.
        k: the number of rows.
        most: the most rows that the database returns.
    """
    asked = min(k + MORE_HITS, most)
    while True:
        lists = ask(asked)
        is_cut = False
        for hits in lists:
            is_equal = len(hits.scores) == asked and hits.scores[-1] == hits.scores[k - 1]
            is_cut = is_cut or is_equal
        if not is_cut or asked == most:
            return [FoundRows(hits.places[:k], hits.keys[:k], hits.scores[:k]) for hits in lists]
        asked = min(asked * 4, most)


def side_by_side(found: Sequence[FoundRows]) -> Neighbours:
    """Return the hits of each query as neighbours, with -1 where a query has fewer."""
    shape = len(found), max((len(hits.places) for hits in found), default=0)
    positions = np.full(shape, -1, np.int64)
    scores = np.zeros(shape, np.float32)
    for query, hits in enumerate(found):
        count = len(hits.places)
        positions[query, :count] = hits.places
        scores[query, :count] = hits.scores
    return Neighbours(positions, scores)


@dataclass(frozen=True)
class CollectionWords:
    """The words of all rows of a collection, whatever the database is, in the order of the rows."""

    bm25: BM25
    places: Int64Array
    """Of the rows, rising ``[rows]``."""
    keys: AnyArray
    """By what the database returns the rows ``[rows]``."""

    @classmethod
    def of(cls, batches: Iterable[tuple[Int64Array, Sequence[Any], Sequence[str]]], language: str) -> CollectionWords:
        """Index rows, given the places, the keys and what was encoded of some of them at a time."""
        places = [np.empty(0, np.int64)]
        keys: list[Any] = []
        texts: list[str] = []
        for of_batch, keys_of_batch, texts_of_batch in batches:
            places.append(of_batch)
            keys += keys_of_batch
            texts += texts_of_batch
        unordered = np.concatenate(places)
        order = np.argsort(unordered, kind="stable")
        in_order = map(texts.__getitem__, order.tolist())
        return cls(BM25.build(in_order, language=language), unordered[order], np.array(keys, object)[order])

    def search(self, queries: Sequence[str], k: int, chosen: Int64Array | None = None) -> list[FoundRows]:
        """Return the best rows of each query, of those at some places; None stands for all."""
        mask = None
        if chosen is not None:
            mask = np.isin(self.places, chosen)
        hits = self.bm25.search(queries, k, mask)
        found = []
        for rows, scores in zip(hits.positions, hits.scores, strict=True):
            is_hit = rows >= 0
            rows = rows[is_hit]
            found.append(FoundRows(self.places[rows], self.keys[rows], scores[is_hit]))
        return found


@dataclass(frozen=True)
class DatabaseCorpus:
    """The rows of a collection that meet a condition, whatever the database is; see `corpus.Corpus`.

    A position is the place of a row, by which rows of equal scores are ordered.
    """

    collection: Any
    condition: Any = None
    """What rows have to meet, as the database takes it; None or nothing in it stands for all rows."""
    keys: dict[int, Any] = field(default_factory=dict)
    """By what the database returns each row that was found, its id or a number, by its position."""
    words: CollectionWords | None = None

    def __len__(self) -> int:
        return self._rows

    @cached_property
    def _rows(self) -> int:
        """The number of rows that meet the condition, which some databases need long to count."""
        return int(self.collection.count(self.condition))

    @property
    def max_top_k(self) -> int:
        """The number of rows."""
        return self._rows

    @property
    def in_order(self) -> bool:
        """Whether `tables` yields rows in the order in which they were written."""
        return True

    @property
    def title(self) -> str:
        """The address and the name."""
        return str(self.collection.title)

    @property
    def origin(self) -> Provenance:
        """How the vectors were made."""
        origin: Provenance = self.collection.origin
        return origin

    @property
    def schema(self) -> dict[str, Any]:
        """The Arrow types of all columns by name."""
        schema: dict[str, Any] = self.collection.record.schema()
        return schema

    def encoded(self) -> Iterator[tuple[Int64Array, list[Any], list[str]]]:
        """Yield the places, the keys and what was encoded of all rows of the collection, some at a time."""
        raise NotImplementedError

    def chosen(self) -> Int64Array:
        """Return the places of the rows that meet the condition."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Return what a protocol says of the collection besides how its vectors are compared."""
        return {}

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return rows by their ids, of those that are there."""
        documents: dict[str, Document] = self.collection.documents(ids)
        return documents

    def take(self, positions: Sequence[int]) -> dict[int, Document]:
        """Return rows by their positions, of those that are still there, where keys are ids."""
        documents = self.documents([self.keys[position] for position in positions])
        by_position = {}
        for position in positions:
            key = self.keys[position]
            if key in documents:
                by_position[position] = documents[key]
        return by_position

    def prepare(
        self, search: SearchOptions, encoder: SentenceEncoder | None, rescore: str | None = None
    ) -> tuple[Self, dict[str, Any]]:
        """Compare the encoder with the vectors, and index the words if they are searched; see `corpus.Corpus.prepare`.

        The scores of BM25 are those of a directory: its index is built now, over the texts of all rows.
        """
        record = self.collection.record
        protocol = self.facts()
        prepared = self
        if search.by_words:
            words = CollectionWords.of(self.encoded(), search.language or record.language)
            prepared = replace(self, words=words)
            protocol["bm25"] = words.bm25.protocol()
        if encoder is not None:
            protocol |= protocol_of(record, self.origin, search, encoder)
        return prepared, protocol

    def nearest(self, vectors: Vectors, k: int) -> Neighbours:
        """Return the nearest rows of each query ``[queries, dim]``."""
        k = min(k, len(self))
        if not k:
            return Neighbours.none(len(vectors))
        return self.remembered(self.found(fitted_queries(vectors, self.origin), k))

    def found(self, queries: Vectors, k: int) -> list[FoundRows]:
        """Return the `k` nearest rows of each query, whose vectors are as small as those of the collection."""
        found: list[FoundRows] = self.collection.nearest(queries, k, self.condition)
        return found

    def by_words(self, queries: Sequence[str], k: int) -> Neighbours:
        """Return the best rows of each query by BM25."""
        assert self.words is not None
        chosen = None
        if self.condition:
            chosen = self.chosen()
        return self.remembered(self.words.search(queries, k, chosen))

    def remembered(self, found: Sequence[FoundRows]) -> Neighbours:
        """Return hits by position, and remember the keys of their rows for `take`."""
        for hits in found:
            self.keys.update(zip(hits.places.tolist(), hits.keys.tolist(), strict=True))
        return side_by_side(found)


FILES_ONLY = ("texts", "rescore", "id_field", "vector_field")
"""The options of a corpus that are for files."""


def refuse_options_of_files(name: str, options: CorpusOptions, names: Sequence[str] = FILES_ONLY) -> None:
    """Refuse options that do not go with a collection.

    Args:
        name: of the corpus.
        options: of the corpus.
        names: of those that are refused.

    Raises:
        InputError: if one of them is given.
    """
    for option in names:
        if getattr(options, option) is not None:
            raise InputError(f"--{option.replace('_', '-')} goes with a --corpus of files, not with {name}")


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


def numbered(numbers: Int64Array, wanted: Int64Array) -> Int64Array:
    """Return where numbers stand among rising ones, -1 for those that are not there ``[wanted]``."""
    places = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    return np.where(numbers[places] == wanted, places, -1)


@dataclass
class CollectionSearch:
    """The search through the index of a collection while its recall is measured; see `recall.IndexedSearch`."""

    record: CollectionRecord
    """With the search parameters that are tried."""
    collection: Any
    blocks: CollectionVectors

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
        self.record = replace(self.record, efforts=efforts)

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Return the nearest rows of each query ``[queries, dim]``, of those that are compared."""
        compared = []
        for hits in replace(self.collection, record=self.record).nearest(queries, k):
            positions = self.blocks.positions_of(hits)
            is_there = positions >= 0
            compared.append(FoundRows(positions[is_there], hits.keys[is_there], hits.scores[is_there]))
        return side_by_side(compared)
