"""Exact search: every query is compared with every row, block by block, so that a corpus need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError, MissingExtraError
from sentcli.search.neighbours import Neighbours, Similarity, Vectors, merge, prepared

BLOCK = 131_072
"""Rows that are copied at a time: to length 1, to float32, or to a GPU."""
AT_A_TIME = 2**28
"""Similarities that torch holds on a device at a time: 1 GiB."""
QUERIES_AT_ONCE, ROWS_AT_ONCE = 256, 16_384
"""Of one matrix product; with faiss's own 4,096 x 1,024 a search takes up to three times as long."""
FEW = 8
"""Queries that faiss compares row by row, not by a matrix product; its own limit lies near 330 of 384 dimensions."""


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
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("faiss", "cpu", "search") from error
    return faiss
