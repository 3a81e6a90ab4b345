"""The inputs that names stand for: files, also gzipped, standard input, files elsewhere, and tables in memory.

A name with a scheme, such as ``s3://bucket/file.jsonl``, is a file elsewhere, which is copied first; see `stores`. Data
frames and lists are written to a temporary file first, so that everything that reads files reads them.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import shutil
import sys
import zlib
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from sentcli import console
from sentcli.errors import DataError, InputError, nearest
from sentcli.io import copies, stores
from sentcli.io.atomic import SCHEMES
from sentcli.io.digests import file_digest
from sentcli.io.places import Place, is_remote
from sentcli.machine import memory_left

FORMATS = {
    ".txt": "txt", ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
    ".xlsx": "sheet", ".ods": "sheet",
}  # fmt: skip
FIRST_BYTES = {
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
DAMAGED_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)
"""The errors of a damaged gzip file."""
IN_MEMORY = "in memory"
"""The name of the temporary folder of a table in memory, which its name in messages ends with."""


@dataclass(frozen=True)
class Source(Place):
    """One input file; its path is a temporary one for standard input, for tables in memory and for files elsewhere."""

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
        try:
            return io.BytesIO(self.whole().decode(encoding).encode("utf-8"))
        except UnicodeError as error:
            raise DataError(self.name, f"broken {encoding.upper()}: {error}") from error

    def whole(self) -> bytes:
        """Return all bytes of the file, decompressed if it is gzipped.

        Raises:
            DataError: if they are too many for this machine, as a few bytes of gzip may become.
        """
        left, content = memory_left(), bytearray()
        with self._bytes() as handle:
            while chunk := handle.read(2**20):
                content += chunk
                if left is not None and len(content) > left // 4:
                    size = f"{len(content) / 1e6:,.0f} MB or more, unpacked"
                    raise DataError(self.name, f"it has {size}, which is too much to be read at once")
        return bytes(content)

    def _bytes(self) -> BinaryIO:
        return cast(BinaryIO, gzip.open(self.path, "rb") if self.gzipped else self.path.open("rb"))

    def wide_encoding(self) -> str | None:
        """Return ``utf-16`` or ``utf-32`` for a text file with such a byte-order mark, else None."""
        if self.unit == "row":
            return None
        with suppress(*DAMAGED_GZIP):  # damage is reported by who reads on
            with self._bytes() as handle:
                first = handle.read(4)
            return next((encoding for mark, encoding in WIDE.items() if first.startswith(mark)), None)
        return None

    def identity(self) -> dict[str, Any]:
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
    place = copies.local_file(name) if is_remote(name) else Place(name, Path(name))
    path = place.path
    is_pipe = path.exists() and not path.is_file() and not path.is_dir()
    if name == "-" or is_pipe:
        if not is_pipe:
            console.refuse_closed("stdin", name)
        copy = copies.scratch() / "input"
        with path.open("rb") if is_pipe else nullcontext(sys.stdin.buffer) as stream, copy.open("wb") as handle:
            shutil.copyfileobj(stream, handle)
        return Source(name if is_pipe else "standard input", copy, file_format or "txt")
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
        raise InputError(f"{place}: a .json file is one document, not rows; use JSON Lines (.jsonl)")
    if file_format is None and suffix not in FORMATS and not gzipped:
        _refuse_binary(place, suffix)
    in_memory = path.parent.name == IN_MEMORY and copies.is_scratch(path)
    shown = f"{path.stem} ({IN_MEMORY})" if in_memory else place.name
    return Source(shown, path, file_format or FORMATS.get(suffix, "txt"), gzipped)


def input_files(names: Iterable[str]) -> list[str]:
    """Return names of inputs, with the files of a store in place of a pattern such as ``s3://bucket/folder/*.jsonl``.

    Raises:
        InputError: if there is no file for a pattern.
        SentcliError: if the store fails.
    """
    return [file for name in names for file in (stores.matching(name) if is_remote(name) else [name])]


def open_sources(names: Iterable[str], file_format: str | None = None) -> list[Source]:
    """Find inputs as `open_source` does, after `input_files`."""
    return [open_source(file, file_format) for file in input_files(names)]


def _refuse_binary(place: Place, suffix: str) -> None:
    """Refuse a file that is no text, although its suffix names no other format.

    Raises:
        InputError: which says what the file is.
    """
    with place.path.open("rb") as handle:
        first = handle.read(8)
    kind = next((kind for start, kind in FIRST_BYTES.items() if first.startswith(start)), None)
    if suffix == ".safetensors":
        kind = "a file of tensors"
    if kind is not None:
        raise InputError(f"{place} holds no texts: it is {kind}")


def in_files(value: Any, name: str, *, is_list: bool) -> Any:
    """Return a value of an argument that names files, with the paths of temporary files for what is in memory.

    A frame (pandas, polars), a list of dicts, and a list of texts are a table of JSON Lines each. In an argument that
    takes a list of files a list of strings are names, unless each is a sentence and no file; ``[[...]]`` is a list of
    texts for sure.

    Args:
        value: what the caller gave.
        name: of the argument, which messages show for the file.
        is_list: whether the argument takes a list of files.
    """
    if (rows := _rows(value, sure=False)) is not None:
        return _written(rows, name)
    if is_list and isinstance(value, list | tuple):
        tables = [_rows(item, sure=True) for item in value]
        numbers = [f"{name}-{number}" if len(value) > 1 else name for number in range(1, len(value) + 1)]
        items = zip(value, tables, numbers, strict=True)
        return [item if rows is None else _written(rows, title) for item, rows, title in items]
    return value


def _rows(value: Any, *, sure: bool) -> list[dict[str, Any]] | None:
    """Return the rows of a table in memory, or None for anything else, such as names of files."""
    if hasattr(value, "to_dicts"):  # polars
        return list(value.to_dicts())
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # pandas
        return list(value.to_dict("records"))
    if hasattr(value, "tolist") and not isinstance(value, list):  # a column of a frame, or an array
        value, sure = value.tolist(), True
    if not isinstance(value, list | tuple) or not value:
        return None
    if all(isinstance(item, Mapping) for item in value):
        return [dict(item) for item in value]
    if all(isinstance(item, str) for item in value) and (sure or all(map(_is_sentence, value))):
        return [{"text": text} for text in value]
    return None


def _is_sentence(text: str) -> bool:
    """Tell whether a string is a text and not the name of a file: it has blanks, no suffix of a file, and is none."""
    try:
        path = Path(text)
        return " " in text.strip() and not is_remote(text) and path.suffix not in FORMATS and not path.exists()
    except (OSError, ValueError):  # longer than a name can be
        return True


def _written(rows: list[dict[str, Any]], name: str) -> str:
    path = copies.scratch() / IN_MEMORY / f"{name}.jsonl"
    path.parent.mkdir()
    with path.open("w", encoding="utf-8") as handle:
        for row in rows:
            handle.write(json.dumps({str(key): _plain(value) for key, value in row.items()}, ensure_ascii=True) + "\n")
    return str(path)


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it: missing ones as null, numbers of NumPy as numbers, dates as text."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if type(value).__name__ in ("NaTType", "NAType") or (isinstance(value, float) and value != value):
        return None
    return value if value is None or isinstance(value, str | int | float | list | dict) else str(value)
