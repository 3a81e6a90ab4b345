"""Places rise in the order that is wanted, and as many as possible stay."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sentcli.stores.row_places import ROOM, Places, arranged, hashes_of, spread
from tests.examples import examples

PLACES = st.lists(st.integers(0, 40), max_size=9, unique=True).flatmap(
    lambda known: st.permutations([*known, -1, -1, -1][: len(known) + len(known) % 4])
)


def longest(places):
    """The most of some places that rise."""
    known = [place for place in places if place >= 0]
    for count in range(len(known), 0, -1):
        if any(list(chosen) == sorted(chosen) for chosen in combinations(known, count)):
            return count
    return 0


@examples(200)
@given(places=PLACES, apart=st.sampled_from([1, 100, ROOM]))
def test_places_rise_and_as_many_as_possible_stay(places, apart):
    there = np.array([place if place < 0 else place * apart + apart - 1 for place in places], np.int64)
    found = spread(there)
    assert (np.diff(found) > 0).all() and (found >= 0).all() and len(found) == len(there)
    if apart > 1:
        assert (found == there).sum() == longest(places)


def test_rows_stand_where_the_corpus_has_them_and_others_behind_it():
    def of(ids, numbers):
        return Places.paired(hashes_of(ids, len(ids)), np.array(numbers))

    there = of(["a", "b", "gone", "c"], [10, 20, 30, 40])
    order = of(["new", "a", "between", "c", "b", "last"], range(6))
    places = arranged(order, there)
    ids = ["new", "a", "between", "c", "b", "last", "gone"]
    assert sorted(ids, key=lambda key: places.of_ids([key])[0]) == ids
    assert places.of_ids(["a", "nobody"]).tolist() == [10, -1]
    stays = arranged(order, there, may_move=False)
    assert stays.of_ids(["a", "b", "c", "gone"]).tolist() == [10, 20, 40, 30]
    assert sorted(["c", "new", "between", "last"], key=lambda key: stays.of_ids([key])[0]) == [
        "c",
        "new",
        "between",
        "last",
    ]
    assert there.moved(places) and not there.moved(stays)
