"""Neighbours shared by two views, clusters, maps and bins of gold against their definitions written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.analysis import neighbours
from sentcli.analysis.compare import neighbourhoods
from sentcli.analysis.compare.neighbourhoods import compare_neighbours
from sentcli.analysis.map import clusters
from sentcli.analysis.map.layout import MapSettings, fitting_perplexity, mapped, same_group
from sentcli.analysis.map.whitening import Whitening
from sentcli.analysis.similarity import gold
from sentcli.errors import InputError
from sentcli.evaluation.pair_geometry import all_pairs
from tests.examples import examples


def normal(rows, dimension, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, dimension)).astype(np.float32)


def grouped(groups=4, each=30, dimension=16, seed=0):
    """Vectors in tight groups, and the group of each."""
    centres = normal(groups, dimension, seed)
    numbers = np.repeat(np.arange(groups), each)
    return centres[numbers] + np.float32(0.1) * normal(len(numbers), dimension, seed + 1), numbers


# Neighbours


@pytest.mark.parametrize(("rows", "k", "block"), [(40, 5, 64), (61, 7, 20), (130, 10, 32)])
def test_nearest_are_those_of_scikit_learn_in_order(rows, k, block, monkeypatch):
    from sklearn.neighbors import NearestNeighbors

    monkeypatch.setattr("sentcli.evaluation.pair_geometry.PRODUCT_ROWS", block)
    vectors = normal(rows, 8)
    distances, expected = NearestNeighbors(n_neighbors=k, metric="cosine").fit(vectors).kneighbors()
    found = all_pairs(vectors, k)
    assert found.neighbours.tolist() == expected.tolist()
    np.testing.assert_allclose(found.cosines, 1 - distances, atol=1e-5)


@examples(40)
@given(rows=st.integers(2, 15), k=st.integers(1, 6), seed=st.integers(0, 99))
def test_shared_counts_the_intersection_of_every_row(rows, k, seed):
    rng = np.random.default_rng(seed)
    first, second = (np.stack([rng.permutation(12)[:k] for _ in range(rows)]) for _ in range(2))
    expected = [len(set(a) & set(b)) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    assert neighbours.count_shared(first, second).tolist() == expected
    assert neighbours.overlap(first, second) == pytest.approx(np.mean(expected) / k)


def test_same_group_by_hand():
    near, groups = np.array([[1, 2], [0, 2], [0, 1]]), np.array([0, 0, 1])
    assert same_group(near, groups) == pytest.approx((0.5 + 0.5 + 0) / 3)


def test_a_model_has_its_own_neighbours_whatever_its_scale_or_rotation():
    vectors = normal(80, 12)
    rotation = np.linalg.qr(normal(12, 12, 1).astype(np.float64))[0]
    same = compare_neighbours(vectors, (3 * vectors @ rotation).astype(np.float32), 6)
    assert same.overlap == same.jaccard == same.same_nearest == 1
    assert same.histogram.tolist() == [0] * 6 + [80]


def test_other_models_share_few_neighbours():
    found = compare_neighbours(normal(300, 12), normal(300, 20, 1), 10)
    assert found.overlap == pytest.approx(found.by_chance, abs=0.02)
    shares = found.shared / 10
    assert found.jaccard == pytest.approx(np.mean(shares / (2 - shares)))
    assert found.histogram.sum() == 300


def test_the_text_that_moved_is_the_most_changed():
    vectors, _ = grouped()
    moved = vectors.copy()
    moved[3] = vectors[100] + np.float32(0.01)
    found = compare_neighbours(vectors, moved, 10)
    assert found.most_changed(1) == [3]
    assert found.shared[3] == 0
    assert 3 not in found.least_changed(30)


def test_of_texts_that_share_as_many_those_with_near_neighbours_come_first():
    vectors, other = normal(200, 6), normal(200, 6, 1)
    found = compare_neighbours(vectors, other, 5)
    rows = found.most_changed(200)
    assert sorted(rows) == list(range(200))
    shared = found.shared[rows].tolist()
    assert shared == sorted(shared)
    none = [row for row in rows if found.shared[row] == 0]
    sure = sum(neighbourhoods.sureness(cosines) for cosines in found.cosines)
    assert sure[none].tolist() == sorted(sure[none], reverse=True)


# Clusters


def test_clusters_are_found_and_ordered_by_size():
    vectors, numbers = grouped()
    found, centres = clusters.k_means(vectors[10:], 4)
    assert clusters.purity(found, numbers[10:]) == 1
    assert clusters.adjusted_mutual_information(found, numbers[10:]) == pytest.approx(1)
    sizes = np.bincount(found).tolist()
    assert sizes == sorted(sizes, reverse=True) == [30, 30, 30, 20]
    unit = vectors[10:] / np.linalg.norm(vectors[10:], axis=1, keepdims=True)
    assert (((unit[:, None] - centres) ** 2).sum(2).argmin(1) == found).all(), "centres are in the clusters' order"


def test_clusters_of_fewer_different_vectors_than_clusters():
    vectors = np.repeat(np.eye(3, 5, dtype=np.float32), [9, 5, 7], axis=0)
    found, centres = clusters.k_means(vectors, 6)
    assert np.bincount(found).tolist() == [9, 7, 5]
    assert len(centres) == 3


def test_purity_by_hand():
    assert clusters.purity(np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 0])) == pytest.approx(3 / 5)


def test_words_that_set_clusters_apart():
    texts = ["the cat sat", "the cat ran", "a cat here", "ship at sea", "the ship sails", "ship and cat"]
    assert [words[0] for words in clusters.words_apart(texts, np.array([0, 0, 0, 1, 1, 1]))] == ["cat", "ship"]
    assert clusters.words_apart(["- -", "! ?", "..."], np.array([0, 1, 1])) == [[], []]


def test_class_based_tf_idf_by_hand():
    counts = np.array([[3, 1, 0], [0, 1, 5]])  # 10 words in two groups, 5 in each on average
    log = np.log
    expected = [
        [3 / 4 * log(1 + 5 / 3), 1 / 4 * log(1 + 5 / 2), 0],
        [0, 1 / 6 * log(1 + 5 / 2), 5 / 6 * log(1 + 5 / 5)],
    ]
    np.testing.assert_allclose(clusters.class_based_tf_idf(counts), expected)


def test_matched_clusters_keep_their_numbers_and_others_get_new_ones():
    reference = np.array([0] * 10 + [1] * 10 + [2] * 10)
    swapped = np.array([2] * 9 + [0] + [0] * 10 + [1] * 10)
    assert clusters.match(reference, swapped, 3).tolist() == [0] * 9 + [1] + [1] * 10 + [2] * 10
    scattered = np.array([0] * 10 + [1] * 10 + list(range(2, 12)))
    found = clusters.match(reference, scattered, 7)
    assert found[:20].tolist() == reference[:20].tolist()
    assert sorted(set(found[20:].tolist())) == list(range(7, 17))


# Maps


def test_a_map_keeps_groups_apart_and_repeats_with_its_seed():
    vectors, numbers = grouped()
    texts = [f"{'red blue green grey'.split()[group]} number {i}" for i, group in enumerate(numbers)]
    chosen = MapSettings(clusters=4, perplexity=10, seed=3, neighbours=5)
    one, two = (mapped(vectors, texts, chosen, numbers) for _ in range(2))
    assert one.measures["map_purity"] == one.measures["label_purity"] == 1
    assert one.measures["neighbour_overlap"] > 0.3
    assert one.measures["silhouette"] > 0.8
    assert {words[0] for words in one.clusters["words"]} == {"red", "blue", "green", "grey"}
    assert all(row.example.startswith(row.words[0]) for row in one.clusters.itertuples())
    assert one.layout.positions.tolist() == two.layout.positions.tolist()
    assert one.groups.tolist() == two.groups.tolist()


def test_perplexity_fits_the_texts():
    assert fitting_perplexity(10, 30) == 3
    assert fitting_perplexity(1000, 30) == 30


def test_vectors_that_are_all_the_same_are_refused():
    with pytest.raises(InputError, match="all vectors"):
        mapped(np.ones((20, 4), np.float32), ["x"] * 20, MapSettings(clusters=2))


# Whitening


@pytest.mark.parametrize("way", ["zca", "groups:4", "groups:12"])
def test_whitened_columns_have_variance_one(way):
    vectors = normal(400, 12) @ normal(12, 12, 1)
    found = Whitening.parse(way).apply(vectors)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(found.var(axis=0), 1, atol=0.03)


def test_groups_whiten_what_stands_together_and_nothing_else():
    vectors = normal(400, 12) @ normal(12, 12, 1)
    order = np.random.default_rng(5).permutation(12)
    covariance = np.cov(Whitening(4).apply(vectors, seed=5)[:, order].T, bias=True)
    inside = np.kron(np.eye(4), np.ones((3, 3))).astype(bool)
    np.testing.assert_allclose(covariance[inside], np.eye(12)[inside], atol=0.03)
    assert np.abs(covariance[~inside]).max() > 0.1


def test_a_dead_column_stays_dead():
    vectors = normal(400, 12)
    vectors[:, 3] = 0.25
    found = Whitening(4).apply(vectors)
    assert np.isfinite(found).all()
    assert np.abs(found[:, 3]).max() < 1e-6


@pytest.mark.parametrize("text", ["", "pca", "groups", "groups:", "groups:0", "groups:-2", "groups:x", "zca:3"])
def test_unknown_ways_to_whiten_are_refused(text):
    with pytest.raises(InputError, match=f"--whiten {text}: .*zca.*groups:N"):
        Whitening.parse(text)


def test_what_cannot_be_whitened_is_refused():
    with pytest.raises(InputError, match=r"5.*12"):
        Whitening(5).apply(normal(50, 12))
    with pytest.raises(InputError, match=r"--whiten zca: 12 .*12 "):
        Whitening().apply(normal(12, 12))


# Gold scores


def test_bins_of_stss_scale_and_of_others():
    assert gold.edges(np.array([0.2, 4.8])).tolist() == [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(gold.edges(np.array([0.0, 1.0])), [0, 0.2, 0.4, 0.6, 0.8, 1])
    np.testing.assert_allclose(gold.edges(np.array([-1.0, 9.0])), [-1, 1, 3, 5, 7, 9])


def test_a_bin_has_its_lower_end_and_the_last_both():
    scores, cosines = np.array([0, 0.9, 1, 3, 5]), np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    found = gold.bins(cosines, scores, gold.edges(scores))
    assert list(found["pairs"]) == [2, 1, 0, 1, 1]
    assert found["mean"][0] == pytest.approx(0.2)
    assert found["deviation"][0] == pytest.approx(np.std([0.1, 0.3], ddof=1))
    assert np.isnan([found["deviation"][1], found["mean"][2]]).all()


@examples(40)
@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 5)), min_size=2, max_size=30))
def test_every_pair_is_in_one_bin_and_differences_cancel(pairs):
    cosines, scores = np.array(pairs, float).T
    found = gold.bins(cosines, scores, gold.edges(scores) if np.ptp(scores) else np.arange(6.0))
    assert found["pairs"].sum() == len(pairs)
    differences = gold.rank_difference(cosines, scores)
    assert differences.sum() == pytest.approx(0, abs=1e-9)
    assert np.abs(differences).max() <= 1


def test_pairs_that_a_model_sees_otherwise():
    cosines, scores = np.array([0.1, 0.2, 0.9, 0.8, 0.5]), np.array([0.0, 1, 2, 5, 3])
    differences = gold.rank_difference(cosines, scores)
    np.testing.assert_allclose(differences, [0, 0, 0.5, -0.25, -0.25])
    least, most = gold.disagreements(differences, 1)
    assert least == [2]
    assert most[0] in (0, 1)


def test_density_is_one_in_sum_and_none_without_spread():
    from scipy.integrate import trapezoid

    at = np.linspace(-2, 2, 400)
    assert trapezoid(gold.density(normal(50, 1)[:, 0] / 5, at), at) == pytest.approx(1, abs=0.01)
    assert not gold.density(np.array([0.5, 0.5]), at).any()
    assert not gold.density(np.array([]), at).any()
