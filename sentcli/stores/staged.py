"""The rows of a collection with which those of a corpus are compared, and new ones that wait beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sentcli.arrays import AnyArray, Int64Array
from sentcli.stores.database_collection import DatabaseCollection
from sentcli.stores.known_rows import KnownRows, pair_hashes, text_of, within
from sentcli.stores.record import FIRST_FORMAT

NO_ROWS = np.empty(0, np.int64)


class ComparedRows:
    """The rows of a collection as they are while others are compared with them; see `stores.store.RowsThere`.

    Args:
        kept: the collection whose rows stay; None if there is none.
    """

    def __init__(self, kept: DatabaseCollection | None) -> None:
        self._there = kept
        self.there = KnownRows(() if kept is None else kept.known_rows())

    def lacking(self, ids: Sequence[str], hashes: Sequence[str]) -> list[int]:
        """Return which of some rows are not there with this content, by their numbers."""
        return np.flatnonzero(self.there.lacks(ids, hashes)).tolist()

    def vectors_of(self, hashes: Sequence[str]) -> dict[str, AnyArray]:
        """Return the vectors that the collection has of the texts of some rows, by `text_of` their hashes."""
        if self._there is None or self._there.record.format == FIRST_FORMAT:
            return {}
        by_hash = self._there.vectors_by_hash(self.there.keys_of_texts(hashes))
        return {text_of(row_hash): vector for row_hash, vector in by_hash.items()}

    def ids(self) -> Iterator[Sequence[str]]:
        """Yield the ids of the rows, where they are what the database returns rows by."""
        yield self.there.keys

    def facts(self) -> dict[str, Any]:
        """Return what the result says besides counts and recall."""
        return {}


class StagedRows(ComparedRows):
    """Rows of a collection whose new rows wait beside it, until one step brings all of them.

    Args:
        kept: the collection whose rows stay; None if there is none.
    """

    def __init__(self, kept: DatabaseCollection | None) -> None:
        super().__init__(kept)
        self.waiting_pairs = NO_ROWS
        """The `pair_hashes` of rows that an earlier command left beside it, rising."""
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
