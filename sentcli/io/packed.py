"""Compressed files: gzip and xz by Python, Zstandard and bzip2 by the codecs of Arrow."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

PACKED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}
"""The compressions that are read, by the end of a file's name."""
PACKED_BYTES = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh91AY&SY": "bzip2", b"\xfd7zXZ\0": "xz"}
"""The compressions by the first bytes, for what has no name, such as standard input."""
DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError)
"""The errors of a damaged compressed file; `Unpacked` raises EOFError."""


class Unpacked(io.RawIOBase):
    """The content of a file of Zstandard or bzip2, by the codecs of Arrow, from the start or any byte further on."""

    def __init__(self, path: Path, codec: str) -> None:
        self._path = path
        self._codec = codec
        self._begin()

    def _begin(self) -> None:
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(pa.OSFile(str(self._path)), self._codec)
        self._place = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True: `seek` goes from the start or the present place to any byte."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with what follows, and return the number of bytes.

        Raises:
            EOFError: if the file is damaged.
        """
        import pyarrow as pa

        try:
            data = self._stream.read(len(buffer))
        except (pa.ArrowException, OSError) as error:
            problem = " ".join(str(error).split())
            if "memory" in problem or "window" in problem:  # the long windows of archives that are packed with --long
                problem += ": unpack it with zstd -d --long=31"
            raise EOFError(problem) from error
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes before the place of reading."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte, or to the end if there are fewer, and return its number."""
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("a compressed file is read from its start")
        if offset < self._place:
            self._begin()
        skipped = bytearray(2**20)
        while self._place < offset:
            count = min(offset - self._place, len(skipped))
            if not self.readinto(memoryview(skipped)[:count]):
                break
        return self._place


def unpacked_name(name: str) -> str:
    """Return the name of a file without the end that says how it is compressed."""
    for end in PACKED:
        if name.endswith(end):
            return name.removesuffix(end)
    return name


def open_packed(path: Path, packed: str) -> BinaryIO:
    """Open a file, unpacked if `packed` is one of the values of `PACKED`; reading it may raise one of `DAMAGED`."""
    if packed == "gzip":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if packed == "xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    if packed:
        codec = "bz2" if packed == "bzip2" else packed
        return io.BufferedReader(Unpacked(path, codec), 2**20)
    return path.open("rb")
