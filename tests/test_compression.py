"""Vectors made smaller: principal components against scikit-learn, fewer bits, fewer dimensions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sentcli.compression import Compression, as_int8
from sentcli.errors import InputError
from tests.examples import examples

FINITE = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
VECTORS = hnp.arrays(np.float32, st.tuples(st.integers(1, 12), st.integers(1, 20)), elements=FINITE)


@pytest.fixture(scope="module")
def sample():
    """200 vectors whose variance differs much between directions."""
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(200, 12)) * np.geomspace(3, 0.05, 12) @ rng.normal(size=(12, 12))
    return (mixed + rng.normal(size=12)).astype(np.float32)


# Fewer bits


@examples(100)
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
    compression = Compression("binary")
    assert compression.apply(vectors).tolist() == [[0b10010101, 0b10000000]]
    assert (compression.dimension(10), compression.dtype) == (2, "uint8")
    assert np.unpackbits(compression.apply(vectors), axis=1, count=10).tolist() == [
        (vectors[0] > 0).astype(int).tolist()
    ]


@examples(100)
@given(vectors=VECTORS, kind=st.sampled_from(["float32", "float16", "int8", "binary"]), keep=st.integers(1, 20))
def test_what_is_written_has_the_shape_and_type_that_were_announced(vectors, kind, keep):
    keep = min(keep, vectors.shape[1])
    compression = Compression(kind, truncate_dim=keep)
    with np.errstate(over="ignore"):  # float16 ends at 65,504
        found = compression.apply(vectors)
    assert found.shape == (len(vectors), compression.dimension(vectors.shape[1]))
    assert found.dtype == compression.dtype


# Fewer dimensions


@pytest.mark.parametrize("renormalize", [True, False])
def test_the_first_dimensions_are_kept(sample, renormalize):
    unit = sample / np.linalg.norm(sample, axis=1, keepdims=True)
    found = Compression(truncate_dim=4, renormalize=renormalize).apply(unit)
    lengths = np.linalg.norm(unit[:, :4], axis=1, keepdims=True)
    np.testing.assert_allclose(found, unit[:, :4] / lengths if renormalize else unit[:, :4], atol=1e-6)


def test_whole_vectors_are_left_as_they_are(sample):
    found = Compression(renormalize=True).apply(sample)
    np.testing.assert_array_equal(found, sample)


def test_a_zero_vector_stays_zero():
    found = Compression(truncate_dim=2, renormalize=True).apply(np.array([[0, 0, 5]], np.float32))
    assert found.tolist() == [[0, 0]]


def test_more_dimensions_than_there_are_is_an_error():
    with pytest.raises(InputError, match=r"--truncate-dim.*4.*3"):
        Compression(truncate_dim=4).dimension(3)
