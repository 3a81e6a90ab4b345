"""Tables of PostgreSQL: rows are read, counted and searched.

A table has the fields ``id``, ``text``, ``embedding``, one for each column, `HASH` and `ORDER`, by which rows of equal
similarity are ordered as they came. How its vectors were made stands in its comment, as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.errors import InputError
from sentcli.search.conditions import Tree
from sentcli.search.exact import BLOCK, TopK, Vectors
from sentcli.search.neighbours import Integers
from sentcli.search.provenance import Provenance
from sentcli.search.rows import Document
from sentcli.stores.collection_corpus import FoundRows, best_found
from sentcli.stores.known_rows import RowBatch
from sentcli.stores.postgres.client import TableName, answering, batches, chosen_table, comment_of, record_of, shown
from sentcli.stores.postgres.conditions import sql_of
from sentcli.stores.record import HASH, ID, ORDER, TEXTS, VECTORS, Record

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composable, Composed

COLUMN_TYPES = {
    "int": "int8",
    "float": "float8",
    "bool": "bool",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp-utc": "timestamptz",
    "text": "text",
}
"""PostgreSQL's types by the names of ``--types``."""
METHODS = {"flat": None, "hnsw": "hnsw", "ivf": "ivfflat"}
"""What pgvector calls the kinds of ``--type``."""
OPERATORS = {"cosine": "<=>", "dot": "<#>"}
OPERATOR_CLASSES = {"cosine": "cosine_ops", "dot": "ip_ops"}
"""The distances of pgvector, and what an index over them is called behind the type of the vectors."""
MOST_EFFORT = {"ef": 1000, "nprobe": 32_768}
"""The largest search parameters that pgvector takes."""
MOST_DIMENSIONS = {"vector": 2000, "halfvec": 4000}
"""The most dimensions over which pgvector makes an index."""
REQUEST_QUERIES = 256
"""How many queries are sent together."""
STREAMED_QUERIES = 4
"""From so many queries on, exact search reads all vectors once, which takes the time of some ten scans."""


def vector_type(record: Record) -> str:
    """Return the type of the vectors: half precision where only that has an index."""
    is_long = record.kind != "flat" and record.dimension > MOST_DIMENSIONS["vector"]
    return "halfvec" if is_long else "vector"


@dataclass(frozen=True)
class Fields:
    """Where in a table the parts of a row are, as expressions of SQL."""

    id: Composable
    """Its id, in the type that it has there."""
    text: Composable
    vector: Composable
    place: Composable
    """A number by which rows of equal scores are ordered."""
    id_type: str = "text"
    filled: Composable | None = None
    """The condition of rows that have an id and a vector; None where all have."""

    @classmethod
    def own(cls) -> Fields:
        """Return those of a table that sentcli made."""
        from psycopg.sql import Identifier

        return cls(Identifier(ID), Identifier(TEXTS), Identifier(VECTORS), Identifier(ORDER))


@dataclass(frozen=True)
class PostgresTable:
    """A table, and what it says about itself."""

    connection: Connection
    address: str
    place: TableName
    record: Record
    fields: Fields = field(default_factory=Fields.own)
    version: None = None
    """PostgreSQL keeps no versions."""

    @classmethod
    def open(cls, connection: Connection, address: str, collection: str | None) -> PostgresTable:
        """Return a table that sentcli made.

        Raises:
            InputError: if there is none, or another program has made it.
        """
        with answering(shown(address)):
            name, comment = chosen_table(connection, address, collection)
        return cls.of(connection, address, name, comment)

    @classmethod
    def of(cls, connection: Connection, address: str, name: TableName, comment: str | None) -> PostgresTable:
        """Return a table with the record in its comment.

        Raises:
            InputError: if another program has made it.
        """
        title = f"{shown(address)} {name}"
        record = record_of(comment, title)
        if record is None:
            advice = "choose another --collection, or name its fields with --vector-field, --text-field and --id-field"
            raise InputError(f"{title} was not made by sentcli index: {advice}")
        return cls(connection, address, name, record)

    @property
    def title(self) -> str:
        """The address without its password and the name, for messages."""
        return f"{shown(self.address)} {self.place}"

    @property
    def name(self) -> str:
        """The name, as ``--collection`` takes it."""
        return str(self.place)

    @cached_property
    def origin(self) -> Provenance:
        """What the record says about how the vectors were made."""
        return Provenance.named(self.title, self.record.settings)

    @cached_property
    def id_text(self) -> Composed:
        """The ids as texts."""
        from psycopg.sql import SQL

        return SQL("{}::text").format(self.fields.id)

    def expression(self, column: str) -> Composable:
        """Return the value of a column as the type that it has in the record."""
        from psycopg.sql import SQL, Identifier

        if column == ID:
            return self.id_text
        if column == TEXTS:
            return self.fields.text
        name, kind = self.record.columns[column]
        return SQL("{}::{}").format(Identifier(name), SQL(COLUMN_TYPES[kind]))

    def condition_of(self, tree: Tree) -> Composable:
        """Return a condition on columns as SQL."""
        return sql_of(tree, self.expression)

    def query(self, values: Sequence[Composable], condition: Composable | None, behind: str = "") -> Composed:
        """Return the statement that reads some values of all rows that meet a condition."""
        from psycopg.sql import SQL

        conditions = [part for part in (self.fields.filled, condition) if part is not None]
        where = SQL(" WHERE {}").format(SQL(" AND ").join(conditions)) if conditions else SQL("")
        read = SQL("SELECT {} FROM {}{} ").format(SQL(", ").join(values), self.place.sql, where)
        return read + SQL(behind)

    def scan(self, values: Sequence[Composable], condition: Composable | None, behind: str = "") -> Iterator[list[Any]]:
        """Yield some values of all rows that meet a condition, many at a time."""
        with answering(self.title):
            yield from batches(self.connection, self.query(values, condition, behind))

    def count(self, condition: Composable | None = None) -> int:
        """Return the number of rows that meet a condition."""
        from psycopg.sql import SQL

        with answering(self.title):
            ((rows,),) = self.connection.execute(self.query([SQL("count(*)")], condition)).fetchall()
        return int(rows)

    def known_rows(self) -> Iterator[RowBatch]:
        """Yield the ids, the hashes and the places of all rows, some at a time."""
        from psycopg.sql import Identifier

        for rows in self.scan([self.id_text, Identifier(HASH), self.fields.place], None):
            ids, hashes, places = zip(*rows, strict=True)
            yield RowBatch(ids, hashes, np.array(places, np.int64), ids)

    def with_ids(self, ids: Sequence[str]) -> Composed:
        """Return the condition of the rows that have one of some ids."""
        from psycopg.sql import SQL, Literal

        as_type = SQL(self.fields.id_type)
        return SQL("{} = ANY({}::text[]::{}[])").format(self.fields.id, Literal(list(ids)), as_type)

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return rows by their ids, of those that are there."""
        names = list(self.record.columns)
        values = [self.expression(name) for name in (ID, TEXTS, *names)]
        documents = {}
        storable = [key for key in ids if "\0" not in key]
        for rows in self.scan(values, self.with_ids(storable)):
            for key, text, *cells in rows:
                documents[key] = Document(key, text, dict(zip(names, cells, strict=True)))
        return documents

    def vectors_of(self, ids: Sequence[str], key: str) -> dict[str, Vectors]:
        """Return the vectors of rows with some ids, by the values that they have in a field."""
        from psycopg.sql import Identifier

        found: dict[str, Vectors] = {}
        for rows in self.scan([Identifier(key), self.fields.vector], self.with_ids(ids)):
            for name, vector in rows:
                found[name] = vector.to_numpy().astype(np.float32)
        return found

    def stream(self, condition: Composable | None, behind: str = "") -> Iterator[tuple[Integers, Vectors]]:
        """Yield the places ``[n]`` and the vectors ``[n, dim]`` of all rows that meet a condition, many at a time.

        Raises:
            InputError: if some vectors have another dimension.
        """
        from psycopg.sql import SQL

        width = self.record.dimension
        row = np.dtype(
            [("head", "V6"), ("place", ">i8"), ("size", ">i4"), ("head2", "V4"), ("vector", ">f4", (width,))]
        )
        values = [self.fields.place, SQL("{}::vector").format(self.fields.vector)]
        query = self.query(values, condition, behind)
        waiting = bytearray()
        with answering(self.title), self.connection.cursor() as cursor:
            with cursor.copy(SQL("COPY ({}) TO STDOUT (FORMAT BINARY)").format(query)) as copy:
                for number, part in enumerate(copy):
                    waiting += bytes(part)[COPY_HEAD:] if number == 0 else part
                    count = len(waiting) // row.itemsize
                    if count >= BLOCK:
                        yield self._parsed(waiting[: count * row.itemsize], row)
                        del waiting[: count * row.itemsize]
        if len(waiting) > COPY_TAIL:
            yield self._parsed(waiting[:-COPY_TAIL], row)

    def _parsed(self, data: bytearray, row: np.dtype[Any]) -> tuple[Integers, Vectors]:
        """Return the places and vectors of rows in the binary form of COPY."""
        rest = len(data) % row.itemsize
        rows = np.frombuffer(data, row, len(data) // row.itemsize)
        if rest or (rows["size"] != 4 + 4 * self.record.dimension).any():
            raise InputError(f"{self.title}: not all vectors have {self.record.dimension} dimensions")
        return rows["place"].astype(np.int64), rows["vector"].astype(np.float32)

    def nearest(self, vectors: Vectors, k: int, rows: int, condition: Composable | None = None) -> list[FoundRows]:
        """Return the `k` nearest rows of each query ``[queries, dim]``; of equal ones the row that came first is first.

        Args:
            vectors: of the queries.
            k: the number of rows.
            rows: how many rows meet the condition.
            condition: one of `condition_of`.
        """
        found = []
        size = max(min(REQUEST_QUERIES, 2_000_000 // k), 1)
        for start in range(0, len(vectors), size):
            part = vectors[start : start + size]
            found += best_found(partial(self._asked, part, rows, condition), k)
        return found

    def _asked(self, vectors: Vectors, rows: int, condition: Composable | None, count: int) -> list[FoundRows]:
        """Return `count` rows of each query, in order, or all that meet the condition if there are fewer."""
        if self.record.kind == "flat":
            return self._exact(vectors, condition, count)
        lists = self._found(vectors, condition, count, self._settings(count))
        short = [number for number, hits in enumerate(lists) if len(hits.places) < min(count, rows)]
        if short:  # the index has looked at as many rows as it may, and too few of them meet the condition
            exact = self._exact(vectors[short], condition, count)
            for number, hits in zip(short, exact, strict=True):
                lists[number] = hits
        return lists

    def _settings(self, count: int) -> dict[str, Any]:
        """Return how an index is searched for so many rows."""
        efforts = self.record.efforts
        if self.record.kind == "ivf":
            settings: dict[str, Any] = {"ivfflat.iterative_scan": "relaxed_order"}
            if "nprobe" in efforts:
                settings["ivfflat.probes"] = min(efforts["nprobe"], MOST_EFFORT["nprobe"])
            return settings
        settings = {"hnsw.iterative_scan": "strict_order"}
        if "ef" in efforts:
            settings["hnsw.ef_search"] = min(max(efforts["ef"], count), MOST_EFFORT["ef"])
        return settings

    def _exact(self, vectors: Vectors, condition: Composable | None, count: int) -> list[FoundRows]:
        """Return the nearest rows of each query by comparing it with all."""
        if len(vectors) < STREAMED_QUERIES:
            return self._found(vectors, condition, count, {"enable_indexscan": "off"})
        top = TopK(vectors, count, similarity=self.record.similarity)
        places = [np.empty(0, np.int64)]
        for of_part, part in self.stream(condition):
            places.append(of_part)
            top.add(part)
        all_places = np.concatenate(places)
        best = top.best()
        hits = all_places[best.positions]
        keys = self._keys_at(np.unique(hits))
        found = []
        for of_query, scores in zip(hits, best.scores, strict=True):
            named = np.array([keys.get(place, "") for place in of_query.tolist()], object)
            found.append(FoundRows.ranked(of_query, named, scores))
        return found

    def _keys_at(self, places: Integers) -> dict[int, str]:
        """Return the ids of the rows at some places."""
        from psycopg.sql import SQL, Literal

        there = SQL("{} = ANY({})").format(self.fields.place, Literal(places.tolist()))
        keys: dict[int, str] = {}
        for rows in self.scan([self.fields.place, self.id_text], there):
            keys |= dict(rows)
        return keys

    def _found(
        self, vectors: Vectors, condition: Composable | None, count: int, settings: dict[str, Any]
    ) -> list[FoundRows]:
        """Return what PostgreSQL finds for each query with some settings, at most `count` rows, in order."""
        from psycopg.sql import SQL, Literal

        distance = SQL("{} {} q.v").format(self.fields.vector, SQL(OPERATORS[self.record.similarity]))
        of_query = self.query([self.fields.place, self.id_text, distance], condition, f"ORDER BY 3 LIMIT {count}")
        without_parameters = of_query.as_string(self.connection).replace("%", "%%")
        kind = SQL(vector_type(self.record))
        asked = SQL("SELECT q.n, f.* FROM unnest(%s::vector[]::{}[]) WITH ORDINALITY AS q(v, n), LATERAL ({}) AS f")
        statement = asked.format(kind, SQL(without_parameters))
        single = list(np.ascontiguousarray(vectors, np.float32))
        with answering(self.title), self.connection.transaction():
            for name, value in settings.items():
                self.connection.execute(SQL("SET LOCAL {} = {}").format(SQL(name), Literal(value)))
            rows = self.connection.execute(statement, [single], binary=True).fetchall()
        lists: list[list[tuple[int, str, float]]] = [[] for _ in single]
        for number, *hit in rows:
            lists[number - 1].append((hit[0], hit[1], hit[2]))
        return [self._ranked(hits) for hits in lists]

    def _ranked(self, hits: Sequence[tuple[int, str, float]]) -> FoundRows:
        """Return hits, given as places, ids and distances, in order."""
        places = np.array([place for place, _, _ in hits], np.int64)
        keys = np.array([key for _, key, _ in hits], object)
        distances = np.array([distance for _, _, distance in hits], np.float64)
        nearest = 1 - distances if self.record.similarity == "cosine" else -distances
        return FoundRows.ranked(places, keys, nearest.astype(np.float32))

    def with_record(self, **changes: Any) -> PostgresTable:
        """Write changes of the record into the comment, and return the table with them."""
        changed = replace(self, record=replace(self.record, **changes))
        with answering(self.title):
            changed.write_record()
        return changed

    def write_record(self) -> None:
        """Write the record into the comment."""
        from psycopg.sql import SQL, Literal

        comment = comment_of(self.record)
        self.connection.execute(SQL("COMMENT ON TABLE {} IS {}").format(self.place.sql, Literal(comment)))


COPY_HEAD = 19
"""The bytes before the first row in the binary form of COPY."""
COPY_TAIL = 2
"""Those behind the last one."""
