"""The records of each format: txt, csv, tsv, jsonl, parquet and spreadsheets.

Every error names the file and the line.
"""

from __future__ import annotations

import csv
import io
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain, islice
from typing import Any

from sentcli import console
from sentcli.errors import DataError, SentcliError, interruption, one_line, required
from sentcli.io.forms import DEEPEST, refuse_deep
from sentcli.io.sheets import SheetError, sheet_names_and_rows
from sentcli.io.sources import BOM, DAMAGED_GZIP, Source

LONGEST_LINE = 2**28
"""The most bytes of a line; a few bytes of gzip may become a line without end."""
LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")  # JSON can escape them, but UTF-8 cannot hold them


@dataclass
class Cursor:
    """A place between two records of a file, at which reading begins; it moves on with what is read."""

    byte: int = 0
    """The first byte behind the last line that was read, of formats that consist of lines."""
    line: int = 0
    """The number of lines or rows that were read."""


def records(source: Source, cursor: Cursor | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the records of one file with their line or row numbers, from 1.

    Args:
        source: the file.
        cursor: where reading begins; it is moved behind each record when that is yielded. None begins at the start.

    Raises:
        DataError: if the file is damaged or not of its format.
    """
    readers = {"txt": _text, "csv": _csv, "tsv": _csv, "jsonl": _jsonl, "parquet": _parquet, "sheet": _sheet}
    try:
        yield from readers[source.format](source, cursor or Cursor())
    except DAMAGED_GZIP as error:
        raise DataError(source.name, f"damaged gzip file ({error})") from error


def _lines(source: Source, cursor: Cursor) -> Iterator[str]:
    """Yield the decoded lines, split at line feeds only, without a byte-order mark at the start."""
    with source.open() as handle:
        handle.seek(cursor.byte)
        while raw := handle.readline(LONGEST_LINE + 1):
            if len(raw) > LONGEST_LINE:
                problem = f"it is longer than {LONGEST_LINE // 2**20} MB: no line of a text"
                raise DataError(source.name, problem, line=cursor.line + 1)
            line = raw if cursor.byte else raw.removeprefix(BOM)
            cursor.byte, cursor.line = cursor.byte + len(raw), cursor.line + 1
            yield _decoded(line, source, cursor.line)


def _decoded(raw: bytes, source: Source, number: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        encoding = "utf-16" if b"\0" in raw else "latin1"
        problem = (
            f"byte 0x{raw[error.start]:02x} at position {error.start + 1} is not UTF-8; "
            f"convert the file first, for example: iconv -f {encoding} -t utf-8"
        )
        raise DataError(source.name, problem, line=number) from error


def lines_and_places(source: Source) -> Iterator[tuple[int, int, str]]:
    """Yield the first byte, the number of bytes and the text of each line of a plain text file, without line ends."""
    place = 0
    with source.open() as handle:
        for number, raw in enumerate(handle, 1):
            mark = len(BOM) if number == 1 and raw.startswith(BOM) else 0
            line = raw[mark:].removesuffix(b"\n").removesuffix(b"\r")
            yield place + mark, len(line), _decoded(line, source, number)
            place += len(raw)


def _text(source: Source, cursor: Cursor) -> Iterator[tuple[int, dict[str, Any]]]:
    for line in _lines(source, cursor):
        yield cursor.line, {"text": line.removesuffix("\n").removesuffix("\r")}


def header(source: Source) -> list[str]:
    """Return the names of the columns in the first line of csv, tsv or a spreadsheet; an empty list for other formats.

    Raises:
        DataError: if it names a column twice.
    """
    names: list[str] = []
    try:
        if source.format in ("csv", "tsv"):
            names = next(_csv_reader(source, Cursor()), [])
    except csv.Error as error:
        raise DataError(source.name, f"broken {source.format}: {error}", line=1) from error
    except DAMAGED_GZIP as error:
        raise DataError(source.name, f"damaged gzip file ({error})") from error
    if source.format == "sheet":
        names = next(_sheet_rows(source), [])
    named = [name for name in names if name or source.format != "sheet"]
    if len(set(named)) != len(named):
        problem = "line 1 seems to be a row and no header" if headless(names) else "the header names a column twice"
        raise DataError(source.name, f"{problem}: {', '.join(names)}", line=1)
    return names


def headless(names: Iterable[str]) -> bool:
    """Tell whether names of columns are rather the values of a row: numbers, or sentences of more than four words."""
    return any(re.fullmatch(r"-?\d+([.,]\d+)?", name.strip()) or len(name.split()) > 4 for name in names)


def _csv_reader(source: Source, cursor: Cursor) -> Any:
    """Return the reader of the rows of csv or tsv; what separates csv is told from the first line of the file."""
    csv.field_size_limit(2**31 - 1)  # its default of 128 KiB is too small for a long document
    lines = _lines(source, cursor)
    if source.format == "tsv":  # as registered with IANA, without quoting: a quotation mark is a normal character
        return csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    is_start = not cursor.byte
    first = next(lines if is_start else _lines(source, Cursor()), "")
    names = re.sub(r'"[^"]*"', "", first)
    separators = {",": "commas", ";": "semicolons", "\t": "tabs"}  # semicolons where numbers have decimal commas
    separator = max(separators, key=names.count)
    if separator != ",":
        _say_once(f"{source.name}: the first line is separated by {separators[separator]}, so all lines are read so")
    begin = [first] if is_start and first else []
    return csv.reader(chain(begin, lines), delimiter=separator, strict=True)


@cache
def _say_once(message: str) -> None:
    console.note(message)


def _csv(source: Source, cursor: Cursor) -> Iterator[tuple[int, dict[str, Any]]]:
    names, before = header(source), cursor.line
    reader = _csv_reader(source, cursor)
    if not before:
        next(reader, None)
    try:
        for row in reader:
            if not row:  # a blank line
                continue
            if len(row) > len(names):
                problem = f"{len(row)} fields, but the header names {len(names)}"
                raise DataError(source.name, problem, line=before + reader.line_num)
            yield before + reader.line_num, dict(zip(names, row, strict=False))
    except csv.Error as error:
        raise DataError(source.name, f"broken {source.format}: {error}", line=before + reader.line_num) from error


def _sheet(source: Source, cursor: Cursor) -> Iterator[tuple[int, dict[str, Any]]]:
    names = header(source)
    rows = islice(_sheet_rows(source), max(cursor.line, 1), None)
    for number, row in enumerate(rows, max(cursor.line, 1) + 1):
        cursor.line = number
        if any(cell is not None for cell in row):
            yield number, {name: cell for name, cell in zip(names, row, strict=False) if name}


def _sheet_rows(source: Source) -> Iterator[list[Any]]:
    """Yield the rows of the first sheet of a spreadsheet, the names of the columns as text; an empty cell is None."""
    purpose = f"{source.name}: a spreadsheet, unless it is saved as csv in UTF-8,"
    required("python_calamine", "python-calamine", "sheets", purpose)
    try:
        rows = sheet_names_and_rows(source.whole())
        names = next(rows)
        if len(names) > 1:
            _say_once(f"{source.name}: of {len(names)} sheets the first is read, {names[0]!r}")
        for number, row in enumerate(rows):
            yield [_cell(value) if number else str(_cell(value) or "") for value in row]
    except SheetError as error:
        raise DataError(source.name, f"not a readable spreadsheet ({error})") from error


def _cell(value: Any) -> Any:
    """Return a whole number as such, since spreadsheets keep all numbers as floats, and None for an empty cell."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return None if value == "" else value


def _jsonl(source: Source, cursor: Cursor) -> Iterator[tuple[int, dict[str, Any]]]:
    for line in _lines(source, cursor):
        number = cursor.line
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if line.count("[") + line.count("{") > DEEPEST:
                refuse_deep(record)
            if "\\u" in line:
                record = json.loads(LONE_SURROGATE.sub("\ufffd", json.dumps(record, ensure_ascii=False)))
        except (ValueError, RecursionError) as error:  # ValueError: also a number of too many digits
            raise DataError(source.name, f"broken JSON: {error}", line=number) from error
        if not isinstance(record, dict):
            raise DataError(source.name, f"expected a JSON object, found {kind_of(record)}", line=number)
        yield number, record


def _parquet(source: Source, cursor: Cursor) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow.parquet as pq

    with source.open() as handle:
        try:
            # Parquet is read from its end, so a gzipped file has to be unpacked into memory
            table = pq.ParquetFile(io.BytesIO(source.whole()) if source.gzipped else handle)
            columns = [name for name in table.schema_arrow.names if name not in source.without]
            sizes = (table.metadata.row_group(group).num_rows for group in range(table.num_row_groups))
            firsts = [0, *accumulate(sizes)]
            group = max(bisect_right(firsts, cursor.line) - 1, 0)
            skipped, cursor.line = cursor.line - firsts[group], firsts[group]
            groups = range(group, table.num_row_groups)
            for batch in table.iter_batches(batch_size=4096, row_groups=groups, columns=columns):
                left = batch.slice(skipped)
                cursor.line += len(batch) - len(left)
                skipped -= len(batch) - len(left)
                for record in _records_of(left):
                    cursor.line += 1
                    yield cursor.line, record
        except Exception as error:
            if isinstance(error, SentcliError) or interruption(error):
                raise
            why = one_line(error) or type(error).__name__
            raise DataError(source.name, f"not a readable Parquet file ({why})") from error


def _records_of(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of an Arrow batch; a date or duration that Python cannot hold is given as text."""

    def in_python(value: Any) -> Any:
        try:
            return value.as_py()
        except (OverflowError, ValueError):
            return str(value.cast("string"))

    try:
        return list(batch.to_pylist())
    except (OverflowError, ValueError):
        columns = [[in_python(value) for value in column] for column in batch.columns]
        return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def is_id(value: object) -> bool:
    """Tell whether a value of JSON or Parquet may name a row: text, a number, a date, but no list or object."""
    return value is not None and not isinstance(value, (list, dict, bool))


def kind_of(value: object) -> str:
    """Name the type of a JSON value in words."""
    names = {list: "a list", dict: "an object", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
