"""A collection of Milvus as a corpus, whose vectors and words are searched there, and the measuring of its index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import AnyArray, Int64Array, Vectors
from sentcli.errors import InputError
from sentcli.io.writers import arrow_column
from sentcli.search.conditions import Condition
from sentcli.search.options import CorpusOptions, SearchOptions, refuse_version
from sentcli.search.rows import by_frequency
from sentcli.stores.collection_corpus import DatabaseCorpus, FoundRows, refuse_options_of_files
from sentcli.stores.collection_vectors import CheckedIndex, CollectionVectors, index_to_check, rows_with_vectors
from sentcli.stores.milvus.client import connect
from sentcli.stores.milvus.collection import MOST_ANSWER_ROWS, MilvusCollection
from sentcli.stores.milvus.rows import filter_of, value_of
from sentcli.stores.record import ID, TEXTS, VECTORS, texts_of_rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class MilvusCorpus(DatabaseCorpus):
    """The rows of a collection that meet a condition; see `corpus.Corpus`."""

    collection: MilvusCollection
    condition: str = ""
    """A filter of Milvus; empty stands for all rows."""
    max_top_k: int = MOST_ANSWER_ROWS
    """Milvus returns at most so many hits for a query."""

    @property
    def in_order(self) -> bool:
        """Whether `tables` yields rows in the order in which they were written."""
        return self.collection.in_order

    def tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows with some columns as tables of Arrow, in the order in which they came where that is known."""
        import pyarrow as pa

        collection = self.collection
        schema = self.schema
        fields = list(map(collection.field_of, names))
        for batch in self._batches(fields):
            if TEXTS in fields:
                texts_of_rows(collection.title, [row[ID] for row in batch], [row.get(TEXTS) for row in batch])
            columns = {}
            for name, values in zip(names, collection.values_of(batch, names), strict=True):
                columns[name] = arrow_column(values, schema[name])
            yield pa.table(columns)

    def _batches(self, fields: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        """Yield some fields of all rows, some at a time."""
        collection = self.collection
        if not collection.in_order:
            yield from collection.rows(fields, self.condition)
            return
        places: dict[str, int] = {}
        for batch in collection.rows(collection.place_fields, self.condition):
            places |= zip(map(itemgetter(ID), batch), collection.places_of(batch).tolist(), strict=True)
        ids = sorted(places, key=places.__getitem__)
        for rows in collection.of_ids(ids, fields):
            yield sorted(rows, key=lambda row: places[row[ID]])

    def select(self, condition: Condition) -> MilvusCorpus:
        """Return the corpus of those rows that meet a condition."""
        combined = filter_of(condition.tree, self.collection.record.columns)
        if self.condition:
            combined = f"({self.condition}) and ({combined})"
        return replace(self, condition=combined)

    def counts(self, column: str) -> list[tuple[Any, int]]:
        """Count the rows with each value of a column, the most frequent value first."""
        field_name, kind = self.collection.record.field_of(column)
        counts: Counter[Any] = Counter()
        for batch in self.collection.rows([field_name], self.condition):
            counts.update(row.get(field_name) for row in batch)
        values = []
        for value, count in by_frequency(counts):
            values.append((value_of(value, kind), count))
        return values

    def to_check(self) -> CheckedIndex | None:
        """Return the search through the index that is there; see `stores.store.CheckedCorpus`."""
        return index_to_check(self.collection, MilvusVectors(self.collection))

    def rows_to_compare(self) -> tuple[list[str], AnyArray]:
        """Return what was encoded of some rows, and their vectors ``[n, dim]``."""
        return rows_with_vectors(self.encoded(), MilvusVectors(self.collection), len(self))


@dataclass(frozen=True)
class MilvusVectors(CollectionVectors):
    """The vectors of a collection; a position is the place of a row in the order of the ids."""

    collection: MilvusCollection
    taken: dict[str, list[float]] = field(default_factory=dict)
    """The vectors that were taken before, by id: those of the queries and of their neighbours."""

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each row by its id."""
        positions: dict[str, int] = {}
        for batch in self.collection.rows([]):
            for row in batch:
                positions[row[ID]] = len(positions)
        return positions

    @cached_property
    def _ids(self) -> list[str]:
        return list(self.positions)

    def __len__(self) -> int:
        return len(self.positions)

    def since(self, first: int, rows: int) -> Iterator[AnyArray]:
        """Yield all rows, as many at a time as Milvus sends."""
        for batch in self.collection.rows([VECTORS]):
            yield np.array([row[VECTORS] for row in batch], np.float32)

    def positions_of(self, hits: FoundRows) -> Int64Array:
        """Return the positions of rows by their ids."""
        return np.array([self.positions.get(key, -1) for key in hits.keys], np.int64)

    def of_rising(self, positions: Int64Array) -> Vectors:
        """Return the rows at positions that rise."""
        taken = self.taken
        ids = [self._ids[position] for position in positions]
        missing = [key for key in ids if key not in taken]
        for rows in self.collection.of_ids(missing, [VECTORS]):
            for row in rows:
                taken[row[ID]] = row[VECTORS]
        vectors = np.empty((len(ids), self.dimension), np.float32)
        for place, key in enumerate(ids):
            vectors[place] = taken[key]
        return vectors


@contextmanager
def open_milvus(name: str, options: CorpusOptions, search: SearchOptions) -> Iterator[MilvusCorpus]:
    """Open a collection, such as ``milvus:reviews.db``; see `corpus.OpenBackend`.

    Raises:
        InputError: if there is none, or more hits are wanted than Milvus finds.
    """
    if options.collection is None:
        raise InputError(f"--corpus {name} needs --collection NAME")
    refuse_version(name, options)
    refuse_options_of_files(name, options, search)
    if (search.top_k or 0) > MilvusCorpus.max_top_k:
        raise InputError(f"--top-k {search.top_k}: Milvus finds at most {MilvusCorpus.max_top_k:,}")
    with connect(name) as client:
        collection = MilvusCollection.open(client, name, options.collection)
        yield MilvusCorpus(collection)
