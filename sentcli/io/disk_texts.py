"""Texts that stay on disk, for training on more of them than fit into memory."""

from __future__ import annotations

import mmap
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, overload

import numpy as np

from sentcli.arrays import Int64Array
from sentcli.io.readers import ReadOptions, rows
from sentcli.io.sources import Source
from sentcli.io.text_lines import lines_and_places


@dataclass(frozen=True, eq=False)
class Texts(Sequence[str]):
    """Texts on disk, of which only the places are in memory: 16 bytes for each text.

    A plain text file is read in place. Texts from tables and compressed files are in a temporary file.
    """

    starts: Int64Array
    """The byte at which each text begins, counted over all files ``[n]``."""
    sizes: Int64Array
    """The number of bytes of each text ``[n]``."""
    files: Sequence[mmap.mmap]
    ends: Sequence[int]
    """The byte at which each file ends, counted over all files."""

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Texts: ...
    def __getitem__(self, index: int | slice) -> str | Texts:
        if isinstance(index, slice):
            return Texts(self.starts[index], self.sizes[index], self.files, self.ends)
        start = int(self.starts[index])
        file = bisect_right(self.ends, start)
        if file:
            start -= self.ends[file - 1]
        end = start + int(self.sizes[index])
        return self.files[file][start:end].decode("utf-8")

    def select(self, numbers: Int64Array) -> Texts:
        """Return the texts with these numbers ``[m]``."""
        return Texts(self.starts[numbers], self.sizes[numbers], self.files, self.ends)


def texts_on_disk(
    sources: Sequence[Source], options: ReadOptions, limit: int | None = None
) -> tuple[Texts, list[int], int]:
    """Read sources one after the other; texts of white space alone are left out.

    Args:
        sources: the inputs.
        options: fields and null handling.
        limit: the number of texts after which reading stops.

    Returns:
        The texts, how many of them each source has, and the number of those that were left out.
    """
    starts = array("q")
    sizes = array("q")
    files: list[mmap.mmap] = []
    ends: list[int] = []
    counts = []
    blank = 0
    for source in sources:
        before = len(starts)
        first = ends[-1] if ends else 0
        is_plain = source.format == "txt" and not source.packed and source.wide_encoding() is None
        with source.path.open("rb") if is_plain else tempfile.TemporaryFile(prefix="sentcli-texts-") as file:
            lines = lines_and_places(source) if is_plain else _copied(source, options, file)
            for place, size, text in lines:
                if len(starts) == limit:
                    break
                if text.strip():
                    starts.append(first + place)
                    sizes.append(size)
                else:
                    blank += 1
            if end := file.seek(0, 2):
                files.append(mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ))
                ends.append(first + end)
        counts.append(len(starts) - before)
    return Texts(np.array(starts, np.int64), np.array(sizes, np.int64), files, ends), counts, blank


def _copied(source: Source, options: ReadOptions, copy: IO[bytes]) -> Iterator[tuple[int, int, str]]:
    """Write the texts of a source into a file, and yield the first byte, the number of bytes and the text of each."""
    for row in rows(source, options):
        text = ""
        if row is not None:
            text = row.text
        place = copy.tell()
        size = copy.write(text.encode("utf-8"))
        yield place, size, text
