"""Which rows a collection has, with what content and at which places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sentcli.arrays import BoolArray, Int64Array
from sentcli.stores.record import TEXT_DIGITS
from sentcli.stores.row_places import Places, hashes_of


class RowBatch(NamedTuple):
    """Some rows of a collection."""

    ids: Sequence[str]
    hashes: Sequence[str]
    """Their `record.content_hashes`."""
    places: Int64Array
    keys: Sequence[Any]
    """By what the database returns a row."""


class KnownRows:
    """The rows of a collection: some 40 bytes and the key of each."""

    def __init__(self, batches: Iterable[RowBatch]) -> None:
        none = np.empty(0, np.int64)
        ids, pairs, texts, places = [none], [none], [none], [none]
        self.keys: list[Any] = []
        for batch in batches:
            ids.append(hashes_of(batch.ids, len(batch.ids)))
            pairs.append(pair_hashes(batch.ids, batch.hashes))
            texts.append(_text_hashes(batch.hashes))
            places.append(batch.places)
            self.keys += batch.keys
        self.pairs = np.sort(np.concatenate(pairs))
        """The `pair_hashes` of all rows, rising ``[rows]``."""
        self.places = Places.paired(np.concatenate(ids), np.concatenate(places))
        text_hashes = np.concatenate(texts)
        self.texts = Places.paired(text_hashes, np.arange(len(text_hashes)))
        """A row with each text, by its number in `keys`."""

    def has(self, ids: Sequence[str]) -> BoolArray:
        """Tell which ids rows have ``[n]``."""
        has: BoolArray = self.places.of_ids(ids) >= 0
        return has

    def lacks(self, ids: Sequence[str], hashes: Sequence[str]) -> BoolArray:
        """Tell which of some rows are not there with this content ``[n]``."""
        return ~within(pair_hashes(ids, hashes), self.pairs)

    def keys_of_texts(self, hashes: Sequence[str]) -> list[Any]:
        """Return the keys of rows that have the texts of rows with these hashes, of those that are there."""
        numbers = np.unique(self.texts.of(_text_hashes(hashes)))
        return list(map(self.keys.__getitem__, numbers[numbers >= 0].tolist()))


def pair_hashes(ids: Sequence[str], hashes: Sequence[str]) -> Int64Array:
    """Return a number for each row, which is another one for another id or another content ``[rows]``."""
    return np.fromiter(map(hash, zip(ids, hashes, strict=True)), np.int64, len(ids))


def within(values: Int64Array, known: Int64Array) -> BoolArray:
    """Tell which values are among sorted ones ``[values]``."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    is_known: BoolArray = known[places] == values
    return is_known


def _text_hashes(hashes: Sequence[str]) -> Int64Array:
    return hashes_of(map(text_of, hashes), len(hashes))


def text_of(row_hash: str) -> str:
    """Return the part of a hash that stands for what was encoded of the row."""
    return row_hash[:TEXT_DIGITS]
