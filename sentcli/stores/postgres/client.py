"""PostgreSQL with pgvector: a database by an address of libpq; the exceptions of psycopg end here."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from sentcli.errors import InputError, SentcliError, library_errors, nearest, one_line, required
from sentcli.io.atomic import NoRoomError
from sentcli.printable import remember
from sentcli.stores.record import Record

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composable

TABLE = "corpus"
"""The table that is written if no other is named."""
NEXT = "__next"
"""The end of the name of the table in which rows wait until all are there."""
BEFORE = "__before"
"""The end of the name of a table as it was before it was replaced."""
MOST_NAME_BYTES = 63 - len(BEFORE)
RECORD_KEY = "sentcli"
"""The key of the `Record` in the comment of a table, which is JSON."""
LEAST_PGVECTOR = (0, 8)
"""The release of pgvector that goes on searching an index until enough rows meet a condition."""
SECONDS = 20
"""How long a server may take to accept a connection, unless the address says otherwise."""
FETCHED_ROWS = 10_000
"""How many rows come at a time."""
LOST = "57P0"
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
        parts = re.fullmatch(r'(?:("[^"]+"|[^".]+)\.)?("[^"]+"|[^".]+)', text)
        if parts is None or "\0" in text:
            raise InputError(f"--collection {text}: give TABLE or SCHEMA.TABLE; a part with a dot in double quotes")
        schema, name = parts[1], parts[2].strip('"')
        if len(name.encode("utf-8", "surrogateescape")) > MOST_NAME_BYTES or name.endswith((NEXT, BEFORE)):
            problem = f"at most {MOST_NAME_BYTES} bytes, and no {NEXT} or {BEFORE} at the end"
            raise InputError(f"--collection {text}: the name of a table has {problem}")
        return cls(None if schema is None else schema.strip('"'), name)

    def beside(self, end: str) -> TableName:
        """Return the name of the table beside that has another end."""
        return self._replace(name=self.name + end)

    @property
    def sql(self) -> Composable:
        """The name as it stands in a statement."""
        from psycopg.sql import Identifier

        return Identifier(*filter(None, self))

    def __str__(self) -> str:
        parts = []
        for part in filter(None, self):
            parts.append(f'"{part}"' if "." in part else part)
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
        InputError: if the connection ends, or the role lacks a right.
        SentcliError: whatever else PostgreSQL says.
    """
    import psycopg

    with library_errors(lambda why: SentcliError(f"{title}: PostgreSQL says: {why}")):
        try:
            yield
        except psycopg.Error as error:
            raise _translated(title, error) from error


def _translated(title: str, error: Any) -> SentcliError:
    """Return the error of what psycopg says."""
    import psycopg

    diagnosis = error.diag
    words = one_line(Exception(diagnosis.message_primary)) if diagnosis.message_primary else one_line(error)
    if isinstance(error, psycopg.errors.DiskFull):
        return NoRoomError(f"{title}: No space left on device of the server; make room, then the same command goes on")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return InputError(f"{title}: the role has no right to do this ({words})")
    is_lost = isinstance(error, psycopg.OperationalError) and (error.sqlstate or LOST).startswith(LOST)
    if is_lost:
        return InputError(f"{title}: the connection has ended ({words}): the same command again goes on")
    if diagnosis.message_hint and isinstance(error, psycopg.errors.DependentObjectsStillExist):
        words = f"{words}: {one_line(Exception(diagnosis.message_detail))}"
    return SentcliError(f"{title}: PostgreSQL says: {words}")


@contextmanager
def connect(address: str, *, to_write: bool = False) -> Iterator[Connection]:
    """Yield a connection that commits each statement, knows vectors, and is closed after the block.

    Args:
        address: as libpq takes it; a password may also come from ``PGPASSWORD`` or ``~/.pgpass``.
        to_write: make the extension ``vector`` in a database that lacks it.

    Raises:
        InputError: if there is no such database, it does not answer, or it lacks pgvector.
        MissingExtraError: if psycopg or pgvector is not installed.
    """
    psycopg = required("psycopg", "psycopg", "postgres", "PostgreSQL")
    vectors = required("pgvector.psycopg", "pgvector", "postgres", "PostgreSQL")
    title = shown(address)
    remember(os.environ.get("PGPASSWORD", ""))
    try:
        settings = psycopg.conninfo.conninfo_to_dict(address)
        remember(str(settings.get("password") or ""))
        settings.setdefault("connect_timeout", SECONDS)
        settings.setdefault("application_name", "sentcli")
        connection = psycopg.connect(**settings, client_encoding="UTF8", autocommit=True)
    except (psycopg.Error, UnicodeEncodeError) as error:
        raise InputError(f"{title} cannot be opened ({one_line(error)})") from error
    with connection:
        with answering(title):
            connection.execute("SET TIME ZONE 'UTC'")
            _require_pgvector(connection, title, to_write=to_write)
        try:
            vectors.register_vector(connection)
        except psycopg.Error as error:
            schemas = "its schema is not in the search_path of the role"
            raise InputError(f"{title}: the type vector is not found ({schemas})") from error
        yield connection


def _require_pgvector(connection: Connection, title: str, *, to_write: bool) -> None:
    """Check that a database has pgvector, and with `to_write` make the extension if it is missing.

    Raises:
        InputError: which says who has to do what.
    """
    import psycopg

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


def record_of(comment: str | None, title: str) -> Record | None:
    """Return the record in the comment of a table; None if another program made the table.

    Raises:
        DataError: if it is damaged.
    """
    prefix = f'{{"{RECORD_KEY}": '
    if comment is None or not comment.startswith(prefix):
        return None
    return Record.read(comment.removeprefix(prefix)[:-1], title)


def comment_of(record: Record) -> str:
    """Return the comment of a table with a record."""
    return json.dumps({RECORD_KEY: asdict(record)})


def chosen_table(connection: Connection, address: str, collection: str | None) -> tuple[TableName, str | None]:
    """Return the table to read, the one that is named or the only one of sentcli, and its comment.

    Raises:
        InputError: if there is none of that name, or several and none is named.
    """
    title = shown(address)
    name = None if collection is None else TableName.parse(collection)
    there = comments(connection, None if name is None else name.schema)
    if name is not None:
        if name.name in there:
            return name, there[name.name]
        names = [table for table in there if not table.endswith((NEXT, BEFORE))]
        raise InputError(f"{title} has no table {name}{nearest(name.name, names)}; it has {_listed(names)}")
    own = []
    for table, comment in there.items():
        if not table.endswith((NEXT, BEFORE)) and record_of(comment, f"{title} {table}") is not None:
            own.append(table)
    if len(own) == 1:
        return TableName(None, own[0]), there[own[0]]
    if not own:
        raise InputError(f"{title} has no collection; sentcli index CORPUS --to {title} makes one")
    raise InputError(f"{title} has {_listed(own)}: name one with --collection")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) or "none"
