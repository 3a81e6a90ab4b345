"""The ways to search: by vectors, by words, or by both with their lists fused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sentcli.arrays import Float64Array
from sentcli.search.neighbours import Neighbours
from sentcli.search.options import SearchMode

CONSTANT = 60
"""The constant of reciprocal rank fusion that Cormack, Clarke and Buettcher use."""
FUSED = 1000
"""The least number of hits of each list that are fused."""


def reciprocal_rank(parts: Sequence[Neighbours], k: int, *, constant: float = CONSTANT) -> Neighbours:
    """Fuse by rank: a row's score is the sum over the lists of 1 / (constant + rank), the first rank being 1.

    Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning Methods",
    SIGIR 2009. A list without a row adds nothing to the score of that row.

    Args:
        parts: at least one list for the same queries, each best first. Position -1 stands for no row, and no list names
            a row twice.
        k: the number of rows for each query.
        constant: a larger one makes the first ranks stand out less.

    Returns:
        ``[queries, n]``, where n is `k` or the sum of the lists' widths if that is less. Of equal scores the first row
        comes first; where there are fewer rows, the position is -1 and the score 0.

    Raises:
        ValueError: if the lists are of different numbers of queries.
    """
    scored = []
    for part in parts:
        ranks = np.maximum(np.cumsum(part.positions >= 0, axis=1), 1)
        scored.append((part, 1 / (constant + ranks)))
    return _sum(scored, k)


def weighted(parts: Sequence[Neighbours], weights: Sequence[float], k: int) -> Neighbours:
    """Fuse by score: a row's score is the weighted sum of its scores, scaled to 0 to 1 in each list and for each query.

    The best row of a list gets 1 and its last one 0 (min-max scaling); if all scores are equal, all get 1. A list
    without a row adds nothing to the score of that row.

    Args:
        parts: as for `reciprocal_rank`.
        weights: the weight of each list.
        k: as for `reciprocal_rank`.

    Returns:
        As for `reciprocal_rank`.

    Raises:
        ValueError: if the lists are of different numbers of queries, or not as many as the weights.
    """
    scored = []
    for part, weight in zip(parts, weights, strict=True):
        scored.append((part, weight * _scaled(part)))
    return _sum(scored, k)


def _scaled(part: Neighbours) -> Float64Array:
    """Return the scores of each query scaled to 0 to 1 ``[queries, n]``; at position -1 they have no meaning."""
    if not part.positions.size:
        return np.zeros(part.positions.shape)
    scores = part.scores.astype(np.float64)
    is_row = part.positions >= 0
    for_low = np.where(is_row, scores, np.inf)
    for_high = np.where(is_row, scores, -np.inf)
    low = for_low.min(axis=1, keepdims=True)
    high = for_high.max(axis=1, keepdims=True)
    span = high - low
    return np.divide(scores - low, span, out=np.ones_like(scores), where=is_row & (span > 0))


def _sum(parts: Sequence[tuple[Neighbours, Float64Array]], k: int) -> Neighbours:
    """Return the `k` rows with the largest sums of their scores in all lists."""
    positions = np.concatenate([part.positions for part, _ in parts], axis=1)
    added = np.concatenate([scores for _, scores in parts], axis=1)
    order = np.argsort(positions, axis=1, kind="stable")  # equal rows become neighbours, in the order of the lists
    positions = np.take_along_axis(positions, order, 1)
    added = np.take_along_axis(added, order, 1)
    sums = added.copy()
    first = np.ones(positions.shape, bool)
    first[:, 1:] = positions[:, 1:] != positions[:, :-1]
    for offset in range(1, len(parts)):  # a row is at most once in each list
        same = positions[:, offset:] == positions[:, :-offset]
        sums[:, :-offset] += np.where(same, added[:, offset:], 0)
    # sums are compared in float32, so that the order of a float64 summation does not decide between equal ones
    is_counted = first & (positions >= 0)
    sums = np.where(is_counted, sums, -np.inf).astype(np.float32)
    order = np.argsort(-sums, axis=1, kind="stable")  # stable: equal sums stay in the order of their rows
    best = Neighbours(positions, sums).reordered(order[:, :k])
    is_row = np.isfinite(best.scores)
    best.positions[~is_row] = -1
    best.scores[~is_row] = 0
    return best


def depth(modes: list[SearchMode] | tuple[SearchMode, ...], k: int) -> int:
    """Return how many hits each list has to have so that these ways give `k` hits."""
    if "rrf" in modes or "weighted" in modes:
        return max(k, FUSED)
    return k


def fuse(mode: SearchMode, dense: Neighbours, by_words: Neighbours, k: int, dense_weight: float) -> Neighbours:
    """Return the `k` best of both lists, ``rrf`` or ``weighted``; see `reciprocal_rank` and `weighted`."""
    parts = [dense, by_words]
    if mode == "rrf":
        return reciprocal_rank(parts, k)
    return weighted(parts, [dense_weight, 1 - dense_weight], k)


def fusion_protocol(mode: SearchMode, k: int, dense_weight: float) -> dict[str, Any]:
    """Return the choices that change the scores of a fusion, for protocols; nothing for ``dense`` and ``bm25``."""
    if mode == "rrf":
        return {"rank_constant": CONSTANT, "fused": max(k, FUSED)}
    if mode == "weighted":
        return {"dense_weight": dense_weight, "fused": max(k, FUSED)}
    return {}
