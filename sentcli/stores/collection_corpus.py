"""What corpora in databases have in common: whose queries they take, and how the index of one is measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sentcli import console
from sentcli.arrays import AnyArray, Float32Array, Int64Array, Vectors
from sentcli.errors import InputError
from sentcli.model.passages import context_columns, with_contexts
from sentcli.search.bm25 import BM25
from sentcli.search.neighbours import MORE_HITS, Neighbours, order_of_rows
from sentcli.search.options import CorpusOptions, SearchOptions
from sentcli.search.provenance import Provenance
from sentcli.search.rows import Document
from sentcli.stores.record import ID, TEXTS, CollectionRecord, texts_of_rows

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder


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


@dataclass(frozen=True)
class FoundRows:
    """The rows that were found for one query, best first and of equal ones the first row first, each ``[hits]``."""

    places: Int64Array
    keys: AnyArray
    """By what the database returns the rows."""
    scores: Float32Array

    @classmethod
    def of_queries(
        cls, numbers: Int64Array, count: int, places: Int64Array, keys: AnyArray, scores: Float32Array
    ) -> list[FoundRows]:
        """Return the rows of each of so many queries, given the number of the query that each row was found for."""
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[order], np.arange(count + 1))
        lists = []
        for first, last in pairwise(ends):
            part = order[first:last]
            lists.append(cls.ranked(places[part], keys[part], scores[part]))
        return lists

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


def best_found(
    ask: Callable[[Vectors, int], list[FoundRows]], vectors: Vectors, size: int, k: int, most: int = sys.maxsize
) -> list[FoundRows]:
    """Return the `k` best rows of each query; of equal ones the row that came first is first.

    Args:
        ask: returns so many rows of each of some queries.
        vectors: of the queries ``[queries, dim]``.
        size: how many queries are asked together.
        k: the number of rows.
        most: the most rows that the database returns.
    """
    found = []
    for start in range(0, len(vectors), size):
        found += _best_of(partial(ask, vectors[start : start + size]), k, most)
    return found


def _best_of(ask: Callable[[int], list[FoundRows]], k: int, most: int) -> list[FoundRows]:
    """Ask some queries for more and more rows, until no row behind the best `k` is as good as the last of these."""
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
    """The place of each row in the collection, rising ``[rows]``."""
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
    """A `DatabaseCollection`."""
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

    def encoded(self, **reading: Any) -> Iterator[tuple[Int64Array, Sequence[Any], list[str]]]:
        """Yield the places, the keys and what was encoded of all rows of the collection, some at a time.

        Args:
            reading: other arguments of the collection's `cells`.
        """
        collection = self.collection
        context = self.origin.context
        names = [ID, TEXTS, *context_columns(context, self.schema)]
        for places, keys, columns in collection.cells(list(map(collection.field_of, names)), **reading):
            cells = dict(zip(names, columns, strict=True))
            cells[TEXTS] = texts_of_rows(self.title, cells[ID], cells[TEXTS])
            yield places, keys, with_contexts(context, cells)

    def chosen(self) -> Int64Array:
        """Return the places of the rows that meet the condition."""
        places = [np.empty(0, np.int64)]
        for of_part, _, _ in self.collection.cells([], self.condition):
            places.append(of_part)
        return np.concatenate(places)

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
        origin = self.origin
        if origin.made_smaller():
            vectors = origin.compress(vectors, normalized=bool(origin.normalize))
        return self.remembered(self.found(vectors, k))

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


def refuse_options_of_files(
    name: str, options: CorpusOptions, search: SearchOptions, names: Sequence[str] = FILES_ONLY
) -> None:
    """Refuse options that do not go with a collection.

    Args:
        name: of the corpus.
        options: of the corpus.
        search: how it is searched.
        names: of those that are refused.

    Raises:
        InputError: if one of them is given.
    """
    for option in names:
        if getattr(options, option) is not None:
            raise InputError(f"--{option.replace('_', '-')} goes with a --corpus of files, not with {name}")
    if search.index is not None:
        raise InputError(f"--index {search.index}: {name} is searched by the index that it has")
