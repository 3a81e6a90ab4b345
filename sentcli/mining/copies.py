"""Texts that say the same: equal but for case and blanks, or near copies of each other by their words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from sentcli.arrays import BoolArray, Float32Array, Int64Array
from sentcli.search.bm25 import BM25, LANGUAGE
from sentcli.search.words import plain
from sentcli.testset.queries import words

_LEAST_SHARED = 0.8
"""A near copy of a text has at least 0.8 of the sequences of three words of the shorter of both: it is one also if a
sentence is cut off or added (Broder, "On the resemblance and containment of documents", 1997)."""
_LEAST_WORDS = 5
"""A text of fewer words stands in many others, whatever they say."""
SEQUENCES_KEPT = 10_000
"""The documents whose sequences are kept, some hundred MB."""
Sequences = frozenset[tuple[str, ...]]


def sequences(text: str) -> Sequences:
    """Return the sequences of three words of a text; none of a text of fewer than `_LEAST_WORDS` words."""
    text_words = words(text)
    if len(text_words) < _LEAST_WORDS:
        return frozenset()
    return frozenset(zip(text_words, text_words[1:], text_words[2:], strict=False))


class MiningCorpus:
    """The documents among which negatives are looked for, and positives that are none of them.

    What depends on texts alone is worked out once, so that the same corpus can be mined with the vectors of several
    models, or of one model while it is trained.

    Args:
        texts: of all documents.
        count: how many of them, from the first on, may become negatives; None stands for all.
        language: of BM25.
    """

    def __init__(self, texts: Sequence[str], count: int | None = None, *, language: str | None = None) -> None:
        self.texts = texts
        self.count = len(texts) if count is None else count
        self.language = language or LANGUAGE
        self._group_of: dict[str, int] = {}
        numbers = []
        for text in texts:
            next_number = len(self._group_of)
            number = self._group_of.setdefault(plain(text), next_number)
            numbers.append(number)
        self.groups: Int64Array = np.array(numbers, np.int64)
        """The number of each document's text ``[documents]``; equal texts have one number."""
        self._sequences = lru_cache(SEQUENCES_KEPT)(self._sequences_of)

    @cached_property
    def rows(self) -> Int64Array:
        """The documents that are searched: the first of each text of the corpus that is not empty ``[n]``."""
        _, first = np.unique(self.groups[: self.count], return_index=True)
        empty = self._group_of.get("", -1)
        rows = np.sort(first)
        return rows[self.groups[rows] != empty]

    @cached_property
    def empty(self) -> int:
        """The number of documents without text, which are never negatives."""
        number = self._group_of.get("", -1)
        return int((self.groups[: self.count] == number).sum())

    @property
    def repeated(self) -> int:
        """The number of documents whose text an earlier one has, of which the first stands for all."""
        return self.count - self.empty - len(self.rows)

    @cached_property
    def bm25(self) -> BM25:
        """The index of the words of `rows`."""
        texts = map(self.texts.__getitem__, self.rows.tolist())
        return BM25.build(texts, language=self.language)

    def group_of(self, text: str) -> int:
        """Return the number of the documents with a text, or -1 if there is none."""
        return self._group_of.get(plain(text), -1)

    def _sequences_of(self, row: int) -> Sequences:
        """Return the sequences of words of a document."""
        return sequences(self.texts[row])

    def near_copies(
        self, candidates: Sequence[int], positives: Sequence[int], unit: Float32Array, least: float
    ) -> BoolArray:
        """Tell which documents are near copies of a positive ``[candidates]``.

        Args:
            candidates: documents.
            positives: documents.
            unit: the vectors of all documents, of length 1 ``[documents, dim]``.
            least: the cosine from which two documents are near copies.
        """
        of_candidates = unit[list(candidates)]
        of_positives = unit[list(positives)]
        cosines = of_candidates @ of_positives.T
        highest = cosines.max(axis=1, initial=-1)
        near: BoolArray = highest >= least
        for place, candidate in enumerate(candidates):
            if not near[place]:
                near[place] = self._shares_words(candidate, positives)
        return near

    def _shares_words(self, candidate: int, positives: Sequence[int]) -> bool:
        """Tell whether a document and a positive have most sequences of words of the shorter one in common."""
        own = self._sequences(candidate)
        for positive in positives:
            other = self._sequences(positive)
            shorter = min(len(own), len(other))
            shared = len(own & other)
            if shorter and shared >= _LEAST_SHARED * shorter:
                return True
        return False
