"""Collections of LanceDB: a version of a table is read, counted and searched.

A table has the fields ``id``, ``text``, ``embedding``, one for each column, `HASH` and `ORDER`, by which rows of equal
similarity are ordered as they came. How its vectors were made stands in the metadata of ``embedding``, so that each
version has its own record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import Int64Array, Vectors
from sentcli.errors import DataError, InputError
from sentcli.io.column_types import types
from sentcli.search.ann import RESCORED
from sentcli.search.provenance import Provenance
from sentcli.search.rows import Document
from sentcli.stores.collection_corpus import FoundRows, best_found
from sentcli.stores.known_rows import RowBatch
from sentcli.stores.lance.client import chosen_table, connect, lance_errors, opened_table, table_names, writing
from sentcli.stores.lance.filter import with_ids
from sentcli.stores.record import HASH, ID, ORDER, TEXTS, VECTORS, CollectionRecord, texts_of_rows, without_place
from sentcli.stores.store import REQUEST_HITS, REQUEST_QUERIES

if TYPE_CHECKING:
    import pyarrow as pa

RECORD_KEY = "sentcli"
"""The key of the metadata of the vectors that holds the `CollectionRecord`, as JSON."""
TAKEN_ROWS = 1000
"""How many rows are asked for by their ids at a time."""
NAMED_VERSIONS = 10
"""How many of the newest versions an error names."""


def schema_of(record: CollectionRecord) -> pa.Schema:
    """Return the fields of a table, with its record."""
    import pyarrow as pa

    text = pa.string()
    vector = pa.list_(pa.float32(), record.dimension)
    metadata = {RECORD_KEY: json.dumps(asdict(record), ensure_ascii=False)}
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


@dataclass(frozen=True)
class LanceCollection:
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
            raise InputError(f"{title} was not made by sentcli index; choose another --collection")
        record = CollectionRecord.read(metadata[RECORD_KEY.encode()].decode("utf-8", "replace"), title)
        there = {field.name: field.type for field in schema}
        for field in schema_of(record):
            if there.get(field.name) != field.type:
                raise DataError(title, f"its field {field.name} is not {field.type}, as its record says")
        return cls(table, name, address, record)

    @cached_property
    def origin(self) -> Provenance:
        """What the record says about how the vectors were made."""
        return Provenance.named(self.title, self.record.settings)

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
        text = json.dumps(asdict(record), ensure_ascii=False)
        with writing(self.title):
            self.table.update_field_metadata({"path": VECTORS, "metadata": {RECORD_KEY: text}})
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

    def table_of(self, row_ids: list[int], fields: Sequence[str]) -> pa.Table:
        """Return some fields of the rows with these numbers, in no order."""
        with lance_errors(self.title):
            return self.table.take_row_ids(row_ids).select(list(fields)).to_arrow()

    def taken(self, row_ids: Sequence[int], fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield some fields of the rows with these numbers, in no order."""
        for start in range(0, len(row_ids), TAKEN_ROWS):
            with lance_errors(self.title):
                query = self.table.take_row_ids(list(row_ids[start : start + TAKEN_ROWS]))
                yield from query.select(list(fields)).to_arrow().to_pylist()

    def orders(self, column: Any) -> Int64Array:
        """Return the places of rows, the values of `ORDER` ``[rows]``.

        Raises:
            DataError: if some have none, because another program wrote them.
        """
        if column.null_count:
            raise without_place(self.title)
        orders: Int64Array = column.to_numpy()
        return orders

    def known_rows(self) -> Iterator[RowBatch]:
        """Yield the ids, the hashes, the places and the numbers of all rows, some at a time."""
        for batch in self.scan([ID, HASH, ORDER], row_ids=True):
            ids, hashes = batch[ID].to_pylist(), batch[HASH].to_pylist()
            yield RowBatch(ids, hashes, self.orders(batch[ORDER]), batch["_rowid"].to_pylist())

    def vectors(self, row_ids: Int64Array) -> Iterator[tuple[Int64Array, Vectors]]:
        """Yield the vectors of the rows with some numbers, in no order: their numbers ``[n]`` and ``[n, dim]``."""
        for start in range(0, len(row_ids), TAKEN_ROWS):
            with lance_errors(self.title):
                query = self.table.take_row_ids(row_ids[start : start + TAKEN_ROWS].tolist())
                table = query.select([VECTORS]).with_row_id().to_arrow()
            numbers = table["_rowid"].to_numpy().astype(np.int64)
            flat = table[VECTORS].combine_chunks().flatten().to_numpy()
            yield numbers, flat.reshape(len(numbers), -1)

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return rows by their ids, of those that are there."""
        documents = {}
        for start in range(0, len(ids), TAKEN_ROWS):
            condition = with_ids(ids[start : start + TAKEN_ROWS])
            for batch in self.scan(self.fields, condition):
                for row in batch.to_pylist():
                    documents[row[ID]] = self.document(row)
        return documents

    @property
    def fields(self) -> list[str]:
        """The fields of a document."""
        return [ID, TEXTS, *(field for field, _ in self.record.columns.values())]

    def document(self, row: dict[str, Any]) -> Document:
        """Return a row with its columns by the names that the corpus gave them."""
        columns = {name: row[field] for name, (field, _) in self.record.columns.items()}
        (text,) = texts_of_rows(self.title, [row[ID]], [row[TEXTS]])
        return Document(row[ID], text, columns)

    def nearest(self, vectors: Vectors, k: int, condition: str = "") -> list[FoundRows]:
        """Return the `k` nearest rows of each query ``[queries, dim]``; of equal ones the row that came first is first.

        Args:
            vectors: of the queries.
            k: the number of rows.
            condition: one of `filter_of`.
        """
        found = []
        size = max(min(REQUEST_QUERIES, REQUEST_HITS // k), 1)
        for start in range(0, len(vectors), size):
            ask = partial(self._asked, vectors[start : start + size], condition)
            found += best_found(ask, k)
        return found

    def _asked(self, vectors: Vectors, condition: str, count: int) -> list[FoundRows]:
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
            if record.kind in RESCORED:
                query = query.refine_factor(RESCORED[record.kind])
            table = query.to_arrow()
        numbers = np.zeros(len(table), np.int64)
        if "query_index" in table.column_names:  # of one query there is none
            numbers = table["query_index"].to_numpy().astype(np.int64)
        orders = self.orders(table[ORDER])
        row_ids = table["_rowid"].to_numpy().astype(np.int64)
        scores = (1 - table["_distance"].to_numpy()).astype(np.float32)
        by_query = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[by_query], np.arange(len(vectors) + 1))
        lists = []
        for first, last in pairwise(ends):
            part = by_query[first:last]
            lists.append(FoundRows.ranked(orders[part], row_ids[part], scores[part]))
        return lists


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
