"""Read input files as records: txt, csv, tsv, jsonl, parquet and spreadsheets, each also gzipped, and standard input.

A name with a scheme, such as ``s3://bucket/file.jsonl``, is a file elsewhere, which is copied first; see `remote`.

Every error names the file and the line.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast
from xml.parsers import expat

from sentcli import console
from sentcli.errors import DataError, InputError, nearest, required
from sentcli.io import remote
from sentcli.io.digests import file_digest
from sentcli.io.json_files import DEEPEST, refuse_deep
from sentcli.io.remote_names import SCHEMES, is_remote, public_name

FORMATS = {
    ".txt": "txt", ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
    ".xlsx": "sheet", ".ods": "sheet",
}  # fmt: skip
BINARY = {
    b"\x93NUMPY": "a NumPy array",
    b"PK\x03\x04": "an archive (zip, docx, xlsx, npz)",
    b"%PDF": "a PDF document",
    b"\xd0\xcf\x11\xe0": "an old Office file: save it as .xlsx or csv",
    b"PAR1": "Parquet: its name has to end in .parquet",
    b"\x1f\x8b": "compressed by gzip: its name has to end in .gz",
}
"""What a file is whose first bytes are these."""
BOM = b"\xef\xbb\xbf"
WIDE = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
"""The encoding of text files that begin with these bytes, which Excel writes as "Unicode text"."""
DAMAGE = (gzip.BadGzipFile, EOFError, zlib.error)
"""The errors of a damaged gzip file."""
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""What separates the fields of csv files; spreadsheets write semicolons where numbers have decimal commas."""
DEFECTS = (ValueError, OSError, EOFError, RuntimeError)
"""Other errors of damaged archives; RuntimeError is for encryption and compressions that are not known."""
CONTENT = "content.xml"
"""The part of an .ods file that holds its cells."""
LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")  # JSON can escape them, but UTF-8 cannot hold them
MAX_FIELD = 2**31 - 1  # csv's default of 128 KiB is too small for a long document


@dataclass(frozen=True)
class Source:
    """One input file."""

    name: str
    """The name that the user gave, of a web address without password and query."""
    path: Path
    """The file with the bytes, a temporary one for standard input and for what is not on this machine."""
    format: str
    """One of the values of FORMATS."""
    gzipped: bool = False
    without: tuple[str, ...] = ()
    """Columns of a Parquet file that are not read, such as vectors."""

    @property
    def unit(self) -> Literal["line", "row"]:
        """What the numbers of `records` count; the header of a spreadsheet is row 1."""
        return "row" if self.format in ("parquet", "sheet") else "line"

    def open(self) -> BinaryIO:
        """Open the file, decompressed if it is gzipped, and as UTF-8 if it is UTF-16 or UTF-32 with a byte-order mark.

        Raises:
            DataError: if it begins like UTF-16 or UTF-32 and is neither.
        """
        encoding = self.wide_encoding()
        if encoding is None:
            return self._bytes()
        with self._bytes() as handle:
            try:
                return io.BytesIO(handle.read().decode(encoding).encode("utf-8"))
            except UnicodeError as error:
                raise DataError(self.name, f"broken {encoding.upper()}: {error}") from error

    def _bytes(self) -> BinaryIO:
        return cast(BinaryIO, gzip.open(self.path, "rb") if self.gzipped else self.path.open("rb"))

    def wide_encoding(self) -> str | None:
        """Return ``utf-16`` or ``utf-32`` for a text file with such a byte-order mark, else None."""
        if self.unit == "row":
            return None
        with suppress(*DAMAGE):  # damage is reported by who reads on
            with self._bytes() as handle:
                first = handle.read(4)
            return next((encoding for mark, encoding in WIDE.items() if first.startswith(mark)), None)
        return None

    def described(self) -> dict[str, Any]:
        """Return the facts that identify the file: name, format, size and SHA-256."""
        size, digest = self.path.stat().st_size, file_digest(self.path)
        name = Path(self.name).name.encode("utf-8", "backslashreplace").decode("utf-8")  # it may be no UTF-8
        return {"name": name, "format": self.format, "bytes": size, "sha256": digest}


def open_source(name: str, file_format: str | None = None) -> Source:
    """Find one input; what is no file on this machine is copied to a temporary one, so that it can be read twice.

    Args:
        name: a path, a name with one of SCHEMES, or ``-`` for standard input.
        file_format: a value of FORMATS; None takes it from the suffix. A file with an unknown suffix is plain text with
            one row in each line.

    Raises:
        InputError: if there is no such file.
        SentcliError: if a host fails.
    """
    name = public_name(name)
    path = remote.local_file(name) if is_remote(name) else Path(name)
    is_pipe = path.exists() and not path.is_file() and not path.is_dir()
    if name == "-" or is_pipe:
        pipe = path.open("rb") if is_pipe else nullcontext(sys.stdin.buffer)
        with pipe as stream, tempfile.NamedTemporaryFile(prefix="sentcli-stdin-", delete=False) as copy:
            shutil.copyfileobj(stream, copy)
        _temporary_files.append(Path(copy.name))
        return Source(name if is_pipe else "standard input", Path(copy.name), file_format or "txt")
    if path.is_dir():
        raise InputError(f"{path} is a directory; name its files, for example {path}/*.jsonl")
    if not path.exists():
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        if "://" in name:
            raise InputError(f"{name}: unknown scheme; {', '.join(SCHEMES)} are read")
        raise InputError(f"no such file: {path}{nearest(path.name, siblings)}")
    gzipped = path.suffix == ".gz"
    suffix = (path.with_suffix("") if gzipped else path).suffix.lower()
    if suffix == ".json" and file_format is None:
        raise InputError(f"{name}: a .json file is one document, not rows; use JSON Lines (.jsonl)")
    if file_format is None and suffix not in FORMATS and not gzipped:
        _refuse_binary(name, path, suffix)
    return Source(name, path, file_format or FORMATS.get(suffix, "txt"), gzipped)


def expanded(names: Iterable[str]) -> list[str]:
    """Return names of inputs, with the files of a store in place of a pattern such as ``s3://bucket/folder/*.jsonl``.

    Raises:
        InputError: if there is no file for a pattern.
        SentcliError: if the store fails.
    """
    return [file for name in names for file in (remote.matching(name) if is_remote(name) else [name])]


def open_sources(names: Iterable[str], file_format: str | None = None) -> list[Source]:
    """Find inputs as `open_source` does, after `expanded`."""
    return [open_source(file, file_format) for file in expanded(names)]


def _refuse_binary(name: str, path: Path, suffix: str) -> None:
    """Refuse a file that is no text, although its suffix names no other format.

    Raises:
        InputError: which says what the file is.
    """
    with path.open("rb") as handle:
        first = handle.read(8)
    kind = next((kind for start, kind in BINARY.items() if first.startswith(start)), None)
    if suffix == ".safetensors":
        kind = "a file of tensors"
    if kind is not None:
        raise InputError(f"{name} holds no texts: it is {kind}")


_temporary_files: list[Path] = []


def remove_temporary_files() -> None:
    """Delete the temporary copies of standard input, pipes and files elsewhere."""
    remote.remove_copies()
    while _temporary_files:
        _temporary_files.pop().unlink(missing_ok=True)


def records(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the records of one file with their line or row numbers, from 1.

    Raises:
        DataError: if the file is damaged or not of its format.
    """
    readers = {"txt": _text, "csv": _csv, "tsv": _csv, "jsonl": _jsonl, "parquet": _parquet, "sheet": _sheet}
    try:
        yield from readers[source.format](source)
    except DAMAGE as error:
        raise DataError(source.name, f"damaged gzip file ({error})") from error


def _lines(source: Source) -> Iterator[str]:
    """Yield the decoded lines, split at line feeds only, without a byte-order mark at the start."""
    with source.open() as handle:
        for number, raw in enumerate(handle, 1):
            yield _decoded(raw if number > 1 else raw.removeprefix(BOM), source, number)


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


def _text(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, (_, _, line) in enumerate(lines_and_places(source), 1):
        yield number, {"text": line}


def header(source: Source) -> list[str]:
    """Return the names of the columns in the first line of csv, tsv or a spreadsheet; an empty list for other formats.

    Raises:
        DataError: if it names a column twice.
    """
    names: list[str] = []
    try:
        if source.format in ("csv", "tsv"):
            names = next(_csv_reader(source), [])
    except csv.Error as error:
        raise DataError(source.name, f"broken {source.format}: {error}", line=1) from error
    except DAMAGE as error:
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


def _csv_reader(source: Source) -> Any:
    """Return the reader of the rows of csv or tsv; what separates csv is told from the first line."""
    csv.field_size_limit(MAX_FIELD)
    lines = _lines(source)
    if source.format == "tsv":  # as registered with IANA, without quoting: a quotation mark is a normal character
        return csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    first = next(lines, "")
    names = re.sub(r'"[^"]*"', "", first)
    separator = max(SEPARATORS, key=names.count)
    if separator != ",":
        _say_once(f"{source.name}: the first line is separated by {SEPARATORS[separator]}, so all lines are read so")
    return csv.reader(chain([first] if first else [], lines), delimiter=separator, strict=True)


@cache
def _say_once(message: str) -> None:
    console.note(message)


def _csv(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    names, reader = header(source), _csv_reader(source)
    next(reader, None)
    try:
        for row in reader:
            if not row:  # a blank line
                continue
            if len(row) > len(names):
                problem = f"{len(row)} fields, but the header names {len(names)}"
                raise DataError(source.name, problem, line=reader.line_num)
            yield reader.line_num, dict(zip(names, row, strict=False))
    except csv.Error as error:
        raise DataError(source.name, f"broken {source.format}: {error}", line=reader.line_num) from error


def _sheet(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    names = header(source)
    rows = _sheet_rows(source)
    next(rows, None)
    for number, row in enumerate(rows, 2):
        if any(cell is not None for cell in row):
            yield number, {name: cell for name, cell in zip(names, row, strict=False) if name}


def _sheet_rows(source: Source) -> Iterator[list[Any]]:
    """Yield the rows of the first sheet of a spreadsheet, the names of the columns as text; an empty cell is None."""
    purpose = f"{source.name}: a spreadsheet, unless it is saved as csv in UTF-8,"
    calamine = required("python_calamine", "python-calamine", "sheets", purpose)
    try:
        with source.open() as handle:
            data = io.BytesIO(handle.read())
        with zipfile.ZipFile(data) as archive:
            if CONTENT in archive.namelist():  # python-calamine 0.9.1 reads .ods whose XML is broken without end
                expat.ParserCreate().Parse(archive.read(CONTENT), True)
        data.seek(0)
        workbook = calamine.CalamineWorkbook.from_filelike(data)
        names = workbook.sheet_names
        if len(names) > 1:
            _say_once(f"{source.name}: of {len(names)} sheets the first is read, {names[0]!r}")
        rows = workbook.get_sheet_by_index(0).to_python(skip_empty_area=False)
    except (calamine.CalamineError, zipfile.BadZipFile, expat.ExpatError, zlib.error, *DEFECTS) as error:
        raise DataError(source.name, f"not a readable spreadsheet ({error})") from error
    for number, row in enumerate(rows):
        yield [_cell(value) if number else str(_cell(value) or "") for value in row]


def _cell(value: Any) -> Any:
    """Return a whole number as such, since spreadsheets keep all numbers as floats, and None for an empty cell."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return None if value == "" else value


def _jsonl(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_lines(source), 1):
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


def _parquet(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    with source.open() as handle:
        try:
            # Parquet is read from its end, so a gzipped file has to be unpacked into memory
            table = pq.ParquetFile(io.BytesIO(handle.read()) if source.gzipped else handle)
            columns = [name for name in table.schema_arrow.names if name not in source.without]
            for batch in table.iter_batches(batch_size=4096, columns=columns):
                for record in _records_of(batch):
                    number += 1
                    yield number, record
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(source.name, f"not a readable Parquet file ({error})") from error


def _records_of(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of an Arrow batch; a date or duration that Python cannot hold is given as text."""
    try:
        return list(batch.to_pylist())
    except (OverflowError, ValueError):
        columns = [[_python_value(value) for value in column] for column in batch.columns]
        return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python_value(value: Any) -> Any:
    """Return an Arrow value as a Python object, or as text."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return str(value.cast("string"))


def is_id(value: object) -> bool:
    """Tell whether a value of JSON or Parquet may name a row: text, a number, a date, but no list or object."""
    return value is not None and not isinstance(value, (list, dict, bool))


def kind_of(value: object) -> str:
    """Name the type of a JSON value in words."""
    names = {list: "a list", dict: "an object", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
