"""The vectors of a corpus where they are: arrays in memory, or shards that are mapped from disk."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError
from sentcli.io.dataset import Shard
from sentcli.search.neighbours import Neighbours, Similarity, Vectors, prepared

GATHERED = 2**24
"""Numbers that are read at a time to compare single rows: 64 MiB."""
TAKEN = 1024
"""Single rows that are read at a time; a system may map 64 KiB around each of them."""


class Blocks:
    """Vectors ``[n, dim]`` in several arrays, one after the other.

    Args:
        arrays: each ``[rows, dim]``; at least one.
    """

    def __init__(self, arrays: Sequence[npt.NDArray[np.generic]]) -> None:
        self.arrays = arrays
        self.ends = np.cumsum([len(array) for array in arrays])

    @classmethod
    def mapped(cls, folder: Path, shards: Sequence[Shard], dimension: int) -> Blocks:
        """Map the shards of a directory that `encode` wrote.

        Args:
            folder: the directory.
            shards: as its manifest lists them.
            dimension: of the vectors.

        Raises:
            DataError: if one is missing or damaged, or has other rows than the manifest says.
        """
        arrays = []
        for shard in shards:
            path = folder / shard.vectors
            try:
                array = np.load(path, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError) as error:
                raise DataError(path, f"damaged ({error}); encode again with --overwrite") from error
            if array.shape != (shard.count, dimension):
                expected = f"{shard.count} vectors of {dimension} dimensions"
                raise DataError(path, f"holds {list(array.shape)}, not {expected}; encode again with --overwrite")
            arrays.append(array)
        return cls(arrays or [np.empty((0, dimension), np.float32)])

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self.arrays[0].shape[1])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def since(self, first: int, rows: int) -> Iterator[npt.NDArray[np.generic]]:
        """Yield the rows from number `first` on, at most `rows` of them at a time."""
        for array, end in zip(self.arrays, self.ends, strict=True):
            begin = max(first - (int(end) - len(array)), 0)
            for start in range(begin, len(array), rows):
                yield array[start : start + rows]

    def take(self, positions: npt.NDArray[np.int64]) -> Vectors:
        """Return single rows ``[n, dim]`` by their numbers ``[n]``."""
        vectors = np.empty((len(positions), self.dimension), np.float32)
        owners = np.searchsorted(self.ends, positions, side="right")
        order = np.argsort(positions)  # a disk reads forward
        for owner in np.unique(owners):
            mine, array = order[owners[order] == owner], self.arrays[owner]
            first = self.ends[owner] - len(array)
            for start in range(0, len(mine), TAKEN):
                some = mine[start : start + TAKEN]
                vectors[some] = array[positions[some] - first]
                _let_go(array)
        return vectors

    def sample(self, count: int, seed: int = 0) -> tuple[npt.NDArray[np.int64], Vectors]:
        """Return the numbers ``[n]`` and the vectors ``[n, dim]`` of random rows, in the order of the corpus."""
        count = min(count, len(self))
        chosen = np.random.default_rng(seed).choice(len(self), count, replace=False, shuffle=False)
        positions = np.sort(chosen).astype(np.int64)
        return positions, self.take(positions)

    def rescored(self, queries: Vectors, found: Neighbours, similarity: Similarity) -> Neighbours:
        """Return the same rows with their exact similarities, not sorted anew.

        Args:
            queries: `prepared` ``[queries, dim]``.
            found: of each query.
            similarity: ``cosine`` or ``dot``.
        """
        positions = found.positions
        scores = np.full(positions.shape, -np.inf, np.float32)
        together = max(GATHERED // max(positions.shape[1] * self.dimension, 1), 1)
        for start in range(0, len(queries), together):
            some = positions[start : start + together]
            rows = prepared(self.take(np.maximum(some, 0).ravel()), similarity).reshape(*some.shape, -1)
            exact = np.einsum("qd,qkd->qk", queries[start : start + together], rows)
            scores[start : start + together] = np.where(some < 0, -np.inf, exact)
        return Neighbours(positions, scores)


def _let_go(array: npt.NDArray[np.generic]) -> None:
    """Take the pages of a mapped array out of this process's memory; they stay in the system's cache."""
    pages: Any = array.base
    if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
