"""Numbers of geometry against their definitions written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.analysis import directions, uniformity
from sentcli.analysis.geometry import measures
from sentcli.analysis.geometry.measures import hubness
from sentcli.evaluation.pair_geometry import all_pairs
from tests.examples import examples


def normal(rows, dimension, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, dimension)).astype(np.float32)


@examples(30)
@given(rows=st.integers(2, 40), dimension=st.integers(1, 9), zeros=st.integers(0, 2), seed=st.integers(0, 99))
def test_anisotropy_is_the_mean_cosine_of_all_pairs(rows, dimension, zeros, seed):
    from sklearn.metrics.pairwise import cosine_similarity

    vectors = normal(rows, dimension, seed)
    vectors[:zeros] = 0
    cosines = cosine_similarity(vectors.astype(np.float64))
    assert directions.anisotropy(vectors) == pytest.approx(cosines[np.triu_indices(rows, 1)].mean(), abs=1e-9)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("rows", [3, 50, 9000])
def test_singular_values_are_numpys(rows, centred):
    vectors = normal(rows, 12) + np.float32(0.7)
    matrix = vectors.astype(np.float64) - (vectors.mean(axis=0, dtype=np.float64) if centred else 0)
    expected = np.zeros(12)
    expected[: min(rows, 12)] = np.linalg.svd(matrix, compute_uv=False)
    np.testing.assert_allclose(measures.singular_values(vectors, centred=centred), expected, atol=1e-5)


def test_effective_rank_counts_directions():
    assert measures.effective_rank(np.array([3.0, 3, 3, 3])) == pytest.approx(4)
    assert measures.effective_rank(np.array([5.0, 0, 0])) == pytest.approx(1)
    assert measures.effective_rank(np.zeros(3)) == 0
    assert 1 < measures.effective_rank(np.array([5.0, 1, 0])) < 2


def test_isotropy_by_its_definition():
    vectors = normal(300, 6) * np.array([5, 1, 1, 1, 1, 0.2], np.float32) + np.float32(0.5)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    _, directions = np.linalg.eigh((unit.T @ unit).astype(np.float64))
    sums = [np.exp(unit @ (sign * a)).sum() for a in directions.T for sign in (1, -1)]
    assert measures.isotropy(vectors) == pytest.approx(min(sums) / max(sums), rel=1e-5)
    assert measures.isotropy(normal(20_000, 6)) > 0.95 > measures.isotropy(vectors)


@pytest.mark.parametrize(("rows", "k", "block", "together"), [
    (60, 1, 7, 3), (60, 5, 16, 4), (60, 59, 16, 4), (60, 100, 64, 64), (61, 10, 20, 64), (2, 1, 1, 1), (257, 10, 64, 8),
])  # fmt: skip
def test_occurrences_are_those_of_scikit_learn(rows, k, block, together, monkeypatch):
    from sklearn.neighbors import NearestNeighbors

    monkeypatch.setattr("sentcli.evaluation.pair_geometry.PRODUCT_ROWS", block)
    monkeypatch.setattr("sentcli.evaluation.pair_geometry.COMPARED_PRODUCTS", together)
    vectors = normal(rows, 8)
    neighbours = NearestNeighbors(n_neighbors=min(k, rows - 1), metric="cosine").fit(vectors)
    found = neighbours.kneighbors(return_distance=False)
    assert all_pairs(vectors, k).occurrences.tolist() == np.bincount(found.ravel(), minlength=rows).tolist()


def test_a_hub_is_found():
    around = np.eye(30, dtype=np.float32)
    hub = np.ones((1, 30), np.float32)
    measured = hubness(all_pairs(np.concatenate([around, hub]), 1))
    assert (measured["largest"], measured["k"]) == (30, 1)
    assert measured["skewness"] > 3
    assert hubness(all_pairs(np.ones((50, 4), np.float32)))["largest"] >= 10, "equal rows are each other's neighbours"


@pytest.mark.parametrize("function", [directions.anisotropy, all_pairs, measures.isotropy, measures.singular_values])
def test_too_few_vectors_are_refused(function):
    with pytest.raises(ValueError, match=r"\(0, 3\)"):
        function(np.empty((0, 3), np.float32))


@pytest.mark.parametrize("rows", [2, 3, 7, 20])
def test_uniformity_in_blocks_is_that_of_all_pairs(rows, monkeypatch):
    from scipy.spatial.distance import pdist

    monkeypatch.setattr("sentcli.evaluation.pair_geometry.PRODUCT_ROWS", 3)
    vectors = normal(rows, 5)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = np.log(np.exp(-2 * pdist(unit.astype(np.float64), "sqeuclidean")).mean())
    assert uniformity(vectors) == pytest.approx(expected, abs=1e-6)
