"""Writing a corpus into a collection of Milvus; see `stores.store`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from sentcli.arrays import AnyArray
from sentcli.bounds import one_of
from sentcli.errors import InputError, SentcliError
from sentcli.io.blocks import Block
from sentcli.search.options import DatabaseOptions
from sentcli.search.recall import IndexedSearch
from sentcli.stores.collection_vectors import CollectionSearch
from sentcli.stores.milvus.client import SCHEME, answering, check_milvus, connect, is_file, require_room_in
from sentcli.stores.milvus.collection import BEFORE, BEING_REPLACED, NEXT, MilvusCollection
from sentcli.stores.milvus.corpus import MilvusVectors
from sentcli.stores.milvus.rows import MOST_TEXT_BYTES
from sentcli.stores.milvus.schema import INDEX_TYPES, NOT_IN_A_FILE
from sentcli.stores.record import CollectionRecord
from sentcli.stores.row_places import EMPTY, Places, arranged
from sentcli.stores.staged import ComparedRows


class Milvus:
    """A file of Milvus Lite or a server, and the name of a collection; see `stores.store.Database`."""

    most_id_bytes: int | None = MOST_TEXT_BYTES
    most_text_bytes: int | None = MOST_TEXT_BYTES

    def __init__(self, options: DatabaseOptions, kind: str) -> None:
        self.address = str(options.to)
        if options.collection is None:
            raise InputError(f"--to {self.address} needs --collection NAME")
        self.name = options.collection
        if not re.fullmatch(r"[A-Za-z_]\w{0,239}", self.name, re.ASCII):
            raise InputError(f"--collection {self.name}: at most 240 letters, digits and underscores, no digit first")
        if options.compact:
            raise InputError(f"--compact goes with lance:PLACE; {SCHEME} compacts its collections by itself")
        kinds = list(INDEX_TYPES)
        if is_file(self.address):
            kinds = [known for known in kinds if known not in NOT_IN_A_FILE]
        one_of("--type of a collection", kind, kinds)
        check_milvus(self.address)

    @contextmanager
    def open(
        self, record: CollectionRecord, order: Places, *, overwrite: bool, keeps_before: bool = False
    ) -> Iterator[MilvusStore]:
        """Open a collection to write it; with `overwrite` the old one stays until the new one is whole.

        Raises:
            InputError: if it holds rows of another kind.
        """
        address = self.address
        with connect(address, to_write=True) as client:
            replaces = overwrite and MilvusCollection.is_there(client, address, self.name)
            collection = self._begun(client, record, len(order), replaces=replaces)
            store = MilvusStore(collection, order, replaces=replaces)
            yield store
        if replaces:
            with connect(address) as client:  # opened anew, since Lite goes on with an index that it could not write
                MilvusCollection.open(client, address, store.collection.name).promote(keeps_before=keeps_before)

    @contextmanager
    def compare(self, record: CollectionRecord) -> Iterator[MilvusStore]:
        """Open a collection to compare its rows; nothing is written.

        Raises:
            InputError: if there is none, or it holds rows of another kind.
        """
        with connect(self.address) as client:
            collection = MilvusCollection.open(client, self.address, self.name)
            yield MilvusStore(replace(collection, record=collection.takes(record)), EMPTY, replaces=False)

    @property
    def before(self) -> str:
        """The address and the name of the collection as it was before it was replaced."""
        return f"{self.address} {self.name}{BEFORE}"

    def before_record(self) -> CollectionRecord | None:
        """Return the record of the collection before, if there is one."""
        address, name = self.address, self.name
        with connect(address) as client:
            if not MilvusCollection.is_there(client, address, name):
                return None
            with answering(f"{address} {name}"):
                is_kept = client.has_collection(name + BEFORE)
                if not is_kept and client.has_collection(name + BEING_REPLACED):  # what was going on was killed
                    client.rename_collection(name + BEING_REPLACED, name + BEFORE)
            before = MilvusCollection.find(client, address, name + BEFORE)
        if before is None:
            return None
        return before.record

    def go_back(self) -> None:
        """Exchange the collection with the one before; `before_record` mends what a kill leaves."""
        name = self.name
        with connect(self.address, to_write=True) as client, answering(f"{self.address} {name}"):
            client.rename_collection(name, name + BEING_REPLACED)
            client.rename_collection(name + BEFORE, name)
            client.rename_collection(name + BEING_REPLACED, name + BEFORE)
            client.load_collection(name)

    def drop_before(self) -> None:
        """Delete the collection before."""
        with connect(self.address, to_write=True) as client, answering(self.before):
            client.drop_collection(self.name + BEFORE)

    def _begun(self, client: Any, record: CollectionRecord, rows: int, *, replaces: bool) -> MilvusCollection:
        """Return the collection that rows are written into: the one of that name, or what will replace it.

        Raises:
            InputError: if it holds rows of another kind.
        """
        address, name = self.address, self.name
        if replaces:
            name += NEXT
            collection = self._replacing(client, record.of_collection())
        else:
            collection = MilvusCollection.find(client, address, name)
        if collection is None:
            require_room_in(address, 4 * rows * record.dimension)
            return MilvusCollection.create(client, address, name, record.of_collection(), rows)
        return collection.with_columns(collection.takes(record))

    def _replacing(self, client: Any, record: CollectionRecord) -> MilvusCollection | None:
        """Return what an interrupted run has begun to replace it with; with another record it is deleted."""
        name = self.name + NEXT
        with suppress(SentcliError):  # it is damaged
            collection = MilvusCollection.find(client, self.address, name)
            if collection is None or collection.record.is_as(record):
                return collection
        with answering(f"{self.address} {self.name}"):
            client.drop_collection(name)
        return None


class MilvusStore(ComparedRows):
    """A collection while rows are written into it; see `stores.store.RowStore`."""

    def __init__(self, collection: MilvusCollection, order: Places, *, replaces: bool) -> None:
        super().__init__(collection)
        self.collection = collection
        self.replaces = replaces
        self.places = arranged(order, self.there.places)

    @property
    def title(self) -> str:
        """The address and the name of the collection."""
        return self.collection.title.removesuffix(NEXT)

    def _changing(self) -> MilvusCollection:
        """Return the collection to change it, which answers nothing from now on until all rows are written."""
        if self.collection.record.rows is not None:
            self.collection = self.collection.with_record(rows=None)
        return self.collection

    @property
    def record(self) -> CollectionRecord:
        """What the collection says about itself."""
        return self.collection.record

    def write(self, block: Block, vectors: AnyArray, hashes: Sequence[str]) -> int:
        """Write rows, and return how many of their texts were cut."""
        return self._changing().upsert(block, vectors, hashes, self.places.of_ids(block.ids))

    def count(self) -> int:
        """Return the number of rows."""
        return self.collection.count()

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows."""
        self._changing().delete(ids)

    def publish(self) -> None:
        """Move rows to their places, and wait until all are on disk and in the index; `complete` lets them answer."""
        collection = self.collection
        if collection.in_order and self.there.places.moved(self.places):
            moved = {}
            for batch in collection.known_rows():
                wanted = self.places.of_ids(batch.ids)
                for key, place, place_there in zip(batch.ids, wanted.tolist(), batch.places.tolist(), strict=True):
                    if place != place_there:
                        moved[key] = place
            self._changing().move(moved)
        self.collection.flush()

    def to_measure(self, *, changed: bool) -> IndexedSearch | None:
        """Return the search through the index, if it is not exact and rows have changed or it was not measured."""
        collection = self.collection
        record = collection.record
        if record.kind == "flat" or (record.recall is not None and not changed):
            return None
        return CollectionSearch(collection, MilvusVectors(collection))

    def complete(self, recall: Mapping[str, Any] | None, rows: int) -> None:
        """Write the record, by which the collection is whole."""
        changes: dict[str, Any] = {"rows": rows}
        if recall is not None:
            changes |= self.record.measured(recall)
        self.collection = self.collection.with_record(**changes)
