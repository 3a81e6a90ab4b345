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
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError
from sentcli.io.column_types import TEXT, Columns, cast, name_of
from sentcli.io.formats import as_text, header, headless, id_of, is_null, kind_of, lines_and_places, records, say_quoted
from sentcli.io.packed import PACKED
from sentcli.io.sources import FORMATS, OF_BINARY, Cursor, Source

_WITH_BYTES = (bytes, list, dict)
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
"""The rows of a block, and those between two marks."""


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
    """Places at which `blocks` can begin: the start of each input, and one after each `BLOCK_ROWS` rows."""

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
    """Yield the rows of one file; with ``on_null="skip"``, a row without text is None.

    Args:
        source: the file.
        options: fields and null handling.
        cursor: where reading begins; see `records`.

    Raises:
        DataError: for a row whose text or id is missing or of another type.
    """
    text_field = "text" if source.format == "txt" else options.text_field
    begun, unit = cursor is not None and cursor.line > 0, source.unit
    first = next(records(source)) if begun else None  # the first record of a file says where its ids are
    id_field = _id_field(source, first[1], options) if first else None
    number, has_text_field = -1, begun
    for number, (line, record) in enumerate(records(source, cursor)):
        has_text_field = has_text_field or text_field in record
        if number == 0 and not begun:
            id_field = _id_field(source, record, options)
            _check_text_field(source, text_field, (line, record), options)
        text = record.get(text_field)
        missing = is_null(text)
        if missing:
            if options.on_null == "error":
                what = "missing or null" if text is None else "NaN, which stands for a missing value"
                problem = f"{text_field!r} is {what}{options.null_hint}"
                raise DataError(source.name, problem, line=line, unit=unit)
            if options.on_null == "skip" and not options.with_null:
                yield None
                continue
            text = ""
        if not isinstance(text, str):
            raise DataError(source.name, f"{text_field!r} is {kind_of(text)}, not a string", line=line, unit=unit)
        say_quoted(source, text)
        row_id = None
        if id_field and not (options.with_null and missing and is_null(record.get(id_field))):
            row_id = _converted(id_of, record.get(id_field), id_field, source, line)
        extras = _extras(record, (text_field, id_field), options.nulls)
        if source.format in OF_BINARY:
            _without_bytes(extras, source, line)
        yield Row(row_id, text, extras, line, missing)
    if number >= 0 and not has_text_field:  # the name is probably misspelt
        raise DataError(source.name, f"no row has a {text_field!r}; choose the column with --text-field")


def _extras(record: dict[str, Any], fields: tuple[str | None, ...], nulls: Sequence[str]) -> dict[str, Any]:
    """Return the other columns of a record, with None for what stands for a missing value."""
    extras = {name: value for name, value in record.items() if name not in fields}
    for name, value in extras.items() if nulls else ():
        extras[name] = None if value in nulls else value
    return extras


def _without_bytes(extras: dict[str, Any], source: Source, line: int) -> None:
    """Put text in the place of bytes, of which only tables of Arrow have some."""
    for name, value in extras.items():
        if isinstance(value, _WITH_BYTES):
            extras[name] = _converted(as_text, value, name, source, line)


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
        before = surveyed.rows + surveyed.nulls
        untyped = source.format in ("csv", "tsv")
        cursor = Cursor()
        surveyed.marks.append(Mark(which, 0, Cursor(), surveyed.rows, before))
        for place, row in enumerate(rows(source, options, cursor), 1):
            if row is None:
                surveyed.nulls += 1
                continue
            surveyed.rows += 1
            if row.id is not None:
                ids.append(hash(row.id))
            if not surveyed.rows % BLOCK_ROWS:
                surveyed.marks.append(Mark(which, place, replace(cursor), surveyed.rows, before + place))
            for name, value in row.extras.items():
                columns.add(name, value, source.name, row.line, untyped=untyped)
        if surveyed.rows + surveyed.nulls == before:
            raise DataError(source.name, "the file is empty: there is no row to read")
    surveyed.column_types = columns.types()
    is_text = {name for name, kind in surveyed.column_types.items() if name_of(kind) == TEXT}
    surveyed.casts = {name: surveyed.column_types[name] for name in columns.texts.keys() - is_text}
    surveyed.found = {name: name_of(surveyed.column_types[name]) for name in columns.texts if name not in options.types}
    surveyed.mixed = {name: column.mixed for name, column in columns.texts.items() if column.mixed}
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
    for source, place, text_number, number, row in _rows_with_text(sources, options, start, end):
        shard = text_number // shard_rows if shard_rows else 0
        if kept_shards is not None and shard not in kept_shards:
            continue
        if len(block) and (shard != block.shard or len(block) == block_rows):
            yield _with_types(block, casts)
            block = Block(columns={name: [] for name in columns})
        if not len(block):
            block.shard, block.first_row = shard, text_number
        block.places.append((source, place))
        block.ids.append(str(first_number + number) if row.id is None else row.id)
        block.texts.append(row.text)
        for name in columns:
            block.columns[name].append(row.extras.get(name))
    if len(block):
        yield _with_types(block, casts)


def _rows_with_text(
    sources: Sequence[Source], options: ReadOptions, start: Mark, end: float
) -> Iterator[tuple[str, int, int, int, Row]]:
    """Yield the input of each row, its place there, its number among those with a text and among all, and the row."""
    text_number, number, cursor, place = start.rows, start.number, replace(start.cursor), start.place
    for source in sources[start.source :]:
        if text_number >= end:
            return
        for row in rows(source, options, cursor):
            place, number = place + 1, number + 1
            if row is not None:
                yield source.name, place, text_number, number - 1, row
                text_number += 1
                if text_number >= end:
                    return
        cursor, place = Cursor(), 0


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
