"""Writing a corpus into a table of PostgreSQL; see `stores.store`.

Rows that are new or have changed wait in a table beside, `NAME` + `NEXT`, which an interruption leaves and the same
command goes on with. When all are there, one transaction brings them into the table; a table that is made anew is the
one in which they have waited, which gets its key and its index before the transaction exchanges the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import compress
from typing import Any

from sentcli import console
from sentcli.arrays import AnyArray, Int64Array
from sentcli.bounds import one_of
from sentcli.errors import InputError
from sentcli.io.blocks import Block
from sentcli.search.ann import clusters_of
from sentcli.search.options import DatabaseOptions
from sentcli.search.recall import IndexedSearch
from sentcli.stores.known_rows import KnownRows, pair_hashes, within
from sentcli.stores.postgres.client import (
    BEFORE,
    NEXT,
    SQL,
    TABLE,
    Connection,
    Identifier,
    TableName,
    answering,
    comments,
    connect,
    shown,
)
from sentcli.stores.postgres.corpus import PostgresCorpus
from sentcli.stores.postgres.found import indexes_of
from sentcli.stores.postgres.stage import append, create, delete, move, types_of
from sentcli.stores.postgres.table import INDEX_METHODS, MOST_DIMENSIONS, OPERATOR_CLASSES, Fields, PostgresTable
from sentcli.stores.record import ID, VECTORS, CollectionRecord
from sentcli.stores.row_places import Places, arranged
from sentcli.stores.staged import StagedRows

RIGHTS = """SELECT coalesce(quote_ident(rolname), 'PUBLIC'), privilege_type FROM pg_class c,
aclexplode(relacl) LEFT JOIN pg_roles r ON r.oid = grantee WHERE c.oid = %s::regclass"""
"""The rights of roles on a table."""


class Postgres:
    """A database, and the name of a table; see `stores.store.Database`."""

    most_id_bytes: int | None = 2600
    """A page of an index holds three ids."""
    most_text_bytes: int | None = None

    def __init__(self, options: DatabaseOptions, kind: str) -> None:
        self.address = str(options.to)
        self.name = options.collection or TABLE
        self.place = TableName.parse(self.name)
        self.title = f"{shown(self.address)} {self.place}"
        if options.compact:
            raise InputError("--compact goes with lance:PLACE; PostgreSQL compacts its tables by itself (VACUUM)")
        one_of("--type of a collection", kind, list(INDEX_METHODS))

    @contextmanager
    def open(
        self, record: CollectionRecord, order: Places, *, overwrite: bool, keeps_before: bool = False
    ) -> Iterator[PostgresStore]:
        """Open a table to write it; its readers see the old rows until `PostgresStore.publish`.

        Raises:
            InputError: if it holds rows of another kind, or another process writes it.
        """
        most = MOST_DIMENSIONS[Fields.of(record).vector_type]
        if record.kind != "flat" and record.dimension > most:
            raise InputError(
                f"--type {record.kind}: pgvector makes indexes over {most:,} dimensions at most: take flat"
            )
        with self._held() as connection:
            old = self._find(connection, self.place)
            if keeps_before:
                self._find(connection, self.place.beside(BEFORE))  # which is another program's or is let go
            of_table = record.of_collection()
            if old is not None and not overwrite:
                of_table = old.record.takes(record, self.title)
            yield PostgresStore(self, connection, of_table, old, order, overwrite=overwrite, keeps_before=keeps_before)

    def _find(self, connection: Connection, place: TableName) -> PostgresTable | None:
        """Return the table of a name; None if there is none.

        Raises:
            InputError: if another program has made it.
        """
        with answering(self.title):
            if place.name not in comments(connection, place.schema):
                return None
        return PostgresTable.open(connection, self.address, place)

    @contextmanager
    def _held(self) -> Iterator[Connection]:
        """Yield a connection that holds the table against others that write it.

        Raises:
            InputError: if another process writes it.
        """
        with connect(self.address, to_write=True) as connection:
            asked = "SELECT pg_try_advisory_lock(hashtextextended(coalesce(%s, current_schema()) || '.' || %s, 0))"
            with answering(self.title):
                ((is_held,),) = connection.execute(asked, self.place).fetchall()
            if not is_held:
                raise InputError(f"{self.title} is being written by another process: wait until it has ended")
            yield connection

    @contextmanager
    def compare(self, record: CollectionRecord) -> Iterator[PostgresStore]:
        """Open a table to compare its rows; nothing is written.

        Raises:
            InputError: if there is none, or it holds rows of another kind.
        """
        with connect(self.address) as connection:
            table = PostgresTable.open(connection, self.address, self.place)
            yield PostgresStore(self, connection, table.record.takes(record, table.title), table, None)

    @property
    def before(self) -> str:
        """The address and the name of the table as it was before it was replaced."""
        return f"{self.title}{BEFORE}"

    def before_record(self) -> CollectionRecord | None:
        """Return the record of the table before, if there is one."""
        with connect(self.address) as connection:
            before = self._find(connection, self.place.beside(BEFORE))
            if before is None:
                return None
            return before.record

    def go_back(self) -> None:
        """Exchange the table with the one before."""
        place = self.place
        with self._held() as connection, answering(self.title), connection.transaction():
            rename(connection, place.beside(BEFORE), place.name + NEXT + BEFORE)
            rename(connection, place, place.name + BEFORE)
            rename(connection, place.beside(NEXT + BEFORE), place.name)

    def drop_before(self) -> None:
        """Delete the table before."""
        with self._held() as connection, answering(self.before):
            drop(connection, self.place.beside(BEFORE))


class PostgresStore(StagedRows):
    """A table while rows are written into it or compared with it; see `stores.store.RowStore`.

    Args:
        database: the name of the table.
        connection: of the database.
        record: what the table will say about itself.
        old: the table as it is; None if there is none.
        order: the numbers of the rows of the corpus; None if rows are compared alone.
        overwrite: make the table anew.
        keeps_before: keep the one that is replaced beside.

    Raises:
        InputError: if another program has made a table of the name in which rows wait.
    """

    def __init__(
        self,
        database: Postgres,
        connection: Connection,
        record: CollectionRecord,
        old: PostgresTable | None,
        order: Places | None,
        *,
        overwrite: bool = False,
        keeps_before: bool = False,
    ) -> None:
        self.title, self.record, self.old, self.keeps_before = database.title, record, old, keeps_before
        self.replaces = overwrite and old is not None
        self.kept = None if overwrite else old
        """The table whose rows stay, if there is one."""
        self.table = PostgresTable(connection, database.address, database.place, record, Fields.of(record))
        super().__init__(self.kept)
        self.waiting = KnownRows([])
        """The rows that an earlier command left in the table beside."""
        self.stage = replace(self.table, place=database.place.beside(NEXT))
        self.is_staged = False
        if order is not None:
            self.places = arranged(order, self.there.places)
            earlier = database._find(connection, self.stage.place)
            self.is_staged = earlier is not None and earlier.record.is_as(record)
            if self.is_staged:
                self.waiting = KnownRows(self.stage.known_rows())
                self.waiting_pairs = self.waiting.pairs
            elif earlier is not None:
                self.stage.execute("DROP TABLE {}")

    def write(self, block: Block, vectors: AnyArray, hashes: Sequence[str]) -> int:
        """Let rows wait; no text is cut."""
        with answering(self.title), self.table.connection.transaction():
            self._begin()
            delete(self.stage, list(compress(block.ids, self.waiting.has(block.ids))))  # of other contents
            append(self.stage, block, vectors, hashes, self.places.of_ids(block.ids).tolist())
        return 0

    def _begin(self) -> None:
        """Make the table in which rows wait, if it is not there."""
        if not self.is_staged:
            create(self.stage)
            self.is_staged = True

    def publish(self) -> None:
        """Make the rows that wait the rows of the table in one transaction, and index them."""
        changed = self.changed()
        with answering(self.title), self.table.connection.transaction():
            self._begin()
            if len(self.waiting.places):
                self._tidy(changed)
            if self.kept is None:
                self._make()
            else:
                self._merge(self.kept)
                if len(changed) or self.gone:  # the recall is measured anew
                    self.record = self.table.with_record(recall=None).record
        self.table.execute("ANALYZE {}")

    def _tidy(self, changed: Int64Array) -> None:
        """Delete rows of an earlier command that the corpus has no more, and move the others to their places."""
        gone: list[str] = []
        for batch in list(self.stage.known_rows()):
            gone += compress(batch.ids, ~within(pair_hashes(batch.ids, batch.hashes), changed))
            move(self.stage, batch.ids, batch.places, self.places)
        delete(self.stage, gone)

    def _make(self) -> None:
        """Make the table in which rows wait the table; the old one is kept beside or dropped."""
        connection, place = self.table.connection, self.table.place
        self.stage.execute(f"ALTER TABLE {{}} ADD PRIMARY KEY ({ID})")
        self._build_index(self.stage)
        if self.old is not None:
            self._grant(self.old)
            if self.keeps_before:
                drop(connection, place.beside(BEFORE))
                rename(connection, place, place.name + BEFORE)
            else:
                drop(connection, place)
        rename(connection, self.stage.place, place.name)

    def _grant(self, old: PostgresTable) -> None:
        """Grant the rights that roles have on the old table on the new one, too."""
        name = old.place.sql.as_string(old.connection)
        for role, right in old.connection.execute(RIGHTS, [name]).fetchall():
            self.stage.execute(f"GRANT {right} ON {{}} TO {{}}", SQL(role))

    def _merge(self, kept: PostgresTable) -> None:
        """Bring the rows that wait into the table, delete those that are gone, and move others to their places."""
        types = types_of(self.table)
        for name in types.keys() - types_of(kept).keys():
            kept.execute("ALTER TABLE {} ADD COLUMN {} {}", Identifier(name), SQL(types[name]))
        delete(kept, self.gone)
        names = [Identifier(name) for name in types]
        changes = SQL(", ").join([SQL("{0} = excluded.{0}").format(name) for name in names])
        listed = SQL(", ").join(names)
        merge = f"INSERT INTO {{}} ({{}}) SELECT {{}} FROM {{}} ON CONFLICT ({ID}) DO UPDATE SET {{}}"
        kept.execute(merge, listed, listed, self.stage.place.sql, changes)
        ids = self.there.keys
        move(kept, ids, self.there.places.of_ids(ids), self.places)
        self.stage.execute("DROP TABLE {}")
        if not indexes_of(kept, VECTORS):
            self._build_index(kept)

    def _build_index(self, table: PostgresTable) -> None:
        """Build the index of the record over all rows of a table, whose recall is measured afterwards."""
        record = self.record
        method = INDEX_METHODS[record.kind]
        if method is None:
            return
        with console.working(f"indexing ({record.kind})") as step:
            rows = table.count()
            step(f"{rows:,} rows")
            settings = f"lists = {clusters_of(rows)}"
            if record.kind == "hnsw":
                settings = "m = 16, ef_construction = 200"
            operators = f"{table.fields.vector_type}_{OPERATOR_CLASSES[record.similarity]}"
            table.execute(f"CREATE INDEX ON {{}} USING {method} ({VECTORS} {operators}) WITH ({settings})")

    def to_measure(self, *, changed: bool) -> IndexedSearch | None:
        """Return the search through the index, if rows have changed or it was not measured."""
        if self.record.recall is not None and not changed:
            return None
        return PostgresCorpus(replace(self.table, record=replace(self.record, efforts={}))).to_check()

    def complete(self, recall: Mapping[str, Any] | None, rows: int) -> None:
        """Write into the record what was measured."""
        if recall is not None:
            self.record = self.table.with_record(**self.record.measured(recall)).record


def rename(connection: Connection, place: TableName, name: str) -> None:
    """Give a table another name in its schema."""
    connection.execute(SQL("ALTER TABLE {} RENAME TO {}").format(place.sql, Identifier(name)))


def drop(connection: Connection, place: TableName) -> None:
    """Delete a table if it is there."""
    connection.execute(SQL("DROP TABLE IF EXISTS {}").format(place.sql))
