"""The best rows by inner products are those of a full sort, however the rows come, with equal ones in their order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.search import products
from sentcli.search.products import BestRows
from tests.examples import examples


def sorted_whole(queries, rows, k):
    scores = queries @ rows.T
    scores[np.isnan(scores)] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, 1)


def found(queries, rows, k, cuts=()):
    best = BestRows(queries, k)
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        best.add(rows[start:end], start)
    hits = best.best()
    return hits.positions, hits.scores


@examples(150)
@given(st.data())
def test_whole_numbers_give_the_order_of_a_stable_sort(data):
    """Products of small whole numbers are exact, and many are equal."""
    draw = data.draw
    seed, dim = draw(st.integers(0, 10**6)), draw(st.integers(1, 4))
    generator = np.random.default_rng(seed)
    queries, rows = (
        generator.integers(-2, 3, (draw(st.integers(0, most)), dim)).astype(np.float32) for most in (150, 400)
    )
    k, threads = draw(st.integers(1, 450)), draw(st.integers(1, 4))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    bounds = {"TILE": draw(st.sampled_from([64, 2**21])), "LEAST_ROWS": draw(st.sampled_from([1, 7, 2048]))}
    bounds["CACHED"], bounds["A_THREAD"] = draw(st.sampled_from([4, 2**20])), draw(st.sampled_from([1, 2**22]))
    bounds["NARROW"] = draw(st.sampled_from([0, 3, 32]))
    bounds["SURE"] = draw(st.sampled_from([-0.9, 4.0]))  # the first bound is too high for many queries, or hardly ever
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**bounds, "GROUP": 16, "FEW": 2, "SAMPLED": draw(st.sampled_from([1, 2, 8, 64]))}.items():
            patch.setattr(products, name, value)
        patch.setattr(products, "_threads", lambda: threads)
        positions, scores = found(queries, rows, k, cuts)
    expected = sorted_whole(queries, rows, k)
    assert np.array_equal(positions, expected[0]) and np.array_equal(scores, expected[1])


@pytest.fixture
def bound_too_high(monkeypatch):
    """The first bound is just below the best product, so that fewer than `k` rows lie above it."""
    original = products._Group._least

    def too_high(group, rows, slices, workers):
        if group.best.scores.shape[1] == group.k or not group.samples:
            return original(group, rows, slices, workers)
        return np.nextafter((group.queries @ rows[:].T).max(axis=1), np.float32(-np.inf)), False

    monkeypatch.setattr(products._Group, "_least", too_high)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("cuts", [[], [4], [1500]], ids=["at-once", "few-before", "many-before"])
@pytest.mark.parametrize("lacking", ["all", "some", "none"])
def test_a_bound_that_is_too_high_is_taken_back(lacking, cuts, threads, bound_too_high, monkeypatch):
    """Rows that equal the best one of a query stand above its bound: it lacks none of them."""
    monkeypatch.setattr(products, "_threads", lambda: threads)
    generator = np.random.default_rng(0)
    queries, rows = (generator.standard_normal((count, 8), dtype=np.float32) for count in (3, 2100))
    queries, rows = (np.round(8 * vectors) for vectors in (queries, rows))  # products of whole numbers are exact
    with_equal = {"all": [], "some": [1], "none": [0, 1, 2]}[lacking]
    for query in with_equal:
        rows[100 + query : 2000 : 100] = 8 * queries[query]
    positions, scores = found(queries, rows, 10, cuts)
    expected = sorted_whole(queries, rows, 10)
    assert np.array_equal(positions, expected[0]) and np.array_equal(scores, expected[1])


def test_many_threads_share_few_rows(monkeypatch):
    """Each of 64 threads has fewer rows than the sample takes one of."""
    monkeypatch.setattr(products, "_threads", lambda: 64)
    monkeypatch.setattr(products, "FEW", 2**12)  # else it takes 16,000 queries
    generator = np.random.default_rng(0)
    queries, rows = (generator.integers(-3, 4, (count, 6)).astype(np.float32) for count in (64, 2100))
    positions, scores = found(queries, rows, 1)
    expected = sorted_whole(queries, rows, 1)
    assert np.array_equal(positions, expected[0]) and np.array_equal(scores, expected[1])


def test_what_is_no_number_comes_last():
    generator = np.random.default_rng(0)
    queries, rows = (generator.standard_normal((count, 8), dtype=np.float32) for count in (70, 5000))
    rows[::3] = np.nan
    rows[1] = np.inf
    with np.errstate(invalid="ignore"):
        positions, _ = found(queries, rows, 100, [2500])
        expected, _ = sorted_whole(queries, rows, 100)
    assert np.array_equal(positions, expected)


def test_the_threads_of_products_are_those_of_before():
    from threadpoolctl import threadpool_info

    def threads():
        return {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}

    before, vectors = threads(), np.eye(300, dtype=np.float32)
    found(vectors, vectors, 5)
    assert threads() == before
