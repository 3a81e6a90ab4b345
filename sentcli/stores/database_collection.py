"""What a collection of a database offers to the corpus over it and to the store that writes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from sentcli.arrays import AnyArray, Int64Array
from sentcli.search.provenance import Provenance
from sentcli.search.rows import Document
from sentcli.stores.known_rows import RowBatch
from sentcli.stores.record import HASH, ID, TEXTS, CollectionRecord, texts_of_rows


class RowCells(NamedTuple):
    """The values of some rows of a collection."""

    places: Int64Array
    keys: Sequence[Any]
    """By what the database returns a row, its id or a number ``[rows]``."""
    columns: list[list[Any]]
    """The values of each field that was asked for ``[fields, rows]``."""


class DatabaseCollection(ABC):
    """A collection that is there, whatever the database is."""

    record: CollectionRecord
    """What it says about itself."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The address and the name, for messages."""

    @cached_property
    def origin(self) -> Provenance:
        """What the record says about how the vectors were made."""
        return Provenance.named(self.title, self.record.settings)

    def field_of(self, column: str) -> Any:
        """Return what a query of the database calls a column."""
        return self.record.field_of(column)[0]

    @abstractmethod
    def cells(self, fields: Sequence[Any], condition: Any = None) -> Iterator[RowCells]:
        """Yield some fields of all rows that meet a condition, some rows at a time."""

    @abstractmethod
    def values_of_ids(self, ids: Sequence[str], columns: Sequence[str]) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield the values of each of some columns of the rows with these ids that are there, some rows at a time."""

    @abstractmethod
    def vectors_by_hash(self, keys: Sequence[Any]) -> dict[str, AnyArray]:
        """Return the vectors ``[dim]`` of some rows, given by what the database returns them, by their row hashes."""

    def known_rows(self) -> Iterator[RowBatch]:
        """Yield the ids, the hashes, the places and the keys of all rows, some at a time."""
        for places, keys, (ids, hashes) in self.cells([ID, HASH]):
            yield RowBatch(ids, hashes, places, keys)

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return rows by their ids, of those that are there."""
        documents = {}
        for columns in self.values_of_ids(ids, self.document_columns):
            for document in self.as_documents(columns):
                documents[document.id] = document
        return documents

    @property
    def document_columns(self) -> list[str]:
        """The columns of a document, with id and text."""
        return [ID, TEXTS, *self.record.columns]

    def as_documents(self, columns: Sequence[Sequence[Any]]) -> Iterator[Document]:
        """Yield rows, given the values of their `document_columns`.

        Raises:
            DataError: if one has no text.
        """
        names = list(self.record.columns)
        ids, texts, *others = columns
        whole = texts_of_rows(self.title, ids, texts)
        for key, text, *values in zip(ids, whole, *others, strict=True):
            yield Document(key, text, dict(zip(names, values, strict=True)))
