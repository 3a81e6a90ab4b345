"""Queries are given the dimensions of the vectors that they are compared with."""

import numpy as np
import pytest

from sentcli.search.provenance import Provenance


@pytest.mark.parametrize(("dimension", "width"), [(8, 8), (12, 16), (15, 16), (17, 24)])
def test_queries_of_bits_are_filled_up_to_whole_bytes(dimension, width):
    queries = np.ones((2, dimension), np.float32)
    found = Provenance.named("rows", {"output_dtype": "binary"}).compress(queries, normalized=False)
    np.testing.assert_array_equal(found, np.pad(queries, ((0, 0), (0, width - dimension))))
