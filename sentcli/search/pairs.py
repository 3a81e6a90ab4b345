"""Pairs of rows of one corpus above a similarity, by exact search or through an index, and their groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sentcli.arrays import BoolArray, Float32Array, Int64Array, components
from sentcli.search.neighbours import Neighbours
from sentcli.search.recall import SAMPLE_ROWS
from sentcli.search.searcher import Searcher

NEAREST = 16
"""How many neighbours of a row are asked for first; a row whose neighbours are all similar enough is asked for more."""
MOST_NEIGHBOURS = 1024
"""The most neighbours of a row that are looked at."""
MOST_PAIRS = 1_000_000
"""The most pairs that are listed."""
PROPOSED = 10_000
"""About as many pairs has the similarity that is proposed where there would be too many."""
QUERY_ROWS = 4096
"""How many rows are queries at a time."""


@dataclass(frozen=True)
class SimilarPairs:
    """Pairs of rows, the most similar first, each once."""

    first: Int64Array
    """The position of the earlier row of each pair ``[pairs]``."""
    second: Int64Array
    """The position of the later row ``[pairs]``."""
    similarities: Float32Array
    """``[pairs]``."""
    nearest: Float32Array
    """The similarity of each row and its nearest other row ``[rows]``; -1 where an index found none."""
    crowded: int
    """The number of rows with `MOST_NEIGHBOURS` or more such neighbours, of which the nearest are here."""


def pairs_above(searcher: Searcher, least: float, progress: Callable[[int], None] = lambda rows: None) -> SimilarPairs:
    """Return all pairs of different rows with at least the similarity `least`, as far as the search finds them.

    Args:
        searcher: over the rows.
        least: the least similarity.
        progress: called with the number of rows that were compared.
    """
    rows = len(searcher.blocks)
    firsts = [np.empty(0, np.int64)]
    seconds = [np.empty(0, np.int64)]
    scores = [np.empty(0, np.float32)]
    nearest = np.full(rows, -1, np.float32)
    crowded = 0
    for start in range(0, rows, QUERY_ROWS):
        own = np.arange(start, min(start + QUERY_ROWS, rows))
        vectors = searcher.blocks.take(own)
        k = NEAREST
        done = len(own)
        while len(own):
            hits = searcher.search(vectors, min(k + 1, rows))
            hits = _without_own(hits, own)
            similarities = hits.scores
            np.minimum(similarities, 1, out=similarities)  # the rounding of a cosine may be above
            if k == NEAREST and similarities.shape[1]:
                nearest[own] = np.maximum(similarities[:, 0], -1)
            is_similar = similarities >= least
            may_have_more: BoolArray = np.all(is_similar, axis=1) & (k < rows - 1)
            if k >= MOST_NEIGHBOURS:
                crowded += int(may_have_more.sum())
                may_have_more[:] = False
            query, column = np.nonzero(is_similar & ~may_have_more[:, None])
            firsts.append(own[query])
            seconds.append(hits.positions[query, column])
            scores.append(similarities[query, column])
            own = own[may_have_more]
            vectors = vectors[may_have_more]
            k *= 4
        progress(done)
    first = np.concatenate(firsts)
    second = np.concatenate(seconds)
    similarities = np.concatenate(scores)
    low = np.minimum(first, second)
    high = np.maximum(first, second)
    _, once = np.unique(low * rows + high, return_index=True)
    best = once[np.lexsort((high[once], low[once], -similarities[once]))]
    return SimilarPairs(low[best], high[best], similarities[best], nearest, crowded)


@dataclass(frozen=True)
class ExpectedPairs:
    """How many pairs a corpus has above a similarity, by a sample of its rows."""

    pairs: int
    proposed: float
    """A similarity that about `PROPOSED` pairs have."""
    of_proposed: int


def expected_pairs(searcher: Searcher, least: float) -> ExpectedPairs:
    """Estimate the number of pairs above a similarity from the exact neighbours of random rows.

    Args:
        searcher: over the rows.
        least: the least similarity.
    """
    rows = len(searcher.blocks)
    sample, hits = _exact_neighbours(searcher)
    scores = hits.scores
    similarities = np.sort(scores[np.isfinite(scores)])[::-1]
    pairs_of_one = rows / 2 / max(len(sample), 1)  # a pair of two rows is seen from each of them
    proposed = 1.0
    if len(similarities):
        count = max(int(PROPOSED / pairs_of_one), 1)
        proposed = float(similarities[min(count, len(similarities)) - 1])
    pairs = int((similarities >= least).sum() * pairs_of_one)
    of_proposed = int((similarities >= proposed).sum() * pairs_of_one)
    return ExpectedPairs(pairs, proposed, of_proposed)


def _exact_neighbours(searcher: Searcher) -> tuple[Int64Array, Neighbours]:
    """Return random rows ``[sample]``, and their exact neighbours among the others."""
    sample, vectors = searcher.blocks.sample(SAMPLE_ROWS)
    k = min(MOST_NEIGHBOURS + 1, len(searcher.blocks))
    hits = searcher.exactly().search(vectors, k)
    return sample, _without_own(hits, sample)


def rows_left(pairs: SimilarPairs, rows: int) -> BoolArray:
    """Return which rows are left ``[rows]`` if each row goes that is in a pair with an earlier row that is left."""
    left = np.ones(rows, np.bool_)
    order = np.argsort(pairs.second, kind="stable")
    firsts = pairs.first[order].tolist()
    seconds = pairs.second[order].tolist()
    for first, second in zip(firsts, seconds, strict=True):
        if left[first]:
            left[second] = False
    return left


def _without_own(hits: Neighbours, own: Int64Array) -> Neighbours:
    """Return the neighbours ``[queries, k - 1]`` of queries that are rows, best first, without these rows."""
    is_none = (hits.positions == own[:, None]) | (hits.positions < 0)
    scores = np.where(is_none, -np.inf, hits.scores)
    others = Neighbours(hits.positions, scores).best_first()
    count = max(scores.shape[1] - 1, 0)
    return Neighbours(others.positions[:, :count], others.scores[:, :count])


def groups_of(pairs: SimilarPairs, rows: int) -> Int64Array:
    """Return the group of each row ``[rows]``: rows that a chain of pairs connects; -1 for a row in no pair.

    Groups are numbered from 0, the largest first, and groups of equal size in the order of their first rows.
    """
    component = components(pairs.first, pairs.second, rows)
    _, first, inverse, sizes = np.unique(component, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return np.where(sizes[inverse] > 1, number[inverse], -1)


def recall_of(pairs: SimilarPairs, searcher: Searcher, least: float) -> tuple[float, int]:
    """Return the share of the exact pairs of random rows that were found, and the number of these rows.

    Args:
        pairs: the result of `pairs_above` through an index.
        searcher: over the rows.
        least: the least similarity of a pair.
    """
    sample, hits = _exact_neighbours(searcher)
    rows = len(searcher.blocks)
    query, column = np.nonzero(hits.scores >= least)
    own = sample[query]
    others = hits.positions[query, column]
    low = np.minimum(own, others)
    high = np.maximum(own, others)
    expected = np.unique(low * rows + high)
    if not len(expected):
        return 1.0, len(sample)
    listed = pairs.first * rows + pairs.second
    is_found = np.isin(expected, listed)
    return float(is_found.mean()), len(sample)
