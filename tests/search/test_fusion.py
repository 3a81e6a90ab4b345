"""Fused lists are those of a dictionary."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.search.fusion import reciprocal_rank, weighted
from sentcli.search.neighbours import Neighbours
from tests.examples import examples
from tests.tolerance import rounding


def neighbours(rows):
    """Lists of (position, score) as arrays, filled up with -1."""
    width = max(map(len, rows), default=0)
    filled = [[*row, *[(-1, 0.0)] * (width - len(row))] for row in rows]
    positions = np.array([[place for place, _ in row] for row in filled], np.int64).reshape(len(rows), width)
    return Neighbours(
        positions, np.array([[s for _, s in row] for row in filled], np.float32).reshape(len(rows), width)
    )


def best(sums, k):
    """The k largest of a dictionary, equal ones by key, filled up."""
    found = sorted(sums.items(), key=lambda item: (-np.float32(item[1]), item[0]))[:k]
    return found + [(-1, 0.0)] * (k - len(found))


def ranks_by_dictionary(lists, k, constant):
    sums = {}
    for row in lists:
        for rank, (place, _) in enumerate(row, 1):
            sums[place] = sums.get(place, 0) + 1 / (constant + rank)
    return best(sums, k)


def scores_by_dictionary(lists, weights, k):
    sums = {}
    for row, weight in zip(lists, weights, strict=True):
        scores = [score for _, score in row]
        for place, score in row:
            low, high = min(scores), max(scores)
            share = 1.0 if high == low else (score - low) / (high - low)
            sums[place] = sums.get(place, 0) + weight * share
    return best(sums, k)


def ranked(queries):
    """Lists of one search: distinct rows with scores that binary numbers hold, best first."""
    scores = st.integers(-8, 8).map(lambda n: n / 4)
    one = st.dictionaries(st.integers(0, 9), scores, max_size=6).map(
        lambda row: sorted(row.items(), key=lambda item: (-item[1], item[0]))
    )
    return st.lists(one, min_size=queries, max_size=queries)


SEARCHES = st.integers(0, 3).flatmap(lambda queries: st.lists(ranked(queries), min_size=1, max_size=4))


def check(found, expected, k):
    """Compare arrays with a dictionary's lists, whose fillers beyond the lists together are left out."""
    width = found.positions.shape[1]
    assert found.positions.shape == found.scores.shape and len(found.positions) == len(expected) and width <= k
    assert all(place < 0 for row in expected for place, _ in row[width:])
    expected = [row[:width] for row in expected]
    assert found.positions.dtype == np.int64
    assert found.scores.dtype == np.float32
    assert found.positions.tolist() == [[place for place, _ in row] for row in expected]
    scores = np.array([[score for _, score in row] for row in expected]).reshape(found.scores.shape)
    np.testing.assert_allclose(found.scores, scores, atol=rounding(32))


@examples(150)
@given(searches=SEARCHES, k=st.integers(1, 12), constant=st.sampled_from([0, 1, 60]))
def test_ranks_are_fused_as_by_a_dictionary(searches, k, constant):
    found = reciprocal_rank([neighbours(rows) for rows in searches], k, constant=constant)
    check(found, [ranks_by_dictionary(lists, k, constant) for lists in zip(*searches, strict=True)], k)


@examples(150)
@given(searches=SEARCHES, k=st.integers(1, 12), data=st.data())
def test_scores_are_fused_as_by_a_dictionary(searches, k, data):
    weights = data.draw(
        st.lists(st.sampled_from([0.0, 0.25, 0.5, 2.0]), min_size=len(searches), max_size=len(searches))
    )
    found = weighted([neighbours(rows) for rows in searches], weights, k)
    check(found, [scores_by_dictionary(lists, weights, k) for lists in zip(*searches, strict=True)], k)


def test_a_row_that_both_lists_have_wins_and_what_is_no_row_counts_for_nothing():
    first = neighbours([[(7, 0.9), (3, 0.8)], []])
    second = Neighbours(np.array([[-1, 3, -1, 5]] * 2), np.array([[9, 4, 9, 2]] * 2, np.float32))
    found = reciprocal_rank([first, second], 4)
    assert found.positions.tolist() == [[3, 7, 5, -1], [3, 5, -1, -1]]
    assert found.scores[0].tolist() == pytest.approx([1 / 61 + 1 / 62, 1 / 61, 1 / 62, 0])
    assert weighted([first, second], [0.5, 0.5], 3).positions.tolist() == [[3, 7, 5], [3, 5, -1]]


def test_equal_sums_come_by_row():
    first, second = neighbours([[(8, 1.0), (2, 0.5)]]), neighbours([[(2, 3.0), (8, 1.0)]])
    assert reciprocal_rank([first, second], 2).positions.tolist() == [[2, 8]]
    assert weighted([first, second], [1, 1], 2).positions.tolist() == [[2, 8]]


def test_the_order_of_the_lists_does_not_decide():
    lists = [neighbours([[(place, -rank) for rank, place in enumerate(row)]]) for row in permutations(range(3))]
    assert reciprocal_rank(lists, 3).positions.tolist() == [[0, 1, 2]]


def test_no_more_is_allocated_than_the_lists_hold():
    one = neighbours([[(3, 1.0), (1, 0.5)]])
    assert reciprocal_rank([one, one], 10**12).positions.tolist() == [[3, 1, -1, -1]]


def test_lists_that_do_not_belong_together_are_refused():
    one, two = neighbours([[(1, 1.0)]]), neighbours([[(1, 1.0)], [(2, 1.0)]])
    with pytest.raises(ValueError, match="dimension"):
        reciprocal_rank([one, two], 1)
    with pytest.raises(ValueError, match="zip"):
        weighted([one, one], [1.0], 1)
