"""Exact search: every query is compared with every row, block by block, so that a corpus need not fit into memory.

The vectors stay where they are: in arrays, or in shards that are mapped from disk.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError, required
from sentcli.io.dataset import Shard

Vectors = npt.NDArray[np.float32]
Similarity = Literal["cosine", "dot"]
UNIT = 4e-6
"""How far the square of a length may be from 1 in float32 for the length to be 1."""
GATHERED = 2**24
"""Numbers that are read at a time to compare single rows: 64 MiB."""
TAKEN = 1024
"""Single rows that are read at a time; a system may map 64 KiB around each of them."""
BLOCK = 131_072
"""Rows that are copied at a time: to length 1, to float32, or to a GPU."""
AT_A_TIME = 2**28
"""Similarities that torch holds on a device at a time: 1 GiB."""
QUERIES_AT_ONCE, ROWS_AT_ONCE = 256, 16_384
"""Of one matrix product; with faiss's own 4,096 x 1,024 a search takes up to three times as long."""
FEW = 8
"""Queries that faiss compares row by row, not by a matrix product; its own limit lies near 330 of 384 dimensions."""


@dataclass(frozen=True)
class Neighbours:
    """Best first: positions and similarities, both ``[queries, k]``."""

    positions: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]

    @classmethod
    def none(cls, queries: int) -> Neighbours:
        """Return what a search in nothing finds ``[queries, 0]``."""
        return cls(np.empty((queries, 0), np.int64), np.empty((queries, 0), np.float32))


def merge(parts: Sequence[Neighbours], k: int) -> Neighbours:
    """Return the `k` best of what was found in several places; of equal similarities the first row comes first.

    Args:
        parts: with positions counted over all places; -1 is no row, as faiss has it. At least one.
        k: fewer are returned if there are fewer.
    """
    positions = np.concatenate([part.positions for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    if (positions < 0).any():
        scores = np.where(positions < 0, -np.inf, scores)
    if len(parts) > 1 or not _sorted(scores).all():
        order = np.argsort(-scores, axis=1, kind="stable")
        positions, scores = np.take_along_axis(positions, order, 1), np.take_along_axis(scores, order, 1)
        equal = np.flatnonzero(~_sorted(scores))
        order = np.lexsort((positions[equal], -scores[equal]), axis=1)
        positions[equal] = np.take_along_axis(positions[equal], order, 1)
        scores[equal] = np.take_along_axis(scores[equal], order, 1)
    return Neighbours(positions[:, :k], scores[:, :k].astype(np.float32, copy=False))


def _sorted(scores: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
    """Tell which rows fall from left to right, no two alike."""
    return np.all(scores[:, 1:] < scores[:, :-1], axis=1)


def unit_length(vectors: npt.NDArray[np.generic]) -> Vectors:
    """Return the vectors ``[n, dim]`` divided by their lengths; zero vectors stay zero (and are similar to nothing).

    Vectors that have length 1 already, as those of most models, are returned as they are.
    """
    wide: Vectors = vectors.astype(np.float32, copy=False)  # float16 and int8 are for keeping, not for sums
    if (np.abs(np.einsum("nd,nd->n", wide, wide) - 1) <= UNIT).all():
        return wide
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0)


def not_own(positions: npt.NDArray[np.int64], own: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Tell which rows that were found are not the query itself: all but one of each query.

    Args:
        positions: what was found ``[queries, k]``.
        own: the row that each query is ``[queries]``; where equal rows have displaced it, the last one stands for it.
    """
    others: npt.NDArray[np.bool_] = positions != own[:, None]
    others[others.all(axis=1), -1] = False
    return others


def prepared(vectors: npt.NDArray[np.generic], similarity: Similarity) -> Vectors:
    """Return what an inner product of ``[n, dim]`` is the similarity of: contiguous float32, of length 1 for cosine."""
    wide: Vectors = unit_length(vectors) if similarity == "cosine" else vectors.astype(np.float32, copy=False)
    return np.ascontiguousarray(wide)


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
                pages: Any = array.base
                if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                    pages.madvise(mmap.MADV_DONTNEED)  # they leave this process, and stay in the system's cache
        return vectors

    def sample(self, count: int, seed: int = 0) -> tuple[npt.NDArray[np.int64], Vectors]:
        """Return the numbers ``[n]`` and the vectors ``[n, dim]`` of random rows, in the order of the corpus."""
        count = min(count, len(self))
        chosen = np.random.default_rng(seed).choice(len(self), count, replace=False, shuffle=False)
        positions = np.sort(chosen).astype(np.int64)
        return positions, self.take(positions)

    def rescored(self, queries: Vectors, hits: Neighbours, similarity: Similarity) -> Neighbours:
        """Return the same rows with their exact similarities, not sorted anew.

        Args:
            queries: `prepared` ``[queries, dim]``.
            hits: of each query.
            similarity: ``cosine`` or ``dot``.
        """
        positions = hits.positions
        scores = np.full(positions.shape, -np.inf, np.float32)
        together = max(GATHERED // max(positions.shape[1] * self.dimension, 1), 1)
        for start in range(0, len(queries), together):
            some = positions[start : start + together]
            rows = prepared(self.take(np.maximum(some, 0).ravel()), similarity).reshape(*some.shape, -1)
            exact = np.einsum("qd,qkd->qk", queries[start : start + together], rows)
            scores[start : start + together] = np.where(some < 0, -np.inf, exact)
        return Neighbours(positions, scores)


class TopK:
    """The best rows of a corpus that comes block by block.

    Args:
        queries: ``[queries, dim]``.
        k: rows wanted of each.
        similarity: ``cosine`` or ``dot``.
        device: ``cpu``, or a device of torch.
    """

    def __init__(
        self, queries: npt.NDArray[np.generic], k: int, *, similarity: Similarity = "cosine", device: str = "cpu"
    ) -> None:
        self.k, self.similarity, self.device = k, similarity, device
        self.rows = 0
        """Of the corpus, so far."""
        self._queries = prepared(queries, similarity)
        self._hits: list[Neighbours] = []

    def add(self, vectors: npt.NDArray[np.generic]) -> None:
        """Compare further rows ``[n, dim]``, which may be mapped from a file.

        Raises:
            InputError: if they have another dimension.
        """
        check_width(vectors, self._queries.shape[1], "corpus")
        for start in range(0, len(vectors), BLOCK):
            block = prepared(vectors[start : start + BLOCK], self.similarity)
            hits = _nearest(self._queries, block, min(self.k, len(block)), self.device)
            self._hits.append(Neighbours(hits.positions + self.rows, hits.scores))
            self.rows += len(block)
            if len(self._hits) * self.k > BLOCK or len(self._hits) > 8:
                self._hits = [merge(self._hits, self.k)]

    def best(self) -> Neighbours:
        """Return what is best so far, `k` for each query, or fewer if there were fewer rows."""
        return merge(self._hits, self.k) if self._hits else Neighbours.none(len(self._queries))


def search(
    queries: npt.NDArray[np.generic],
    blocks: Iterable[npt.NDArray[np.generic]],
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


def _nearest(queries: Vectors, block: Vectors, k: int, device: str) -> Neighbours:
    if not len(queries):
        return Neighbours(np.empty((0, k), np.int64), np.empty((0, k), np.float32))
    if not device.startswith("cpu"):
        return nearest_by_torch(queries, block, k, device)
    faiss = require_faiss()
    settings = faiss.cvar
    settings.distance_compute_blas_query_bs = QUERIES_AT_ONCE
    settings.distance_compute_blas_database_bs = ROWS_AT_ONCE
    if _counts_numbers():
        settings.distance_compute_blas_threshold = FEW * queries.shape[1]
    scores, positions = faiss.knn(queries, block, k, metric=faiss.METRIC_INNER_PRODUCT)
    return Neighbours(positions, scores)


def nearest_by_torch(queries: Vectors, block: Vectors, k: int, device: str) -> Neighbours:
    """Return the `k` rows of `block` ``[n, dim]`` with the largest inner products with each query ``[queries, dim]``.

    It is for accelerators: faiss may be built for the CPU alone.

    Args:
        queries: on the host, as `block` is.
        block: of a corpus.
        k: at most n.
        device: of torch, such as ``cuda``, ``cuda:1``, ``mps``, ``cpu``.
    """
    import torch

    rows = torch.from_numpy(np.require(block, requirements="W")).to(device)  # a mapped file cannot be written to
    together = max(AT_A_TIME // len(block), 1)
    positions, scores = [], []
    for start in range(0, len(queries), together):
        some = torch.from_numpy(queries[start : start + together]).to(device)
        best = torch.topk(some @ rows.T, k, dim=1)
        positions.append(best.indices.cpu().numpy())
        scores.append(best.values.cpu().numpy())
    return Neighbours(np.concatenate(positions), np.concatenate(scores))


@cache
def _counts_numbers() -> bool:
    """Tell whether faiss's threshold is of queries times dimensions (newer releases), not of queries."""
    return bool(require_faiss().cvar.distance_compute_blas_threshold > 1000)


def check_width(vectors: npt.NDArray[np.generic], width: int, what: str) -> None:
    """Refuse vectors of another dimension than `width`.

    Raises:
        InputError: if they have one.
    """
    if vectors.ndim != 2 or vectors.shape[1] != width:
        raise InputError(f"{what} vectors are {vectors.shape[-1]} wide, the index is {width}: another model?")


def require_faiss() -> Any:
    """Return the faiss module.

    Raises:
        MissingExtraError: if it is not installed.
    """
    return required("faiss", "faiss", "cpu", "search")
