"""A collection whose new rows wait beside it, until one step brings all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sentcli.arrays import Int64Array
from sentcli.stores.known_rows import KnownRows, pair_hashes, within

NO_ROWS = np.empty(0, np.int64)


class StagedRows:
    """What such a collection knows of its rows while others are compared with it; see `stores.store.RowStore`.

    Args:
        there: the rows that it has and keeps.
        waiting: the `pair_hashes` of rows that an earlier command left beside it, rising.
    """

    def __init__(self, there: KnownRows, waiting: Int64Array = NO_ROWS) -> None:
        self.there, self.waiting_pairs = there, waiting
        self.new_rows = 0
        self.gone: list[str] = []
        self._changed: list[Int64Array] = [NO_ROWS]

    def lacking(self, ids: Sequence[str], hashes: Sequence[str]) -> list[int]:
        """Return which of some rows are neither there nor waiting with this content, by their numbers."""
        pairs = pair_hashes(ids, hashes)
        is_changed = ~within(pairs, self.there.pairs)
        self._changed.append(pairs[is_changed])
        self.new_rows += int((~self.there.has(ids)).sum())
        return np.flatnonzero(is_changed & ~within(pairs, self.waiting_pairs)).tolist()

    def changed(self) -> Int64Array:
        """Return the `pair_hashes` of all rows of the corpus that are not there, rising."""
        return np.sort(np.concatenate(self._changed))

    def count(self) -> int:
        """Return the number of rows, with all that were written."""
        return len(self.there.places) + self.new_rows - len(self.gone)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows in the step that brings the others."""
        self.gone = list(ids)
