"""The records of each format: txt, csv, tsv, jsonl, parquet, arrow and spreadsheets.

Every error names the file and the line.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

from sentcli.errors import DataError, required
from sentcli.io.forms import DEEPEST, refuse_deep
from sentcli.io.packed import DAMAGED
from sentcli.io.sources import BATCH_ROWS, OF_BINARY, Cursor, Source, is_markdown, say_once
from sentcli.io.text_lines import line_batches

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")  # JSON can escape them, but UTF-8 cannot hold them
_NUMBER = re.compile(r"-?\d+([.,]\d+)?")
FileRecord = dict[str, Any]
NumberedRecords = tuple[Sequence[int], list[FileRecord]]
"""Some records with their line or row numbers, from 1."""


def records(source: Source) -> Iterator[tuple[int, FileRecord]]:
    """Yield the records of one file with their line or row numbers, from 1; see `record_batches`."""
    for lines, batch in record_batches(source):
        yield from zip(lines, batch, strict=True)


def record_batches(source: Source, cursor: Cursor | None = None) -> Iterator[NumberedRecords]:
    """Yield the records of one file, some thousand at a time.

    Args:
        source: the file.
        cursor: where reading begins; it is moved behind each batch when that is yielded. None begins at the start.

    Raises:
        DataError: if the file is damaged or not of its format, after what stands before the damage.
    """
    readers: dict[str, Callable[[Source, Cursor], Iterator[NumberedRecords]]] = {
        "parquet": _arrow,
        "arrow": _arrow,
        "txt": _text,
        "csv": _csv,
        "tsv": _csv,
        "jsonl": _jsonl,
        "sheet": _sheet,
        "page": _page,
    }
    try:
        for lines, batch in readers[source.format](source, cursor or Cursor()):
            for name, value in source.partition:
                for record in batch:
                    record.setdefault(name, value)
            yield lines, batch
    except DAMAGED as error:
        raise _damaged(source, error) from error


def _damaged(source: Source, error: BaseException) -> DataError:
    return DataError(source.name, f"damaged {source.packed or 'compressed'} file ({error})")


def _in_batches(numbered: Iterator[tuple[int, FileRecord]]) -> Iterator[NumberedRecords]:
    """Yield records together, those before an error first."""
    while True:
        lines = list[int]()
        batch = list[FileRecord]()
        problem: Exception | None = None
        try:
            for line, record in islice(numbered, BATCH_ROWS):
                lines.append(line)
                batch.append(record)
        except (DataError, *DAMAGED) as error:
            problem = error
        if batch:
            yield lines, batch
        if problem is not None:
            raise problem
        if len(batch) < BATCH_ROWS:
            return


def without_broken_lines(source: Source) -> tuple[Source, list[DataError]]:
    """Return a source that can be read to its end, and the errors of all its lines; see `Source.broken`."""
    if source.format in OF_BINARY:
        return source, []
    broken: dict[str, DataError] = {}
    lenient = replace(source, broken=broken)
    for _ in records(lenient):
        pass
    return lenient, list(broken.values())


def _text(source: Source, cursor: Cursor) -> Iterator[NumberedRecords]:
    for lines in line_batches(source, cursor):
        first = cursor.line - len(lines) + 1
        yield range(first, first + len(lines)), [{"text": line.removesuffix("\r")} for line in lines]


def _arrow(source: Source, cursor: Cursor) -> Iterator[NumberedRecords]:
    from sentcli.io.arrow_tables import arrow_batches

    return arrow_batches(source, cursor)


def _page(source: Source, cursor: Cursor) -> Iterator[NumberedRecords]:
    """Yield the one record of a page, with what its front matter says of it."""
    from sentcli.io.pages import PageContent, begins_with_facts

    if cursor.line:
        return
    lines: list[str] = []
    for batch in line_batches(source, Cursor()):
        lines.extend(line.removesuffix("\r") for line in batch)
    cursor.line = 1
    page = PageContent.parse("\n".join(lines), source)
    if is_markdown(source.path) and begins_with_facts(page.text):
        say_once(f"{source.name}: its front matter is neither YAML nor TOML, and is taken for text")
    yield [1], [{"id": source.page, "text": page.text, **page.facts}]


def header(source: Source) -> list[str]:
    """Return the names of the columns in the first line of csv, tsv or a spreadsheet; an empty list for other formats.

    Raises:
        DataError: if it names a column twice.
    """
    if source.format in ("csv", "tsv"):
        names = named = _csv_header(source)
    elif source.format == "sheet":
        names = next(_sheet_rows(source), [])
        named = list(filter(None, names))
    else:
        return []
    if len(set(named)) != len(named):
        problem = "the header names a column twice"
        if headless(names):
            problem = "line 1 seems to be a row and no header"
        raise DataError(source.name, f"{problem}: {', '.join(names)}", line=1)
    return names


def _csv_header(source: Source) -> list[str]:
    from sentcli.io.delimiters import csv_reader

    try:
        return next(csv_reader(source, Cursor()), [])
    except csv.Error as error:
        raise _broken_csv(source, error, 1) from error
    except DAMAGED as error:
        raise _damaged(source, error) from error


def _broken_csv(source: Source, error: csv.Error, line: int) -> DataError:
    """Return the error of a row that is no csv or tsv, given the line at which it begins."""
    problem = str(error)
    if "new-line character" in problem:  # of Python's reader, whose advice is for those who write Python
        problem = (
            "a carriage return stands where no line ends. Lines end with a line feed; of a file whose lines end with "
            f"carriage returns alone, as old programs write, tr '\\r' '\\n' < {source.name} makes one"
        )
    return source.error(f"broken {source.format}: {problem}", line)


def headless(names: Iterable[str]) -> bool:
    """Tell whether names of columns are rather the values of a row: numbers, or sentences of more than four words."""
    return any(_NUMBER.fullmatch(name.strip()) or len(name.split()) > 4 for name in names)


def say_quoted(source: Source, text: str) -> None:
    """Say that a text of TSV looks as if a program had put it into quotation marks, as pandas and spreadsheets do.

    They stay what they are in TSV, since a text may as well begin with one, and so do the line ends between them.
    """
    if source.format != "tsv" or not text.startswith('"'):
        return
    is_open = text.count('"') % 2 == 1
    has_doubled_marks = len(text) > 2 and text.endswith('"') and '""' in text[1:-1]
    if is_open or has_doubled_marks:
        say_once(
            f"{source.name}: a text begins with a quotation mark, as if a program had quoted it. In TSV such marks "
            "belong to the text, and a line end between them ends the row: save the table as .csv if they do not"
        )


def _csv(source: Source, cursor: Cursor) -> Iterator[NumberedRecords]:
    return _in_batches(_csv_records(source, cursor))


def _csv_records(source: Source, cursor: Cursor) -> Iterator[tuple[int, FileRecord]]:
    from sentcli.io.delimiters import csv_reader

    names = header(source)
    before = cursor.line
    reader = csv_reader(source, cursor)
    if not before:
        next(reader, None)
    while True:
        line = before + reader.line_num + 1  # the first one of a row with line breaks in it
        try:
            row = next(reader, None)
        except csv.Error as error:
            source.refuse(_broken_csv(source, error, line))
            continue
        if row is None:
            return
        if len(row) > len(names):
            problem = f"{len(row)} fields, but the header names {len(names)}"
            source.refuse(source.error(problem, line))
        elif row:  # it is no blank line
            yield line, dict(zip(names, row, strict=False))


def _sheet(source: Source, cursor: Cursor) -> Iterator[NumberedRecords]:
    return _in_batches(_sheet_records(source, cursor))


def _sheet_records(source: Source, cursor: Cursor) -> Iterator[tuple[int, FileRecord]]:
    names = header(source)
    before = max(cursor.line, 1)  # the header is a row, too
    width = max((place for place, name in enumerate(names, 1) if name), default=0)
    unnamed: int | None = None
    for number, row in enumerate(islice(_sheet_rows(source), before, None), before + 1):
        cursor.line = number
        record: FileRecord = {name: cell for name, cell in zip(names, row, strict=False) if name}
        filled = [place for place, cell in enumerate(row) if cell is not None]
        for place in filled:
            if place < width and names[place]:
                continue
            if place >= width or unnamed not in (None, place):
                problem = f"{row[place]!r:.60} in column {place + 1}, which the header in row 1 does not name"
                source.refuse(source.error(problem, number))
                break
            unnamed = place
            record[""] = row[place]  # as csv has it
        else:
            if filled:
                yield number, record


def _sheet_rows(source: Source) -> Iterator[list[Any]]:
    """Yield the rows of the first sheet of a spreadsheet, the names of the columns as text; an empty cell is None."""
    from sentcli.io.sheets import SheetError, sheet_names_and_rows

    purpose = f"{source.name}: a spreadsheet, unless it is saved as csv in UTF-8,"
    required("python_calamine", "python-calamine", "sheets", purpose)
    try:
        rows = sheet_names_and_rows(source.whole())
        names = next(rows)
        if len(names) > 1:
            say_once(f"{source.name}: of {len(names)} sheets the first is read, {names[0]!r}")
        first = next(rows, None)
        if first is not None:
            yield ["" if value is None else str(value) for value in map(_cell, first)]
        for row in rows:
            yield list(map(_cell, row))
    except SheetError as error:
        raise DataError(source.name, f"not a readable spreadsheet ({error})") from error


def _cell(value: Any) -> Any:
    """Return a whole number as such, since spreadsheets keep all numbers as floats, and None for an empty cell."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if value == "":
        return None
    return value


def _jsonl(source: Source, cursor: Cursor) -> Iterator[NumberedRecords]:
    for lines in line_batches(source, cursor):
        numbers: list[int] = []
        batch: list[FileRecord] = []
        problem: DataError | None = None
        try:
            for number, line in enumerate(lines, cursor.line - len(lines) + 1):
                record = _json_record(line, source, number)
                if record is not None:
                    numbers.append(number)
                    batch.append(record)
        except DataError as error:
            problem = error
        if batch:
            yield numbers, batch
        if problem is not None:
            raise problem


def _json_record(line: str, source: Source, number: int) -> FileRecord | None:
    """Return the object in a line; None for a blank line, or a broken one of a source that is read to its end."""
    if not line or line.isspace():
        return None
    try:
        record = _json_value(line)
        if line.count("[") + line.count("{") > DEEPEST:
            refuse_deep(record)
        if "\\u" in line and _ESCAPED_SURROGATE.search(line):
            record = json.loads(LONE_SURROGATE.sub("\ufffd", json.dumps(record, ensure_ascii=False)))
    except (ValueError, RecursionError) as error:  # ValueError: also a number of too many digits
        source.refuse(source.error(f"broken JSON: {error}", number))
        return None
    if isinstance(record, dict):
        return record
    source.refuse(source.error(f"expected a JSON object, found {kind_of(record)}", number))
    return None


def _json_value(line: str) -> Any:
    """Return the value in a line, without the steps around the scanner where nothing stands around the value."""
    try:
        value, end = _SCAN(line, 0)
    except StopIteration:
        return _JSON.decode(line)
    if end == len(line):
        return value
    return _JSON.decode(line)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, of which every key stands once.

    Raises:
        ValueError: for a key that stands twice, of which one value would be lost.
    """
    record = dict(pairs)
    if len(record) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        for key, count in counts.items():
            if count > 1:
                raise ValueError(f"the key {key!r} stands twice")
    return record


_JSON = json.JSONDecoder(object_pairs_hook=_distinct)
_SCAN: Callable[[str, int], tuple[Any, int]] = getattr(_JSON, "scan_once")  # noqa: B009 (typeshed lacks it)


def id_of(value: object) -> str:
    """Return the text of an id: of a text, a number, a date, or bytes in UTF-8.

    A whole number as a float is none: a column of whole numbers of which one is missing becomes one of floats, so that
    1.0 may stand for 1 or for 1.0, and whoever holds the other finds nothing.

    Raises:
        ValueError: for any other value; it says what the value is.
    """
    if isinstance(value, str):
        return value
    if value is None:
        raise ValueError("is missing or null")
    if is_null(value):
        raise ValueError("is NaN, which stands for a missing value")
    if isinstance(value, float) and (value.is_integer() or math.isinf(value)):
        raise ValueError(f"is {value!r}, a floating-point number: write ids as texts or whole numbers")
    if isinstance(value, list | dict | bool):
        raise ValueError(f"is {kind_of(value)}, not an id")
    return str(decode_bytes(value))


def is_null(value: object) -> bool:
    """Tell whether a value is missing: null, or NaN, with which pandas and others stand for it."""
    return value is None or (isinstance(value, float) and value != value)


def decode_bytes(value: Any) -> Any:
    """Return a value with bytes as the text that they are in UTF-8, also inside of lists and objects.

    Raises:
        ValueError: if they are no UTF-8.
    """
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            problem = f"is bytes that are no text in UTF-8 ({value[:8]!r}); write it as text, or leave the column out"
            raise ValueError(problem) from None
    if isinstance(value, list):
        return list(map(decode_bytes, value))
    if isinstance(value, dict):
        return {key: decode_bytes(item) for key, item in value.items()}
    return value


_KIND_NAMES: dict[type, str] = {
    list: "a list", dict: "an object", str: "a string", bool: "a boolean", type(None): "null", int: "a number",
    float: "a number", bytes: "bytes (a binary column; cast it to strings)", Decimal: "a decimal number",
    date: "a date", datetime: "a date with a time", time: "a time", timedelta: "a duration",
}  # fmt: skip


def kind_of(value: object) -> str:
    """Name the type of a value of JSON, Arrow or a spreadsheet in words."""
    if isinstance(value, float) and value != value:
        return "NaN"
    return _KIND_NAMES.get(type(value), f"a value of the type {type(value).__name__}")
