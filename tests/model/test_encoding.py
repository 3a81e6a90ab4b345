"""Batches hold every text once and within the budget of tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.model import encoding


@pytest.mark.slow
@given(st.lists(st.integers(0, 600), max_size=200), st.integers(1, 2000))
def test_pack_covers_every_text_once_within_the_budget(lengths, budget):
    batches = list(encoding.pack(np.array(lengths, np.int64), budget))
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(1, max(lengths[i] for i in batch))
        assert padded <= budget or len(batch) == 1


@pytest.mark.slow
@given(st.lists(st.text(max_size=3), max_size=60))
def test_distinct_restores_every_text(texts):
    unique, twin = encoding.distinct(texts)
    assert len(set(unique)) == len(unique)
    assert [unique[i] for i in twin] == texts
