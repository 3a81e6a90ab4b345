"""A table of PostgreSQL as a corpus: vectors are searched there, and words by the BM25 of directories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.io.writers import arrow_column
from sentcli.model.passages import context_columns, with_contexts
from sentcli.search.conditions import Condition
from sentcli.search.exact import Vectors, VectorSource
from sentcli.search.neighbours import AnyVectors, Integers, Neighbours
from sentcli.search.options import CorpusOptions, SearchOptions, refuse_version
from sentcli.search.rows import Document, by_frequency
from sentcli.stores.collection_corpus import (
    CollectionWords,
    FoundRows,
    MeasuredCollection,
    OfCollection,
    fitted,
    protocol_of,
    side_by_side,
)
from sentcli.stores.postgres.client import connect
from sentcli.stores.postgres.table import PostgresTable
from sentcli.stores.record import ID, TEXTS

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg.sql import Composable

    from sentcli.encoder.sentence_encoder import SentenceEncoder


@dataclass(frozen=True)
class PostgresCorpus(OfCollection):
    """The rows of a table that meet a condition; see `corpus.Corpus`. A position is the place of a row."""

    collection: PostgresTable
    condition: Composable | None = None
    """SQL; None stands for all rows."""
    ids: dict[int, str] = field(default_factory=dict)
    """The id of each row that was found, by its position."""
    words: CollectionWords | None = None

    @property
    def max_top_k(self) -> int:
        """The number of rows."""
        return self._rows

    def __len__(self) -> int:
        return self._rows

    @cached_property
    def _rows(self) -> int:
        """The number of rows that meet the condition."""
        return self.collection.count(self.condition)

    @property
    def in_order(self) -> bool:
        """Whether `tables` yields rows in the order in which they were written."""
        return True

    def tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows with some columns as tables of Arrow, in the order in which they came.

        They come by a connection of their own, so that others may be asked for between two of them.
        """
        import pyarrow as pa

        collection = self.collection
        schema = self.schema
        values = [*map(collection.expression, names), collection.fields.place]
        with connect(collection.address) as connection:
            read = replace(collection, connection=connection)
            for rows in read.scan(values, self.condition, f"ORDER BY {len(values)}"):
                cells = zip(*rows, strict=True)
                columns = [arrow_column(list(column), schema[name]) for name, column in zip(names, cells, strict=False)]
                yield pa.table(columns, names=list(names))

    def select(self, condition: Condition) -> PostgresCorpus:
        """Return the corpus of those rows that meet a condition."""
        from psycopg.sql import SQL

        combined = self.collection.condition_of(condition.tree)
        if self.condition is not None:
            combined = SQL(" AND ").join([self.condition, combined])
        return replace(self, condition=combined)

    def counts(self, column: str) -> list[tuple[Any, int]]:
        """Count the rows with each value of a column, the most frequent value first."""
        from psycopg.sql import SQL

        counts: Counter[Any] = Counter()
        value = self.collection.expression(column)
        for rows in self.collection.scan([value, SQL("count(*)")], self.condition, "GROUP BY 1"):
            counts.update(dict(rows))
        return by_frequency(counts)

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return rows by their ids, of those that are there."""
        return self.collection.documents(ids)

    def take(self, positions: Sequence[int]) -> dict[int, Document]:
        """Return rows by their positions, of those that are still there."""
        documents = self.documents([self.ids[position] for position in positions])
        by_position = {}
        for position in positions:
            key = self.ids[position]
            if key in documents:
                by_position[position] = documents[key]
        return by_position

    def prepare(
        self, search: SearchOptions, encoder: SentenceEncoder | None, rescore: str | None = None
    ) -> tuple[PostgresCorpus, dict[str, Any]]:
        """Compare the encoder with the vectors, and index the words if they are searched; see `corpus.Corpus.prepare`.

        The scores of BM25 are those of a directory: its index is built now, over the texts of all rows.
        """
        record = self.collection.record
        protocol: dict[str, Any] = {}
        prepared = self
        if search.by_words:
            words = CollectionWords.of(self._texts(), search.language or record.language)
            prepared = replace(self, words=words)
            protocol["bm25"] = words.bm25.protocol()
        if encoder is not None:
            protocol |= protocol_of(record, self.origin, search, encoder)
        return prepared, protocol

    def _texts(self) -> Iterator[tuple[Integers, list[str], list[str]]]:
        """Yield the places, the ids and what was encoded of all rows, some at a time."""
        context = self.origin.context
        names = [TEXTS, *context_columns(context, self.schema)]
        collection = self.collection
        values = [collection.fields.place, *map(collection.expression, [ID, *names])]
        for rows in collection.scan(values, None):
            places, ids, *columns = zip(*rows, strict=True)
            cells = dict(zip(names, map(list, columns), strict=True))
            yield np.array(places, np.int64), list(ids), with_contexts(context, cells)

    def nearest(self, vectors: Vectors, k: int) -> Neighbours:
        """Return the nearest rows of each query ``[queries, dim]``."""
        k = min(k, len(self))
        if not k:
            return Neighbours.none(len(vectors))
        queries = fitted(vectors, self.origin)
        return self._remembered(self.collection.nearest(queries, k, len(self), self.condition))

    def by_words(self, queries: Sequence[str], k: int) -> Neighbours:
        """Return the best rows of each query by BM25."""
        assert self.words is not None
        chosen = None
        if self.condition is not None:
            places: list[int] = []
            for rows in self.collection.scan([self.collection.fields.place], self.condition):
                places += [place for (place,) in rows]
            chosen = np.array(places, np.int64)
        return self._remembered(self.words.search(queries, k, chosen))

    def _remembered(self, found: Sequence[FoundRows]) -> Neighbours:
        """Return hits by position, and remember the ids of their rows for `take`."""
        for hits in found:
            self.ids.update(zip(hits.places.tolist(), hits.keys.tolist(), strict=True))
        return side_by_side(found)


@dataclass(frozen=True)
class PostgresVectors(VectorSource):
    """The vectors of a table; a position is the number of a row in the order of the places."""

    collection: PostgresTable

    @cached_property
    def places(self) -> Integers:
        """The places of all rows, rising ``[rows]``."""
        places = [np.empty(0, np.int64)]
        for rows in self.collection.scan([self.collection.fields.place], None):
            places.append(np.array(rows, np.int64).reshape(-1))
        return np.sort(np.concatenate(places))

    @property
    def dimension(self) -> int:
        """The dimension of the vectors."""
        return self.collection.record.dimension

    def __len__(self) -> int:
        return len(self.places)

    def since(self, first: int, rows: int) -> Iterator[AnyVectors]:
        """Yield all rows in the order of their places, as many at a time as PostgreSQL sends; see `Comparable`."""
        for _, vectors in self.collection.stream(None, "ORDER BY 1"):
            yield vectors

    def take(self, positions: Integers) -> Vectors:
        """Return the rows at some positions."""
        from psycopg.sql import SQL, Literal

        distinct, where = np.unique(positions, return_inverse=True)
        wanted = self.places[distinct]
        vectors = np.zeros((len(distinct), self.dimension), np.float32)
        there = SQL("{} = ANY({}::int8[])").format(self.collection.fields.place, Literal(wanted.tolist()))
        for places, part in self.collection.stream(there):
            vectors[np.searchsorted(wanted, places)] = part
        return vectors[where.reshape(-1)]


@dataclass
class PostgresSearch(MeasuredCollection):
    """The search through the index of a table; see `recall.IndexedSearch`."""

    collection: PostgresTable
    blocks: PostgresVectors

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Return the nearest rows of each query ``[queries, dim]``."""
        places = self.blocks.places
        collection = replace(self.collection, record=self.record)
        by_position = []
        for hits in collection.nearest(queries, k, len(places)):
            numbers = np.searchsorted(places, hits.places)
            is_there = places[np.minimum(numbers, len(places) - 1)] == hits.places  # it may have come meanwhile
            by_position.append(FoundRows(numbers[is_there], hits.keys[is_there], hits.scores[is_there]))
        return side_by_side(by_position)


@contextmanager
def open_postgres(name: str, options: CorpusOptions, search: SearchOptions) -> Iterator[PostgresCorpus]:
    """Open a table, such as that of ``postgresql://me@host/db``; see `corpus.OpenBackend`.

    Raises:
        InputError: if there is none, or an option does not go with it.
    """
    refuse_version(name, options)
    with connect(name) as connection:
        yield PostgresCorpus(PostgresTable.open(connection, name, options.collection))
