"""Turn records into rows of text, blocks of rows, scored pairs of sentences, or texts that stay on disk.

`survey` reads a whole input before any work starts, so that a broken row is found before hours of encoding, and
progress bars and file headers know the number of rows.
"""

from __future__ import annotations

import math
import mmap
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError
from sentcli.io.column_types import TEXT, Columns, cast, name_of
from sentcli.io.formats import (
    as_text,
    header,
    headless,
    id_of,
    is_null,
    kind_of,
    lines_and_places,
    record_batches,
    records,
    say_quoted,
)
from sentcli.io.packed import PACKED
from sentcli.io.sources import FORMATS, OF_BINARY, Cursor, Source

_WITH_BYTES = (bytes, list, dict)
WHOLE = slice(None)
OnNull = Literal["error", "empty", "skip"]


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
    with_null: bool = False
    """Whether `rows` yields rows without text that are skipped nevertheless, with their id if they have one."""


@dataclass
class Block:
    """Some consecutive rows: ids, texts, and the other columns by name."""

    ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    shard: int = 0
    """The number of the shard that the rows belong to."""
    first_row: int = 0
    """The number of the first row among all rows with a text, from 0."""
    places: list[tuple[str, int]] = field(default_factory=list)
    """The input of each row, and the number of the row in it, from 1."""

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Mark:
    """A place between two rows of the inputs."""

    source: int
    """The number of the input."""
    place: int
    """The number of its rows before."""
    cursor: Cursor
    rows: int
    """The number of rows with a text before, in all inputs."""
    number: int
    """The number of all rows before, in all inputs."""


START = Mark(0, 0, Cursor(), 0, 0)
BLOCK_ROWS = 8192
"""The rows of a block, and the fewest between two marks."""


@dataclass
class Survey:
    """The counts and column types of the inputs, from one pass over them."""

    rows: int = 0
    nulls: int = 0
    column_types: dict[str, Any] = field(default_factory=dict)
    """The Arrow type of each column besides id and text."""
    casts: dict[str, Any] = field(default_factory=dict)
    """The Arrow type of each column that has texts to be converted."""
    found: dict[str, str] = field(default_factory=dict)
    """The type that was found in the texts of each column of CSV and TSV files, by its name."""
    mixed: dict[str, str] = field(default_factory=dict)
    """The columns that stay text because they mix values of a type with others, with the first other value."""
    repeated_ids: int = 0
    """The number of rows with the id of an earlier row."""
    repeated: str = ""
    """The first such id, and where it stands."""
    id_hashes: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    """The hashes of all different ids of this process's `hash`, sorted; none if ids are row numbers."""
    marks: list[Mark] = field(default_factory=list)
    """Places at which `blocks` can begin: the start of each input, and ends of batches, `BLOCK_ROWS` or more apart."""

    def mark_before(self, row: int) -> Mark:
        """Return the last place that is not behind a row, which is given by its number among all with a text."""
        return self.marks[bisect_right([mark.rows for mark in self.marks], row) - 1]


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


def rows(source: Source, options: ReadOptions, cursor: Cursor | None = None) -> Iterator[Row | None]:
    """Yield the rows of one file; with ``on_null="skip"``, a row without text is None. See `row_batches`."""
    for batch in row_batches(source, options, cursor):
        found = dict(zip(batch.places, batch.rows(), strict=True))
        yield from map(found.get, range(batch.total))


@dataclass(frozen=True)
class RowBatch:
    """Some consecutive rows of a file."""

    source: Source
    options: ReadOptions
    total: int
    """The number of rows, with those that are left out because they have no text."""
    places: Sequence[int]
    """The number of each row that is kept among all of the batch, from 0."""
    lines: Sequence[int]
    """The number of the line of each, or of its row in Parquet, from 1."""
    texts: list[str]
    ids: list[str | None] | None
    """None if row numbers are the ids."""
    records: list[dict[str, Any]]
    own: tuple[str, str | None]
    """The fields of text and id."""
    null: frozenset[int] = frozenset()
    """The positions of rows without text among those that are kept."""

    def __len__(self) -> int:
        return len(self.texts)

    def names(self) -> list[str]:
        """Return the names of the other columns, in the order in which they come."""
        names = dict.fromkeys(chain.from_iterable(self.records))
        return [name for name in names if name not in self.own]

    def column(self, name: str, part: slice = WHOLE) -> list[Any]:
        """Return the values of another column for some of the rows, None where a row has none."""
        values = [record.get(name) for record in self.records[part]]
        nulls = self.options.nulls
        if nulls:
            values = [None if value in nulls else value for value in values]
        if self.source.format not in OF_BINARY:
            return values
        lines = self.lines[part]
        with_bytes = [number for number, value in enumerate(values) if isinstance(value, _WITH_BYTES)]
        for number in with_bytes:
            values[number] = _converted(as_text, values[number], name, self.source, lines[number])
        return values

    def rows(self) -> Iterator[Row]:
        """Yield the rows that are kept."""
        columns = {name: self.column(name) for name in self.names()}
        ids = self.ids or [None] * len(self)
        for number, record in enumerate(self.records):
            extras = {name: columns[name][number] for name in record if name not in self.own}
            yield Row(ids[number], self.texts[number], extras, self.lines[number], number in self.null)


def row_batches(source: Source, options: ReadOptions, cursor: Cursor | None = None) -> Iterator[RowBatch]:
    """Yield the rows of one file, some thousand at a time.

    Args:
        source: the file.
        options: fields and null handling.
        cursor: where reading begins; see `record_batches`.

    Raises:
        DataError: for a row whose text or id is missing or of another type.
    """
    text_field = "text" if source.format == "txt" else options.text_field
    begun, is_first = cursor is not None and cursor.line > 0, True
    first = next(records(source), None) if begun else None  # the first record of a file says where its ids are
    id_field = _id_field(source, first[1], options) if first else None
    has_text_field = begun
    for lines, found in record_batches(source, cursor):
        if is_first and not begun:
            id_field = _id_field(source, found[0], options)
            _check_text_field(source, text_field, (lines[0], found[0]), options)
        is_first = False
        has_text_field = has_text_field or any(text_field in record for record in found)
        yield _row_batch(source, options, (text_field, id_field), lines, found)
    if not is_first and not has_text_field:  # the name is probably misspelt
        raise DataError(source.name, f"no row has a {text_field!r}; choose the column with --text-field")


def _row_batch(
    source: Source,
    options: ReadOptions,
    own: tuple[str, str | None],
    lines: Sequence[int],
    found: list[dict[str, Any]],
) -> RowBatch:
    """Return the rows of some records, with texts and ids checked."""
    text_field, id_field = own
    texts: list[Any] = [record.get(text_field) for record in found]
    ids = None if id_field is None else [record.get(id_field) for record in found]
    are_texts = set(map(type, texts)) == {str}
    if not are_texts or (ids is not None and set(map(type, ids)) != {str}):
        return _checked_batch(source, options, own, lines, found)
    if source.format == "tsv":
        for text in texts:
            say_quoted(source, text)
    return RowBatch(source, options, len(found), range(len(found)), lines, texts, ids, found, own)


def _checked_batch(
    source: Source,
    options: ReadOptions,
    own: tuple[str, str | None],
    lines: Sequence[int],
    found: list[dict[str, Any]],
) -> RowBatch:
    """Return the same row by row, where a text is missing or an id is no text."""
    text_field, id_field = own
    places, texts, ids, null = list[int](), list[str](), list[str | None](), set[int]()
    for place, (line, record) in enumerate(zip(lines, found, strict=True)):
        text = record.get(text_field)
        missing = is_null(text)
        if missing:
            if options.on_null == "error":
                what = "missing or null" if text is None else "NaN, which stands for a missing value"
                problem = f"{text_field!r} is {what}{options.null_hint}"
                raise DataError(source.name, problem, line=line, unit=source.unit)
            if options.on_null == "skip" and not options.with_null:
                continue
            text = ""
            null.add(len(texts))
        if not isinstance(text, str):
            raise DataError(
                source.name, f"{text_field!r} is {kind_of(text)}, not a string", line=line, unit=source.unit
            )
        say_quoted(source, text)
        row_id = None
        if id_field and not (options.with_null and missing and is_null(record.get(id_field))):
            row_id = _converted(id_of, record.get(id_field), id_field, source, line)
        places.append(place)
        texts.append(text)
        ids.append(row_id)
    kept = [found[place] for place in places]
    of_kept = [lines[place] for place in places]
    return RowBatch(
        source,
        options,
        len(found),
        places,
        of_kept,
        texts,
        ids if id_field else None,
        kept,
        own,
        frozenset(null),
    )


def _converted(convert: Callable[[Any], Any], value: Any, name: str, source: Source, line: int) -> Any:
    """Return what a function makes of a value; its error names row and column."""
    try:
        return convert(value)
    except ValueError as error:
        raise DataError(source.name, f"{name!r} {error}", line=line, unit=source.unit) from None


def _check_text_field(source: Source, text_field: str, first: tuple[int, dict[str, Any]], options: ReadOptions) -> None:
    """Refuse a file whose header, or whose first record, has no column of texts."""
    line, record = first
    names = header(source) or list(record)
    if text_field not in names and (source.format != "jsonl" or options.on_null == "error"):
        columns = ", ".join(names) or "none"
        problem = f"no column {text_field!r}; it has: {columns}. Choose one with --text-field"
        problem += ", or put a header line above the first row" if headless(names) else ""
        raise DataError(source.name, problem, line=line, unit=source.unit)


def _id_field(source: Source, record: dict[str, Any], options: ReadOptions) -> str | None:
    if source.format == "txt":
        return None
    if options.id_field is None:
        return next((name for name in ("id", "_id") if name in record), None)
    if options.id_field not in record:
        raise DataError(source.name, f"no column {options.id_field!r}; it has: {', '.join(record)}")
    return options.id_field


def survey(sources: Sequence[Source], options: ReadOptions) -> Survey:
    """Read everything once, to count the rows, check all of them, and learn the types of the other columns.

    Raises:
        DataError: for a broken row, or a file without rows.
    """
    surveyed, columns = Survey(), Columns(options.types)
    ids = array("q")  # a hash of each
    for which, source in enumerate(sources):
        before, place = surveyed.rows + surveyed.nulls, 0
        untyped = source.format in ("csv", "tsv")
        cursor = Cursor()
        surveyed.marks.append(Mark(which, 0, Cursor(), surveyed.rows, before))
        for batch in row_batches(source, options, cursor):
            place += batch.total
            surveyed.rows += len(batch)
            surveyed.nulls += batch.total - len(batch)
            if batch.ids is not None:
                ids.extend(hash(row_id) for row_id in batch.ids if row_id is not None)
            for name in batch.names():
                columns.extend(name, batch.column(name), source.name, batch.lines, untyped=untyped)
            if surveyed.rows - surveyed.marks[-1].rows >= BLOCK_ROWS:
                surveyed.marks.append(Mark(which, place, replace(cursor), surveyed.rows, before + place))
        if surveyed.rows + surveyed.nulls == before:
            raise DataError(source.name, "the file is empty: there is no row to read")
    surveyed.column_types = columns.types()
    is_text = {name for name, kind in surveyed.column_types.items() if name_of(kind) == TEXT}
    surveyed.casts = {name: surveyed.column_types[name] for name in columns.texts.keys() - is_text}
    surveyed.found = {name: name_of(surveyed.column_types[name]) for name in columns.texts if name not in options.types}
    surveyed.mixed = {name: column.mixed for name, column in columns.texts.items() if column.mixed}
    if ids:
        surveyed.id_hashes = np.unique(np.array(ids, np.int64))
    surveyed.repeated_ids = len(ids) - len(surveyed.id_hashes)
    if surveyed.repeated_ids:
        surveyed.repeated = _first_repeated(sources, options)
    return surveyed


def _first_repeated(sources: Sequence[Source], options: ReadOptions) -> str:
    """Return the first id that an earlier row has, with both places."""
    first: dict[str, str] = {}
    for source in sources:
        for row in rows(source, options):
            if row is None or row.id is None:
                continue
            place = f"{source.name}, {source.unit} {row.line}"
            if row.id in first:
                return f"{row.id!r:.60} ({first[row.id]}, and {place})"
            first[row.id] = place
    return ""


def blocks(
    sources: Sequence[Source],
    options: ReadOptions,
    *,
    block_rows: int = BLOCK_ROWS,
    shard_rows: int | None = None,
    shards: Iterable[int] | None = None,
    first_number: int = 0,
    columns: Sequence[str] = (),
    casts: Mapping[str, Any] = MappingProxyType({}),
    start: Mark = START,
) -> Iterator[Block]:
    """Yield blocks of rows over all inputs, in order.

    Args:
        sources: the inputs, read one after the other as one sequence of rows.
        options: fields and null handling.
        block_rows: the number of rows in a block; the last block of a shard may be shorter.
        shard_rows: the number of rows in a shard. A block has rows of one shard only, so that the blocks of a shard
            depend on its rows alone.
        shards: the numbers of the shards to yield; the rows of other shards are read and dropped.
        first_number: the number of the first row, for ids that are row numbers.
        columns: the names of the other columns to keep; a row without one gets None.
        casts: the Arrow types of columns whose texts are converted; see `Survey`.
        start: where reading begins, before the first of the shards.
    """
    block = Block(columns={name: [] for name in columns})
    kept_shards = None if shards is None or not shard_rows else frozenset(shards)
    end = math.inf if kept_shards is None else (max(kept_shards, default=-1) + 1) * (shard_rows or 0)
    for batch, before in _batches(sources, options, start, end):
        done = 0
        while done < len(batch) and before.rows + done < end:
            row = before.rows + done
            shard = row // shard_rows if shard_rows else 0
            left = (shard + 1) * shard_rows - row if shard_rows else len(batch)
            if kept_shards is not None and shard not in kept_shards:
                done += left
                continue
            if len(block) and (shard != block.shard or len(block) == block_rows):
                yield _with_types(block, casts)
                block = Block(columns={name: [] for name in columns})
            if not len(block):
                block.shard, block.first_row = shard, row
            part = slice(done, min(done + left, done + block_rows - len(block), len(batch)))
            _extend(block, batch, part, before, first_number)
            done = part.stop
    if len(block):
        yield _with_types(block, casts)


def _batches(
    sources: Sequence[Source], options: ReadOptions, start: Mark, end: float
) -> Iterator[tuple[RowBatch, Mark]]:
    """Yield the rows of all inputs, and the place before each batch."""
    before = start
    for which in range(start.source, len(sources)):
        if before.rows >= end:
            return
        cursor = replace(before.cursor)
        for batch in row_batches(sources[which], options, cursor):
            yield batch, before
            rows, place, number = before.rows + len(batch), before.place + batch.total, before.number + batch.total
            before = Mark(which, place, replace(cursor), rows, number)
            if rows >= end:
                return
        before = Mark(which + 1, 0, Cursor(), before.rows, before.number)


def _extend(block: Block, batch: RowBatch, part: slice, before: Mark, first_number: int) -> None:
    """Append some rows of a batch to a block."""
    places = batch.places[part]
    block.texts.extend(batch.texts[part])
    block.places.extend((batch.source.name, before.place + place + 1) for place in places)
    first = first_number + before.number
    if batch.ids is None:
        block.ids.extend(str(first + place) for place in places)
    else:
        given = zip(batch.ids[part], places, strict=True)
        block.ids.extend(str(first + place) if row_id is None else row_id for row_id, place in given)
    for name, values in block.columns.items():
        values.extend(batch.column(name, part))


def _with_types(block: Block, casts: Mapping[str, Any]) -> Block:
    for name in block.columns.keys() & casts.keys():
        block.columns[name] = cast(block.columns[name], casts[name])
    return block


def pair_files(name: str) -> list[str]:
    """Return the tables in a folder of pairs in the order of their names, or the name itself if it is a file."""
    folder = Path(name)
    if not folder.is_dir():
        return [name]
    suffixes = tuple(suffix for suffix, kind in FORMATS.items() if kind != "txt")
    tables = [str(path) for path in sorted(folder.iterdir()) if _unpacked(path.name).endswith(suffixes)]
    if not tables:
        raise InputError(f"{folder} holds no table of pairs ({', '.join(suffixes)})")
    return tables


def task_name(name: str) -> str:
    """Return the name of a table's task, which is its file name without suffixes."""
    name = _unpacked(Path(name).name)
    return name.removesuffix(next((suffix for suffix in FORMATS if name.endswith(suffix)), ""))


def _unpacked(name: str) -> str:
    """Return the name of a file without the end that says how it is compressed."""
    return name.removesuffix(next((end for end in PACKED if name.endswith(end)), ""))


@dataclass(frozen=True, eq=False)
class Texts(Sequence[str]):
    """Texts on disk, of which only the places are in memory: 16 bytes for each text.

    A plain text file is read in place. Texts from tables and compressed files are in a temporary file.
    """

    starts: npt.NDArray[np.int64]
    """The byte at which each text begins, counted over all files ``[n]``."""
    sizes: npt.NDArray[np.int64]
    """The number of bytes of each text ``[n]``."""
    files: Sequence[mmap.mmap]
    ends: Sequence[int]
    """The byte at which each file ends, counted over all files."""

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Texts: ...
    def __getitem__(self, index: int | slice) -> str | Texts:
        if isinstance(index, slice):
            return Texts(self.starts[index], self.sizes[index], self.files, self.ends)
        start, size = int(self.starts[index]), int(self.sizes[index])
        number = bisect_right(self.ends, start)
        begin = start - (self.ends[number - 1] if number else 0)
        return self.files[number][begin : begin + size].decode("utf-8")

    def select(self, numbers: npt.NDArray[np.int64]) -> Texts:
        """Return the texts with these numbers."""
        return Texts(self.starts[numbers], self.sizes[numbers], self.files, self.ends)


def texts_on_disk(
    sources: Sequence[Source], options: ReadOptions, limit: int | None = None
) -> tuple[Texts, list[int], int]:
    """Read sources one after the other; texts of white space alone are left out.

    Args:
        sources: the inputs.
        options: fields and null handling.
        limit: the number of texts after which reading stops.

    Returns:
        The texts, how many of them each source has, and the number of those that were left out.
    """
    starts, sizes = array("q"), array("q")
    files: list[mmap.mmap] = []
    ends: list[int] = []
    counts, blank = [], 0
    for source in sources:
        before, first = len(starts), ends[-1] if ends else 0
        in_place = source.format == "txt" and not source.packed and source.wide_encoding() is None
        with source.path.open("rb") if in_place else tempfile.TemporaryFile(prefix="sentcli-texts-") as file:
            for place, size, text in lines_and_places(source) if in_place else _copied(source, options, file):
                if len(starts) == limit:
                    break
                if text.strip():
                    starts.append(first + place)
                    sizes.append(size)
                else:
                    blank += 1
            if end := file.seek(0, 2):
                files.append(mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ))
                ends.append(first + end)
        counts.append(len(starts) - before)
    return Texts(np.array(starts, np.int64), np.array(sizes, np.int64), files, ends), counts, blank


def _copied(source: Source, options: ReadOptions, copy: IO[bytes]) -> Iterator[tuple[int, int, str]]:
    """Write the texts of a source into a file, and yield the first byte, the number of bytes and the text of each."""
    for row in rows(source, options):
        text = row.text if row is not None else ""
        place = copy.tell()
        yield place, copy.write(text.encode("utf-8")), text
