"""The inputs that names stand for: files, also gzipped, standard input, files elsewhere, and tables in memory.

A name with a scheme, such as ``s3://bucket/file.jsonl``, is a file elsewhere, which is copied first; see `stores`. What
is in memory becomes a file first; see `in_memory`.
"""

from __future__ import annotations

import codecs
import glob
import io
import math
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal

from sentcli import console
from sentcli.errors import DataError, InputError, nearest
from sentcli.io.atomic import SCHEMES, refuse_pointer
from sentcli.io.digests import file_digest
from sentcli.io.packed import DAMAGED, PACKED, PACKED_BYTES, open_packed, unpacked_name
from sentcli.io.places import Place, is_remote
from sentcli.io.scratch import is_scratch, scratch
from sentcli.machine import memory_left
from sentcli.printable import as_text

FORMATS = {
    ".txt": "txt", ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".xlsx": "sheet", ".ods": "sheet",
}  # fmt: skip
MARKDOWN_SUFFIXES = (".md", ".markdown")
PICKLE = "a pickle, which may run code: save the table as Parquet or JSON Lines where it was made"
FAISS = "perhaps an index of faiss, which has no texts: name their file, or vectors in .npy with the texts beside"
_KINDS_BY_FIRST_BYTES = {
    b"\x93NUMPY": "a NumPy array",
    b"PK\x03\x04": "an archive (zip, docx, xlsx, npz)",
    b"%PDF-": "a PDF document",
    b"\xd0\xcf\x11\xe0": "an old Office file: save it as .xlsx or csv",
    b"PAR1": "Parquet: its name has to end in .parquet",
    b"ARROW1\0\0": "an Arrow table: its name has to end in .arrow or .feather",
    b"\xff\xff\xff\xff": "perhaps a stream of Arrow: its name has to end in .arrow",
    b"FEA1": "an old Feather file: its name has to end in .feather",
    b"SQLite format 3\0": "a database of SQLite: export the table as csv, sqlite3 -header -csv FILE 'SELECT ...'",
    **{b"\x80" + bytes([protocol]): PICKLE for protocol in range(2, 6)},
    b"\x89HDF": "HDF5: save the table as Parquet or JSON Lines",
    **{b"I" + kind: FAISS for kind in (b"xF", b"xP", b"xS", b"xM", b"xH", b"xR", b"HN", b"wF", b"wP", b"wS", b"vF")},
    b"ORC": "ORC: save the table as Parquet or JSON Lines",
    b"Obj\x01": "Avro: save the table as Parquet or JSON Lines",
    b"\x1f\x8b": "compressed by gzip: its name has to end in .gz",
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard: its name has to end in .zst",
    b"\xfd7zXZ\0": "compressed by xz: its name has to end in .xz",
    b"BZh91AY&SY": "compressed by bzip2: its name has to end in .bz2",
    b"7z\xbc\xaf\x27\x1c": "an archive of 7-Zip: unpack it first",
}
"""The kind of a file, in words, by its first bytes."""
PRINTABLE = {kind for first, kind in _KINDS_BY_FIRST_BYTES.items() if first.isascii() and first.decode().isprintable()}
"""The kinds whose first bytes are letters, so that a text may begin with them."""
BATCH_ROWS = 4096
"""The most rows that are read at a time."""
OF_BINARY = ("parquet", "arrow", "sheet")
"""The formats that are no text."""
Look = Literal["number", "shortest number", "bool", "time"]
"""What a text may look like."""
ANY_LOOK: frozenset[Look] = frozenset({"number", "bool", "time"})
TYPED_LOOK: frozenset[Look] = frozenset({"shortest number", "bool", "time"})
"""What people write: 1.10 is then no number, but a version, while programs write prices so."""
LOOKS: dict[str, frozenset[Look]] = {
    "csv": ANY_LOOK, "tsv": ANY_LOOK, "page": TYPED_LOOK, "jsonl": frozenset({"time"}), "sheet": frozenset({"time"}),
}  # fmt: skip
"""What the texts of a format may stand for, since it has no other values for them, as a spreadsheet has none for times
with a zone; those of others are texts."""
BOM = b"\xef\xbb\xbf"
WIDE = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
"""The encoding of text files that begin with these bytes, which Excel writes as "Unicode text"."""
IN_MEMORY = "in memory"
"""The name of the temporary folder of a table in memory, which its name in messages ends with."""


@dataclass
class Cursor:
    """A place between two records of a file, at which reading begins; it moves on with what is read."""

    byte: int = 0
    """The first byte behind the last line that was read, of formats that consist of lines."""
    line: int = 0
    """The number of lines or rows that were read."""


@dataclass(frozen=True)
class Source(Place):
    """One input file; its path is a temporary one for standard input, for tables in memory and for files elsewhere."""

    format: str
    """One of the values of FORMATS, or ``page``: the whole file is one document."""
    packed: str = ""
    """How the file is compressed, one of the values of PACKED, or nothing."""
    page: str = ""
    """The id of the one document that a file of the format ``page`` is: its path in the folder that was named."""
    delimiter: str | None = None
    """What separates csv; None tells it from the file."""
    partition: tuple[tuple[str, str | None], ...] = ()
    """The columns that the folders above the file name, such as ``year=2024``, with the text of their one value."""
    without: tuple[str, ...] = ()
    """Columns of a Parquet or Arrow file that are not read, such as vectors."""
    broken: dict[str, DataError] | None = field(default=None, compare=False, repr=False)
    """Receives the errors of lines by their message, while reading goes on: what is no UTF-8 is taken for what it
    probably is, and other broken lines are left out. None raises the first one."""

    def error(self, problem: str, line: int) -> DataError:
        """Return the error of a line, or of a row where these are counted."""
        return DataError(self.name, problem, line=line, unit=self.unit)

    def refuse(self, error: DataError) -> None:
        """Keep the error of a line that is left out, or raise it."""
        if self.broken is None:
            raise error
        self.broken.setdefault(str(error), error)

    @property
    def unit(self) -> Literal["line", "row"]:
        """The unit of the numbers of `records`; all tables in memory have lines."""
        if self.format in OF_BINARY and not self.name.endswith(f"({IN_MEMORY})"):
            return "row"
        return "line"

    @property
    def is_markdown_page(self) -> bool:
        """Whether the file is one document of Markdown."""
        return self.format == "page" and is_markdown(self.path)

    def open(self) -> BinaryIO:
        """Open the file, unpacked if it is compressed, and as UTF-8 if it is UTF-16 or UTF-32 with a byte-order mark.

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
        left = memory_left()
        most = math.inf if left is None else left // 4
        content = bytearray()
        with self._bytes() as handle:
            while chunk := handle.read(2**20):
                content += chunk
                if len(content) > most:
                    size = f"{len(content) / 1e6:,.0f} MB or more, unpacked"
                    raise DataError(self.name, f"it has {size}, which is too much to be read at once")
        return bytes(content)

    def _bytes(self) -> BinaryIO:
        return open_packed(self.path, self.packed)

    def wide_encoding(self) -> str | None:
        """Return ``utf-16`` or ``utf-32`` for a text file with such a byte-order mark, else None."""
        if self.format in OF_BINARY:
            return None
        with suppress(*DAMAGED), self._bytes() as handle:  # damage is reported by who reads on
            return _by_first_bytes(handle, WIDE)
        return None

    def identity(self) -> dict[str, Any]:
        """Return the facts that identify the file: name, format, size and SHA-256."""
        facts = {
            "name": as_text(Path(self.name).name),
            "format": self.format,
            "bytes": self.path.stat().st_size,
            "sha256": file_digest(self.path),
        }
        if self.page:
            facts["page"] = as_text(self.page)
        if self.delimiter is not None:
            facts["delimiter"] = self.delimiter
        if self.partition:
            facts["partition"] = dict(self.partition)
        return facts


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
    place = Place(name, Path(name))
    if is_remote(name):
        from sentcli.io.copies import local_file

        place = local_file(name)
    path = place.path
    if path.exists() and not path.is_file() and not path.is_dir():  # a pipe
        with path.open("rb") as pipe:
            return _of_stream(pipe, name, file_format)
    if name == "-":
        console.refuse_closed("stdin", name)
        return _of_stream(sys.stdin.buffer, "standard input", file_format)
    if path.is_dir():
        from sentcli.io import table_folders

        if table_folders.is_table(path):
            return Source(name, table_folders.as_file(path, name), "arrow")
        several = f"where several are taken a pattern, such as '{path}/*.jsonl'"
        raise InputError(f"{path} is a folder, and files are read here: name one, or {several}")
    if not path.exists():
        raise _no_such_file(name, path)
    suffix = path.suffix.lower()
    packed = PACKED.get(suffix, "")
    if packed:
        suffix = Path(path.stem).suffix.lower()
    if suffix == ".json" and file_format is None:
        raise InputError(f"{place}: a .json file is one document, not rows; use JSON Lines (.jsonl)")
    refuse_pointer(path)
    known_format = file_format or FORMATS.get(suffix)
    if not packed and known_format not in OF_BINARY:
        _refuse_binary(place, suffix, is_text=known_format is not None)
    return Source(title_of(place.name, path), path, known_format or "txt", packed)


def _of_stream(stream: BinaryIO, name: str, file_format: str | None) -> Source:
    """Return a temporary copy of what comes through a pipe, which may be compressed."""
    copy = scratch() / "input"
    with copy.open("wb") as handle:
        shutil.copyfileobj(stream, handle)
    with copy.open("rb") as handle:
        packed = _by_first_bytes(handle, PACKED_BYTES)
    return Source(name, copy, file_format or "txt", packed or "")


def _no_such_file(name: str, path: Path) -> InputError:
    if "://" in name:
        return InputError(f"{name}: unknown scheme; {', '.join(SCHEMES)} are read")
    siblings: list[str] = []
    if path.parent.is_dir():
        siblings = [sibling.name for sibling in path.parent.iterdir()]
    return InputError(f"no such file: {path}{nearest(path.name, siblings)}")


def title_of(name: str, path: Path | None = None) -> str:
    """Return what messages and pages call a file: its name, or the argument of Python whose value it holds.

    Args:
        name: as it was given.
        path: of the file on this machine, where that is another one.
    """
    place = path or Path(name)
    if is_in_memory(place):
        return f"{place.stem} ({IN_MEMORY})"
    return name


def is_in_memory(path: Path) -> bool:
    """Tell whether a file holds what was given as an object of Python; its stem is then the name of the argument."""
    return path.parent.name == IN_MEMORY and is_scratch(path)


def input_files(names: Iterable[str]) -> list[str]:
    """Return names of inputs, with the files of a pattern such as ``s3://bucket/folder/*.jsonl`` in its place.

    A pattern of this machine comes from Python, or in quotes from a shell; a file of that very name is the input.

    Raises:
        InputError: if there is no file for a pattern.
        SentcliError: if the store fails.
    """
    files: list[str] = []
    for name in names:
        if is_remote(name):
            from sentcli.io import object_stores

            files += object_stores.matching_names(name)
        else:
            files += _matching(name)
    return files


def _matching(name: str) -> list[str]:
    """Return the files on this machine that a pattern stands for, in order; else the name."""
    if not glob.has_magic(name) or Path(name).exists():
        return [name]
    paths = glob.glob(name, recursive=True)  # noqa: PTH207 -- that of pathlib takes hidden files, too
    files = sorted(path for path in paths if Path(path).is_file())
    if not files:
        raise InputError(f"no file matches {name}")
    return files


def _refuse_binary(place: Place, suffix: str, *, is_text: bool) -> None:
    """Refuse a file that is no text, although its suffix names no other format.

    Args:
        place: the file.
        suffix: of its name.
        is_text: whether suffix or user say that it is text: then it may begin as other formats do, if with letters.

    Raises:
        InputError: which says what the file is.
    """
    kind = binary_kind(place.path)
    if suffix == ".safetensors":
        kind = "a file of tensors"
    if kind is None or (is_text and kind in PRINTABLE):
        return
    raise InputError(f"{place} holds no texts: it is {kind}")


def binary_kind(path: Path) -> str | None:
    """Return what a file is by its first bytes, or None if that is not known."""
    with path.open("rb") as handle:
        return _by_first_bytes(handle, _KINDS_BY_FIRST_BYTES)


def _by_first_bytes(handle: BinaryIO, kinds: Mapping[bytes, str]) -> str | None:
    """Return what a file is by its first bytes, given what begins with which, or None if that is not known."""
    first = handle.read(16)
    for start, kind in kinds.items():
        if first.startswith(start):
            return kind
    return None


def is_markdown(name: str | Path) -> bool:
    """Tell whether a file is Markdown, by its suffix in front of one of compression."""
    return Path(unpacked_name(str(name).lower())).suffix in MARKDOWN_SUFFIXES


@cache
def say_once(message: str) -> None:
    """Print a note about a file, which may be read several times."""
    console.note(message)
