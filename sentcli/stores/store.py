"""What a database offers to a corpus that is written into it: `index --to`.

A database is a class with the members of `Database`, which the group `DATABASES` of entry points names by the scheme of
its addresses. Reading a corpus, telling what has changed, counting and measuring are written once above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from sentcli.arrays import AnyArray
from sentcli.io.blocks import Block
from sentcli.io.table_source import TableSource
from sentcli.search.options import DatabaseOptions
from sentcli.search.recall import IndexedSearch
from sentcli.stores.known_rows import KnownRows
from sentcli.stores.record import CollectionRecord
from sentcli.stores.row_places import Places

DATABASES = "sentcli.databases"
"""The group of entry points of databases: the name of each is its scheme, its value a class that makes a `Database`."""


CONNECT_SECONDS = 20
"""How long a server may take to accept a connection, unless its address says otherwise."""
REQUEST_QUERIES = 256
REQUEST_HITS = 2_000_000
"""How many queries are sent to a database together, and how many hits they ask for together."""


class StoredCollection(Protocol):
    """A collection that is there."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def record(self) -> CollectionRecord:
        """What it says about itself."""

    @property
    def version(self) -> int | None:
        """The number of the version that is read; None if there are no versions."""


@runtime_checkable
class CollectionCorpus(TableSource, Protocol):
    """What a corpus in a database offers besides `corpus.Corpus`, so that it can move to another model."""

    @property
    def collection(self) -> StoredCollection:
        """The collection."""

    @property
    def in_order(self) -> bool:
        """Whether `tables` yields rows in the order in which they were written."""


class IndexOfCollection(IndexedSearch, Protocol):
    """The search through the index of a collection, whose recall can be measured."""

    @property
    def record(self) -> CollectionRecord:
        """What the collection says about itself."""


@runtime_checkable
class CheckedCorpus(Protocol):
    """What a corpus in a database offers besides `corpus.Corpus`, so that its index and its model can be checked."""

    def to_check(self) -> IndexOfCollection | None:
        """Return the search through the index that is there, at first with its present effort; None if there is none.

        Raises:
            InputError: if the index orders rows by another similarity than those of sentcli.
        """

    def rows_to_compare(self) -> tuple[list[str], AnyArray]:
        """Return what was encoded of some rows from all of the collection, and their vectors ``[n, dim]``."""


class RowsThere(Protocol):
    """The rows of a collection, with which those of a corpus are compared."""

    @property
    def title(self) -> str:
        """The address and the name of the collection, for messages."""

    @property
    def record(self) -> CollectionRecord:
        """What the collection says about itself, with the columns that rows bring into it."""

    @property
    def there(self) -> KnownRows:
        """Which rows it has, as it was before any was written."""

    def lacking(self, ids: Sequence[str], hashes: Sequence[str]) -> list[int]:
        """Return which of some rows are not there with the content of these hashes, by their numbers in the lists."""

    def vectors_of(self, hashes: Sequence[str]) -> dict[str, AnyArray]:
        """Return the vectors ``[dim]`` that rows have whose texts are those of some rows, by `known_rows.text_of`."""

    def ids(self) -> Iterator[Sequence[str]]:
        """Yield the ids of the rows, some at a time."""


class RowStore(RowsThere, Protocol):
    """A collection while rows are written into it; it answers with its old rows, or not at all, until `publish`."""

    @property
    def replaces(self) -> bool:
        """Whether it will replace another collection, so that it keeps no rows but those of the corpus."""

    def write(self, block: Block, vectors: AnyArray, hashes: Sequence[str]) -> int:
        """Write rows, which replace those with the same ids; the same after an interruption has them.

        Args:
            block: the rows.
            vectors: their vectors ``[rows, dim]``.
            hashes: their `record.content_hashes`.

        Returns:
            How many of the texts were cut, because the database takes no longer ones.
        """

    def count(self) -> int:
        """Return the number of rows, with all that were written."""

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows."""

    def publish(self) -> None:
        """Make the rows that were written the rows of the collection, with an index over them."""

    def to_measure(self, *, changed: bool) -> IndexedSearch | None:
        """Return the search whose recall has to be measured, if there is one; `changed` tells whether rows did."""

    def complete(self, recall: Mapping[str, Any] | None, rows: int) -> None:
        """Write into the record what was measured, and how many rows there are."""

    def facts(self) -> dict[str, Any]:
        """Return what the result says besides counts and recall."""


class Database(Protocol):
    """A place of collections, and the name of one of them."""

    name: str
    """The name of the collection."""
    most_id_bytes: int | None
    """The most bytes of an id; None if ids may be of any length."""
    most_text_bytes: int | None
    """The most bytes of a text that are stored; None if all are."""

    def __init__(self, options: DatabaseOptions, kind: str) -> None:
        """Take the address, the name and the options of a collection, and the kind of its index.

        Raises:
            InputError: if the database has no such collection or index, before anything is read.
        """

    def open(
        self, record: CollectionRecord, order: Places, *, overwrite: bool, keeps_before: bool = False
    ) -> AbstractContextManager[RowStore]:
        """Open the collection to write it.

        Args:
            record: of the rows.
            order: the numbers of the rows of the corpus, in whose order rows of equal scores stand.
            overwrite: make it anew.
            keeps_before: keep the one that is replaced beside it.

        Raises:
            InputError: if it holds rows of another kind, or another process writes it.
        """

    def compare(self, record: CollectionRecord) -> AbstractContextManager[RowsThere]:
        """Open the collection to compare its rows with those of a record; nothing is written.

        Raises:
            InputError: if there is none, or it holds rows of another kind.
        """

    @property
    def before(self) -> str:
        """The name under which a collection is kept as it was before it was replaced."""

    def before_record(self) -> CollectionRecord | None:
        """Return the record of the one before; None if the collection was not replaced, or that was let go."""

    def go_back(self) -> None:
        """Exchange the collection with the one before; the same again takes that back.

        Raises:
            InputError: if there is none.
        """

    def drop_before(self) -> None:
        """Let the one before go.

        Raises:
            InputError: if there is none.
        """
