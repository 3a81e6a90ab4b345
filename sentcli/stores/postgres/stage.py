"""Rows on their way into a table of PostgreSQL, and changes of many rows by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from sentcli.arrays import AnyArray, Int64Array
from sentcli.errors import InputError
from sentcli.io.blocks import Block
from sentcli.stores.postgres.client import SQL, Composable, HalfVector, Identifier, answering
from sentcli.stores.postgres.table import COLUMN_TYPES, PostgresTable
from sentcli.stores.record import HASH, ID, ORDER, TEXTS, VECTORS
from sentcli.stores.row_places import Places


def types_of(table: PostgresTable) -> dict[str, str]:
    """Return the type of each field of a table, as PostgreSQL calls it."""
    vector = f"{table.fields.vector_type}({table.record.dimension})"
    types = {ID: "text", TEXTS: "text", VECTORS: vector, HASH: "text", ORDER: "int8"}
    for name, kind in table.record.columns.values():
        types[name] = COLUMN_TYPES[kind]
    return types


def create(table: PostgresTable) -> None:
    """Make a table with its record, as yet without a key."""
    columns: list[Composable] = []
    for name, kind in types_of(table).items():
        column = "{} {}"
        if name in FILLED:
            column += " NOT NULL"
        columns.append(SQL(column).format(Identifier(name), SQL(kind)))
    table.execute("CREATE TABLE {} ({})", SQL(", ").join(columns))
    table.with_record()


FILLED = (ID, TEXTS, VECTORS, HASH, ORDER)
"""The fields that have a value in each row."""


def append(table: PostgresTable, block: Block, vectors: AnyArray, hashes: Sequence[str], places: Sequence[int]) -> None:
    """Append rows to a table.

    Raises:
        InputError: for a text that PostgreSQL cannot hold, or a vector without a direction where cosines are compared.
    """
    wide = np.ascontiguousarray(vectors, np.float32)
    _check_rows(table, block, wide)
    cells = []
    for name, (_, kind) in table.record.columns.items():
        values = block.columns[name]
        if kind == "float":  # NaN is a missing value
            numbers = np.array(values, object)
            numbers[numbers != numbers] = None
            values = numbers.tolist()
        cells.append(values)
    types = types_of(table)
    dumped: list[Any] = list(wide)
    if table.fields.vector_type == "halfvec":
        dumped = list(map(HalfVector, wide))
    copied = SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)")
    statement = copied.format(table.place.sql, SQL(", ").join(map(Identifier, types)))
    with answering(table.title), table.connection.cursor().copy(statement) as copy:
        copy.set_types([kind.partition("(")[0] for kind in types.values()])
        for row in zip(block.ids, block.texts, dumped, hashes, places, *cells, strict=True):
            copy.write_row(row)


def _check_rows(table: PostgresTable, block: Block, vectors: AnyArray) -> None:
    """Refuse rows that PostgreSQL cannot hold; see `append`."""
    columns = {ID: block.ids, TEXTS: block.texts, **block.columns}
    for column, values in columns.items():
        for key, value in zip(block.ids, values, strict=True):
            has_nul = isinstance(value, str) and "\0" in value
            if has_nul:
                raise InputError(f"the row {key!r:.60} has a NUL character in {column}, which PostgreSQL cannot hold")
    without = np.flatnonzero(~vectors.any(axis=1))
    if len(without) and table.record.similarity == "cosine":
        advice = "leave the row out, or take --similarity dot"
        raise InputError(f"the vector of {block.ids[without[0]]!r:.60} is zero, which has no cosine: {advice}")


def delete(table: PostgresTable, ids: Sequence[str]) -> None:
    """Delete rows of a table."""
    if ids:
        table.execute("DELETE FROM {} WHERE {}", table.with_ids(ids))


def move(table: PostgresTable, ids: Sequence[str], there: Int64Array, places: Places) -> None:
    """Give rows of a table their places.

    Args:
        table: that has them.
        ids: of the rows.
        there: the places that they have ``[rows]``.
        places: those that they get; rows that have none stay where they are.
    """
    wanted = places.of_ids(ids)
    is_moved = (wanted != there) & (wanted >= 0)
    if is_moved.any():
        table.execute(MOVE, values=[list(compress(ids, is_moved)), wanted[is_moved].tolist()])


MOVE = f"UPDATE {{}} t SET {ORDER} = m.place FROM unnest(%s::text[], %s::int8[]) m(id, place) WHERE t.{ID} = m.id"
