"""The lines of text files, decoded from UTF-8; every error names the file and the line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sentcli.errors import DataError
from sentcli.io.sources import BOM, Cursor, Source, binary_kind

LONGEST_LINE = 2**28
"""The most bytes of a line; a few bytes of gzip may become a line without end."""
FIRST_BYTES, CHUNK_BYTES = 2**16, 2**18
"""How many bytes are read at a time: few at first, since some callers want the first record alone."""
_UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
"""The bytes that are no character of cp1252."""
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


def lines_of(source: Source, cursor: Cursor) -> Iterator[str]:
    """Yield the decoded lines, split at line feeds only, without a byte-order mark at the start.

    Raises:
        DataError: for a line that is no UTF-8, or is too long.
    """
    with source.open() as handle:
        handle.seek(cursor.byte)
        while line := handle.readline(LONGEST_LINE + 1):
            yield _next_line(line, source, cursor)


def line_batches(source: Source, cursor: Cursor) -> Iterator[list[str]]:
    """Yield the same lines as `lines_of` without their line feeds, many at a time.

    The cursor is moved behind them.
    """
    size = FIRST_BYTES
    with source.open() as handle:
        handle.seek(cursor.byte)
        while chunk := handle.read(size):
            if not chunk.endswith(b"\n"):
                chunk += handle.readline(LONGEST_LINE + 1)
            lines = _split(chunk, at_start=not cursor.byte)
            if lines is None:
                for line in _LINE.findall(chunk):  # one by one, so that those before a broken one come first
                    yield [_next_line(line, source, cursor).removesuffix("\n")]
            else:
                cursor.byte += len(chunk)
                cursor.line += len(lines)
                yield lines
            size = CHUNK_BYTES


def _split(chunk: bytes, *, at_start: bool) -> list[str] | None:
    """Return the lines of some bytes, the first of a file or later ones; None if one may be broken or too long."""
    text = chunk.removeprefix(BOM) if at_start else chunk
    if b"\0" in text or len(chunk) > LONGEST_LINE:
        return None
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return None
    if len(lines) > 1 and not lines[-1]:
        lines.pop()  # behind the last line feed
    return lines


def _next_line(raw: bytes, source: Source, cursor: Cursor) -> str:
    """Return the line at the cursor decoded, and move the cursor behind it."""
    if len(raw) > LONGEST_LINE:
        problem = f"it is longer than {LONGEST_LINE // 2**20} MB: no line of a text"
        raise source.error(problem, cursor.line + 1)
    line = raw if cursor.byte else raw.removeprefix(BOM)
    cursor.byte += len(raw)
    cursor.line += 1
    return _decoded(line, source, cursor.line)


def lines_and_places(source: Source) -> Iterator[tuple[int, int, str]]:
    """Yield the first byte, the number of bytes and the text of each line of a plain text file, without line ends."""
    place = 0
    with source.open() as handle:
        for number, raw in enumerate(handle, 1):
            start = place
            line = raw
            if number == 1 and raw.startswith(BOM):
                start = len(BOM)
                line = raw.removeprefix(BOM)
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            yield start, len(line), _decoded(line, source, number)
            place += len(raw)


def _decoded(raw: bytes, source: Source, number: int) -> str:
    """Return a line as text; of a source that is read to its end, a broken one as what it probably is."""
    if b"\0" in raw and _is_wide(raw.rstrip(b"\r\n")):
        problem = "every other byte is 0, as in UTF-16 without a byte-order mark; convert the file first"
        source.refuse(source.error(f"{problem}: iconv -f utf-16le -t utf-8", number))
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        kind = binary_kind(source.path) if number == 1 and not source.packed else None
        if kind is not None:
            raise DataError(source.name, f"no text: it is {kind}") from error
        problem = f"byte 0x{raw[error.start]:02x} at position {error.start + 1} is not UTF-8"
        advice = f"convert the file first, for example: iconv -f {_other_encoding(raw)} -t utf-8"
        source.refuse(source.error(f"{problem}; {advice}", number))
        return raw.decode("latin1" if _UNDEFINED.search(raw) else "cp1252")


def _is_wide(line: bytes) -> bool:
    """Tell whether nearly all bytes at even places are 0 and none at odd ones, or the other way round."""
    fewer, more = sorted((line[::2].count(b"\0"), line[1::2].count(b"\0")))
    return fewer == 0 and more >= 3 and more >= 3 * len(line) // 8


def _other_encoding(raw: bytes) -> str:
    """Return the encoding that a line which is no UTF-8 probably has; cp1252 is latin1 with more quotation marks."""
    if b"\0" in raw:
        return "utf-16"
    return "ENCODING" if _UNDEFINED.search(raw) else "cp1252"
