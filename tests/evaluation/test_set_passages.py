"""How many passages a search has to find so that it has found enough documents."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sentcli.evaluation.set_passages import passages_needed
from tests.examples import examples


@examples(100)
@given(owners=st.lists(st.integers(0, 6), min_size=1, max_size=20), k=st.integers(1, 8))
def test_the_passages_needed_are_enough_in_the_worst_order_and_one_less_is_not(owners, k):
    needed = passages_needed(np.array(owners), k)
    by_size = sorted(owners, key=lambda owner: (-owners.count(owner), owner))  # whole documents, the largest first
    wanted = min(k, len(set(owners)))
    assert len(set(by_size[:needed])) == wanted
    if k <= len(set(owners)):
        assert len(set(by_size[: needed - 1])) < k
