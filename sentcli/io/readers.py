"""Text files as rows: txt, csv, tsv, jsonl and parquet, each also gzipped, and standard input.

Every problem is reported with its file and line. A whole input can be surveyed before any work starts (`survey`):
that finds a broken row before hours of encoding, and gives progress bars and file headers their row count.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from sentcli.errors import DataError, InputError, nearest

OnNull = Literal["error", "empty", "skip"]
FORMATS = {
    ".txt": "txt", ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
}  # fmt: skip
RESERVED = ("id", "text", "embedding")
LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")  # JSON can escape them, UTF-8 cannot hold them
MAX_FIELD = 2**31 - 1  # csv's own default of 128 KiB is below what one long document needs


@dataclass(frozen=True)
class ReadOptions:
    """Which fields to read, and what to do with a row that has no text."""

    text_field: str = "text"
    id_field: str | None = None
    """None takes ``id``, else ``_id`` (BEIR), else the row number."""
    on_null: OnNull = "error"


@dataclass(frozen=True)
class Source:
    """One input file: `name` is what the user typed, `path` where its bytes are, `format` a value of FORMATS."""

    name: str
    path: Path
    format: str
    gzipped: bool = False

    def open(self) -> BinaryIO:
        """Open the (decompressed) bytes."""
        return cast(BinaryIO, gzip.open(self.path, "rb") if self.gzipped else self.path.open("rb"))


@dataclass
class Block:
    """Some consecutive rows: ids and texts, and the other columns by name."""

    ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts)


@dataclass
class Survey:
    """What one pass over the inputs found."""

    rows: int = 0
    nulls: int = 0
    column_types: dict[str, Any] = field(default_factory=dict)
    """Arrow type of each column beside id and text."""


def open_source(name: str, file_format: str | None = None) -> Source:
    """Find one input; ``-`` is standard input, kept in a temporary file so that it can be read twice.

    Args:
        name: a path, or ``-``.
        file_format: a value of FORMATS; None takes it from the suffix. A suffix that is not known reads as
            plain text, one row a line.

    Raises:
        InputError: if the file is missing, is a directory or is a kind of file that is not rows of text.
    """
    if name == "-":
        kept = tempfile.NamedTemporaryFile(prefix="sentcli-stdin-", delete=False)  # noqa: SIM115
        with kept:
            shutil.copyfileobj(sys.stdin.buffer, kept)
        _temporary_files.append(Path(kept.name))
        return Source("standard input", Path(kept.name), file_format or "txt")
    path = Path(name)
    if path.is_dir():
        raise InputError(f"{path} is a directory; name its files, for example {path}/*.jsonl")
    if not path.exists():
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(f"no such file: {path}{nearest(path.name, siblings)}")
    gzipped = path.suffix == ".gz"
    suffix = (path.with_suffix("") if gzipped else path).suffix.lower()
    if suffix == ".json" and file_format is None:
        raise InputError(f"{path}: a .json file is one document, not rows; use JSON Lines (.jsonl)")
    return Source(name, path, file_format or FORMATS.get(suffix, "txt"), gzipped)


_temporary_files: list[Path] = []


def remove_temporary_files() -> None:
    """Delete what standard input was kept in."""
    while _temporary_files:
        _temporary_files.pop().unlink(missing_ok=True)


def records(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line or row number from 1, record) of one file.

    Raises:
        DataError: bytes that are not UTF-8, a broken line, a damaged archive, with its place.
    """
    reader = {"txt": _text, "csv": _csv, "tsv": _csv, "jsonl": _jsonl, "parquet": _parquet}[source.format]
    try:
        yield from reader(source)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(source.name, f"damaged gzip file ({error})") from error


def _lines(source: Source) -> Iterator[str]:
    """Decode line by line, split at line feeds only; a byte-order mark at the start is dropped."""
    with source.open() as handle:
        for number, raw in enumerate(handle, 1):
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                problem = (
                    f"byte 0x{raw[error.start]:02x} at position {error.start + 1} is not UTF-8; "
                    "convert the file first, for example: iconv -f latin1 -t utf-8"
                )
                raise DataError(source.name, problem, line=number) from error
            yield line.removeprefix("\ufeff") if number == 1 else line


def _text(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_lines(source), 1):
        yield number, {"text": line.removesuffix("\n").removesuffix("\r")}


def _csv(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    csv.field_size_limit(MAX_FIELD)
    if source.format == "tsv":  # as registered (IANA): no quoting, so a quotation mark is a character like any other
        reader = csv.reader(_lines(source), delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(_lines(source), strict=True)
    try:
        header = next(reader, None)
        if header is None:
            return
        if len(set(header)) != len(header):
            raise DataError(source.name, f"the header names a column twice: {', '.join(header)}", line=1)
        for row in reader:
            if not row:  # csv's reading of a blank line
                continue
            if len(row) > len(header):
                problem = f"{len(row)} fields, but the header names {len(header)}"
                raise DataError(source.name, problem, line=reader.line_num)
            yield reader.line_num, dict(zip(header, row, strict=False))
    except csv.Error as error:
        raise DataError(source.name, f"broken {source.format}: {error}", line=reader.line_num) from error


def _jsonl(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_lines(source), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if "\\u" in line:
                record = json.loads(LONE_SURROGATE.sub("\ufffd", json.dumps(record, ensure_ascii=False)))
        except (ValueError, RecursionError) as error:  # ValueError: also a number of too many digits
            raise DataError(source.name, f"broken JSON: {error}", line=number) from error
        if not isinstance(record, dict):
            raise DataError(source.name, f"expected a JSON object, found {_kind(record)}", line=number)
        yield number, record


def _parquet(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    with source.open() as handle:
        try:
            # Parquet is read from its end: what is compressed as a whole has to be unpacked into memory
            table = pq.ParquetFile(io.BytesIO(handle.read()) if source.gzipped else handle)
            for batch in table.iter_batches(batch_size=4096):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(source.name, f"not a readable Parquet file ({error})") from error


def _kind(value: object) -> str:
    names = {list: "a list", dict: "an object", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


@dataclass(frozen=True)
class Row:
    """One row that has a text."""

    id: str | None
    text: str
    extras: dict[str, Any]


def rows(source: Source, options: ReadOptions) -> Iterator[Row | None]:
    """Yield the rows of one file; a row without text is None where `options.on_null` is ``skip``.

    Raises:
        DataError: no text column, a null text (with ``on_null='error'``), a text or id of another type.
    """
    text_field = "text" if source.format == "txt" else options.text_field
    unit = "row" if source.format == "parquet" else "line"
    id_field: str | None = None
    for number, (line, record) in enumerate(records(source)):
        if number == 0:
            id_field = _id_field(source, record, options)
            if text_field not in record and (source.format != "jsonl" or options.on_null == "error"):
                columns = ", ".join(record) or "none"
                problem = f"no column {text_field!r}; it has: {columns}. Choose one with --text-field"
                raise DataError(source.name, problem, line=line, unit=unit)
        text = record.get(text_field)
        if text is None:
            if options.on_null == "error":
                problem = f"{text_field!r} is missing or null; --on-null empty or skip accepts such rows"
                raise DataError(source.name, problem, line=line, unit=unit)
            if options.on_null == "skip":
                yield None
                continue
            text = ""
        if not isinstance(text, str):
            raise DataError(source.name, f"{text_field!r} is {_kind(text)}, not a string", line=line, unit=unit)
        row_id = record.get(id_field) if id_field else None
        if id_field and row_id is None:
            raise DataError(source.name, f"{id_field!r} is missing or null", line=line, unit=unit)
        extras = {name: value for name, value in record.items() if name not in (text_field, id_field)}
        yield Row(None if row_id is None else str(row_id), text, extras)


def _id_field(source: Source, record: dict[str, Any], options: ReadOptions) -> str | None:
    if source.format == "txt":
        return None
    if options.id_field is None:
        return next((name for name in ("id", "_id") if name in record), None)
    if options.id_field not in record:
        raise DataError(source.name, f"no column {options.id_field!r}; it has: {', '.join(record)}")
    return options.id_field


def survey(sources: Sequence[Source], options: ReadOptions) -> Survey:
    """Read everything once: count the rows, find every bad one, and learn the types of the other columns.

    Raises:
        DataError: as `rows`; also an empty file, and a column named like one that the output adds.
    """
    found = Survey()
    types = _ColumnTypes()
    for source in sources:
        before = found.rows + found.nulls
        for row in rows(source, options):
            if row is None:
                found.nulls += 1
                continue
            found.rows += 1
            if row.extras:
                types.add(row.extras)
        if found.rows + found.nulls == before:
            raise DataError(source.name, "the file is empty: there is no row to read")
    clash = [name for name in types.seen if name in RESERVED]
    if clash:
        fields = f"--text-field {options.text_field}, --id-field {options.id_field or 'id'}"
        raise InputError(f"{sources[0].name}: column {clash[0]!r} would stand twice in the output ({fields})")
    found.column_types = types.arrow_types()
    return found


class _ColumnTypes:
    """The narrowest Arrow type that holds every value of a column; what nothing simple holds becomes JSON text."""

    def __init__(self) -> None:
        self.seen: dict[str, set[str]] = {}

    def add(self, record: dict[str, Any]) -> None:
        for name, value in record.items():
            kinds = self.seen.setdefault(name, set())
            if value is not None:
                kinds.add(self._kind(value))

    @staticmethod
    def _kind(value: object) -> str:
        if type(value) is not int or abs(value) <= 2**53:  # up to there a float64 holds it, too
            return type(value).__name__
        return "long" if -(2**63) <= value < 2**63 else "other"

    def arrow_types(self) -> dict[str, Any]:
        import pyarrow as pa

        def choose(kinds: set[str]) -> Any:
            if kinds <= {"bool"} and kinds:
                return pa.bool_()
            if kinds <= {"int", "long"} and kinds:
                return pa.int64()
            if kinds <= {"int", "float"} and kinds:
                return pa.float64()
            return pa.string()

        return {name: choose(kinds) for name, kinds in self.seen.items()}


def blocks(
    sources: Iterable[Source],
    options: ReadOptions,
    *,
    block_rows: int = 8192,
    break_every: int | None = None,
    skip_rows: int = 0,
    columns: Sequence[str] = (),
) -> Iterator[Block]:
    """Yield blocks of rows over all inputs, in order.

    Args:
        sources: the inputs, read one after the other as one sequence of rows.
        options: fields and null handling.
        block_rows: rows in a block; the last one may be shorter.
        break_every: also start a new block at every multiple of this many rows, so that a run that resumes at
            such a multiple sees the same blocks as one that was never interrupted.
        skip_rows: leave out this many rows that have a text (resume).
        columns: names of the other columns to keep; a row without one gets None.
    """
    block = Block(columns={name: [] for name in columns})
    number = done = 0
    for source in sources:
        for row in rows(source, options):
            position, number = number, number + 1
            if row is None:
                continue
            done += 1
            if done <= skip_rows:
                continue
            block.ids.append(str(position) if row.id is None else row.id)
            block.texts.append(row.text)
            for name in columns:
                block.columns[name].append(row.extras.get(name))
            if len(block) == block_rows or (break_every and done % break_every == 0):
                yield block
                block = Block(columns={name: [] for name in columns})
    if len(block):
        yield block
