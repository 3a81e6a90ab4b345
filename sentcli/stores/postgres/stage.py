"""The rows that will come into a table of PostgreSQL, in a table beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.errors import InputError
from sentcli.io.blocks import Block
from sentcli.search.neighbours import AnyVectors, Integers
from sentcli.stores.known_rows import KnownRows, pair_hashes, within
from sentcli.stores.postgres.client import NEXT, TableName, answering, comments, record_of
from sentcli.stores.postgres.table import COLUMN_TYPES, PostgresTable, vector_type
from sentcli.stores.record import HASH, ID, ORDER, TEXTS, VECTORS, Record
from sentcli.stores.row_places import Places

if TYPE_CHECKING:
    from psycopg import Connection

CHANGED_IDS = 100_000
"""How many rows a statement changes by their ids."""


class StagedRows:
    """The rows that will come into a table, in a table beside it.

    Args:
        connection: of the database.
        address: of the database.
        table: the name of the table that they will come into.
        record: of that table; rows that wait for a table with another one are dropped.

    Raises:
        InputError: if another program has made a table of that name.
    """

    def __init__(self, connection: Connection, address: str, table: TableName, record: Record) -> None:
        self.table = PostgresTable(connection, address, table.beside(NEXT), record)
        self.connection = connection
        self.types = types_of(record)
        self.known = KnownRows([])
        """The rows that an earlier command left."""
        title = self.table.title
        with answering(title):
            there = comments(connection, table.schema)
        name = self.table.place.name
        self.is_there = name in there
        if not self.is_there:
            return
        earlier = record_of(there[name], title)
        if earlier is None:
            raise InputError(f"{title} was not made by sentcli, and rows wait in a table of this name: rename it")
        if earlier.is_as(record):
            self.known = KnownRows(self.table.known_rows())
        else:
            self.drop()

    def add(self, block: Block, vectors: AnyVectors, hashes: Sequence[str], places: Integers) -> None:
        """Append rows with their places in one transaction.

        Raises:
            InputError: for a row that PostgreSQL cannot hold, or a vector that has no direction.
        """
        from psycopg.sql import SQL, Identifier

        record = self.table.record
        wide = np.ascontiguousarray(vectors, np.float32)
        _check_rows(block, wide, record)
        cells = [_values(block.columns[name], kind) for name, (_, kind) in record.columns.items()]
        rows = zip(block.ids, block.texts, _dumped(wide, record), hashes, places.tolist(), *cells, strict=True)
        names = SQL(", ").join(map(Identifier, self.types))
        copied = SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(self.table.place.sql, names)
        with answering(self.table.title), self.connection.transaction():
            self.create()
            delete(self.table, list(compress(block.ids, self.known.has(block.ids))))  # they have other contents there
            with self.connection.cursor().copy(copied) as copy:
                copy.set_types([kind.partition("(")[0] for kind in self.types.values()])
                for row in rows:
                    copy.write_row(row)

    def create(self) -> None:
        """Make the table if it is not there."""
        from psycopg.sql import SQL, Identifier

        if self.is_there:
            return
        own = (ID, TEXTS, VECTORS, HASH, ORDER)
        columns = []
        for name, kind in self.types.items():
            filled = SQL(" NOT NULL" if name in own else "")
            columns.append(SQL("{} {}{}").format(Identifier(name), SQL(kind), filled))
        made = SQL("CREATE TABLE {} ({})").format(self.table.place.sql, SQL(", ").join(columns))
        self.connection.execute(made)
        self.table.write_record()
        self.is_there = True

    def tidy(self, changed: Integers, places: Places) -> None:
        """Delete rows of an earlier command that are not in the corpus now, and move the others to their places.

        Args:
            changed: the `pair_hashes` of the rows of the corpus, sorted.
            places: of the rows of the corpus.
        """
        if not len(self.known.places):
            return
        gone: list[str] = []
        for batch in list(self.table.known_rows()):
            is_wanted = within(pair_hashes(batch.ids, batch.hashes), changed)
            gone += compress(batch.ids, ~is_wanted)
            move(self.table, batch.ids, batch.places, places)
        delete(self.table, gone)

    def drop(self) -> None:
        """Delete the table, whose rows are in their place or of no use."""
        from psycopg.sql import SQL

        with answering(self.table.title):
            self.connection.execute(SQL("DROP TABLE IF EXISTS {}").format(self.table.place.sql))
        self.is_there = False


def types_of(record: Record) -> dict[str, str]:
    """Return the type of each field of a table, as PostgreSQL calls it."""
    vector = f"{vector_type(record)}({record.dimension})"
    types = {ID: "text", TEXTS: "text", VECTORS: vector, HASH: "text", ORDER: "int8"}
    for name, kind in record.columns.values():
        types[name] = COLUMN_TYPES[kind]
    return types


def delete(table: PostgresTable, ids: Sequence[str]) -> None:
    """Delete rows of a table."""
    from psycopg.sql import SQL

    for start in range(0, len(ids), CHANGED_IDS):
        condition = table.with_ids(ids[start : start + CHANGED_IDS])
        table.connection.execute(SQL("DELETE FROM {} WHERE {}").format(table.place.sql, condition))


def move(table: PostgresTable, ids: Sequence[str], there: Integers, places: Places) -> None:
    """Give rows of a table their places, of which they have others.

    Args:
        table: that has them.
        ids: of the rows.
        there: the places that they have ``[rows]``.
        places: those that they get.
    """
    from psycopg.sql import SQL, Identifier

    wanted = places.of_ids(ids)
    is_moved = (wanted != there) & (wanted >= 0)
    moved = list(compress(ids, is_moved))
    numbers = wanted[is_moved].tolist()
    statement = SQL(
        "UPDATE {} AS t SET {} = m.place FROM unnest(%s::text[], %s::int8[]) AS m(id, place) WHERE t.id = m.id"
    ).format(table.place.sql, Identifier(ORDER))
    for start in range(0, len(moved), CHANGED_IDS):
        part = slice(start, start + CHANGED_IDS)
        table.connection.execute(statement, [moved[part], numbers[part]])


def _check_rows(block: Block, vectors: AnyVectors, record: Record) -> None:
    """Refuse texts that PostgreSQL cannot hold, and vectors without a direction where cosines are compared.

    Raises:
        InputError: which names the first row.
    """
    texts: Mapping[str, Sequence[Any]] = {ID: block.ids, TEXTS: block.texts, **block.columns}
    for column, values in texts.items():
        for key, value in zip(block.ids, values, strict=True):
            if isinstance(value, str) and (problem := _problem(value)):
                raise InputError(f"the row {key!r:.60} has {problem} in {column}, which PostgreSQL cannot hold")
    if record.similarity == "cosine":
        without = np.flatnonzero(~vectors.any(axis=1))
        if len(without):
            advice = "leave the row out, or take --similarity dot"
            raise InputError(f"the vector of {block.ids[without[0]]!r:.60} is zero, which has no cosine: {advice}")


def _problem(text: str) -> str:
    """Return what is in a text that PostgreSQL cannot hold; nothing if it holds it."""
    if "\0" in text:
        return "a NUL character"
    if not text.isascii() and text.encode("utf-8", "replace").decode("utf-8") != text:
        return "half of a surrogate pair"
    return ""


def _values(values: Sequence[Any], kind: str) -> Sequence[Any]:
    """Return the values of a column, NaN being a missing one."""
    if kind != "float":
        return values
    return [None if value != value else value for value in values]


def _dumped(vectors: AnyVectors, record: Record) -> Sequence[Any]:
    """Return vectors ``[rows, dim]`` as psycopg writes them."""
    if vector_type(record) == "vector":
        return list(vectors)
    from pgvector import HalfVector

    return list(map(HalfVector, vectors))
