"""Texts by number, left on disk: a corpus may be larger than memory."""

from __future__ import annotations

import mmap
import tempfile
from array import array
from collections.abc import Sequence
from typing import IO, overload

import numpy as np
import numpy.typing as npt

from sentcli.io.readers import ReadOptions, rows
from sentcli.io.sources import Source, lines_and_places

IN_MEMORY = 2**28
"""Bytes of texts from tables and compressed files that are kept in memory; beyond that they go to a temporary file."""


class Texts(Sequence[str]):
    """Some texts, of which memory holds the places alone: 16 bytes a text.

    A plain text file is read where it lies. Texts from tables and from compressed files are copied.
    """

    def __init__(self, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], content: _Content) -> None:
        self.starts, self.sizes, self.content = starts, sizes, content

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Texts: ...
    def __getitem__(self, index: int | slice) -> str | Texts:
        if isinstance(index, slice):
            return Texts(self.starts[index], self.sizes[index], self.content)
        return self.content.read(int(self.starts[index]), int(self.sizes[index]))

    def select(self, numbers: npt.NDArray[np.int64]) -> Texts:
        """Return the texts with these numbers."""
        return Texts(self.starts[numbers], self.sizes[numbers], self.content)


class _Content:
    """The bytes of several files one after the other."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.parts: list[mmap.mmap | IO[bytes]] = []

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else 0

    def add(self, part: mmap.mmap | IO[bytes], size: int) -> None:
        self.parts.append(part)
        self.ends.append(self.size + size)

    def read(self, start: int, size: int) -> str:
        number = next(i for i, end in enumerate(self.ends) if start < end or size == 0)
        offset = start - (self.ends[number - 1] if number else 0)
        part = self.parts[number]
        if isinstance(part, mmap.mmap):
            return part[offset : offset + size].decode("utf-8")
        part.seek(offset)
        return part.read(size).decode("utf-8")


class TextCollector:
    """Reads sources one after the other into `Texts`; a text of white space alone is left out and counted."""

    def __init__(self, options: ReadOptions, limit: int | None = None) -> None:
        self.options, self.limit, self.blank = options, limit, 0
        self.starts, self.sizes, self.content = array("q"), array("q"), _Content()

    @property
    def full(self) -> bool:
        """Whether there are as many texts as wanted."""
        return self.limit is not None and len(self.starts) >= self.limit

    def read(self, source: Source) -> int:
        """Add the texts of a source, up to the limit, and return how many they are."""
        before = len(self.starts)
        if source.format == "txt" and not source.gzipped:
            self._read_in_place(source)
        else:
            self._copy(source)
        return len(self.starts) - before

    def _read_in_place(self, source: Source) -> None:
        size = source.path.stat().st_size
        for place, length, text in lines_and_places(source):
            if self.full:
                break
            self._add(text, place, length)
        if size:
            with source.path.open("rb") as handle:
                self.content.add(mmap.mmap(handle.fileno(), size, access=mmap.ACCESS_READ), size)

    def _copy(self, source: Source) -> None:
        copy = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY, prefix="sentcli-texts-")  # noqa: SIM115
        place = 0
        for row in rows(source, self.options):
            if self.full:
                break
            text = row.text if row is not None else ""
            raw = text.encode("utf-8")
            if self._add(text, place, len(raw)):
                place += copy.write(raw)
        self.content.add(copy, place)

    def _add(self, text: str, place: int, length: int) -> bool:
        if not text.strip():
            self.blank += 1
            return False
        self.starts.append(self.content.size + place)
        self.sizes.append(length)
        return True

    def texts(self) -> Texts:
        """Return everything that was read."""
        return Texts(np.array(self.starts, np.int64), np.array(self.sizes, np.int64), self.content)
