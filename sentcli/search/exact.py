"""Exact search: every query is compared with every row, block by block, so that a corpus need not fit into memory.

The vectors are in arrays, or in shards that are mapped from disk.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.arrays import AnyArray, BoolArray, Int64Array, Vectors
from sentcli.errors import InputError
from sentcli.io.dataset import Shard
from sentcli.io.dataset_check import mapped_shard
from sentcli.model.spec import Similarity
from sentcli.search.neighbours import Neighbours
from sentcli.search.products import UNIT_ERROR, BestRows

if TYPE_CHECKING:
    from sentcli.search.device_products import BestOnDevice

NUMBERS_AT_A_TIME = 2**24
"""How many numbers are read at a time to compare single rows: 64 MiB."""
_ROWS_AT_A_TIME = 1024
"""How many single rows are read at a time; a system may map 64 KiB around each of them."""
BLOCK = 131_072
"""How many rows are copied at a time: to unit length or to float32."""


def unit_length(vectors: AnyArray) -> Vectors:
    """Return the vectors ``[n, dim]`` divided by their lengths; zero vectors stay zero, and are similar to nothing.

    A vector that has length 1 already, as those of most models, stays as it is, whatever stands beside it. If all of
    them have, they are returned without a copy.
    """
    wide: Vectors = vectors.astype(np.float32, copy=False)  # float16 and int8 are for storage, not for sums
    are_unit = _are_unit(wide)
    if are_unit.all():
        return wide
    norms = np.linalg.norm(wide, axis=1)
    norms[are_unit] = 1
    lengths = norms[:, None]
    return np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0)


def _are_unit(vectors: AnyArray) -> BoolArray:
    """Tell of which vectors the squared length is as near to 1 as float32 has it."""
    squares = np.einsum("nd,nd->n", vectors, vectors)
    return np.abs(squares - 1) <= UNIT_ERROR


def not_own(positions: Int64Array, own: Int64Array) -> BoolArray:
    """Tell which neighbours are not the query itself; in each row, all but one are True.

    Args:
        positions: the neighbours of each query ``[queries, k]``.
        own: the row of the corpus that each query is ``[queries]``. If it is not among its neighbours, because equal
            rows displaced it, the last neighbour counts as the query.
    """
    others: BoolArray = positions != own[:, None]
    others[others.all(axis=1), -1] = False
    return others


def prepared(vectors: AnyArray, similarity: Similarity) -> Vectors:
    """Return contiguous float32 vectors ``[n, dim]`` whose inner products are the similarity."""
    if similarity == "cosine":
        return np.ascontiguousarray(unit_length(vectors))
    return np.ascontiguousarray(vectors, np.float32)


def prepare_in_place(vectors: Vectors, similarity: Similarity) -> None:
    """Make the inner products of vectors ``[n, dim]`` their similarity where they stand, without a copy of all."""
    for start in range(0, len(vectors), BLOCK):
        part = vectors[start : start + BLOCK]
        part[:] = prepared(part, similarity)


class VectorSource(ABC):
    """Vectors ``[n, dim]`` that are read where they are: the rows of some positions, or all of them block by block."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The dimension of the vectors."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def since(self, first: int, rows: int) -> Iterator[AnyArray]:
        """Yield the rows from position `first` on, at most `rows` at a time."""

    @abstractmethod
    def take(self, positions: Int64Array) -> Vectors:
        """Return the rows ``[n, dim]`` at some positions ``[n]``."""

    def sample(self, count: int) -> tuple[Int64Array, Vectors]:
        """Return the positions ``[n]`` and the vectors ``[n, dim]`` of random rows, in the order of the corpus."""
        count = min(count, len(self))
        chosen = np.random.default_rng(0).choice(len(self), count, replace=False, shuffle=False)
        positions = np.sort(chosen).astype(np.int64)
        return positions, self.take(positions)

    def rescored(self, queries: Vectors, hits: Neighbours, similarity: Similarity) -> Neighbours:
        """Return the same neighbours with their exact similarities, in the same order.

        Args:
            queries: `prepared` ``[queries, dim]``.
            hits: the neighbours of each query.
            similarity: ``cosine`` or ``dot``.
        """
        all_positions = hits.positions
        shape = all_positions.shape
        scores = np.full(shape, -np.inf, np.float32)
        numbers_of_query = max(shape[1] * self.dimension, 1)
        size = max(NUMBERS_AT_A_TIME // numbers_of_query, 1)
        for start in range(0, len(queries), size):
            batch = slice(start, start + size)
            positions = all_positions[batch]
            vectors = self.take(np.maximum(positions, 0).ravel())
            rows = prepared(vectors, similarity)
            rows = rows.reshape(*positions.shape, -1)
            exact = np.einsum("qd,qkd->qk", queries[batch], rows)
            scores[batch] = np.where(positions < 0, -np.inf, exact)
        return Neighbours(all_positions, scores)


class Blocks(VectorSource):
    """Vectors ``[n, dim]`` in several arrays, one after the other.

    Args:
        arrays: each ``[rows, dim]``, or with `signs` ``[rows, dim / 8]``; at least one.
        signs: the dimension of vectors of 1 and -1, eight of which stand in a byte; None for vectors of numbers.
    """

    def __init__(self, arrays: Sequence[AnyArray], *, signs: int | None = None) -> None:
        self.arrays = arrays
        self.signs = signs
        self.ends = np.cumsum([len(array) for array in arrays])
        self._unit: bool | None = None

    @classmethod
    def mapped(
        cls, folder: Path, shards: Sequence[Shard], dimension: int, dtype: str, *, signs: int | None = None
    ) -> Blocks:
        """Map the shards of a directory that `encode` wrote.

        Args:
            folder: the directory.
            shards: the shards in its manifest.
            dimension: the width of the arrays.
            dtype: the type of their numbers.
            signs: as for the class.

        Raises:
            DataError: if a file is missing or damaged, or has another shape or type than the manifest says.
        """
        arrays: list[AnyArray] = [mapped_shard(folder, shard, dimension, dtype) for shard in shards]
        if not arrays:
            kind = np.float32 if signs is None else np.uint8
            arrays.append(np.empty((0, dimension), kind))
        return cls(arrays, signs=signs)

    @property
    def dimension(self) -> int:
        """The dimension of the vectors."""
        if self.signs is not None:
            return self.signs
        return int(self.arrays[0].shape[1])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def since(self, first: int, rows: int) -> Iterator[AnyArray]:
        """Yield the rows from position `first` on, at most `rows` at a time."""
        for array, end in zip(self.arrays, self.ends, strict=True):
            begin = max(first - (int(end) - len(array)), 0)
            for start in range(begin, len(array), rows):
                yield self._numbers(array[start : start + rows])

    def are_unit(self, *, look: bool) -> bool:
        """Tell whether all rows are vectors of length 1 in float32, so that their products are cosines.

        Args:
            look: look at all of them, if that was not done before; what was not looked at counts as no such rows. Of
                rows that are mapped from disk nothing is known, since they would be read twice.
        """
        if self._unit is None and look:
            self._unit = self._may_be_unit() and all(_are_unit(block).all() for block in self.since(0, BLOCK))
        return bool(self._unit)

    def _may_be_unit(self) -> bool:
        """Tell whether all arrays are float32 in memory."""
        for array in self.arrays:
            if array.dtype != np.float32 or isinstance(array.base, mmap.mmap):
                return False
        return self.signs is None

    def chosen(self, mask: BoolArray, first: int, rows: int) -> Iterator[AnyArray]:
        """Yield the rows from position `first` on for which `mask` ``[n]`` is true, of at most `rows` at a time."""
        for block in self.since(first, rows):
            is_chosen = mask[first : first + len(block)]
            yield block if is_chosen.all() else block[is_chosen]
            first += len(block)

    def _numbers(self, rows: AnyArray) -> AnyArray:
        """Return rows as they are, or their bits as 1 and -1."""
        if self.signs is None:
            return rows
        ones: npt.NDArray[np.int8] = np.unpackbits(rows.view(np.uint8), axis=1, count=self.signs).view(np.int8)
        return ones * np.int8(2) - np.int8(1)

    def take(self, positions: Int64Array) -> Vectors:
        """Return the rows ``[n, dim]`` at some positions ``[n]``."""
        vectors = np.empty((len(positions), self.dimension), np.float32)
        numbers = np.searchsorted(self.ends, positions, side="right")
        order = np.argsort(positions)  # so that a disk reads forward
        for number in np.unique(numbers):
            array = self.arrays[number]
            pages: Any = array.base
            first = self.ends[number] - len(array)
            in_array = order[numbers[order] == number]
            for start in range(0, len(in_array), _ROWS_AT_A_TIME):
                part = in_array[start : start + _ROWS_AT_A_TIME]
                rows = array[positions[part] - first]
                vectors[part] = self._numbers(rows)
                if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                    pages.madvise(mmap.MADV_DONTNEED)  # the process gives the pages up; they stay in the system's cache
        return vectors


class TopK:
    """The nearest rows of each query in a corpus that comes block by block.

    Args:
        queries: ``[queries, dim]``.
        k: the number of nearest rows.
        similarity: ``cosine`` or ``dot``.
        device: ``cpu``, or a device of torch.
    """

    def __init__(self, queries: AnyArray, k: int, *, similarity: Similarity = "cosine", device: str = "cpu") -> None:
        self.rows = 0
        """The number of rows that were added so far."""
        self._queries = prepared(queries, similarity)
        self._best: BestRows | BestOnDevice
        if on_host(device):
            self._best = BestRows(self._queries, k, partial(prepared, similarity=similarity))
        else:
            from sentcli.search.device_products import BestOnDevice

            self._best = BestOnDevice(self._queries, k, similarity, device)

    def add(self, vectors: AnyArray) -> None:
        """Compare further rows ``[n, dim]``, which may be mapped from a file.

        Raises:
            InputError: if the rows have another dimension.
            SentcliError: if the device has too little memory, or fails.
        """
        check_width(vectors, self._queries.shape[1], "corpus")
        for start in range(0, len(vectors), BLOCK):
            block = vectors[start : start + BLOCK]
            self._best.add(block, self.rows)
            self.rows += len(block)

    def best(self) -> Neighbours:
        """Return the nearest rows so far, `k` for each query, or fewer if there were fewer rows."""
        return self._best.best()


def search(
    queries: AnyArray,
    blocks: Iterable[AnyArray],
    k: int,
    *,
    similarity: Similarity = "cosine",
    device: str = "cpu",
) -> Neighbours:
    """Return the `k` nearest rows of each query ``[queries, dim]`` in blocks ``[n, dim]``; see `TopK`."""
    top = TopK(queries, k, similarity=similarity, device=device)
    for block in blocks:
        top.add(block)
    return top.best()


def search_blocks(
    queries: AnyArray,
    blocks: Blocks,
    k: int,
    *,
    first: int = 0,
    mask: BoolArray | None = None,
    similarity: Similarity = "cosine",
    device: str = "cpu",
) -> Neighbours:
    """Return the `k` nearest rows of each query, by reading rows from position `first` on as they are compared.

    Args:
        queries: ``[queries, dim]``.
        blocks: the rows.
        k: the number of nearest rows.
        first: the position of the first row that is compared.
        mask: the rows that are read ``[n]``; None stands for all.
        similarity: ``cosine`` or ``dot``.
        device: ``cpu``, or a device of torch.
    """
    if mask is None:
        best = search(queries, blocks.since(first, BLOCK), k, similarity=similarity, device=device)
        return Neighbours(best.positions + first, best.scores)
    rows = blocks.chosen(mask, first, BLOCK)
    best = search(queries, rows, k, similarity=similarity, device=device)
    positions = np.flatnonzero(mask[first:])[best.positions]  # `best` counts the chosen rows alone
    return Neighbours(positions + first, best.scores)


def on_host(device: str) -> bool:
    """Tell whether exact search on a device is that of the processor, by NumPy; on any other device it is torch's."""
    return device.startswith("cpu")


def check_width(vectors: AnyArray, width: int, what: str) -> None:
    """Refuse vectors of another dimension than `width`.

    Raises:
        InputError: if they have another dimension.
    """
    if vectors.ndim != 2 or vectors.shape[1] != width:
        raise InputError(f"{what} vectors are {vectors.shape[-1]} wide, the index is {width}: another model?")
