"""Rows of one input file, each with a text, an id and other columns, some thousand at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sentcli.io.formats import decode_bytes
from sentcli.io.sources import OF_BINARY, Source

_WITH_BYTES = (bytes, list, dict)
"""The types of values that may hold bytes."""
WHOLE = slice(None)


@dataclass(frozen=True)
class Row:
    """One row that has a text."""

    id: str | None
    text: str
    extras: dict[str, Any]
    line: int = 0
    """The number of its line, or of its row in Parquet, from 1."""
    is_null: bool = False
    """Whether it has no text, and `text` is empty in its place."""


@dataclass(frozen=True)
class RowBatch:
    """Some consecutive rows of a file."""

    source: Source
    text_field: str
    id_field: str | None
    total: int
    """The number of rows, with those that are left out because they have no text."""
    places: Sequence[int]
    """The number of each row that is kept among all of the batch, from 0."""
    lines: Sequence[int]
    """The number of the line of each row that is kept, or of its row in Parquet, from 1."""
    texts: list[str]
    ids: list[str | None] | None
    """The ids of the rows; None if row numbers are the ids."""
    records: list[dict[str, Any]]
    nulls: tuple[str, ...] = ()
    """Texts that stand for a missing value in other columns."""
    without_text: frozenset[int] = frozenset()
    """The positions of rows without text among those that are kept."""
    contexts: Sequence[str] = ()
    """What is put in front of each text when it is encoded; nothing if it is empty."""
    cut_from: RowBatch | None = None
    """The documents that these rows are passages of."""
    typed: frozenset[str] = frozenset()
    """The columns whose values have their types, whatever the format of the file."""

    def is_untyped(self, name: str) -> bool:
        """Tell whether the values of a column are texts of which it is not known what they stand for."""
        return self.source.format in ("csv", "tsv") and name not in self.typed

    @property
    def read(self) -> int:
        """The number of records that were read for these rows."""
        return (self.cut_from or self).total

    @property
    def left_out(self) -> int:
        """The number of rows that are left out because they have no text."""
        documents = self.cut_from or self
        return documents.total - len(documents)

    def __len__(self) -> int:
        return len(self.texts)

    def names(self) -> list[str]:
        """Return the names of the columns besides text and id, in the order in which they come."""
        names = dict.fromkeys(chain.from_iterable(self.records))
        names.pop(self.text_field, None)
        if self.id_field is not None:
            names.pop(self.id_field, None)
        return list(names)

    def column(self, name: str, part: slice = WHOLE) -> list[Any]:
        """Return the values of another column for some of the rows, None where a row has none.

        Raises:
            DataError: for bytes that are no text in UTF-8.
        """
        values = [record.get(name) for record in self.records[part]]
        nulls = self.nulls
        if nulls:
            values = [None if value in nulls else value for value in values]
        if self.source.format not in OF_BINARY:
            return values
        positions = [position for position, value in enumerate(values) if isinstance(value, _WITH_BYTES)]
        for position in positions:
            try:
                values[position] = decode_bytes(values[position])
            except ValueError as error:
                raise self.source.error(f"{name!r} {error}", self.lines[part][position]) from None
        return values

    def rows(self) -> Iterator[Row]:
        """Yield the rows that are kept."""
        columns = {name: self.column(name) for name in self.names()}
        ids = self.ids or [None] * len(self)
        for position, record in enumerate(self.records):
            extras = {name: columns[name][position] for name in record if name in columns}
            yield Row(ids[position], self.texts[position], extras, self.lines[position], position in self.without_text)
