"""A table of PostgreSQL as a corpus: vectors are searched there, and words by the BM25 of directories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import AnyArray, Int64Array, Vectors
from sentcli.io.writers import arrow_column
from sentcli.search.conditions import Condition
from sentcli.search.options import CorpusOptions, SearchOptions, refuse_version
from sentcli.search.provenance import COMPARED_ROWS
from sentcli.search.rows import by_frequency
from sentcli.stores.collection_corpus import DatabaseCorpus, FoundRows, refuse_options_of_files
from sentcli.stores.collection_vectors import CheckedIndex, NumberedVectors, index_to_check, rows_with_vectors
from sentcli.stores.postgres.client import SQL, TABLE, TableName, connect
from sentcli.stores.postgres.found import found_table
from sentcli.stores.postgres.table import PostgresTable
from sentcli.stores.record import ID, VECTORS

if TYPE_CHECKING:
    import pyarrow as pa

    from sentcli.encoder.sentence_encoder import SentenceEncoder


@dataclass(frozen=True)
class PostgresCorpus(DatabaseCorpus):
    """The rows of a table that meet a condition of SQL; see `corpus.Corpus`. A position is the place of a row."""

    collection: PostgresTable

    def tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows with some columns as tables of Arrow, in the order in which they came.

        They come by a connection of their own, so that others may be asked for between two of them.
        """
        import pyarrow as pa

        schema = self.schema
        values = [*map(self.collection.field_of, names), self.collection.fields.place]
        with connect(self.collection.address) as connection:
            read = replace(self.collection, connection=connection)
            for *columns, _ in read.scan(values, self.condition, f"ORDER BY {len(values)}"):
                arrays = []
                for name, cells in zip(names, columns, strict=True):
                    arrays.append(arrow_column(list(cells), schema[name]))
                yield pa.table(arrays, names=list(names))

    def select(self, condition: Condition) -> PostgresCorpus:
        """Return the corpus of those rows that meet a condition."""
        return replace(self, condition=self.collection.condition_of(condition.tree, self.condition))

    def counts(self, column: str) -> list[tuple[Any, int]]:
        """Count the rows with each value of a column, the most frequent value first."""
        counts: Counter[Any] = Counter()
        value = self.collection.field_of(column)
        for values, numbers in self.collection.scan([value, SQL("count(*)")], self.condition, "GROUP BY 1"):
            counts |= Counter(dict(zip(values, numbers, strict=True)))
        return by_frequency(counts)

    def prepare(
        self, search: SearchOptions, encoder: SentenceEncoder | None, rescore: str | None = None
    ) -> tuple[PostgresCorpus, dict[str, Any]]:
        """Compare the encoder with the vectors, and with some of them where nothing is said of their model."""
        prepared, protocol = super().prepare(search, encoder, rescore)
        if encoder is not None and not self.origin.known and len(self):
            texts, vectors = self._first_rows(COMPARED_ROWS)
            self.origin.check_texts(texts, vectors, encoder, protocol["document_prompt"])
        return prepared, protocol

    def chosen(self) -> Int64Array:
        """Return the places of the rows that meet the condition."""
        places = [np.empty(0, np.int64)]
        for (part,) in self.collection.scan([self.collection.fields.place], self.condition):
            places.append(np.array(part, np.int64))
        return np.concatenate(places)

    def found(self, queries: Vectors, k: int) -> list[FoundRows]:
        """Return the `k` nearest rows of each query."""
        return self.collection.nearest(queries, k, self.condition, len(self))

    def to_check(self) -> CheckedIndex | None:
        """Return the search through the index that is there; see `stores.store.CheckedCorpus`."""
        table = self.collection
        if table.record.kind == "flat":
            return None
        table.connection.execute("SET enable_seqscan = off")  # of few rows the index would not be searched
        efforts = table.record.efforts or table.present_effort()
        return index_to_check(replace(table, record=replace(table.record, efforts=efforts)), PostgresVectors(table))

    def rows_to_compare(self) -> tuple[list[str], AnyArray]:
        """Return what was encoded of some rows, and their vectors ``[n, dim]``."""
        return rows_with_vectors(self.encoded(), PostgresVectors(self.collection), len(self))

    def _first_rows(self, count: int) -> tuple[list[str], AnyArray]:
        """Return what was encoded of the first rows that PostgreSQL finds, which takes no time however many there are.

        Returns:
            Their texts and their vectors ``[n, dim]``.
        """
        (_, ids, texts), *_ = self.encoded(behind=f"LIMIT {count}")
        by_id = self.collection.vectors_of(ids, self.collection.id_text)
        return texts, np.stack([by_id[key] for key in ids])


@dataclass(frozen=True)
class PostgresVectors(NumberedVectors):
    """The vectors of a table; a position is the number of a row in the order of the places."""

    collection: PostgresTable

    @cached_property
    def numbers(self) -> Int64Array:
        """The places of all rows, rising ``[rows]``."""
        return np.sort(PostgresCorpus(self.collection).chosen())

    def since(self, first: int, rows: int) -> Iterator[AnyArray]:
        """Yield all rows in the order of their places, as many at a time as PostgreSQL sends."""
        for _, vectors in self.collection.stream(None, "ORDER BY 1"):
            yield vectors

    def positions_of(self, hits: FoundRows) -> Int64Array:
        """Return the positions of rows by their places."""
        return self.positions_among(hits.places)


@contextmanager
def open_postgres(name: str, options: CorpusOptions, search: SearchOptions) -> Iterator[PostgresCorpus]:
    """Open a table, such as that of ``postgresql://me@host/db``; see `corpus.OpenBackend`.

    Raises:
        InputError: if there is none, or an option does not go with it.
    """
    refuse_version(name, options)
    refuse_options_of_files(name, options, search, ["texts", "rescore"])
    place = TableName.parse(options.collection or TABLE)
    with connect(name) as connection:
        if options.vector_field is None and options.id_field is None:
            table = PostgresTable.open(connection, name, place)
        else:
            fields = (options.id_field or ID, options.text_field, options.vector_field or VECTORS)
            table = found_table(connection, name, place, fields, search.similarity)
        yield PostgresCorpus(table)
