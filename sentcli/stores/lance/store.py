"""Writing a corpus into a table of LanceDB; see `stores.store`.

Rows that are new or have changed wait in a table beside, `NAME` + `NEXT`, which an interruption leaves and the same
command goes on with. When all are there, one commit brings them into the table: a table that is made anew gets a whole
version, another one a merge, which also deletes. What comes after that commit, the index and its recall, may be missing
without any harm: rows that no index covers are compared exactly.
"""

from __future__ import annotations

import datetime
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.arrays import AnyArray, Int64Array
from sentcli.bounds import one_of
from sentcli.errors import DataError, InputError
from sentcli.io.atomic import locked
from sentcli.io.blocks import Block
from sentcli.search.options import DatabaseOptions
from sentcli.search.recall import IndexedSearch
from sentcli.stores.collection_vectors import CollectionSearch
from sentcli.stores.lance.client import (
    NEXT,
    TABLE,
    all_tables,
    connect,
    is_folder,
    lance_errors,
    library,
    place_of,
    require_room_in,
    writing,
)
from sentcli.stores.lance.corpus import LanceVectors
from sentcli.stores.lance.filter import with_ids
from sentcli.stores.lance.table import INDEX_TYPES, LanceCollection, index_of, schema_of
from sentcli.stores.lance.waiting import WaitingRows
from sentcli.stores.record import FIRST_FORMAT, ID, ORDER, VECTORS, CollectionRecord
from sentcli.stores.row_places import Places, arranged
from sentcli.stores.staged import StagedRows

if TYPE_CHECKING:
    import pyarrow as pa


BEFORE = "before"
"""The tag of the version that a table had before it was made anew for another model."""
KEEPS_ALL = datetime.timedelta(days=36_500)


class Lance:
    """A folder or a bucket, and the name of a table; see `stores.store.Database`."""

    most_id_bytes: int | None = None
    most_text_bytes: int | None = None

    def __init__(self, options: DatabaseOptions, kind: str) -> None:
        self.address = str(options.to)
        self.name = options.collection or TABLE
        self.options = options
        place_of(self.address)
        if not re.fullmatch(r"\w[\w.-]{0,199}", self.name, re.ASCII) or self.name.endswith(NEXT):
            raise InputError(f"--collection {self.name}: at most 200 letters, digits, and _ - . behind the first sign")
        one_of("--type of a collection", kind, list(INDEX_TYPES))
        library()

    @contextmanager
    def open(
        self, record: CollectionRecord, order: Places, *, overwrite: bool, keeps_before: bool = False
    ) -> Iterator[LanceStore]:
        """Open a table to write it; its readers see the old version until `LanceStore.publish`.

        Raises:
            InputError: if it holds rows of another kind, or another process writes it.
        """
        address, name = self.address, self.name
        title = f"{address} {name}"
        database = connect(address, to_write=True)
        with self._held():
            try:
                old = LanceCollection.find(database, address, name)
            except DataError:
                if not overwrite:
                    raise
                old = None
            of_table = record.of_collection()
            if old is not None and not overwrite:
                of_table = old.record.takes(record, title)
            index = index_of(of_table, len(order))
            require_room_in(address, 2 * 4 * len(order) * record.dimension)  # the rows wait beside the table
            store = LanceStore(self, database, of_table, old, order, index, overwrite=overwrite)
            store.keeps_before = keeps_before
            yield store

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the table of a folder inside the block.

        Raises:
            InputError: if another process writes it.
        """
        if not is_folder(self.address):
            yield
            return
        lock = Path(place_of(self.address)) / f".{self.name}.sentcli-lock"
        title = f"{self.address} {self.name}"
        with locked(lock, f"{title} is being written by another process: wait until it has ended"):
            yield

    @contextmanager
    def compare(self, record: CollectionRecord) -> Iterator[LanceRows]:
        """Open a table to compare its rows; nothing is written.

        Raises:
            InputError: if there is none, or it holds rows of another kind.
        """
        collection = LanceCollection.open(self.address, self.name)
        taken = collection.record.takes(record, collection.title)
        yield LanceRows(collection.title, collection, taken)

    @property
    def before(self) -> str:
        """The tag of the version before the table was made anew."""
        return f"{self.address} {self.name}, tag {BEFORE}"

    def before_record(self) -> CollectionRecord | None:
        """Return the record of the version before, if there is one."""
        table = LanceCollection.open(self.address, self.name).table
        with lance_errors(self.before):
            if BEFORE not in table.tags.list():
                return None
            table.checkout(BEFORE)
        return LanceCollection.of(table, self.address, self.name).record

    def go_back(self) -> None:
        """Make the version before the newest one, and the newest one the one before."""
        with self._held(), writing(f"{self.address} {self.name}"):
            table = connect(self.address, to_write=True).open_table(self.name)
            left = int(table.version)
            table.checkout(BEFORE)
            table.restore()
            table.tags.update(BEFORE, left)

    def drop_before(self) -> None:
        """Let the version before go; ``--compact`` removes it when it is old enough."""
        with self._held(), writing(f"{self.address} {self.name}"):
            connect(self.address, to_write=True).open_table(self.name).tags.delete(BEFORE)


class LanceRows(StagedRows):
    """The rows of a table; see `stores.store.RowsThere`.

    Args:
        title: the address and the name of the table.
        collection: the table; None if none of its rows stays.
        record: of the table, with the columns that rows bring into it.
    """

    def __init__(self, title: str, collection: LanceCollection | None, record: CollectionRecord) -> None:
        super().__init__(collection)
        self.title, self.collection, self.record = title, collection, record

    def ids(self) -> Iterator[Sequence[str]]:
        """Yield the ids of the rows, some at a time."""
        if self.collection is not None:
            for batch in self.collection.scan([ID]):
                yield batch[ID].to_pylist()


class LanceStore(LanceRows):
    """A table while rows are written into it; see `stores.store.RowStore`.

    Args:
        place: the table and the options with which it is written.
        database: of LanceDB.
        record: what the table will say about itself.
        old: the table as it is; None if there is none, or it cannot be read.
        order: the numbers of the rows of the corpus.
        index: what LanceDB builds over the vectors; None for exact search.
        overwrite: make the table anew.
    """

    def __init__(
        self,
        place: Lance,
        database: Any,
        record: CollectionRecord,
        old: LanceCollection | None,
        order: Places,
        index: Any,
        *,
        overwrite: bool,
    ) -> None:
        super().__init__(f"{place.address} {place.name}", None if overwrite else old, record)
        self.place, self.database, self.index = place, database, index
        self.replaces = overwrite
        self.keeps_before = False
        """Whether the version that is replaced gets the tag `BEFORE`."""
        self.old = old
        self.waiting = WaitingRows(database, place.address, place.name, record)
        self.waiting_pairs = self.waiting.pairs
        may_move = record.format != FIRST_FORMAT  # whose places have no room between them
        self.places = arranged(order, self.there.places, may_move=may_move)

    def write(self, block: Block, vectors: AnyArray, hashes: Sequence[str]) -> int:
        """Let rows wait; no text is cut."""
        self.waiting.add(block, vectors, hashes)
        return 0

    def publish(self) -> None:
        """Bring the rows that wait into the table in one commit, and index and compact it if that is asked for.

        Raises:
            InputError: if another process has written the table meanwhile.
        """
        changed = self.changed()
        self.waiting.check_there(changed)
        self._check_unchanged()
        if self.collection is None:
            self.collection = self._made(changed)
        elif len(changed) or self.gone:
            self.collection = self._merged(self.collection, changed)
        if self.there.places.moved(self.places):
            self.collection = self._moved(self.collection)
        self.waiting.drop()
        if self.index is not None and not self._has_index():
            self._build_index()
        if self.place.options.compact:
            self._compact()

    def _check_unchanged(self) -> None:
        """Refuse to write a table that has another version than when its rows were compared.

        Raises:
            InputError: if it has.
        """
        if self.old is None:
            return
        with lance_errors(self.title):
            newest = int(self.database.open_table(self.place.name).version)
        if newest != self.old.version:
            raise InputError(
                f"{self.title} was written by another process meanwhile (version {newest}, not {self.old.version}): "
                "the same command again compares its rows anew; what was encoded is kept"
            )

    def _made(self, changed: Int64Array) -> LanceCollection:
        """Make the table, or a new version of it that has nothing of the old one."""
        name = self.place.name
        schema = schema_of(self.record)
        rows = self.waiting.rows(changed, schema, self.places)
        with writing(self.title):
            if self.replaces and self.old is None and name in all_tables(self.database):
                self.database.drop_table(name)  # it cannot be read
            if self.keeps_before and self.old is not None:
                self._tag(self.old)
            mode = "overwrite" if self.old is not None else "create"
            table = self.database.create_table(name, _reader(schema, rows), mode=mode)
        return LanceCollection.of(table, self.place.address, name)

    def _tag(self, old: LanceCollection) -> None:
        """Give the version that is replaced the tag `BEFORE`."""
        tags = old.table.tags
        if BEFORE in tags.list():
            tags.update(BEFORE, old.version)
        else:
            tags.create(BEFORE, old.version)

    def _merged(self, collection: LanceCollection, changed: Int64Array) -> LanceCollection:
        """Bring changed rows into a table and delete those that are gone, in one commit."""
        table = collection.with_columns(self.record).table
        schema = table.schema
        merge = table.merge_insert(ID).when_matched_update_all().when_not_matched_insert_all()
        if self.gone:
            merge = merge.when_not_matched_by_source_delete(with_ids(self.gone))
        rows = self.waiting.rows(changed, schema, self.places)
        with writing(self.title):
            merge.execute(_reader(schema, rows))
        return LanceCollection.of(table, self.place.address, self.place.name)

    def _moved(self, collection: LanceCollection) -> LanceCollection:
        """Give rows of a table their places, of which another version may have others until then."""
        import pyarrow as pa

        ids: list[str] = []
        places = [np.empty(0, np.int64)]
        for batch in collection.scan([ID, ORDER]):
            keys = batch[ID].to_pylist()
            wanted = self.places.of_ids(keys)
            is_moved = wanted != collection.orders(batch[ORDER])
            ids += compress(keys, is_moved)
            places.append(wanted[is_moved])
        if not ids:
            return collection
        moved = pa.table({ID: pa.array(ids, pa.string()), ORDER: pa.array(np.concatenate(places))})
        with writing(self.title):
            collection.table.merge_insert(ID).when_matched_update_all().execute(moved)
        return LanceCollection.of(collection.table, self.place.address, self.place.name)

    def _has_index(self) -> bool:
        assert self.collection is not None
        with lance_errors(self.title):
            return any(VECTORS in index.columns for index in self.collection.table.list_indices())

    def _build_index(self) -> None:
        """Build an index over all rows, whose recall is measured afterwards."""
        assert self.collection is not None
        with console.working(f"indexing ({self.record.kind})") as step, writing(self.title):
            step(f"{self.collection.count():,} rows")
            self.collection.table.create_index(VECTORS, config=self.index, replace=True)
        self.collection = replace(self.collection, record=replace(self.record, recall=None, efforts={}))

    def _compact(self) -> None:
        """Compact the files, bring rows into the index, and remove old versions."""
        assert self.collection is not None
        age = datetime.timedelta(days=self.place.options.keep_days)
        with console.working("compacting") as step, writing(self.title):
            step(self.title)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what the help of --keep-days says
                self._optimize(self.collection.table, age)
        if self.index is not None:
            self.collection = replace(self.collection, record=replace(self.record, recall=None))

    def _optimize(self, table: Any, age: datetime.timedelta) -> None:
        """Compact a table, and remove versions that are older; one with a tag stays, which LanceDB itself refuses."""
        if not table.tags.list():
            table.optimize(cleanup_older_than=age)
            return
        table.optimize(cleanup_older_than=KEEPS_ALL)
        table.to_lance().cleanup_old_versions(older_than=age, error_if_tagged_old_versions=False)

    def to_measure(self, *, changed: bool) -> IndexedSearch | None:
        """Return the search through the index, if it was built or has got rows; others are compared exactly."""
        collection = self.collection
        assert collection is not None
        self.record = collection.record
        if self.index is None or self.record.recall is not None:
            return None
        return CollectionSearch(collection, LanceVectors(collection))

    def complete(self, recall: Mapping[str, Any] | None, rows: int) -> None:
        """Write into the record what was measured; the number of rows stands in every version."""
        assert self.collection is not None
        if recall is not None:
            self.collection = self.collection.with_record(**self.record.measured(recall))
            self.record = self.collection.record

    def facts(self) -> dict[str, Any]:
        """Return the version that the rows now have."""
        assert self.collection is not None
        return {"version": self.collection.version}


def _reader(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(schema, batches)
