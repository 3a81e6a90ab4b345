"""Vectors made smaller: principal components against scikit-learn, fewer bits, fewer dimensions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from sentcli.errors import InputError
from sentcli.smaller import PCA, Smaller, as_int8, fit_pca, read_pca

FINITE = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
VECTORS = hnp.arrays(np.float32, st.tuples(st.integers(1, 12), st.integers(1, 20)), elements=FINITE)


@pytest.fixture(scope="module")
def sample():
    """200 vectors whose variance differs much between directions."""
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(200, 12)) * np.geomspace(3, 0.05, 12) @ rng.normal(size=(12, 12))
    return (mixed + rng.normal(size=12)).astype(np.float32)


# Principal components


@pytest.mark.parametrize("dimension", [1, 4, 12])
def test_components_are_those_of_scikit_learn_up_to_sign(sample, dimension):
    decomposition = pytest.importorskip("sklearn.decomposition")
    peer = decomposition.PCA(dimension, svd_solver="full").fit(sample.astype(np.float64))
    ours = fit_pca(sample, dimension)
    np.testing.assert_allclose(ours.mean, peer.mean_, rtol=1e-6)
    signs = np.sign((ours.components * peer.components_).sum(1))
    np.testing.assert_allclose(ours.components, peer.components_ * signs[:, None], atol=1e-5)
    np.testing.assert_allclose(ours.apply(sample), peer.transform(sample) * signs, atol=1e-4)


def test_all_components_keep_all_distances(sample):
    reduced = fit_pca(sample, 12).apply(sample)
    for rows in (sample[:20], sample[100:120]):
        projected = reduced[:20] if rows is sample[:20] else fit_pca(sample, 12).apply(rows)
        distances = [np.linalg.norm(part[:, None] - part[None], axis=2) for part in (rows, projected)]
        np.testing.assert_allclose(distances[0], distances[1], atol=1e-4)


def test_components_do_not_depend_on_the_order_of_the_rows(sample):
    shuffled = np.random.default_rng(1).permutation(sample)
    np.testing.assert_allclose(fit_pca(shuffled, 3).components, fit_pca(sample, 3).components, atol=1e-5)


@pytest.mark.parametrize(("rows", "dimension"), [(200, 13), (3, 4), (5, 0)])
def test_more_components_than_there_are_is_an_error(sample, rows, dimension):
    with pytest.raises(InputError, match=f"{dimension} principal components need as many rows and dimensions"):
        fit_pca(sample[:rows], dimension)


def test_a_projection_reads_back(sample, tmp_path):
    wanted = fit_pca(sample, 5)
    wanted.save(tmp_path / "p.safetensors")
    found = read_pca(tmp_path / "p.safetensors")
    np.testing.assert_array_equal(found.apply(sample), wanted.apply(sample))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is missing; --pca-dim K makes it"),
        (b"no tensors", "holds no principal components"),
        ({"other": np.zeros(3, np.float32)}, "tensors mean, components"),
        ({"mean": np.zeros(3, np.float32), "components": np.zeros((2, 4), np.float32)}, "do not fit"),
    ],
)
def test_a_file_without_a_projection_is_named(tmp_path, content, words):
    path = tmp_path / "p.safetensors"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        save_file(content, path)
    with pytest.raises(InputError) as caught:
        read_pca(path)
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)


# Fewer bits


@settings(deadline=None)
@given(VECTORS)
def test_int8_keeps_the_direction(vectors):
    found = as_int8(vectors)
    assert found.dtype == np.int8
    assert np.abs(found.astype(int)).max() <= 127
    largest = np.abs(vectors).max(axis=1, keepdims=True).astype(np.float64)
    np.testing.assert_allclose(found * largest / 127, vectors, atol=largest.max() / 253)


def test_int8_of_the_largest_component_is_127_and_zeros_stay():
    found = as_int8(np.array([[0.5, -1.0, 0.25], [0, 0, 0]], np.float32))
    assert found.tolist() == [[64, -127, 32], [0, 0, 0]]


def test_binary_packs_the_signs_eight_to_a_byte():
    vectors = np.array([[1, -1, 0, 2, -0.5, 3, -1, 1, 0.1, -2]], np.float32)
    smaller = Smaller("binary")
    assert smaller.apply(vectors).tolist() == [[0b10010101, 0b10000000]]
    assert (smaller.dimension(10), smaller.dtype) == (2, "uint8")
    assert np.unpackbits(smaller.apply(vectors), axis=1, count=10).tolist() == [(vectors[0] > 0).astype(int).tolist()]


@settings(deadline=None)
@given(vectors=VECTORS, kind=st.sampled_from(["float32", "float16", "int8", "binary"]), keep=st.integers(1, 20))
def test_what_is_written_has_the_shape_and_type_that_were_announced(vectors, kind, keep):
    keep = min(keep, vectors.shape[1])
    smaller = Smaller(kind, truncate_dim=keep)
    with np.errstate(over="ignore"):  # float16 ends at 65,504
        found = smaller.apply(vectors)
    assert found.shape == (len(vectors), smaller.dimension(vectors.shape[1]))
    assert found.dtype == smaller.dtype


# Fewer dimensions


@pytest.mark.parametrize("renormalize", [True, False])
def test_the_first_dimensions_are_kept(sample, renormalize):
    unit = sample / np.linalg.norm(sample, axis=1, keepdims=True)
    found = Smaller(truncate_dim=4, renormalize=renormalize).apply(unit)
    lengths = np.linalg.norm(unit[:, :4], axis=1, keepdims=True)
    np.testing.assert_allclose(found, unit[:, :4] / lengths if renormalize else unit[:, :4], atol=1e-6)


def test_whole_vectors_are_left_as_they_are(sample):
    found = Smaller(renormalize=True).apply(sample)
    np.testing.assert_array_equal(found, sample)


def test_components_are_projected_then_cut_then_made_unit_length(sample):
    pca = fit_pca(sample, 6)
    found = Smaller(truncate_dim=2, pca=pca, renormalize=True).apply(sample)
    projected = pca.apply(sample)[:, :2]
    np.testing.assert_allclose(found, projected / np.linalg.norm(projected, axis=1, keepdims=True), atol=1e-6)


def test_a_zero_vector_stays_zero():
    found = Smaller(truncate_dim=2, renormalize=True).apply(np.array([[0, 0, 5]], np.float32))
    assert found.tolist() == [[0, 0]]


def test_dimensions_that_do_not_fit_are_named(tmp_path):
    pca = PCA(np.zeros(8, np.float32), np.eye(8, dtype=np.float32)[:3])
    with pytest.raises(InputError, match="for 8 dimensions, the model has 32"):
        Smaller(pca=pca, pca_file=tmp_path / "p").dimension(32)
    with pytest.raises(InputError, match="--truncate-dim 4 is more than the 3 dimensions"):
        Smaller(pca=pca, truncate_dim=4).dimension(8)
