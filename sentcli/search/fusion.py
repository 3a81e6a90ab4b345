"""The ways to search: by vectors, by words, and by both, which are fused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError, nearest
from sentcli.search.exact import Neighbours

CONSTANT = 60
"""What Cormack, Clarke and Buettcher found to work."""
Way = Literal["dense", "bm25", "rrf", "weighted"]
WAYS: tuple[Way, ...] = ("dense", "bm25", "rrf", "weighted")
FUSED = 1000
"""Hits of each list that are fused, at least."""
Floats = npt.NDArray[np.float64]


def reciprocal_rank(parts: Sequence[Neighbours], k: int, *, constant: float = CONSTANT) -> Neighbours:
    """Fuse by rank: a row's score is the sum over the lists of 1 / (constant + rank), the first rank being 1.

    Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning Methods",
    SIGIR 2009. A list that lacks a row adds nothing to it.

    Args:
        parts: lists of the same queries, each best first; at least one. Position -1 is no row; no list names a row
            twice.
        k: rows wanted of each query.
        constant: how little the first ranks stand out.

    Returns:
        ``[queries, at most k]``, as wide as the lists are together, of equal scores the first row first; -1 and 0 where
        there are fewer rows.

    Raises:
        ValueError: if the lists are of different numbers of queries.
    """
    ranks = (np.maximum(np.cumsum(part.positions >= 0, axis=1), 1) for part in parts)
    return _sum([(part, 1 / (constant + of_part)) for part, of_part in zip(parts, ranks, strict=True)], k)


def weighted(parts: Sequence[Neighbours], weights: Sequence[float], k: int) -> Neighbours:
    """Fuse by score: a row's score is the weighted sum of its scores, which each list brings to 0 to 1 for each query.

    The best row of a list has 1 and its last one 0 (min-max scaling); if all its scores are equal, they are all 1. A
    list that lacks a row adds nothing to it.

    Args:
        parts: as `reciprocal_rank`'s.
        weights: one of each list.
        k: as `reciprocal_rank`'s.

    Returns:
        As `reciprocal_rank`.

    Raises:
        ValueError: if the lists are of different numbers of queries, or not as many as the weights.
    """
    return _sum([(part, weight * _scaled(part)) for part, weight in zip(parts, weights, strict=True)], k)


def _scaled(part: Neighbours) -> Floats:
    """Return the scores of each query between 0 and 1 ``[queries, n]``; those of no row mean nothing."""
    if not part.positions.size:
        return np.zeros(part.positions.shape)
    scores, there = part.scores.astype(np.float64), part.positions >= 0
    low = np.where(there, scores, np.inf).min(axis=1, keepdims=True)
    span = np.where(there, scores, -np.inf).max(axis=1, keepdims=True) - low
    return np.divide(scores - low, span, out=np.ones_like(scores), where=there & (span > 0))


def _sum(parts: Sequence[tuple[Neighbours, Floats]], k: int) -> Neighbours:
    """Return the `k` rows with the largest sums of what each list adds to them."""
    positions = np.concatenate([part.positions for part, _ in parts], axis=1)
    added = np.concatenate([scores for _, scores in parts], axis=1)
    order = np.argsort(positions, axis=1, kind="stable")  # equal rows become neighbours, in the order of the lists
    positions, added = np.take_along_axis(positions, order, 1), np.take_along_axis(added, order, 1)
    sums = added.copy()
    first = np.ones(positions.shape, bool)
    first[:, 1:] = positions[:, 1:] != positions[:, :-1]
    for back in range(1, len(parts)):  # a row stands at most once in each list
        same = positions[:, back:] == positions[:, :-back]
        sums[:, :-back] += np.where(same, added[:, back:], 0)
    # equal means equal in float32: the order in which a float64 was summed is not to decide
    sums = np.where(first & (positions >= 0), sums, -np.inf).astype(np.float32)
    best = np.argsort(-sums, axis=1, kind="stable")[:, :k]  # stable: equal sums stay in the order of their rows
    sums = np.take_along_axis(sums, best, 1)
    there = np.isfinite(sums)
    rows = np.where(there, np.take_along_axis(positions, best, 1), -1)
    return Neighbours(rows, np.where(there, sums, np.float32(0)))


def parse_ways(text: str) -> list[Way]:
    """Read ``dense,bm25``.

    Raises:
        InputError: for a way that there is not, one that stands twice, or none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in WAYS:
            raise InputError(f"--search: no way {name!r}{nearest(name, list(WAYS))}; one of: {', '.join(WAYS)}")
    if not names or len(set(names)) < len(names):
        raise InputError(f"--search {text!r}: name some of {', '.join(WAYS)}, each once")
    return cast(list[Way], names)


def depth(ways: list[Way] | tuple[Way, ...], k: int) -> int:
    """Return how many hits each list needs for `k` hits of some ways."""
    return max(k, FUSED) if {"rrf", "weighted"} & set(ways) else k


def fuse(way: Way, dense: Neighbours, by_words: Neighbours, k: int, dense_weight: float) -> Neighbours:
    """Return the `k` best of both lists, ``rrf`` or ``weighted``; see `reciprocal_rank` and `weighted`."""
    parts = [dense, by_words]
    if way == "rrf":
        return reciprocal_rank(parts, k)
    return weighted(parts, [dense_weight, 1 - dense_weight], k)


def described(way: Way, k: int, dense_weight: float) -> dict[str, Any]:
    """Return what moves the scores of a fusion, for protocols; nothing for the other ways."""
    if way == "rrf":
        return {"rank_constant": CONSTANT, "fused": max(k, FUSED)}
    if way == "weighted":
        return {"dense_weight": dense_weight, "fused": max(k, FUSED)}
    return {}
