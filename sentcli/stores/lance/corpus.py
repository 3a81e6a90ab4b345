"""A version of a table of LanceDB as a corpus: vectors are searched there, and words by the BM25 of directories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import AnyArray, Int64Array
from sentcli.errors import InputError
from sentcli.search.conditions import Condition
from sentcli.search.options import CorpusOptions, SearchOptions
from sentcli.search.rows import Document, by_frequency
from sentcli.stores.collection_corpus import DatabaseCorpus, FoundRows, refuse_options_of_files
from sentcli.stores.collection_vectors import CheckedIndex, NumberedVectors, index_to_check, rows_with_vectors
from sentcli.stores.lance.filter import brackets, filter_of
from sentcli.stores.lance.table import LanceCollection
from sentcli.stores.record import ID, ORDER, TEXTS, texts_of_rows

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS_AT_A_TIME = 8192
"""Rows that are read together."""
MOST_BRACKETS = 12
"""The most brackets inside each other in a condition; LanceDB reads some more, among them those of `select`."""


@dataclass(frozen=True)
class LanceCorpus(DatabaseCorpus):
    """The rows of a version that meet a condition; see `corpus.Corpus`. They are found by their numbers."""

    collection: LanceCollection
    condition: str = ""
    """A filter of LanceDB; empty stands for all rows."""

    def tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows with some columns as tables of Arrow, in the order in which they came."""
        fields = list(map(self.collection.field_of, names))
        asked = [*dict.fromkeys([ID, *fields, ORDER])]
        for part in self.collection.taken(self._in_order, asked, _ROWS_AT_A_TIME):
            table = part.sort_by(ORDER)
            if TEXTS in fields:
                texts_of_rows(self.collection.title, table[ID].to_pylist(), table[TEXTS].to_pylist())
            yield table.select(fields).rename_columns(list(names))

    @cached_property
    def _in_order(self) -> Int64Array:
        """The numbers of the rows in the order in which they came ``[rows]``."""
        numbers, orders = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for batch in self.collection.scan([ORDER], self.condition, row_ids=True):
            numbers.append(batch["_rowid"].to_numpy().astype(np.int64))
            orders.append(batch[ORDER].to_numpy())
        return np.concatenate(numbers)[np.argsort(np.concatenate(orders), kind="stable")]

    def select(self, condition: Condition) -> LanceCorpus:
        """Return the corpus of those rows that meet a condition.

        Raises:
            InputError: if it is nested more deeply than LanceDB reads.
        """
        if brackets(condition.tree) > MOST_BRACKETS:
            raise InputError(f"--where: LanceDB reads {MOST_BRACKETS} levels of brackets, and the condition has more")
        combined = filter_of(condition.tree, self.collection.record.columns)
        if self.condition:
            combined = f"({self.condition}) and ({combined})"
        return replace(self, condition=combined)

    def counts(self, column: str) -> list[tuple[Any, int]]:
        """Count the rows with each value of a column, the most frequent value first."""
        name = self.collection.field_of(column)
        counts: Counter[Any] = Counter()
        for batch in self.collection.scan([name], self.condition):
            for entry in batch[name].value_counts().to_pylist():
                counts[entry["values"]] += entry["counts"]
        return by_frequency(counts)

    def take(self, positions: Sequence[int]) -> dict[int, Document]:
        """Return rows by their positions."""
        collection = self.collection
        fields = list(map(collection.field_of, collection.document_columns))
        row_ids = [self.keys[position] for position in positions]
        documents: dict[int, Document] = {}
        for table in collection.taken(row_ids, [ORDER, *fields]):
            columns = [table[field].to_pylist() for field in fields]
            documents |= zip(table[ORDER].to_pylist(), collection.as_documents(columns), strict=True)
        return documents

    def facts(self) -> dict[str, Any]:
        """Return the version."""
        return {"version": self.collection.version}

    def to_check(self) -> CheckedIndex | None:
        """Return the search through the index that is there; see `stores.store.CheckedCorpus`."""
        return index_to_check(self.collection, LanceVectors(self.collection))

    def rows_to_compare(self) -> tuple[list[str], AnyArray]:
        """Return what was encoded of some rows, and their vectors ``[n, dim]``."""
        return rows_with_vectors(self.encoded(), LanceVectors(self.collection), len(self))


@dataclass(frozen=True)
class LanceVectors(NumberedVectors):
    """The vectors of a table; a position is that of a row in the order of their numbers."""

    collection: LanceCollection

    @cached_property
    def numbers(self) -> Int64Array:
        """The numbers of all rows, rising ``[rows]``."""
        numbers = [np.empty(0, np.int64)]
        for batch in self.collection.scan([ORDER], row_ids=True):
            numbers.append(batch["_rowid"].to_numpy().astype(np.int64))
        return np.sort(np.concatenate(numbers))

    def since(self, first: int, rows: int) -> Iterator[AnyArray]:
        """Yield all rows in the order of their numbers, at most `rows` at a time."""
        numbers = self.numbers
        for start in range(first, len(numbers), rows):
            yield self.of_numbers(numbers[start : start + rows])

    def positions_of(self, hits: FoundRows) -> Int64Array:
        """Return the positions of rows by their numbers."""
        return self.positions_among(hits.keys)


@contextmanager
def open_lance(name: str, options: CorpusOptions, search: SearchOptions) -> Iterator[LanceCorpus]:
    """Open a table, such as ``lance:reviews``, as it is now or in the version of ``--at``; see `corpus.OpenBackend`.

    Raises:
        InputError: if there is none, or an option does not go with it.
    """
    refuse_options_of_files(name, options, search)
    yield LanceCorpus(LanceCollection.open(name, options.collection, options.at))
