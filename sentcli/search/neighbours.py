"""What a search finds: the best rows of each query, and how findings in several places become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Similarity = Literal["cosine", "dot"]
UNIT = 4e-6
"""How far the square of a length may be from 1 in float32 for the length to be 1."""


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
    falling: npt.NDArray[np.bool_] = np.all(scores[:, 1:] < scores[:, :-1], axis=1)
    return falling


def unit_length(vectors: npt.NDArray[np.generic]) -> Vectors:
    """Return the vectors ``[n, dim]`` divided by their lengths; zero vectors stay zero (and are similar to nothing).

    Vectors that have length 1 already, as those of most models, are returned as they are.
    """
    wide: Vectors = vectors.astype(np.float32, copy=False)  # float16 and int8 are for keeping, not for sums
    if (np.abs(np.einsum("nd,nd->n", wide, wide) - 1) <= UNIT).all():
        return wide
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    unit: Vectors = np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0)
    return unit


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
