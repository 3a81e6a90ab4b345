"""Texts by number, left on disk: a corpus may be larger than memory."""

from __future__ import annotations

import mmap
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import IO, overload

import numpy as np
import numpy.typing as npt

from sentcli.io.readers import ReadOptions, rows
from sentcli.io.sources import Source, lines_and_places


class Texts(Sequence[str]):
    """Some texts, of which memory holds the places alone: 16 bytes a text.

    A plain text file is read where it lies. Texts from tables and from compressed files are copied to a temporary file.

    Args:
        starts: where each text begins, in bytes, counted over all files ``[n]``.
        sizes: the bytes of each ``[n]``.
        files: the files, mapped.
        ends: where each file ends, counted over all files.
    """

    def __init__(
        self,
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        files: Sequence[mmap.mmap],
        ends: Sequence[int],
    ) -> None:
        self.starts, self.sizes, self.files, self.ends = starts, sizes, files, ends

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
