"""Rows of text from records: which fields hold text and id, what a missing text means, types of the other columns.

Also tables of scored pairs of sentences, and texts by number, which are left on disk.

A whole input can be surveyed before any work starts (`survey`): that finds a broken row before hours of encoding, and
gives progress bars and file headers their row count.
"""

from __future__ import annotations

import math
import mmap
import tempfile
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError, nearest
from sentcli.io.sources import FORMATS, Source, kind_of, lines_and_places, records

OnNull = Literal["error", "empty", "skip"]


@dataclass(frozen=True)
class ReadOptions:
    """Which fields to read, and what to do with a row that has no text."""

    text_field: str = "text"
    id_field: str | None = None
    """None takes ``id``, else ``_id`` (BEIR), else the row number."""
    on_null: OnNull = "error"
    null_hint: str = ""
    """Ends the message about a null, where the caller's user can choose `on_null`."""


@dataclass
class Block:
    """Some consecutive rows: ids and texts, and the other columns by name."""

    ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    shard: int = 0
    """Number of the shard that the rows belong to."""
    first_row: int = 0
    """Number of the first row among those with a text, from 0."""
    places: list[tuple[str, int]] = field(default_factory=list)
    """The input that each row is from, and its number there, from 1."""

    def __len__(self) -> int:
        return len(self.texts)


@dataclass
class Survey:
    """What one pass over the inputs found."""

    rows: int = 0
    nulls: int = 0
    column_types: dict[str, Any] = field(default_factory=dict)
    """Arrow type of each column beside id and text."""


@dataclass(frozen=True)
class Row:
    """One row that has a text."""

    id: str | None
    text: str
    extras: dict[str, Any]


def rows(source: Source, options: ReadOptions) -> Iterator[Row | None]:
    """Yield the rows of one file; a row without text is None where `options.on_null` is ``skip``."""
    text_field = "text" if source.format == "txt" else options.text_field
    unit = "row" if source.format == "parquet" else "line"
    id_field: str | None = None
    number, named = -1, False
    for number, (line, record) in enumerate(records(source)):
        named = named or text_field in record
        if number == 0:
            id_field = _id_field(source, record, options)
            if text_field not in record and (source.format != "jsonl" or options.on_null == "error"):
                columns = ", ".join(record) or "none"
                problem = f"no column {text_field!r}; it has: {columns}. Choose one with --text-field"
                raise DataError(source.name, problem, line=line, unit=unit)
        text = record.get(text_field)
        if text is None:
            if options.on_null == "error":
                problem = f"{text_field!r} is missing or null{options.null_hint}"
                raise DataError(source.name, problem, line=line, unit=unit)
            if options.on_null == "skip":
                yield None
                continue
            text = ""
        if not isinstance(text, str):
            raise DataError(source.name, f"{text_field!r} is {kind_of(text)}, not a string", line=line, unit=unit)
        row_id = record.get(id_field) if id_field else None
        if id_field and row_id is None:
            raise DataError(source.name, f"{id_field!r} is missing or null", line=line, unit=unit)
        extras = {name: value for name, value in record.items() if name not in (text_field, id_field)}
        yield Row(None if row_id is None else str(row_id), text, extras)
    if number >= 0 and not named:  # a misspelt name, not rows without text
        raise DataError(source.name, f"no row has a {text_field!r}; choose the column with --text-field")


def _id_field(source: Source, record: dict[str, Any], options: ReadOptions) -> str | None:
    if source.format == "txt":
        return None
    if options.id_field is None:
        return next((name for name in ("id", "_id") if name in record), None)
    if options.id_field not in record:
        raise DataError(source.name, f"no column {options.id_field!r}; it has: {', '.join(record)}")
    return options.id_field


def survey(sources: Sequence[Source], options: ReadOptions) -> Survey:
    """Read everything once: count the rows, find every bad one, and learn the types of the other columns."""
    surveyed = Survey()
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources:
        before = surveyed.rows + surveyed.nulls
        for row in rows(source, options):
            if row is None:
                surveyed.nulls += 1
                continue
            surveyed.rows += 1
            for name, value in row.extras.items():
                kinds[name] |= _kinds(value)
        if surveyed.rows + surveyed.nulls == before:
            raise DataError(source.name, "the file is empty: there is no row to read")
    surveyed.column_types = {name: _arrow_type(values) for name, values in kinds.items()}
    return surveyed


def _kinds(value: object) -> set[str]:
    """Return what a column has to hold for a value; nothing for None."""
    if value is None:
        return set()
    if type(value) is not int or abs(value) <= 2**53:  # up to there a float64 holds it, too
        return {type(value).__name__}
    return {"long" if -(2**63) <= value < 2**63 else "other"}


def _arrow_type(kinds: set[str]) -> Any:
    """Return the narrowest Arrow type that holds every value; what nothing simple holds becomes JSON text."""
    import pyarrow as pa

    simple = ({"bool"}, pa.bool_()), ({"int", "long"}, pa.int64()), ({"int", "float"}, pa.float64())
    return next((kind for names, kind in simple if kinds and kinds <= names), pa.string())


def blocks(
    sources: Iterable[Source],
    options: ReadOptions,
    *,
    block_rows: int = 8192,
    shard_rows: int | None = None,
    wanted: Iterable[int] | None = None,
    first_number: int = 0,
    columns: Sequence[str] = (),
) -> Iterator[Block]:
    """Yield blocks of rows over all inputs, in order.

    Args:
        sources: the inputs, read one after the other as one sequence of rows.
        options: fields and null handling.
        block_rows: rows in a block; the last one of a shard may be shorter.
        shard_rows: rows in a shard; blocks do not go across shards, so that a shard's blocks depend on its rows alone.
        wanted: numbers of the shards to yield; the rows of others are read and dropped.
        first_number: of the first row, for ids that are row numbers.
        columns: names of the other columns to keep; a row without one gets None.
    """
    block = Block(columns={name: [] for name in columns})
    shards = None if wanted is None else frozenset(wanted)
    number, done = first_number, 0
    for source in sources:
        for place, row in enumerate(rows(source, options), 1):
            position, number = number, number + 1
            if row is None:
                continue
            shard = done // shard_rows if shard_rows else 0
            done += 1
            if shards is not None and shard not in shards:
                continue
            if len(block) and (shard != block.shard or len(block) == block_rows):
                yield block
                block = Block(columns={name: [] for name in columns})
            if not len(block):
                block.shard, block.first_row = shard, done - 1
            block.places.append((source.name, place))
            block.ids.append(str(position) if row.id is None else row.id)
            block.texts.append(row.text)
            for name in columns:
                block.columns[name].append(row.extras.get(name))
    if len(block):
        yield block


PAIR_COLUMNS = ("sentence1", "sentence2", "score")
AFS_COLUMNS = ("sentence_1", "sentence_2", "regression_label")
"""Of the Argument Facet Similarity corpus (Misra, Ecker and Walker, SIGDIAL 2016)."""


def pair_files(name: str) -> list[str]:
    """Return a file, or the tables of a folder of pairs, by name."""
    folder = Path(name)
    if not folder.is_dir():
        return [name]
    suffixes = tuple(suffix for suffix, kind in FORMATS.items() if kind != "txt")
    tables = [str(path) for path in sorted(folder.iterdir()) if path.name.removesuffix(".gz").endswith(suffixes)]
    if not tables:
        raise InputError(f"{folder} holds no table of pairs ({', '.join(suffixes)})")
    return tables


def task_name(name: str) -> str:
    """Return what a table's task is called: its name without the suffixes."""
    name = Path(name).name.removesuffix(".gz")
    return name.removesuffix(next((suffix for suffix in FORMATS if name.endswith(suffix)), ""))


def pair_rows(
    source: Source, columns: Sequence[str] | None = None, *, scored: bool = True, hint: str = ""
) -> Iterator[tuple[str, str, float | None]]:
    """Yield both sentences and the score of each row; None where the table has none.

    Args:
        source: the table.
        columns: two or three names; None is sentence1, sentence2 and score, or those of the AFS corpus.
        scored: whether a table without scores is refused.
        hint: ends the message about a column that is not there.
    """
    for line, record in records(source):
        if columns is None:
            columns = AFS_COLUMNS if set(AFS_COLUMNS) <= set(record) else PAIR_COLUMNS
            columns = columns if scored or columns[2] in record else columns[:2]
        for number, name in enumerate(columns):
            if name not in record:
                there = f"this row has {', '.join(record) or 'none'}"
                needed = f"pairs need the columns {', '.join(columns)}"
                message = f"no column {name!r}{nearest(name, list(record))}; {there}; {needed}{hint}"
                raise DataError(source.name, message, line=line)
            if record[name] is None:
                raise DataError(source.name, f"{name} is null", line=line)
            if number < 2 and not isinstance(record[name], str):
                raise DataError(source.name, f"{name} is {record[name]!r}, expected a text", line=line)
        score = _score(record[columns[2]], source.name, line) if len(columns) > 2 else None
        yield record[columns[0]], record[columns[1]], score


def scored_pairs(source: Source) -> Iterator[tuple[str, str, float]]:
    """Yield both sentences and the score of each row of a table that has to have scores."""
    return ((first, second, score) for first, second, score in pair_rows(source) if score is not None)


def _score(value: Any, file: str, line: int) -> float:
    with suppress(TypeError, ValueError):
        if math.isfinite(score := float(value)):
            return score
    raise DataError(file, f"the score {value!r} is not a number", line=line)


@dataclass(frozen=True, eq=False)
class Texts(Sequence[str]):
    """Some texts, of which memory holds the places alone: 16 bytes a text.

    A plain text file is read where it lies. Texts from tables and from compressed files are copied to a temporary file.
    """

    starts: npt.NDArray[np.int64]
    """Where each text begins, in bytes, counted over all files ``[n]``."""
    sizes: npt.NDArray[np.int64]
    """The bytes of each ``[n]``."""
    files: Sequence[mmap.mmap]
    ends: Sequence[int]
    """Where each file ends, counted over all files."""

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


class TextCollector:
    """Reads sources one after the other into `Texts`; a text of white space alone is left out and counted."""

    def __init__(self, options: ReadOptions, limit: int | None = None) -> None:
        self.options, self.limit, self.blank = options, limit, 0
        self.starts, self.sizes = array("q"), array("q")
        self.files: list[mmap.mmap] = []
        self.ends: list[int] = []

    @property
    def full(self) -> bool:
        """Whether there are as many texts as wanted."""
        return self.limit is not None and len(self.starts) >= self.limit

    def read(self, source: Source) -> int:
        """Add the texts of a source, up to the limit, and return how many they are."""
        before, first = len(self.starts), self.ends[-1] if self.ends else 0
        in_place = source.format == "txt" and not source.gzipped
        with source.path.open("rb") if in_place else tempfile.TemporaryFile(prefix="sentcli-texts-") as file:
            for place, size, text in lines_and_places(source) if in_place else self._copied(source, file):
                if self.full:
                    break
                if text.strip():
                    self.starts.append(first + place)
                    self.sizes.append(size)
                else:
                    self.blank += 1
            if end := file.seek(0, 2):
                self.files.append(mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ))
                self.ends.append(first + end)
        return len(self.starts) - before

    def _copied(self, source: Source, copy: IO[bytes]) -> Iterator[tuple[int, int, str]]:
        """Yield where each text begins in a copy, how many bytes it has, and the text."""
        for row in rows(source, self.options):
            text = row.text if row is not None else ""
            place = copy.tell()
            yield place, copy.write(text.encode("utf-8")), text

    def texts(self) -> Texts:
        """Return everything that was read."""
        return Texts(np.array(self.starts, np.int64), np.array(self.sizes, np.int64), self.files, self.ends)
