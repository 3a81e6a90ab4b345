"""Collections of Milvus: rows are written, counted and found.

A collection has the fields ``id``, ``text``, ``embedding``, one for each column, `HASH`, and `ORDER`, by which rows of
equal similarity are ordered as they came. How its vectors were made stands in its property `RECORD_PROPERTY`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

import numpy as np

from sentcli.arrays import AnyArray, Int64Array, Vectors
from sentcli.errors import InputError, SentcliError, nearest
from sentcli.io.blocks import Block
from sentcli.io.column_types import TEXT
from sentcli.search.provenance import Provenance
from sentcli.search.rows import Document, by_frequency
from sentcli.stores.collection_corpus import FoundRows, best_found
from sentcli.stores.known_rows import RowBatch
from sentcli.stores.milvus.client import answering, clear_half_made, is_file
from sentcli.stores.milvus.rows import after_id, shortened, stored_value, value_of, with_ids
from sentcli.stores.milvus.schema import field_of, indexes_of, schema_of
from sentcli.stores.record import (
    FIRST_FORMAT,
    HASH,
    ID,
    ORDER,
    TEXTS,
    VECTORS,
    CollectionRecord,
    texts_of_rows,
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
class MilvusCollection:
    """A collection that is there."""

    client: Any
    name: str
    address: str
    record: CollectionRecord
    places: dict[str, int] = field(default_factory=dict)
    """A place for each id that was met, of a collection of `FIRST_FORMAT`, which keeps none."""

    @property
    def title(self) -> str:
        """The address and the name, for messages."""
        return f"{self.address} {self.name}"

    @property
    def version(self) -> None:
        """None: Milvus keeps no versions."""

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
                raise InputError(f"{title} was not made by sentcli index; choose another --collection")
        return True

    @classmethod
    def begun(cls, client: Any, address: str, name: str, record: CollectionRecord) -> MilvusCollection | None:
        """Return what an interrupted run has begun to replace a collection with; with another record it is deleted."""
        next_name = name + NEXT
        with suppress(SentcliError):  # it is damaged
            collection = cls.find(client, address, next_name)
            if collection is None or collection.record.is_as(record):
                return collection
        with answering(f"{address} {name}"):
            client.drop_collection(next_name)
        return None

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
    def before(cls, client: Any, address: str, name: str) -> MilvusCollection | None:
        """Return a collection as it is kept from before it was replaced, or None."""
        if not cls.is_there(client, address, name):
            return None
        before = name + BEFORE
        with answering(f"{address} {name}"):
            is_kept = client.has_collection(before)
            if not is_kept and client.has_collection(name + BEING_REPLACED):  # what was going on was killed
                client.rename_collection(name + BEING_REPLACED, before)
        return cls.find(client, address, before)

    @classmethod
    def go_back(cls, client: Any, address: str, name: str) -> None:
        """Exchange the names of a collection and of the one before; `is_there` and `before` mend what a kill leaves."""
        with answering(f"{address} {name}"):
            client.rename_collection(name, name + BEING_REPLACED)
            client.rename_collection(name + BEFORE, name)
            client.rename_collection(name + BEING_REPLACED, name + BEFORE)
            client.load_collection(name)

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
            has = "it has none"
            if names:
                has = f"it has {', '.join(names)}"
            raise InputError(f"{address} has no collection {name!r}{nearest(name, names)}; {has}")
        rows = collection.count()
        whole = collection.record.rows
        if rows != whole:
            number = "an unknown number" if whole is None else f"{whole:,}"
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
        properties = {RECORD_PROPERTY: json.dumps(asdict(record), ensure_ascii=False)}
        with answering(f"{address} {name}"):
            client.create_collection(
                name, schema=schema, index_params=indexes, properties=properties, consistency_level="Strong"
            )
        return cls(client, name, address, record)

    def with_record(self, **changes: Any) -> MilvusCollection:
        """Write changes of the record, and return the collection with them."""
        record = replace(self.record, **changes)
        with answering(self.title):
            properties = {RECORD_PROPERTY: json.dumps(asdict(record), ensure_ascii=False)}
            self.client.alter_collection_properties(self.name, properties=properties)
        return replace(self, record=record)

    @cached_property
    def origin(self) -> Provenance:
        """What the record says about how the vectors were made."""
        return Provenance.named(self.title, self.record.settings)

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
        """The fields that `place_of` needs besides the id."""
        return [ORDER] if self.in_order else []

    def place_of(self, row: Mapping[str, Any]) -> int:
        """Return the place of a row.

        Raises:
            DataError: if it has none, because another program wrote it.
        """
        if self.in_order:
            place = row.get(ORDER)
            if not isinstance(place, int):
                raise without_place(self.title)
            return place
        return self.places.setdefault(row[ID], len(self.places))

    def known_rows(self) -> Iterator[RowBatch]:
        """Yield the ids, the hashes and the places of all rows, some at a time."""
        for batch in self.rows([HASH, *self.place_fields]):
            ids = list(map(itemgetter(ID), batch))
            hashes = list(map(itemgetter(HASH), batch))
            places = np.fromiter(map(self.place_of, batch), np.int64, len(batch))
            yield RowBatch(ids, hashes, places, ids)

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
        ids = list(places)
        for start in range(0, len(ids), REQUEST_ROWS):
            rows = []
            for row in self.fields(ids[start : start + REQUEST_ROWS], fields):
                rows.append({**row, ORDER: places[row[ID]]})
            self._send(rows)

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
        remaining = condition
        limit = REQUEST_ROWS
        while True:
            with answering(self.title):
                answer = self.client.query(
                    self.name,
                    filter=remaining,
                    output_fields=[ID, *fields],
                    limit=limit,
                    iterator="True",
                    reduce_stop_for_best=True,
                )
                batch = list(answer)
            if not batch:
                return
            yield batch
            limit = _rows_of(REQUEST_BYTES, batch)
            remaining = after_id(batch[-1][ID])
            if condition:
                remaining += f" and ({condition})"

    def counted(self, column: str, condition: str = "") -> list[tuple[Any, int]]:
        """Count the rows that meet a condition with each value of a column, the most frequent value first."""
        field_name = column
        kind = TEXT  # of ids and texts
        columns = self.record.columns
        if column in columns:
            field_name, kind = columns[column]
        counts: Counter[Any] = Counter()
        for batch in self.rows([field_name], condition):
            counts.update(row.get(field_name) for row in batch)
        values = []
        for value, count in by_frequency(counts):
            values.append((value_of(value, kind), count))
        return values

    def nearest(self, vectors: Vectors, k: int, condition: str = "") -> list[FoundRows]:
        """Return the `k` nearest rows of each query ``[queries, dim]``; of equal ones the row that came first is first.

        Args:
            vectors: of the queries.
            k: the number of rows.
            condition: one of `filter_of`.
        """
        found = []
        for start in range(0, len(vectors), REQUEST_ROWS):
            ask = partial(self._asked, list(vectors[start : start + REQUEST_ROWS]), condition)
            found += best_found(ask, k, MOST_ANSWER_ROWS)
        return found

    def _asked(self, vectors: list[Any], condition: str, count: int) -> list[FoundRows]:
        """Return at most `count` rows of each query, in order."""
        efforts = dict(self.record.efforts)
        if "ef" in efforts:
            efforts["ef"] = max(efforts["ef"], count)  # a graph finds no more rows than it looks at
        with answering(self.title):
            answer = self.client.search(
                self.name,
                vectors,
                anns_field=VECTORS,
                limit=count,
                filter=condition,
                output_fields=[ID, *self.place_fields],
                search_params={"params": efforts},
            )
        lists = []
        for hits in answer:
            rows = list(map(itemgetter("entity"), hits))
            places = np.fromiter(map(self.place_of, rows), np.int64, len(rows))
            scores = np.array(list(map(itemgetter("distance"), hits)), np.float32)
            keys = np.array(list(map(itemgetter(ID), rows)), object)
            lists.append(FoundRows.ranked(places, keys, scores))
        return lists

    def fields(self, ids: Sequence[str], names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield some fields of the rows with these ids that are there."""
        for start in range(0, len(ids), REQUEST_ROWS):
            with answering(self.title):
                chosen = with_ids(ids[start : start + REQUEST_ROWS])
                rows = self.client.query(self.name, filter=chosen, output_fields=[ID, *names])
            yield from rows

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return rows by their ids."""
        fields_of_columns = self.record.columns
        fields = [field_name for field_name, _ in fields_of_columns.values()]
        documents = {}
        for row in self.fields(ids, [TEXTS, *fields]):
            columns = {}
            for name, (field_name, kind) in fields_of_columns.items():
                columns[name] = value_of(row.get(field_name), kind)
            key = row[ID]
            (text,) = texts_of_rows(self.title, [key], [row.get(TEXTS)])
            documents[key] = Document(key, text, columns)
        return documents

    def flush(self) -> None:
        """Wait until all rows are on disk and in the index."""
        with answering(self.title):
            self.client.flush(self.name)
            self.client.load_collection(self.name)


def _rows_of(size: int, batch: Sequence[dict[str, Any]]) -> int:
    """Return how many rows like those of a batch have about so many bytes, within what Milvus allows."""
    batch_bytes = max(sum(map(_bytes_of, batch)), 1)
    rows = size * len(batch) // batch_bytes
    return min(MOST_ANSWER_ROWS, max(REQUEST_ROWS, rows))


def _bytes_of(row: dict[str, Any]) -> int:
    """Return about how many bytes a row has: 4 for a letter or a component, and 8 for any other value."""
    size = 0
    for value in row.values():
        if isinstance(value, str | list):
            size += 4 * len(value)
        else:
            size += 8
    return size
