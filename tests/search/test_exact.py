"""Exact search is NumPy's, however the rows come; neighbours of several parts are merged in the order of the corpus."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sentcli.errors import InputError
from sentcli.search import device_memory, exact
from sentcli.search.exact import unit_length
from sentcli.search.neighbours import Neighbours, merge
from sentcli.search.searcher import searcher_over
from tests.examples import examples

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")


def normal(rows, dimension, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, dimension)).astype(np.float32)


@examples(40)
@given(
    rows=st.integers(1, 60),
    queries=st.integers(0, 6),
    dimension=st.integers(1, 24),
    k=st.integers(1, 70),
    cuts=st.lists(st.integers(0, 60), max_size=12),
    similarity=st.sampled_from(["cosine", "dot"]),
    seed=st.integers(0, 1000),
)
def test_search_in_blocks_equals_brute_force(rows, queries, dimension, k, cuts, similarity, seed):
    corpus, asked = normal(rows, dimension, seed), normal(queries, dimension, seed + 1)
    found = exact.search(asked, np.split(corpus, sorted(min(cut, rows) for cut in cuts)), k, similarity=similarity)
    one, two = asked.astype(np.float64), corpus.astype(np.float64)
    true = unit_length(one) @ unit_length(two).T if similarity == "cosine" else one @ two.T
    best = -np.sort(-true, axis=1)[:, : min(k, rows)]
    np.testing.assert_allclose(found.scores, best, atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(true, found.positions, 1), best, atol=1e-4)
    assert all(len(set(row)) == len(row) for row in found.positions.tolist()), "a document was found twice"


def test_many_blocks_are_one_corpus(monkeypatch):
    monkeypatch.setattr(exact, "BLOCK", 7)
    corpus, asked = normal(500, 8), normal(3, 8, 1)
    whole = np.argsort(-(unit_length(asked) @ unit_length(corpus).T), axis=1)[:, :20]
    assert exact.search(asked, [corpus[:123], corpus[123:]], 20).positions.tolist() == whole.tolist()


def test_equal_rows_come_in_their_order_and_missing_ones_last():
    one = Neighbours(np.array([[4, 9]]), np.array([[0.5, 0.25]], np.float32))
    two = Neighbours(np.array([[2, -1]]), np.array([[0.5, 0.75]], np.float32))
    found = merge([one, two], 3)
    assert found.positions.tolist() == [[2, 4, 9]]
    assert found.scores.tolist() == [[0.5, 0.5, 0.25]]


def test_cosine_does_not_depend_on_length_and_does_not_change_its_arguments():
    corpus, query = normal(50, 8), normal(1, 8, 1)
    scaled = corpus * np.logspace(-3, 3, 50, dtype=np.float32)[:, None]
    kept = scaled.copy()
    assert np.array_equal(exact.search(query, [corpus], 9).positions, exact.search(query * 5, [scaled], 9).positions)
    assert np.array_equal(scaled, kept)
    by_length = exact.search(query, [scaled], 9, similarity="dot").positions
    assert not np.array_equal(by_length, exact.search(query, [corpus], 9).positions)


def test_a_row_does_not_depend_on_the_rows_beside_it():
    nearly_unit = unit_length(normal(20, 8)) * np.float32(1 + 1e-6)
    beside_others = np.concatenate([normal(5, 8, 1), nearly_unit, np.zeros((1, 8), np.float32)])
    assert np.array_equal(unit_length(beside_others)[5:25], unit_length(nearly_unit))
    there = device_memory.prepared_there(torch.from_numpy(beside_others), "cosine").numpy()
    assert np.array_equal(there[5:25], unit_length(nearly_unit))
    assert not there[25].any()


def test_zero_vectors_score_zero():
    corpus = np.array([[0, 0], [1, 0], [-1, 0]], np.float32)
    found = exact.search(np.array([[2, 0], [0, 0]], np.float32), [corpus], 3)
    assert found.positions[0].tolist() == [1, 0, 2]
    assert found.scores.tolist() == [[1, 0, -1], [0, 0, 0]]


def test_nothing_is_found_in_nothing():
    found = exact.search(normal(2, 4), [], 3)
    assert found.positions.shape == found.scores.shape == (2, 0)
    found = searcher_over("flat", normal(0, 4)).search(normal(2, 4), 3)
    assert found.positions.shape == (2, 0)


def test_vectors_of_another_width_are_refused():
    with pytest.raises(InputError, match=r"6.*8"):
        exact.search(normal(2, 8), [normal(5, 8), normal(2, 6)], 1)
    with pytest.raises(InputError, match=r"6.*8"):
        searcher_over("hnsw", normal(50, 8)).search(normal(2, 6), 1)
