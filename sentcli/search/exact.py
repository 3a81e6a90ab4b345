"""Exact search by cosine similarity with FAISS."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError, MissingExtraError

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Neighbours:
    """Best first: positions and cosine similarities, both ``[queries, k]``."""

    positions: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]


def unit_length(vectors: Vectors) -> Vectors:
    """Return the vectors divided by their lengths; zero vectors stay zero (and are similar to nothing)."""
    vectors = vectors.astype(np.float32, copy=False)  # float16 and int8 are for keeping, not for sums
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return unit


class ExactIndex:
    """Inner product over unit vectors (``faiss.IndexFlatIP``), filled block by block."""

    def __init__(self, dimension: int) -> None:
        self.index: Any = require_faiss().IndexFlatIP(dimension)

    def add(self, blocks: Iterable[Vectors]) -> None:
        """Append vectors ``[n, dim]``.

        Raises:
            InputError: if they have another dimension.
        """
        for block in blocks:
            self._check(block, "corpus")
            self.index.add(unit_length(np.ascontiguousarray(block)))

    def search(self, queries: Vectors, k: int) -> Neighbours:
        """Return the `k` nearest rows of each query, fewer if the index holds fewer.

        Raises:
            InputError: if the queries have another dimension.
        """
        self._check(queries, "query")
        if not len(self):  # which faiss asserts
            return Neighbours(np.empty((len(queries), 0), np.int64), np.empty((len(queries), 0), np.float32))
        scores, positions = self.index.search(unit_length(queries), min(k, len(self)))
        return Neighbours(positions, scores)

    def _check(self, vectors: Vectors, what: str) -> None:
        if vectors.ndim != 2 or vectors.shape[1] != self.index.d:
            raise InputError(
                f"{what} vectors are {vectors.shape[-1]} wide, the index is {self.index.d}: another model?"
            )

    def __len__(self) -> int:
        return int(self.index.ntotal)


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
