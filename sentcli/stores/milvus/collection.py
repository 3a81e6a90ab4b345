"""Collections of Milvus: rows are written, counted and found.

A collection has the fields ``id``, ``text``, ``embedding``, one for each column, `HASH`, and `ORDER`, by which rows of
equal similarity are ordered as they came. How its vectors were made stands in its property `RECORD_PROPERTY`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from sentcli.arrays import AnyArray, Int64Array, Vectors
from sentcli.errors import InputError
from sentcli.io.blocks import Block
from sentcli.stores.collection_corpus import FoundRows, best_found
from sentcli.stores.database_collection import DatabaseCollection, RowCells
from sentcli.stores.milvus.client import answering, clear_half_made, is_file
from sentcli.stores.milvus.rows import after_id, rows_of_size, shortened, stored_value, value_of, with_ids
from sentcli.stores.milvus.schema import field_of, indexes_of, schema_of
from sentcli.stores.record import (
    FIRST_FORMAT,
    HASH,
    ID,
    ORDER,
    TEXTS,
    VECTORS,
    CollectionRecord,
    no_collection,
    not_made_here,
    without_place,
)

NEXT = "_sentcli_next"
BEING_REPLACED = "_sentcli_old"
BEFORE = "_before"
"""The ends of the names of what will replace a collection, of the one that is being replaced, and of one that is kept
as it was before it was."""
RECORD_PROPERTY = "sentcli"
"""The property of a collection that holds its `CollectionRecord`, as JSON."""
REQUEST_ROWS = 500
"""How many rows are sent or asked for at a time: some MB."""
MOST_ANSWER_ROWS = 16_384
"""The most rows that Milvus returns for one query."""
REQUEST_BYTES = 2**21
"""About how much is asked for at a time where the size of the rows is known: each query of Milvus Lite takes 0.1 s."""


@dataclass(frozen=True)
class MilvusCollection(DatabaseCollection):
    """A collection that is there."""

    client: Any
    name: str
    address: str
    record: CollectionRecord
    places: dict[str, int] = field(default_factory=dict)
    """A place for each id that was met, of a collection of `FIRST_FORMAT`, which keeps none."""

    version: None = None
    """Milvus keeps no versions."""

    @property
    def title(self) -> str:
        """The address and the name, for messages."""
        return f"{self.address} {self.name}"

    @classmethod
    def find(cls, client: Any, address: str, name: str) -> MilvusCollection | None:
        """Return a collection, which may be unfinished, or None if there is none of that name.

        Raises:
            InputError: if sentcli has not made it, or its record is damaged.
        """
        title = f"{address} {name}"
        if not cls.is_there(client, address, name):
            return None
        with answering(title):
            properties = client.describe_collection(name)["properties"]
            record = CollectionRecord.read(properties[RECORD_PROPERTY], title)
            if record.rows is None:
                clear_half_made(address, name)
            client.load_collection(name)
        return cls(client, name, address, record)

    @staticmethod
    def is_there(client: Any, address: str, name: str) -> bool:
        """Whether there is a collection of that name; one that lost it to a kill inside `promote` gets it back.

        Raises:
            InputError: if sentcli has not made it.
        """
        title = f"{address} {name}"
        with answering(title):
            if not client.has_collection(name):
                old = name + BEING_REPLACED
                if not client.has_collection(old):
                    return False
                client.rename_collection(old, name)
            description = client.describe_collection(name)
            if RECORD_PROPERTY not in description.get("properties", {}):
                raise not_made_here(title)
        return True

    def promote(self, *, keeps_before: bool = False) -> MilvusCollection:
        """Put a finished collection, whose name ends in `NEXT`, in the place of the one that it replaces."""
        client = self.client
        name = self.name.removesuffix(NEXT)
        old = name + BEING_REPLACED
        with answering(self.title):
            if client.has_collection(old):
                client.drop_collection(old)
            client.rename_collection(name, old)
            client.rename_collection(self.name, name)
            client.load_collection(name)
            if keeps_before:
                client.rename_collection(old, name + BEFORE)
            else:
                client.drop_collection(old)
        return replace(self, name=name)

    @classmethod
    def open(cls, client: Any, address: str, name: str) -> MilvusCollection:
        """Return a collection that is whole.

        Raises:
            InputError: as for `find`, or if there is none of that name, or it does not have the rows of its record.
        """
        collection = cls.find(client, address, name)
        if collection is None:
            with answering(address):
                names = sorted(client.list_collections())
            raise no_collection(address, name, names)
        rows = collection.count()
        whole = collection.record.rows
        if rows != whole:
            number = "an unknown number"
            if whole is not None:
                number = f"{whole:,}"
            command = f"sentcli index CORPUS --to {address} --collection {name}"
            raise InputError(
                f"{collection.title} is unfinished or damaged: it has {rows:,} rows of {number}; the command that made "
                f"it, {command}, writes what is missing"
            )
        return collection

    @classmethod
    def create(cls, client: Any, address: str, name: str, record: CollectionRecord, rows: int) -> MilvusCollection:
        """Make an empty collection.

        Args:
            client: from `connect`.
            address: its address.
            name: letters, digits and underscores.
            record: what the collection will say about itself.
            rows: about how many rows it will have, which decides the number of clusters.
        """
        clear_half_made(address, name)
        schema = schema_of(client, record)
        indexes = indexes_of(client, record, rows)
        properties = {RECORD_PROPERTY: record.to_json()}
        with answering(f"{address} {name}"):
            client.create_collection(
                name, schema=schema, index_params=indexes, properties=properties, consistency_level="Strong"
            )
        return cls(client, name, address, record)

    def with_record(self, **changes: Any) -> MilvusCollection:
        """Write changes of the record, and return the collection with them."""
        record = replace(self.record, **changes)
        with answering(self.title):
            self.client.alter_collection_properties(self.name, properties={RECORD_PROPERTY: record.to_json()})
        return replace(self, record=record)

    def count(self, condition: str = "") -> int:
        """Return the number of rows that meet a condition of `filter_of`."""
        with answering(self.title):
            answer = self.client.query(self.name, filter=condition, output_fields=["count(*)"])
        return int(answer[0]["count(*)"])

    @property
    def in_order(self) -> bool:
        """Whether it keeps the places of its rows."""
        return self.record.format != FIRST_FORMAT

    @property
    def place_fields(self) -> list[str]:
        """The fields that `places_of` needs besides the id."""
        if self.in_order:
            return [ORDER]
        return []

    def places_of(self, rows: Sequence[Mapping[str, Any]]) -> Int64Array:
        """Return the places of rows ``[rows]``.

        Raises:
            DataError: if one has none, because another program wrote it.
        """
        places = []
        for row in rows:
            place = row.get(ORDER)
            if not self.in_order:
                place = self.places.setdefault(row[ID], len(self.places))
            if not isinstance(place, int):
                raise without_place(self.title)
            places.append(place)
        return np.array(places, np.int64)

    def cells(self, fields: Sequence[Any], condition: Any = None) -> Iterator[RowCells]:
        """Yield some fields of all rows that meet a condition of `filter_of`, by their ids."""
        for batch in self.rows([*fields, *self.place_fields], condition or ""):
            columns = []
            for field_name in fields:
                columns.append([row.get(field_name) for row in batch])
            yield RowCells(self.places_of(batch), list(map(itemgetter(ID), batch)), columns)

    def values_of(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[list[Any]]:
        """Return the values of some columns of rows ``[columns, rows]``."""
        values = []
        for column in columns:
            field_name, kind = self.record.field_of(column)
            values.append([value_of(row.get(field_name), kind) for row in rows])
        return values

    def values_of_ids(self, ids: Sequence[str], columns: Sequence[str]) -> Iterator[list[list[Any]]]:
        """Yield the values of some columns of the rows with these ids."""
        for rows in self.of_ids(ids, list(map(self.field_of, columns))):
            yield self.values_of(rows, columns)

    def vectors_by_hash(self, keys: Sequence[Any]) -> dict[str, AnyArray]:
        """Return the vectors of the rows with some ids, by their row hashes."""
        found: dict[str, AnyArray] = {}
        for rows in self.of_ids(keys, [HASH, VECTORS]):
            for row in rows:
                found[row[HASH]] = np.array(row[VECTORS], np.float32)
        return found

    def takes(self, record: CollectionRecord) -> CollectionRecord:
        """Return the record of the collection with the columns that rows bring into it.

        Raises:
            InputError: if the collection cannot take the rows.
        """
        taken = self.record.takes(record, self.title)
        new = taken.columns.keys() - self.record.columns.keys()
        if new and is_file(self.address):
            listed = ", ".join(f"{name} ({taken.columns[name][1]})" for name in sorted(new))
            problem = f"it has no column {listed}, and Milvus in a file takes no new ones"
            raise InputError(f"{self.title}: {problem}; --overwrite makes it anew")
        return taken

    def with_columns(self, record: CollectionRecord) -> MilvusCollection:
        """Add the columns that a record has besides, without values, and return the collection with that record."""
        if record.columns == self.record.columns:
            return self
        for name, (field_name, kind) in record.columns.items():
            if name not in self.record.columns:
                options = field_of(kind)
                with answering(self.title):
                    self.client.add_collection_field(self.name, field_name, options.pop("datatype"), **options)
        return self.with_record(columns=record.columns)

    def upsert(self, block: Block, vectors: AnyArray, hashes: Sequence[str], places: Int64Array) -> int:
        """Write rows, which replace those with the same ids.

        Args:
            block: the rows.
            vectors: their vectors ``[rows, dim]``.
            hashes: their `record.content_hashes`.
            places: their places ``[rows]``.

        Returns:
            How many of the texts were cut, because Milvus takes `MOST_TEXT_BYTES` bytes.
        """
        cut = 0
        rows = []
        wide: Vectors = np.ascontiguousarray(vectors, np.float32)
        for i, whole in enumerate(block.texts):
            text = shortened(whole)
            cut += text != whole
            row = {ID: block.ids[i], TEXTS: text, VECTORS: wide[i], HASH: hashes[i]}
            if self.in_order:
                row[ORDER] = int(places[i])
            for name, (field_name, kind) in self.record.columns.items():
                row[field_name] = stored_value(block.columns[name][i], kind)
            rows.append(row)
        self._send(rows)
        return cut

    def move(self, places: Mapping[str, int]) -> None:
        """Give rows other places, which Milvus writes anew for that."""
        fields = [TEXTS, VECTORS, HASH, *(name for name, _ in self.record.columns.values())]
        for rows in self.of_ids(list(places), fields):
            self._send([{**row, ORDER: places[row[ID]]} for row in rows])

    def _send(self, rows: Sequence[dict[str, Any]]) -> None:
        for start in range(0, len(rows), REQUEST_ROWS):
            with answering(self.title):
                self.client.upsert(self.name, list(rows[start : start + REQUEST_ROWS]))

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows."""
        for start in range(0, len(ids), REQUEST_ROWS):
            with answering(self.title):
                chosen = with_ids(ids[start : start + REQUEST_ROWS])
                self.client.delete(self.name, filter=chosen)

    def rows(self, fields: Sequence[str], condition: str = "") -> Iterator[list[dict[str, Any]]]:
        """Yield some fields of all rows that meet a condition in the order of their ids, about 2 MB at a time.

        The client's own iterator writes the last id into its filter as it is, so that a quote or the end of a line in
        an id breaks it.
        """
        asked = list(dict.fromkeys([ID, *fields]))
        remaining = condition
        limit = REQUEST_ROWS
        while True:
            with answering(self.title):
                answer = self.client.query(
                    self.name,
                    filter=remaining,
                    output_fields=asked,
                    limit=limit,
                    iterator="True",
                    reduce_stop_for_best=True,
                )
                batch = list(answer)
            if not batch:
                return
            yield batch
            limit = rows_of_size(REQUEST_BYTES, batch, REQUEST_ROWS, MOST_ANSWER_ROWS)
            remaining = after_id(batch[-1][ID])
            if condition:
                remaining += f" and ({condition})"

    def nearest(self, vectors: Vectors, k: int, condition: str = "") -> list[FoundRows]:
        """Return the `k` nearest rows of each query ``[queries, dim]``; of equal ones the row that came first is first.

        Args:
            vectors: of the queries.
            k: the number of rows.
            condition: one of `filter_of`.
        """
        return best_found(partial(self._asked, condition), vectors, REQUEST_ROWS, k, MOST_ANSWER_ROWS)

    def _asked(self, condition: str, vectors: Vectors, count: int) -> list[FoundRows]:
        """Return at most `count` rows of each query, in order."""
        efforts = dict(self.record.efforts)
        if "ef" in efforts:
            efforts["ef"] = max(efforts["ef"], count)  # a graph finds no more rows than it looks at
        with answering(self.title):
            answer = self.client.search(
                self.name,
                list(vectors),
                anns_field=VECTORS,
                limit=count,
                filter=condition,
                output_fields=[ID, *self.place_fields],
                search_params={"params": efforts},
            )
        lists = []
        for hits in answer:
            rows = list(map(itemgetter("entity"), hits))
            scores = np.array(list(map(itemgetter("distance"), hits)), np.float32)
            keys = np.array(list(map(itemgetter(ID), rows)), object)
            lists.append(FoundRows.ranked(self.places_of(rows), keys, scores))
        return lists

    def of_ids(self, ids: Sequence[str], fields: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        """Yield some fields of the rows with these ids that are there, some rows at a time."""
        asked = list(dict.fromkeys([ID, *fields]))
        for start in range(0, len(ids), REQUEST_ROWS):
            with answering(self.title):
                chosen = with_ids(ids[start : start + REQUEST_ROWS])
                rows = list(self.client.query(self.name, filter=chosen, output_fields=asked))
            yield rows

    def flush(self) -> None:
        """Wait until all rows are on disk and in the index."""
        with answering(self.title):
            self.client.flush(self.name)
            self.client.load_collection(self.name)
