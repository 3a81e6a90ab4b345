"""PostgreSQL with pgvector: a database by an address of libpq; the exceptions of psycopg end here."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from typing import Any, NamedTuple

from sentcli.errors import InputError, SentcliError, library_errors, nearest, one_line, required
from sentcli.io.atomic import NoRoomError
from sentcli.printable import remember
from sentcli.stores.record import CollectionRecord
from sentcli.stores.store import CONNECT_SECONDS

required("psycopg", "psycopg", "postgres", "PostgreSQL")
required("pgvector", "pgvector", "postgres", "PostgreSQL")

import psycopg  # noqa: E402 - after the errors that say which extra is missing
from pgvector import HalfVector, Vector  # noqa: E402
from pgvector.psycopg import register_vector  # noqa: E402
from psycopg import Connection  # noqa: E402
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal  # noqa: E402

__all__ = ["SQL", "Composable", "Composed", "Connection", "HalfVector", "Identifier", "Literal", "Vector"]

TABLE = "corpus"
"""The table that is meant if no other is named."""
NEXT = "__next"
"""The end of the name of the table in which rows wait until all are there."""
BEFORE = "__before"
"""The end of the name of a table as it was before it was replaced."""
MOST_NAME_BYTES = 63 - len(BEFORE)
RECORD_KEY = "sentcli"
"""The key of the `CollectionRecord` in the comment of a table, which is JSON."""
LEAST_PGVECTOR = (0, 8)
"""The release of pgvector that goes on searching an index until enough rows meet a condition."""
FETCHED_ROWS = 10_000
"""How many rows come at a time."""
ENDED = "57P0"
"""The beginning of the codes of PostgreSQL for connections that it ends."""
_numbers = count()


class TableName(NamedTuple):
    """The name of a table, and of its schema; None stands for the schema in which the role makes tables."""

    schema: str | None
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read ``TABLE`` or ``SCHEMA.TABLE``; parts that have dots stand in double quotes.

        Raises:
            InputError: if it is too long, or the name of what stands beside a table.
        """
        part = r'(?:"([^"]+)"|([^".][^.]*))'
        parts = re.fullmatch(rf"(?:{part}\.)?{part}", text)
        if parts is None or "\0" in text:
            raise InputError(f"--collection {text}: give TABLE or SCHEMA.TABLE; a part with a dot in double quotes")
        schema, name = parts[1] or parts[2], parts[3] or parts[4]
        if len(name.encode("utf-8", "surrogateescape")) > MOST_NAME_BYTES or name.endswith((NEXT, BEFORE)):
            problem = f"at most {MOST_NAME_BYTES} bytes, and no {NEXT} or {BEFORE} at the end"
            raise InputError(f"--collection {text}: the name of a table has {problem}")
        return cls(schema, name)

    def beside(self, end: str) -> TableName:
        """Return the name of the table beside that has another end."""
        return self._replace(name=self.name + end)

    @property
    def sql(self) -> Composable:
        """The name as it stands in a statement."""
        return Identifier(*filter(None, self))

    def __str__(self) -> str:
        parts = []
        for part in filter(None, self):
            if "." in part:
                part = f'"{part}"'
            parts.append(part)
        return ".".join(parts)


def shown(address: str) -> str:
    """Return an address without the password in it."""
    without_user = re.sub(r"(//[^/?#@:]*):[^/?#@]*@", r"\1@", address)
    return re.sub(r"([?&])(?:ssl)?password=[^&#]*&?", r"\1", without_user).rstrip("?&")


@contextmanager
def answering(title: str) -> Iterator[None]:
    """Turn errors of psycopg inside the block into one message that names what was read or written.

    Raises:
        NoRoomError: if the disk of the server is full.
        InputError: whatever else PostgreSQL says; what a transaction has begun is undone.
    """
    with library_errors(lambda why: SentcliError(f"{title}: psycopg says: {why}")):
        try:
            yield
        except psycopg.Error as error:
            said = error.diag.message_primary or str(error)
            if error.diag.message_detail:
                said = f"{said}: {error.diag.message_detail}"
            words = one_line(Exception(said))
            if isinstance(error, psycopg.errors.DiskFull):
                advice = "make room, then the same command goes on"
                raise NoRoomError(f"{title}: No space left on device of the server; {advice}") from error
            if isinstance(error, psycopg.errors.InsufficientPrivilege):
                raise InputError(f"{title}: the role has no right to do this ({words})") from error
            if isinstance(error, psycopg.OperationalError) and (error.sqlstate or ENDED).startswith(ENDED):
                raise InputError(f"{title}: the connection has ended ({words}): the same command goes on") from error
            raise InputError(f"{title}: PostgreSQL says: {words}") from error


@contextmanager
def connect(address: str, *, to_write: bool = False) -> Iterator[Connection]:
    """Yield a connection that commits each statement, knows vectors, and is closed after the block.

    Args:
        address: as libpq takes it; a password may also come from ``PGPASSWORD`` or ``~/.pgpass``.
        to_write: make the extension ``vector`` in a database that lacks it.

    Raises:
        InputError: if there is no such database, it does not answer, or it lacks pgvector.
    """
    title = shown(address)
    remember(os.environ.get("PGPASSWORD", ""))
    try:
        settings = psycopg.conninfo.conninfo_to_dict(address)
        remember(str(settings.get("password") or ""))
        settings.setdefault("connect_timeout", CONNECT_SECONDS)
        settings.setdefault("application_name", "sentcli")
        settings["client_encoding"] = "UTF8"
        logging.getLogger("psycopg").setLevel(logging.CRITICAL + 1)  # it says what is raised as well
        connection = psycopg.connect(**settings, autocommit=True)
    except (psycopg.Error, UnicodeError) as error:  # as of a label of a host that is too long
        raise InputError(f"{title} cannot be opened ({one_line(error)})") from error
    with connection:
        with answering(title):
            connection.execute("SET TIME ZONE 'UTC'")
            _require_pgvector(connection, title, to_write=to_write)
        try:
            register_vector(connection)
        except psycopg.Error as error:
            schemas = "its schema is not in the search_path of the role"
            raise InputError(f"{title}: the type vector is not found ({schemas})") from error
        yield connection


def _require_pgvector(connection: Connection, title: str, *, to_write: bool) -> None:
    """Check that a database has pgvector, and with `to_write` make the extension if it is missing.

    Raises:
        InputError: which says who has to do what.
    """
    asked = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    version = connection.execute(asked).fetchone()
    if version is None and to_write:
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.Error as error:
            problem = f"and this role cannot make it ({error.diag.message_primary})"
            raise InputError(f"{title} has no extension vector, {problem}: {WHO}") from error
        version = connection.execute(asked).fetchone()
    if version is None:
        raise InputError(f"{title} has no extension vector, so it holds no vectors: {WHO}")
    numbers = tuple(map(int, re.findall(r"\d+", version[0])[:2]))
    if numbers < LEAST_PGVECTOR:
        raise InputError(f"{title}: pgvector is {version[0]}, and 0.8 is needed: ALTER EXTENSION vector UPDATE")


WHO = "install pgvector on the server, and let a superuser or the owner of the database say CREATE EXTENSION vector"


def batches(connection: Connection, query: Composable) -> Iterator[list[Any]]:
    """Yield the rows of a query, `FETCHED_ROWS` at a time; the server does not keep more in memory."""
    with connection.transaction(), connection.cursor(f"sentcli_{next(_numbers)}", binary=True) as cursor:
        cursor.execute(query)
        while rows := cursor.fetchmany(FETCHED_ROWS):
            yield rows


def comments(connection: Connection, schema: str | None) -> dict[str, str | None]:
    """Return the comments of all tables, views and partitioned tables of a schema by their names.

    Args:
        connection: of the database.
        schema: the name; None stands for the schema in which the role makes tables.
    """
    asked = """SELECT relname, obj_description(oid, 'pg_class') FROM pg_class
        WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = coalesce(%s, current_schema()))
        AND relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY 1"""
    return dict(connection.execute(asked, [schema]).fetchall())


def record_of(comment: str | None, title: str) -> CollectionRecord | None:
    """Return the record in the comment of a table; None if another program made the table.

    Raises:
        DataError: if it is damaged.
    """
    prefix = f'{{"{RECORD_KEY}": '
    if comment is None or not comment.startswith(prefix):
        return None
    return CollectionRecord.read(comment.removeprefix(prefix)[:-1], title)


def comment_of(record: CollectionRecord) -> str:
    """Return the comment of a table with a record."""
    return json.dumps({RECORD_KEY: asdict(record)})


def comment_on(connection: Connection, address: str, table: TableName) -> str | None:
    """Return the comment of a table; None if it has none.

    Raises:
        InputError: if there is no such table, which lists those that there are.
    """
    title = shown(address)
    with answering(title):
        there = comments(connection, table.schema)
    if table.name in there:
        return there[table.name]
    names = [name for name in there if not name.endswith((NEXT, BEFORE))]
    listed = ", ".join(names[:20]) or "none"
    raise InputError(f"{title} has no table {table}{nearest(table.name, names)}; it has {listed}")
