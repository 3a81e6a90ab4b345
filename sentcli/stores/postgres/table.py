"""Tables of PostgreSQL: rows are read, counted and searched.

A table has the fields ``id``, ``text``, ``embedding``, one for each column, `HASH` and `ORDER`, by which rows of equal
similarity are ordered as they came. How its vectors were made stands in its comment, as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from sentcli.arrays import AnyArray, Int64Array, Vectors
from sentcli.errors import InputError
from sentcli.model.spec import Similarity
from sentcli.search.conditions import Tree
from sentcli.search.exact import TopK
from sentcli.stores.collection_corpus import FoundRows, best_found
from sentcli.stores.collection_vectors import EFFORT
from sentcli.stores.database_collection import DatabaseCollection, RowCells
from sentcli.stores.known_rows import RowBatch
from sentcli.stores.postgres.client import (
    SQL,
    Composable,
    Composed,
    Connection,
    Identifier,
    Literal,
    TableName,
    Vector,
    answering,
    batches,
    comment_of,
    comment_on,
    record_of,
    shown,
)
from sentcli.stores.postgres.conditions import sql_of
from sentcli.stores.record import HASH, ID, ORDER, TEXTS, VECTORS, CollectionRecord
from sentcli.stores.store import REQUEST_HITS, REQUEST_QUERIES

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
INDEX_METHODS = {"flat": None, "hnsw": "hnsw", "ivf": "ivfflat"}
"""What pgvector calls the kinds of ``--type``."""
OPERATORS: dict[Similarity, str] = {"cosine": "<=>", "dot": "<#>"}
OPERATOR_CLASSES: dict[Similarity, str] = {"cosine": "cosine_ops", "dot": "ip_ops"}
"""The distances of pgvector, and what an index over them is called behind the type of the vectors."""
INDEX_SETTINGS = {"hnsw": "hnsw.ef_search", "ivf": "ivfflat.probes"}
MOST_EFFORT = {"hnsw": 1000, "ivf": 32_768}
"""The search parameters of the kinds, and the largest that pgvector takes."""
ITERATIVE = {"hnsw": "strict_order", "ivf": "relaxed_order"}
"""How the search of an index goes on until enough rows meet a condition; hits are ordered once more anyway."""
MOST_DIMENSIONS = {"vector": 2000, "halfvec": 4000}
"""The most dimensions over which pgvector makes an index."""
STREAMED_QUERIES = 4
"""From so many queries on, exact search reads all vectors once, which takes the time of some ten scans."""


def vector_type(record: CollectionRecord) -> str:
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
    vector_type: str = "vector"
    filled: Composable | None = None
    """The condition of rows that have an id and a vector; None where all have."""

    @classmethod
    def of(cls, record: CollectionRecord) -> Fields:
        """Return those of a table that sentcli made."""
        key, text, vector, place = map(Identifier, (ID, TEXTS, VECTORS, ORDER))
        return cls(key, text, vector, place, vector_type=vector_type(record))


@dataclass(frozen=True)
class PostgresTable(DatabaseCollection):
    """A table, and what it says about itself."""

    connection: Connection
    address: str
    place: TableName
    record: CollectionRecord
    fields: Fields
    version: None = None
    """PostgreSQL keeps no versions."""

    @classmethod
    def open(cls, connection: Connection, address: str, place: TableName) -> PostgresTable:
        """Return a table that sentcli made.

        Raises:
            InputError: if there is none, or another program has made it.
        """
        title = f"{shown(address)} {place}"
        record = record_of(comment_on(connection, address, place), title)
        if record is None:
            advice = "choose another --collection, or name its fields with --vector-field, --text-field and --id-field"
            raise InputError(f"{title} was not made by sentcli index: {advice}")
        return cls(connection, address, place, record, Fields.of(record))

    @property
    def title(self) -> str:
        """The address without its password and the name, for messages."""
        return f"{shown(self.address)} {self.place}"

    @property
    def name(self) -> str:
        """The name, as ``--collection`` takes it."""
        return str(self.place)

    @cached_property
    def id_text(self) -> Composed:
        """The ids as texts."""
        return SQL("{}::text").format(self.fields.id)

    @property
    def full_vector(self) -> Composed:
        """The vectors in single precision."""
        return SQL("{}::vector").format(self.fields.vector)

    def field_of(self, column: str) -> Composable:
        """Return the value of a column as the type that it has in the record."""
        if column == ID:
            return self.id_text
        if column == TEXTS:
            return self.fields.text
        name, kind = self.record.columns[column]
        return SQL("{}::{}").format(Identifier(name), SQL(COLUMN_TYPES[kind]))

    def condition_of(self, tree: Tree, other: Composable | None = None) -> Composable:
        """Return a condition on columns as SQL, which rows have to meet besides another one."""
        condition = sql_of(tree, self.field_of)
        if other is None:
            return condition
        return SQL("{} AND {}").format(other, condition)

    def at(self, places: Int64Array) -> Composable:
        """Return the condition of the rows at some places."""
        return SQL("{} = ANY({}::int8[])").format(self.fields.place, Literal(places.tolist()))

    def query(self, values: Sequence[Composable], condition: Composable | None, behind: str = "") -> Composed:
        """Return the statement that reads some values of all rows that meet a condition."""
        conditions = [part for part in (self.fields.filled, condition) if part is not None]
        read = SQL("SELECT {} FROM {} ").format(SQL(", ").join(values), self.place.sql)
        if conditions:
            read += SQL("WHERE {} ").format(SQL(" AND ").join(conditions))
        return read + SQL(behind)

    def scan(
        self, values: Sequence[Composable], condition: Composable | None, behind: str = ""
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield some values of all rows that meet a condition, many at a time: of each value those of the rows."""
        query = self.query(values, condition, behind)
        with answering(self.title):
            for rows in batches(self.connection, query):
                yield list(zip(*rows, strict=True))

    def count(self, condition: Composable | None = None) -> int:
        """Return the number of rows that meet a condition."""
        with answering(self.title):
            ((rows,),) = self.connection.execute(self.query([SQL("count(*)")], condition)).fetchall()
        return int(rows)

    def known_rows(self) -> Iterator[RowBatch]:
        """Yield the ids, the hashes and the places of all rows, some at a time."""
        for places, ids, (hashes,) in self.cells([Identifier(HASH)]):
            yield RowBatch(ids, hashes, places, ids)

    def cells(self, fields: Sequence[Any], condition: Any = None, behind: str = "") -> Iterator[RowCells]:
        """Yield the values of some expressions in all rows that meet a condition, by their ids."""
        values = [self.fields.place, self.id_text, *fields]
        for places, ids, *columns in self.scan(values, condition, behind):
            yield RowCells(np.array(places, np.int64), list(ids), list(map(list, columns)))

    def with_ids(self, ids: Sequence[str]) -> Composed:
        """Return the condition of the rows that have one of some ids."""
        as_type = SQL(self.fields.id_type)
        return SQL("{} = ANY({}::text[]::{}[])").format(self.fields.id, Literal(list(ids)), as_type)

    def values_of_ids(self, ids: Sequence[str], columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the values of some columns of the rows with these ids."""
        storable = [key for key in ids if "\0" not in key]
        yield from self.scan(list(map(self.field_of, columns)), self.with_ids(storable))

    def vectors_of(self, ids: Sequence[str], key: Composable) -> dict[str, AnyArray]:
        """Return the vectors ``[dim]`` of rows with some ids, by the values that these rows have of an expression."""
        found: dict[str, AnyArray] = {}
        for names, vectors in self.scan([key, self.full_vector], self.with_ids(ids)):
            found |= zip(names, map(Vector.to_numpy, vectors), strict=True)
        return found

    def vectors_by_hash(self, keys: Sequence[Any]) -> dict[str, AnyArray]:
        """Return the vectors of the rows with some ids, by their row hashes."""
        return self.vectors_of(keys, Identifier(HASH))

    def vectors(self, places: Int64Array) -> Iterator[tuple[Int64Array, Vectors]]:
        """Yield the places ``[n]`` and the vectors ``[n, dim]`` of the rows at some places."""
        return self.stream(self.at(places))

    def present_effort(self) -> dict[str, int]:
        """Return the search parameter that searches of the database have now."""
        kind = self.record.kind
        with answering(self.title):
            asked = f"SELECT current_setting('{INDEX_SETTINGS[kind]}'), '[1]'::vector"  # which loads pgvector
            ((value, _),) = self.connection.execute(asked).fetchall()
        return {EFFORT[kind]: int(value)}

    def stream(self, condition: Composable | None, behind: str = "") -> Iterator[tuple[Int64Array, Vectors]]:
        """Yield the places ``[n]`` and the vectors ``[n, dim]`` of rows that meet a condition, many at a time."""
        for places, vectors in self.scan([self.fields.place, self.full_vector], condition, behind):
            yield np.array(places, np.int64), np.stack(list(map(Vector.to_numpy, vectors)))

    def nearest(
        self, vectors: Vectors, k: int, condition: Composable | None = None, rows: int | None = None
    ) -> list[FoundRows]:
        """Return the `k` nearest rows of each query ``[queries, dim]``; of equal ones the row that came first is first.

        Args:
            vectors: of the queries.
            k: the number of rows.
            condition: one of `condition_of`.
            rows: how many rows meet it; None counts them.
        """
        if rows is None:
            rows = self.count(condition)
        size = max(REQUEST_HITS // k, 1)
        if self.record.kind != "flat":
            size = min(size, REQUEST_QUERIES)
        return best_found(partial(self._asked, rows, condition), vectors, size, k)

    def _asked(self, rows: int, condition: Composable | None, vectors: Vectors, count: int) -> list[FoundRows]:
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
        kind = self.record.kind
        settings: dict[str, Any] = {f"{INDEX_METHODS[kind]}.iterative_scan": ITERATIVE[kind]}
        effort = self.record.efforts.get(EFFORT[kind])
        if effort is not None:
            if kind == "hnsw":
                effort = max(effort, count)  # a graph finds at first no more rows than it looks at
            settings[INDEX_SETTINGS[kind]] = min(effort, MOST_EFFORT[kind])
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
        keys: dict[int, str] = {}
        for at, ids in self.scan([self.fields.place, self.id_text], self.at(np.unique(hits))):
            keys |= zip(at, ids, strict=True)
        found = []
        for of_query, scores in zip(hits, best.scores, strict=True):
            named = np.array([keys.get(place, "") for place in of_query.tolist()], object)
            found.append(FoundRows.ranked(of_query, named, scores))
        return found

    def _found(
        self, vectors: Vectors, condition: Composable | None, count: int, settings: dict[str, Any]
    ) -> list[FoundRows]:
        """Return what PostgreSQL finds for each query with some settings, at most `count` rows, in order."""
        distance = SQL("{} {} q.v").format(self.fields.vector, SQL(OPERATORS[self.record.similarity]))
        of_query = self.query([self.fields.place, self.id_text, distance], condition, f"ORDER BY 3 LIMIT {count}")
        without_parameters = of_query.as_string(self.connection).replace("%", "%%")
        kind = SQL(self.fields.vector_type)
        asked = SQL("SELECT q.n, f.* FROM unnest(%s::vector[]::{}[]) WITH ORDINALITY AS q(v, n), LATERAL ({}) AS f")
        statement = asked.format(kind, SQL(without_parameters))
        queries = list(np.ascontiguousarray(vectors, np.float32))
        with answering(self.title), self.connection.transaction():
            for name, value in settings.items():
                self.connection.execute(SQL("SET LOCAL {} = {}").format(SQL(name), Literal(value)))
            rows = self.connection.execute(statement, [queries], binary=True).fetchall()
        hits = np.array(rows, object).reshape(-1, 4)
        numbers = hits[:, 0].astype(np.int64) - 1
        scores = -hits[:, 3].astype(np.float64)
        if self.record.similarity == "cosine":
            scores += 1
        places = hits[:, 1].astype(np.int64)
        return FoundRows.of_queries(numbers, len(queries), places, hits[:, 2], scores.astype(np.float32))

    def with_record(self, **changes: Any) -> PostgresTable:
        """Write changes of the record into the comment, and return the table with them."""
        record = replace(self.record, **changes)
        self.execute("COMMENT ON TABLE {} IS {}", Literal(comment_of(record)))
        return replace(self, record=record)

    def execute(self, statement: str, *parts: Composable, values: Sequence[Any] | None = None) -> None:
        """Execute a statement that names the table first, and then other parts."""
        with answering(self.title):
            self.connection.execute(SQL(statement).format(self.place.sql, *parts), values)
