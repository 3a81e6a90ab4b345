"""Collections of LanceDB: a version of a table is read, counted and searched.

A table has the fields ``id``, ``text``, ``embedding``, one for each column, `HASH` and `ORDER`, by which rows of equal
similarity are ordered as they came. How its vectors were made stands in the metadata of ``embedding``, so that each
version has its own record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import AnyArray, Int64Array, Vectors
from sentcli.errors import DataError, InputError
from sentcli.io.column_types import types
from sentcli.search import ann
from sentcli.stores.collection_corpus import FoundRows, best_found
from sentcli.stores.database_collection import DatabaseCollection, RowCells
from sentcli.stores.lance.client import chosen_table, connect, lance_errors, library, opened_table, table_names, writing
from sentcli.stores.lance.filter import with_ids
from sentcli.stores.record import HASH, ID, ORDER, TEXTS, VECTORS, CollectionRecord, not_made_here, without_place
from sentcli.stores.store import REQUEST_HITS, REQUEST_QUERIES

if TYPE_CHECKING:
    import pyarrow as pa

RECORD_KEY = "sentcli"
"""The key of the metadata of the vectors that holds the `CollectionRecord`, as JSON."""
TAKEN_ROWS = 1000
"""How many rows are asked for by their ids at a time."""
NAMED_VERSIONS = 10
"""How many of the newest versions an error names."""

INDEX_TYPES = {"flat": None, "hnsw": "HnswFlat", "ivf": "IvfFlat", "ivfpq": "IvfPq", "sq8": "IvfSq"}
"""The names that LanceDB gives the settings of its indexes."""


def schema_of(record: CollectionRecord) -> pa.Schema:
    """Return the fields of a table, with its record."""
    import pyarrow as pa

    text = pa.string()
    vector = pa.list_(pa.float32(), record.dimension)
    metadata = {RECORD_KEY: record.to_json()}
    fields = [
        pa.field(ID, text),
        pa.field(TEXTS, text),
        pa.field(VECTORS, vector, metadata=metadata),
        pa.field(HASH, text),
        pa.field(ORDER, pa.int64()),
    ]
    for name, kind in record.columns.values():
        fields.append(pa.field(name, types()[kind].arrow))
    return pa.schema(fields)


def index_of(record: CollectionRecord, rows: int) -> Any:
    """Return what LanceDB builds over the vectors of about so many rows, as `ann.recipe` does; None for exact search.

    Raises:
        InputError: if there are too few rows for the kind.
        MissingExtraError: if lancedb is not installed.
    """
    kind = record.kind
    name = INDEX_TYPES[kind]
    if name is None:
        return None
    settings: dict[str, Any] = {"distance_type": record.similarity, "num_partitions": ann.clusters_of(rows)}
    if kind == "hnsw":
        settings |= {"num_partitions": 1, "m": 32, "ef_construction": 200}
    if kind == "ivfpq":
        parts, _ = ann.product_code(rows, record.dimension)
        settings |= {"num_sub_vectors": parts, "num_bits": 8}
    config = getattr(library().index, name)
    return config(**settings)


@dataclass(frozen=True)
class LanceCollection(DatabaseCollection):
    """One version of a table."""

    table: Any
    """LanceDB's table, which stays at its version."""
    name: str
    address: str
    record: CollectionRecord

    @property
    def title(self) -> str:
        """The address and the name, for messages."""
        return f"{self.address} {self.name}"

    @property
    def version(self) -> int:
        """The number of the version."""
        return int(self.table.version)

    @classmethod
    def open(cls, address: str, name: str | None, version: int | None = None) -> LanceCollection:
        """Return a table as it is now, or in a version.

        Args:
            address: of the database.
            name: of the table; None for the only one.
            version: its number; None for the newest.

        Raises:
            InputError: if there is no such table or version, sentcli has not made it, or it is damaged.
        """
        database = connect(address)
        name = chosen_table(database, address, name)
        title = f"{address} {name}"
        table = opened_table(database, address, name)
        if version is not None:
            _check_out(table, title, version)
        return cls.of(table, address, name)

    @classmethod
    def find(cls, database: Any, address: str, name: str) -> LanceCollection | None:
        """Return a table as it is now, or None if there is none of that name.

        Raises:
            DataError: if LanceDB cannot read it.
            InputError: if sentcli has not made it, or its record is damaged.
        """
        if name not in table_names(database, address):
            return None
        return cls.of(opened_table(database, address, name), address, name)

    @classmethod
    def of(cls, table: Any, address: str, name: str) -> LanceCollection:
        """Return a table of LanceDB with its record.

        Raises:
            InputError: if sentcli has not made it, or its fields are not those of the record.
        """
        title = f"{address} {name}"
        with lance_errors(title):
            schema = table.schema
            table.count_rows()
        metadata: dict[bytes, bytes] = {}
        if VECTORS in schema.names:
            metadata = schema.field(VECTORS).metadata or {}
        if RECORD_KEY.encode() not in metadata:
            raise not_made_here(title)
        record = CollectionRecord.read(metadata[RECORD_KEY.encode()].decode("utf-8", "replace"), title)
        there = {field.name: field.type for field in schema}
        for field in schema_of(record):
            if there.get(field.name) != field.type:
                raise DataError(title, f"its field {field.name} is not {field.type}, as its record says")
        return cls(table, name, address, record)

    def with_columns(self, record: CollectionRecord) -> LanceCollection:
        """Add the columns that a record has besides, without values, and return the collection with that record."""
        own = schema_of(self.record).names
        added = [field for field in schema_of(record) if field.name not in own]
        if not added:
            return self
        with writing(self.title):
            self.table.add_columns(added)
        return self.with_record(columns=record.columns)

    def with_record(self, **changes: Any) -> LanceCollection:
        """Write changes of the record as a new version, and return the collection with them."""
        record = replace(self.record, **changes)
        with writing(self.title):
            self.table.update_field_metadata({"path": VECTORS, "metadata": {RECORD_KEY: record.to_json()}})
        return replace(self, record=record)

    def count(self, condition: str = "") -> int:
        """Return the number of rows that meet a condition of `filter_of`."""
        with lance_errors(self.title):
            return int(self.table.count_rows(condition or None))

    def scan(self, fields: Sequence[str], condition: str = "", *, row_ids: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield some fields of all rows that meet a condition; with `row_ids` their numbers as ``_rowid``, too."""
        with lance_errors(self.title):
            query = self.table.search().select(list(fields)).with_row_id(row_ids)
            if condition:
                query = query.where(condition)
            yield from query.to_batches()

    def taken(
        self, row_ids: Sequence[int] | Int64Array, fields: Sequence[str], rows: int = TAKEN_ROWS
    ) -> Iterator[pa.Table]:
        """Yield the rows with these numbers, in no order: some fields, and the numbers as ``_rowid``.

        Args:
            row_ids: the numbers.
            fields: the names of the fields.
            rows: the most rows that are asked for at a time.
        """
        numbers = np.asarray(row_ids, np.int64)
        for start in range(0, len(numbers), rows):
            with lance_errors(self.title):
                query = self.table.take_row_ids(numbers[start : start + rows].tolist())
                yield query.select(list(fields)).with_row_id().to_arrow()

    def orders(self, column: Any) -> Int64Array:
        """Return the places of rows, the values of `ORDER` ``[rows]``.

        Raises:
            DataError: if some have none, because another program wrote them.
        """
        if column.null_count:
            raise without_place(self.title)
        orders: Int64Array = column.to_numpy()
        return orders

    def cells(self, fields: Sequence[Any], condition: Any = None) -> Iterator[RowCells]:
        """Yield some fields of all rows that meet a condition of `filter_of`, by their numbers."""
        for batch in self.scan([*fields, ORDER], condition or "", row_ids=True):
            columns = [batch[field].to_pylist() for field in fields]
            yield RowCells(self.orders(batch[ORDER]), batch["_rowid"].to_numpy().tolist(), columns)

    def vectors(self, row_ids: Int64Array) -> Iterator[tuple[Int64Array, Vectors]]:
        """Yield the vectors of the rows with some numbers, in no order: their numbers ``[n]`` and ``[n, dim]``."""
        for table in self.taken(row_ids, [VECTORS]):
            yield table["_rowid"].to_numpy().astype(np.int64), _as_matrix(table)

    def vectors_by_hash(self, keys: Sequence[Any]) -> dict[str, AnyArray]:
        """Return the vectors of the rows with some numbers, by their row hashes."""
        found: dict[str, AnyArray] = {}
        for table in self.taken(keys, [HASH, VECTORS]):
            found |= zip(table[HASH].to_pylist(), _as_matrix(table), strict=True)
        return found

    def values_of_ids(self, ids: Sequence[str], columns: Sequence[str]) -> Iterator[list[list[Any]]]:
        """Yield the values of some columns of the rows with these ids."""
        fields = list(map(self.field_of, columns))
        for start in range(0, len(ids), TAKEN_ROWS):
            for batch in self.scan(fields, with_ids(ids[start : start + TAKEN_ROWS])):
                yield [batch[field].to_pylist() for field in fields]

    def nearest(self, vectors: Vectors, k: int, condition: str = "") -> list[FoundRows]:
        """Return the `k` nearest rows of each query ``[queries, dim]``; of equal ones the row that came first is first.

        Args:
            vectors: of the queries.
            k: the number of rows.
            condition: one of `filter_of`.
        """
        size = max(min(REQUEST_QUERIES, REQUEST_HITS // k), 1)
        return best_found(partial(self._asked, condition), vectors, size, k)

    def _asked(self, condition: str, vectors: Vectors, count: int) -> list[FoundRows]:
        """Return at most `count` rows of each query, in order."""
        record = self.record
        with lance_errors(self.title):
            query = self.table.search(list(np.ascontiguousarray(vectors, np.float32)), vector_column_name=VECTORS)
            query = query.distance_type(record.similarity).limit(count).select([ORDER, "_distance"]).with_row_id(True)
            if condition:
                query = query.where(condition, prefilter=True)
            if "ef" in record.efforts:
                query = query.ef(max(record.efforts["ef"], count))  # a graph finds no more rows than it looks at
            if "nprobe" in record.efforts:
                query = query.minimum_nprobes(record.efforts["nprobe"]).maximum_nprobes(0)  # more where too few meet it
            if record.kind in ann.RESCORED:
                query = query.refine_factor(ann.RESCORED[record.kind])
            table = query.to_arrow()
        numbers = np.zeros(len(table), np.int64)
        if "query_index" in table.column_names:  # of one query there is none
            numbers = table["query_index"].to_numpy().astype(np.int64)
        orders = self.orders(table[ORDER])
        row_ids = table["_rowid"].to_numpy().astype(np.int64)
        scores = (1 - table["_distance"].to_numpy()).astype(np.float32)
        return FoundRows.of_queries(numbers, len(vectors), orders, row_ids, scores)


def _as_matrix(table: pa.Table) -> Vectors:
    """Return the vectors in a table ``[rows, dim]``."""
    vectors: Vectors = table[VECTORS].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
    return vectors


def _check_out(table: Any, title: str, version: int) -> None:
    """Let a table stand at one of its versions.

    Raises:
        InputError: which says which there are.
    """
    with lance_errors(title):
        versions = [int(entry["version"]) for entry in table.list_versions()]
    if version not in versions:
        newest = ", ".join(map(str, versions[-NAMED_VERSIONS:]))
        problem = f"{title} has no such version, or --compact has removed it"
        raise InputError(f"--at {version}: {problem}; its {len(versions):,} versions end with {newest}")
    with lance_errors(title):
        table.checkout(version)
