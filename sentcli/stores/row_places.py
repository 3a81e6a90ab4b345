"""The order of the rows of a corpus, and the places by which a collection keeps it.

A place is a number that rises from row to row, with room between two of them: rows that come between others get places
there, and an update changes the places of those rows alone that stand elsewhere now.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sentcli.arrays import BoolArray, Int64Array, looked_up

ROOM = 2**20
"""How far places are apart that are given to rows one behind the other."""


def hashes_of(ids: Iterable[str], count: int) -> Int64Array:
    """Return a number for each of so many ids ``[count]``, of this process."""
    return np.fromiter(map(hash, ids), np.int64, count)


@dataclass(frozen=True)
class Places:
    """A number for each of some rows."""

    hashes: Int64Array
    """The `hashes_of` their ids, rising ``[rows]``."""
    numbers: Int64Array
    """Their numbers ``[rows]``."""

    @classmethod
    def paired(cls, hashes: Int64Array, numbers: Int64Array) -> Places:
        """Return the numbers of rows with these hashes, which are in any order."""
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], numbers[order])

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def repeated(self) -> int:
        """How many rows have an id that another row has, too."""
        return int((self.hashes[1:] == self.hashes[:-1]).sum())

    def moved(self, others: Places) -> bool:
        """Tell whether some of these rows have another number among others."""
        return not np.array_equal(others.of(self.hashes), self.numbers)

    def of(self, hashes: Int64Array) -> Int64Array:
        """Return the numbers of rows by the hashes of their ids, -1 for others ``[n]``."""
        return looked_up(hashes, self.hashes, self.numbers)

    def of_ids(self, ids: Sequence[str]) -> Int64Array:
        """Return the numbers of rows by their ids, -1 for others ``[n]``."""
        return self.of(hashes_of(ids, len(ids)))


EMPTY = Places(np.empty(0, np.int64), np.empty(0, np.int64))
"""Those of no rows."""


def arranged(order: Places, there: Places, *, may_move: bool = True) -> Places:
    """Return the places of the rows of a corpus, and of those that stand behind it.

    Args:
        order: the numbers of the rows of the corpus, from 0.
        there: the places of rows of a collection; those that are not in the corpus are put behind it.
        may_move: put rows where the corpus has them; else all that are there stay, and new ones come behind.
    """
    wanted = np.full(len(order), -1, np.int64)
    numbers = order.of(there.hashes)
    is_in = numbers >= 0
    wanted[numbers[is_in]] = there.numbers[is_in]
    others = np.flatnonzero(~is_in)
    others = others[np.argsort(there.numbers[others], kind="stable")]
    hashes = np.empty(len(order), np.int64)
    hashes[order.numbers] = order.hashes
    places = np.concatenate([wanted, there.numbers[others]])
    if may_move:
        places = spread(places)
    else:
        is_new = places < 0
        places[is_new] = places.max(initial=-1) + ROOM * np.arange(1, is_new.sum() + 1)
    return Places.paired(np.concatenate([hashes, there.hashes[others]]), places)


def spread(places: Int64Array) -> Int64Array:
    """Return places that rise from row to row, as many as possible those that are there.

    Args:
        places: of rows in the order that is wanted; -1 of rows that have none yet ``[rows]``.
    """
    count = len(places)
    kept = np.flatnonzero(_rising(places))
    kept_places = places[kept]
    last = -1 if not len(kept) else int(kept_places[-1])
    # what stands before the first row, and what would come behind the last one
    at = np.concatenate([[-1], kept, [count]])
    there = np.concatenate([[-1], kept_places, [last + ROOM * (count - int(at[-2]))]])
    rows = np.arange(count)
    before = np.searchsorted(at, rows, side="right") - 1
    apart = np.diff(there) // np.diff(at)
    if not apart.all():  # there is no room somewhere
        return (rows + 1) * ROOM
    return there[before] + apart[before] * (rows - at[before])


def _rising(places: Int64Array) -> BoolArray:
    """Tell which of some places stay, so that they rise and as many as possible do; -1 never does ``[rows]``."""
    stays = places >= 0
    known = places[stays]
    if (np.diff(known) > 0).all():
        return stays
    ends: list[int] = []
    """The least place with which a rising row of each length ends."""
    lengths = np.empty(len(known), np.int64)
    for number, place in enumerate(known.tolist()):
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        lengths[number] = length
    longest = np.zeros(len(known), np.bool_)
    length, bound = len(ends) - 1, np.iinfo(np.int64).max
    for number in range(len(known) - 1, -1, -1):
        if lengths[number] == length and known[number] < bound:
            longest[number] = True
            length, bound = length - 1, known[number]
    stays[stays] = longest
    return stays
