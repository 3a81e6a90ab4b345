"""Turn the records of an input file into rows, each with a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

from sentcli.errors import DataError
from sentcli.io.formats import (
    FileRecord,
    decode_bytes,
    header,
    headless,
    id_of,
    is_null,
    kind_of,
    record_batches,
    records,
    say_quoted,
)
from sentcli.io.sources import LOOKS, OF_BINARY, TYPED_LOOK, Cursor, Look, Source

_WITH_BYTES = (bytes, list, dict)
"""The types of values that may hold bytes."""
_WHOLE = slice(None)


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
class SourceRows:
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
    cut_from: SourceRows | None = None
    """The documents that these rows are passages of."""
    typed: frozenset[str] = frozenset()
    """The columns whose values have their types, whatever the format of the file."""

    def looks(self, name: str) -> frozenset[Look]:
        """Return what texts of a column may stand for."""
        if name in self.typed:
            return frozenset()
        if name in dict(self.source.partition):
            return TYPED_LOOK
        return LOOKS.get(self.source.format, frozenset())

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

    def column(self, name: str, part: slice = _WHOLE) -> list[Any]:
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


OnNull = Literal["error", "empty", "skip"]
CutBatch = Callable[[SourceRows, int], SourceRows]
"""Returns the passages of a batch of documents, given the number of the first one, for ids that are numbers."""
WITH_ONE_TEXT = ("txt", "page")
"""The formats whose records have a text and no other column of the user's choice for it."""


@dataclass(frozen=True)
class ReadOptions:
    """The fields to read, and what to do with a row that has no text."""

    text_field: str = "text"
    id_field: str | None = None
    """The field of the ids; None takes ``id``, else ``_id`` (BEIR), else the row number."""
    on_null: OnNull = "error"
    null_hint: str = "; leave such rows out, or give them a text"
    """The end of the error message about a null, for commands whose users can choose `on_null`."""
    nulls: tuple[str, ...] = ()
    """Texts that stand for a missing value in other columns than those of text and id."""
    types: Mapping[str, str] = field(default_factory=dict)
    """The types of columns by `column_types.types`; those of others are found in their values."""
    cut: CutBatch | None = None
    """Cuts the documents of a batch into passages, which are the rows then."""
    with_null: bool = False
    """Whether `rows` yields rows without text that are skipped nevertheless, with their id if they have one."""


def rows(source: Source, options: ReadOptions) -> Iterator[Row | None]:
    """Yield the rows of one file; with ``on_null="skip"``, a row without text is None. See `row_batches`."""
    for batch in row_batches(source, options):
        by_place = dict(zip(batch.places, batch.rows(), strict=True))
        yield from map(by_place.get, range(batch.total))


def row_batches(source: Source, options: ReadOptions, cursor: Cursor | None = None) -> Iterator[SourceRows]:
    """Yield the rows of one file, some thousand at a time.

    Args:
        source: the file.
        options: fields and null handling.
        cursor: where reading begins; see `record_batches`.

    Raises:
        DataError: for a row whose text or id is missing or of another type.
    """
    text_field = "text" if source.format in WITH_ONE_TEXT else options.text_field
    in_the_middle = cursor is not None and cursor.line > 0
    has_text_field = in_the_middle
    reader: _RowReader | None = None
    for lines, batch in record_batches(source, cursor):
        if reader is None:
            line = lines[0]
            record = batch[0]
            if in_the_middle:
                line, record = next(records(source))
            id_field = _id_field(source, record, options)
            if not in_the_middle:
                _check_text_field(source, text_field, (line, record), options)
            reader = _RowReader(source, options, text_field, id_field)
        has_text_field = has_text_field or any(text_field in record for record in batch)
        yield reader.rows_of(lines, batch)
    if reader is not None and not has_text_field:  # the name is probably misspelt
        raise DataError(source.name, f"no row has a {text_field!r}; choose the column with --text-field")


@dataclass(frozen=True)
class _RowReader:
    """Checks the texts and ids of the records of one file."""

    source: Source
    options: ReadOptions
    text_field: str
    id_field: str | None
    """The column of the ids; None if row numbers are the ids."""

    def rows_of(self, lines: Sequence[int], records: list[FileRecord]) -> SourceRows:
        """Return the rows of some records, given the number of the line of each."""
        total = len(records)
        places: Sequence[int] = range(total)
        without_text: set[int] = set()
        texts: list[Any] = [record.get(self.text_field) for record in records]
        ids: list[Any] | None = None
        are_texts = set(map(type, texts)) == {str}
        if self.id_field is not None:
            ids = [record.get(self.id_field) for record in records]
            are_texts = are_texts and set(map(type, ids)) == {str}
        if not are_texts:
            places, texts, ids, without_text = self._one_by_one(lines, records)
            lines = [lines[place] for place in places]
            records = [records[place] for place in places]
        elif self.source.format == "tsv":
            for text in texts:
                say_quoted(self.source, text)
        return SourceRows(
            self.source,
            self.text_field,
            self.id_field,
            total,
            places,
            lines,
            texts,
            ids,
            records,
            self.options.nulls,
            frozenset(without_text),
        )

    def _one_by_one(
        self, lines: Sequence[int], records: list[FileRecord]
    ) -> tuple[list[int], list[str], list[str | None] | None, set[int]]:
        """Read records of which one at least lacks its text, or has an id that is no text.

        Returns:
            The places, texts and ids of the rows that are kept, and the positions of those without a text among them.
        """
        places: list[int] = []
        texts: list[str] = []
        ids: list[str | None] = []
        without_text: set[int] = set()
        for place, (line, record) in enumerate(zip(lines, records, strict=True)):
            text = record.get(self.text_field)
            missing = is_null(text)
            if missing:
                if self._is_left_out(text, line):
                    continue
                text = ""
                without_text.add(len(texts))
            if not isinstance(text, str):
                raise self.source.error(f"{self.text_field!r} is {kind_of(text)}, not a string", line)
            say_quoted(self.source, text)
            ids.append(self._id(record, line, without_text=missing))
            texts.append(text)
            places.append(place)
        if self.id_field is None:
            return places, texts, None, without_text
        return places, texts, ids, without_text

    def _is_left_out(self, text: float | None, line: int) -> bool:
        """Tell whether a row without text, which has null or NaN instead, is left out.

        Raises:
            DataError: if it is an error.
        """
        on_null = self.options.on_null
        if on_null == "error":
            what = "missing or null" if text is None else "NaN, which stands for a missing value"
            raise self.source.error(f"{self.text_field!r} is {what}{self.options.null_hint}", line)
        return on_null == "skip" and not self.options.with_null

    def _id(self, record: FileRecord, line: int, *, without_text: bool) -> str | None:
        """Return the id of a row; None if row numbers are the ids, or a row without text has none."""
        if self.id_field is None:
            return None
        value = record.get(self.id_field)
        if self.options.with_null and without_text and is_null(value):
            return None
        try:
            return id_of(value)
        except ValueError as error:
            raise self.source.error(f"{self.id_field!r} {error}", line) from None


def _check_text_field(source: Source, text_field: str, first: tuple[int, FileRecord], options: ReadOptions) -> None:
    """Refuse a file whose header, or whose first record, has no column of texts."""
    line, record = first
    names = header(source) or list(record)
    if text_field in names:
        return
    if source.format == "jsonl" and options.on_null != "error":  # later records may have it
        return
    columns = ", ".join(names) or "none"
    problem = f"no column {text_field!r}; it has: {columns}. Choose one with --text-field"
    if headless(names):
        problem += ", or put a header line above the first row"
    raise source.error(problem, line)


def _id_field(source: Source, record: FileRecord, options: ReadOptions) -> str | None:
    """Return the field of the ids, given the first record of a file; None if row numbers are the ids."""
    if source.format == "txt":
        return None
    if source.format == "page":
        return "id"
    if options.id_field is None:
        return next((name for name in ("id", "_id") if name in record), None)
    if options.id_field not in record:
        raise DataError(source.name, f"no column {options.id_field!r}; it has: {', '.join(record)}")
    return options.id_field
