"""Writing a corpus into a table of PostgreSQL; see `stores.store`.

Rows that are new or have changed wait in a table beside, `NAME` + `NEXT`, which an interruption leaves and the same
command goes on with. When all are there, one transaction brings them into the table; a table that is made anew is the
one in which they have waited, which gets its index before the transaction exchanges the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.bounds import one_of
from sentcli.errors import InputError
from sentcli.io.blocks import Block
from sentcli.search.ann import clusters_of
from sentcli.search.neighbours import AnyVectors, Integers
from sentcli.search.options import DatabaseOptions
from sentcli.search.recall import IndexedSearch
from sentcli.stores.known_rows import KnownRows, pair_hashes, text_of, within
from sentcli.stores.postgres.client import BEFORE, NEXT, TABLE, TableName, answering, comments, connect, shown
from sentcli.stores.postgres.corpus import PostgresSearch, PostgresVectors
from sentcli.stores.postgres.stage import StagedRows, delete, move, types_of
from sentcli.stores.postgres.table import METHODS, MOST_DIMENSIONS, OPERATOR_CLASSES, PostgresTable, vector_type
from sentcli.stores.record import HASH, VECTORS, Record
from sentcli.stores.row_places import Places, arranged

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composable

LINKS = 16
MOST_LISTS = 32_768


class Postgres:
    """A database, and the name of a table; see `stores.store.Database`."""

    most_id_bytes: int | None = 2600
    """A page of an index holds three ids."""
    most_text_bytes: int | None = None

    def __init__(self, options: DatabaseOptions, kind: str) -> None:
        self.address = str(options.to)
        self.name = options.collection or TABLE
        self.table = TableName.parse(self.name)
        self.title = f"{shown(self.address)} {self.table}"
        if options.compact:
            raise InputError("--compact goes with lance:PLACE; PostgreSQL compacts its tables by itself (VACUUM)")
        one_of("--type of a collection", kind, list(METHODS))

    @contextmanager
    def open(
        self, record: Record, order: Places, *, overwrite: bool, keeps_before: bool = False
    ) -> Iterator[PostgresStore]:
        """Open a table to write it; its readers see the old rows until `PostgresStore.publish`.

        Raises:
            InputError: if it holds rows of another kind, or another process writes it.
        """
        of_table = record.of_collection()
        most = MOST_DIMENSIONS[vector_type(of_table)]
        if METHODS[record.kind] is not None and record.dimension > most:
            raise InputError(
                f"--type {record.kind}: pgvector makes indexes over {most:,} dimensions at most: take flat"
            )
        with self._held() as connection:
            comment = comments(connection, self.table.schema)
            old = None
            if self.table.name in comment:
                old = PostgresTable.of(connection, self.address, self.table, comment[self.table.name])
            if old is not None and not overwrite:
                of_table = old.record.takes(record, self.title)
            store = PostgresStore(self, connection, of_table, old, order, overwrite=overwrite)
            store.keeps_before = keeps_before
            yield store

    @contextmanager
    def _held(self) -> Iterator[Connection]:
        """Yield a connection that holds the table against others that write it.

        Raises:
            InputError: if another process writes it.
        """
        with connect(self.address, to_write=True) as connection:
            asked = "SELECT pg_try_advisory_lock(hashtextextended(coalesce(%s, current_schema()) || '.' || %s, 0))"
            with answering(self.title):
                (is_held,) = connection.execute(asked, self.table).fetchone()
            if not is_held:
                raise InputError(f"{self.title} is being written by another process: wait until it has ended")
            yield connection

    @contextmanager
    def compare(self, record: Record) -> Iterator[PostgresStore]:
        """Open a table to compare its rows; nothing is written.

        Raises:
            InputError: if there is none, or it holds rows of another kind.
        """
        with connect(self.address) as connection:
            table = PostgresTable.open(connection, self.address, self.name)
            taken = table.record.takes(record, table.title)
            yield PostgresStore(self, connection, taken, table, None, overwrite=False)

    @property
    def before(self) -> str:
        """The address and the name of the table as it was before it was replaced."""
        return f"{self.title}{BEFORE}"

    def before_record(self) -> Record | None:
        """Return the record of the table before, if there is one."""
        name = self.table.beside(BEFORE)
        with connect(self.address) as connection, answering(self.title):
            there = comments(connection, self.table.schema)
            if name.name not in there:
                return None
            return PostgresTable.of(connection, self.address, name, there[name.name]).record

    def go_back(self) -> None:
        """Exchange the table with the one before."""
        with self._held() as connection, answering(self.title), connection.transaction():
            rename(connection, self.table.beside(BEFORE), self.table.name + NEXT + BEFORE)
            rename(connection, self.table, self.table.name + BEFORE)
            rename(connection, self.table.beside(NEXT + BEFORE), self.table.name)

    def drop_before(self) -> None:
        """Delete the table before."""
        with self._held() as connection, answering(self.before):
            drop(connection, self.table.beside(BEFORE))


class PostgresStore:
    """A table while rows are written into it or compared with it; see `stores.store.RowStore`.

    Args:
        place: the table and the options with which it is written.
        connection: of the database.
        record: what the table will say about itself.
        old: the table as it is; None if there is none.
        order: the numbers of the rows of the corpus; None if rows are compared alone.
        overwrite: make the table anew.
    """

    def __init__(
        self,
        place: Postgres,
        connection: Connection,
        record: Record,
        old: PostgresTable | None,
        order: Places | None,
        *,
        overwrite: bool,
    ) -> None:
        self.place, self.connection, self.record, self.old = place, connection, record, old
        self.title = place.title
        self.replaces = overwrite and old is not None
        self.keeps_before = False
        """Whether the table that is replaced is kept beside."""
        self.table = None if overwrite else old
        self.there = KnownRows([] if self.table is None else self.table.known_rows())
        self.staged = np.empty(0, np.int64)
        """The `pair_hashes` of the rows that wait since an earlier command, sorted."""
        if order is not None:
            self.places = arranged(order, self.there.places)
            self.stage = StagedRows(connection, place.address, place.table, record)
            self.staged = self.stage.known.pairs
        self.changed: list[Integers] = []
        """The `pair_hashes` of rows that are not in the table."""
        self.new_rows = 0
        self.gone: list[str] = []

    def lacking(self, ids: Sequence[str], hashes: Sequence[str]) -> list[int]:
        """Return which of some rows are neither in the table nor waiting, by their numbers."""
        pairs = pair_hashes(ids, hashes)
        is_changed = ~within(pairs, self.there.pairs)
        self.changed.append(pairs[is_changed])
        self.new_rows += int((~self.there.has(ids)).sum())
        is_lacking = is_changed & ~within(pairs, self.staged)
        return np.flatnonzero(is_lacking).tolist()

    def vectors_of(self, hashes: Sequence[str]) -> dict[str, AnyVectors]:
        """Return the vectors that the table has of the texts of some rows."""
        if self.table is None:
            return {}
        by_hash = self.table.vectors_of(self.there.keys_of_texts(hashes), HASH)
        return {text_of(row_hash): vector for row_hash, vector in by_hash.items()}

    def write(self, block: Block, vectors: AnyVectors, hashes: Sequence[str]) -> int:
        """Let rows wait; no text is cut."""
        self.stage.add(block, vectors, hashes, self.places.of_ids(block.ids))
        return 0

    def count(self) -> int:
        """Return the number of rows, with all that were written."""
        return len(self.there.places) + self.new_rows - len(self.gone)

    def ids(self) -> Iterator[Sequence[str]]:
        """Yield the ids of the rows of the table."""
        yield self.there.keys

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows in the transaction that brings the others."""
        self.gone = list(ids)

    def publish(self) -> None:
        """Make the rows that wait the rows of the table in one transaction, and index them."""
        changed = np.sort(np.concatenate([np.empty(0, np.int64), *self.changed]))
        with answering(self.title), self.connection.transaction():
            self.stage.create()
            self.stage.tidy(changed, self.places)
            if self.table is None:
                self._made()
            else:
                self._merged(self.table)
        self.table = PostgresTable(self.connection, self.place.address, self.place.table, self.record)
        self._execute("ANALYZE {}", self.table)

    def _made(self) -> None:
        """Make the table in which rows have waited the table, with an index; the old one is kept beside or dropped."""
        staged = self.stage.table
        self._execute("ALTER TABLE {} ADD PRIMARY KEY (id)", staged)
        self._build_index(staged)
        name = self.place.table
        if self.old is not None:
            copy_rights(self.connection, self.old.place, staged.place)
            if self.keeps_before:
                drop(self.connection, name.beside(BEFORE))
                rename(self.connection, name, name.name + BEFORE)
            else:
                drop(self.connection, name)
        rename(self.connection, staged.place, name.name)

    def _merged(self, table: PostgresTable) -> None:
        """Bring the rows that wait into the table, delete those that are gone, and move others to their places."""
        from psycopg.sql import SQL, Identifier

        types = types_of(self.record)
        known = types_of(table.record)
        for name in types.keys() - known.keys():
            self._execute("ALTER TABLE {} ADD COLUMN {} {}", table, Identifier(name), SQL(types[name]))
        delete(table, self.gone)
        names = [Identifier(name) for name in types]
        changes = [SQL("{0} = excluded.{0}").format(name) for name in names]
        merge = "INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT (id) DO UPDATE SET {}"
        listed = SQL(", ").join(names)
        self._execute(merge, table, listed, listed, self.stage.table.place.sql, SQL(", ").join(changes))
        if self.there.places.moved(self.places):
            ids = self.there.keys
            move(table, ids, self.there.places.of_ids(ids), self.places)
        self.stage.drop()
        if self.record.columns != table.record.columns:
            replace(table, record=self.record).write_record()
        if not self._has_index(table):
            self._build_index(table)

    def _has_index(self, table: PostgresTable) -> bool:
        """Tell whether a table has an index over its vectors."""
        asked = "SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam "
        asked += "WHERE i.indrelid = {}::regclass AND a.amname IN ('hnsw', 'ivfflat')"
        from psycopg.sql import SQL, Literal

        oid = Literal(table.place.sql.as_string(self.connection))
        return self.connection.execute(SQL(asked).format(oid)).fetchone() is not None

    def _build_index(self, table: PostgresTable) -> None:
        """Build the index of the record over all rows of a table, whose recall is measured afterwards."""
        record = self.record
        method = METHODS[record.kind]
        if method is None:
            return
        rows = table.count()
        settings = f"m = {LINKS}, ef_construction = 200"
        if record.kind == "ivf":
            settings = f"lists = {min(clusters_of(rows), MOST_LISTS)}"
        classes = f"{vector_type(record)}_{OPERATOR_CLASSES[record.similarity]}"
        with console.working(f"indexing ({record.kind})") as step:
            step(f"{rows:,} rows")
            made = f"CREATE INDEX ON {{}} USING {method} ({VECTORS} {classes}) WITH ({settings})"
            self._execute(made, table)

    def _execute(self, statement: str, table: PostgresTable, *parts: Composable) -> None:
        """Execute a statement about a table, which it names first."""
        from psycopg.sql import SQL

        with answering(self.title):
            self.connection.execute(SQL(statement).format(table.place.sql, *parts))

    def to_measure(self, *, changed: bool) -> IndexedSearch | None:
        """Return the search through the index, if rows have changed or it was not measured."""
        table = self.table
        assert table is not None
        if METHODS[self.record.kind] is None or (self.record.recall is not None and not changed):
            return None
        return PostgresSearch(self.record, table, PostgresVectors(table))

    def complete(self, recall: Mapping[str, Any] | None, rows: int) -> None:
        """Write into the record what was measured."""
        assert self.table is not None
        if recall is not None:
            self.table = self.table.with_record(**self.record.measured(recall))
            self.record = self.table.record

    def facts(self) -> dict[str, Any]:
        """Return nothing more than counts and recall."""
        return {}


def rename(connection: Connection, table: TableName, name: str) -> None:
    """Give a table another name in its schema."""
    from psycopg.sql import SQL, Identifier

    connection.execute(SQL("ALTER TABLE {} RENAME TO {}").format(table.sql, Identifier(name)))


def drop(connection: Connection, table: TableName) -> None:
    """Delete a table if it is there."""
    from psycopg.sql import SQL

    connection.execute(SQL("DROP TABLE IF EXISTS {}").format(table.sql))


def copy_rights(connection: Connection, old: TableName, new: TableName) -> None:
    """Grant the rights that roles have on a table on another one, too."""
    from psycopg.sql import SQL, Literal

    asked = SQL(
        "SELECT coalesce(quote_ident(rolname), 'PUBLIC'), privilege_type "
        "FROM pg_class, aclexplode(relacl) LEFT JOIN pg_roles r ON r.oid = grantee WHERE pg_class.oid = {}::regclass"
    ).format(Literal(old.sql.as_string(connection)))
    for role, privilege in connection.execute(asked).fetchall():
        connection.execute(SQL("GRANT {} ON {} TO {}").format(SQL(privilege), new.sql, SQL(role)))
