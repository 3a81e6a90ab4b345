"""A table that another program has made and filled, whose fields the user names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sentcli import console
from sentcli.errors import InputError, nearest
from sentcli.io.column_types import TEXT
from sentcli.model.spec import Similarity
from sentcli.stores.postgres.client import SQL, Connection, Identifier, TableName, answering, shown
from sentcli.stores.postgres.table import OPERATOR_CLASSES, Fields, PostgresTable
from sentcli.stores.record import ID, TEXTS, CollectionRecord

COLUMN_KINDS = {
    **dict.fromkeys(["smallint", "integer", "bigint"], "int"),
    **dict.fromkeys(["real", "double precision", "numeric"], "float"),
    "boolean": "bool",
    "date": "date",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamp-utc",
}
"""The names of ``--types`` by the types of PostgreSQL; what is missing is text."""
VECTOR_TYPES = ("vector", "halfvec")
LEFT_OUT = (*VECTOR_TYPES, "sparsevec", "bit", "bytea", "tsvector")
"""The types of fields that are no columns of a corpus."""
_INDEXES = """SELECT am.amname, o.opcname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am am ON am.oid = c.relam JOIN pg_opclass o ON o.oid = i.indclass[0]
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = %s::regclass AND a.attname = %s AND am.amname IN ('hnsw', 'ivfflat') AND i.indisvalid
AND i.indpred IS NULL"""
"""The whole indexes over the vectors of a table: the method, and the name of what it compares by."""


def found_table(
    connection: Connection,
    address: str,
    place: TableName,
    names: tuple[str, str, str],
    similarity: Similarity | None,
) -> PostgresTable:
    """Return a table that another program has made.

    Args:
        connection: of the database.
        address: of the database.
        place: the name of the table.
        names: of the fields of the ids, the texts and the vectors.
        similarity: by which rows are compared; None takes that of an index that is there, else cosine.

    Raises:
        InputError: if a field is missing, or that of the vectors has none.
    """
    title = f"{shown(address)} {place}"
    with answering(title):
        named = place.sql.as_string(connection)
        asked = """SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
            WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
        types = dict(connection.execute(asked, [named]).fetchall())
    for name in names:
        if name not in types:
            advice = "--id-field, --text-field and --vector-field name others"
            raise InputError(f"{title} has no field {name}{nearest(name, list(types))}; {advice}")
    key, text, vector = map(Identifier, names)
    kind = types[names[2]]
    if kind not in VECTOR_TYPES:
        raise InputError(f"{title}: its field {names[2]} is {kind}, and vectors are {' or '.join(VECTOR_TYPES)}")
    columns = {}
    for name, type_name in types.items():
        if name not in (*names, ID, TEXTS) and type_name not in LEFT_OUT:
            columns[name] = (name, COLUMN_KINDS.get(type_name, TEXT))
    fields = Fields(
        id=key,
        text=SQL("coalesce({}::text, '')").format(text),
        vector=vector,
        place=SQL("hashtextextended({}::text, 0) & 9223372036854775807").format(key),
        id_type=types[names[0]],
        vector_type=kind,
        filled=SQL("({} IS NOT NULL AND {} IS NOT NULL)").format(key, vector),
    )
    record = CollectionRecord(settings={}, dimension=1, similarity="cosine", columns=columns)
    table = PostgresTable(connection, address, place, record, fields)
    indexes = indexes_of(table, names[2])
    method, by = _searched(indexes, similarity)
    if indexes and method == "flat":
        operators = " and ".join(operators for _, operators in indexes)
        console.note(f"{title}: its index compares by {operators}, not by {by}, so all rows are compared exactly")
    for ((dimension,),) in table.scan([SQL("vector_dims({})").format(vector)], None, "LIMIT 1"):
        return replace(table, record=replace(record, dimension=dimension, similarity=by, kind=method))
    raise InputError(f"{title} has no row with a vector in {names[2]}")


def indexes_of(table: PostgresTable, name: str) -> list[tuple[str, str]]:
    """Return the method and the operators of each index over a field of vectors of a table."""
    with answering(table.title):
        named = table.place.sql.as_string(table.connection)
        return table.connection.execute(_INDEXES, [named, name]).fetchall()


def _searched(indexes: list[Any], similarity: Similarity | None) -> tuple[str, Similarity]:
    """Return the kind of the index that is searched, which may be none, and the similarity of rows."""
    for method, operators in indexes:
        for by, of_pgvector in OPERATOR_CLASSES.items():
            if operators.endswith(of_pgvector) and similarity in (None, by):
                return method.removesuffix("flat"), by
    return "flat", similarity or "cosine"
