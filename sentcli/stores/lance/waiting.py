"""The rows that will come into a table of LanceDB, in a table beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import AnyArray, Int64Array
from sentcli.errors import InputError
from sentcli.io.blocks import Block
from sentcli.io.writers import arrow_column
from sentcli.stores.known_rows import KnownRows, pair_hashes, within
from sentcli.stores.lance.client import NEXT, all_tables, lance_errors, writing
from sentcli.stores.lance.table import LanceCollection, schema_of
from sentcli.stores.record import HASH, ID, ORDER, TEXTS, VECTORS, CollectionRecord
from sentcli.stores.row_places import Places

if TYPE_CHECKING:
    import pyarrow as pa


class WaitingRows:
    """The rows that will come into a table, in a table beside it.

    Args:
        database: of LanceDB.
        address: of the database, for messages.
        name: of the table that they will come into.
        record: of that table; rows that wait for a table with another one are dropped.
    """

    def __init__(self, database: Any, address: str, name: str, record: CollectionRecord) -> None:
        self.database, self.name, self.title = database, name + NEXT, f"{address} {name}"
        self.record = record
        self.schema = schema_of(record)
        self.pairs = np.empty(0, np.int64)
        """The `pair_hashes` of those that an earlier command left, sorted."""
        self.table: Any = None
        try:
            earlier = None
            with lance_errors(self.title):
                if self.name in all_tables(database):
                    earlier = LanceCollection.of(database.open_table(self.name), address, self.name)
            if earlier is not None and earlier.record.is_as(record):
                self.pairs = KnownRows(earlier.known_rows()).pairs
                self.table = earlier.table
                return
        except InputError:  # it is damaged
            pass
        self.drop()

    def add(self, block: Block, vectors: AnyArray, hashes: Sequence[str]) -> None:
        """Append rows in one commit.

        Raises:
            InputError: for a vector that has no direction, or if another process has appended rows, too.
        """
        table = self._arrow(block, vectors, hashes)
        with writing(self.title):
            if self.table is None:
                self.table = self.database.create_table(self.name, schema=self.schema)
            expected = int(self.table.version) + 1
            version = int(self.table.add(table).version)
        if version != expected:
            raise InputError(f"{self.title} is being written by another process: wait until it has ended")

    def _arrow(self, block: Block, vectors: AnyArray, hashes: Sequence[str]) -> pa.Table:
        """Return rows as LanceDB takes them, NaN being a missing value; their order comes with the commit."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wide = np.ascontiguousarray(vectors, np.float32)
        if self.record.similarity == "cosine":
            without = np.flatnonzero(~wide.any(axis=1))
            if len(without):
                raise InputError(
                    f"the vector of {block.ids[without[0]]!r:.60} is zero, which has no cosine in LanceDB: leave the "
                    "row out, or take --similarity dot"
                )
        flat = pa.array(wide.ravel())
        arrays = {
            ID: pa.array(block.ids, pa.string()),
            TEXTS: pa.array(block.texts, pa.string()),
            VECTORS: pa.FixedSizeListArray.from_arrays(flat, self.record.dimension),
            HASH: pa.array(hashes, pa.string()),
            ORDER: pa.array(np.zeros(len(block), np.int64)),
        }
        for name, (field, kind) in self.record.columns.items():
            column = arrow_column(block.columns[name], self.schema.field(field).type)
            if kind == "float":
                column = pc.if_else(pc.is_nan(column), None, column)
            arrays[field] = column
        return pa.table(arrays, schema=self.schema)

    def check_there(self, changed: Int64Array) -> None:
        """Check that the rows of the corpus wait, given by their sorted `pair_hashes`.

        Raises:
            InputError: if some do not, because another process has taken them.
        """
        there = [np.empty(0, np.int64)]
        for batch in self._scan([ID, HASH]):
            there.append(pair_hashes(batch[ID].to_pylist(), batch[HASH].to_pylist()))
        if not np.isin(changed, np.concatenate(there)).all():
            raise InputError(f"{self.title} was written by another process meanwhile: the same command again goes on")

    def rows(self, changed: Int64Array, schema: pa.Schema, places: Places) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are in the corpus, as the table takes them.

        Args:
            changed: their `pair_hashes`, sorted.
            schema: of the table.
            places: of the rows of the corpus.
        """
        import pyarrow as pa

        is_taken = np.zeros(len(changed), np.bool_)  # two processes may have encoded a row
        for batch in self._scan(schema.names):
            pairs = pair_hashes(batch[ID].to_pylist(), batch[HASH].to_pylist())
            _, first_rows = np.unique(pairs, return_index=True)
            is_chosen = np.zeros(len(pairs), np.bool_)
            is_chosen[first_rows] = True
            is_chosen &= within(pairs, changed)
            is_chosen[is_chosen] = ~is_taken[np.searchsorted(changed, pairs[is_chosen])]
            is_taken[np.searchsorted(changed, pairs[is_chosen])] = True
            chosen = batch.filter(pa.array(is_chosen))
            arrays = {name: chosen[name] for name in schema.names}
            arrays[ORDER] = pa.array(places.of_ids(chosen[ID].to_pylist()))
            yield pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)

    def _scan(self, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self.table is not None:
            with lance_errors(self.title):
                yield from self.table.search().select(list(fields)).to_batches()

    def drop(self) -> None:
        """Delete the table, whose rows are in their place or of no use."""
        with writing(self.title):
            if self.name in all_tables(self.database):
                self.database.drop_table(self.name)
        self.table = None
