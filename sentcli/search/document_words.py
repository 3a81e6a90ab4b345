"""The words of documents, each a number: cut from texts, or taken from an index that counts them, and put together.

Cutting texts into words takes most of the time in which an index of words is built, so that an index counts how often
each word stands in each document, and an update cuts the texts alone that it does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from sentcli.arrays import BoolArray, Int64Array


@dataclass(frozen=True)
class DocumentWords:
    """The words of each document."""

    ids: list[list[int]]
    """The number of each word of each document; the order of the words in a document is any."""
    vocab: dict[str, int]
    """The number of each word that is there; they are numbered from 0 in the order of the alphabet."""

    def counts(self) -> npt.NDArray[np.unsignedinteger]:
        """Return how often each word is in each document that has it, by word and then by document ``[postings]``."""
        documents = len(self.ids)
        lengths = list(map(len, self.ids))
        words = np.fromiter(chain.from_iterable(self.ids), np.int64, sum(lengths))
        in_documents = np.repeat(np.arange(documents), lengths)
        _, counts = np.unique(words * documents + in_documents, return_counts=True)
        return counts.astype(np.min_scalar_type(counts.max(initial=0)))


@dataclass(frozen=True)
class WordCounts:
    """How often each word stands in each document, sorted by word and then by document."""

    rows: int
    """The number of documents."""
    words: list[str]
    """The words by their numbers."""
    starts: Int64Array
    """The first posting of each word, and the number of postings ``[words + 1]``."""
    documents: Int64Array
    """The document of each posting ``[postings]``."""
    counts: Int64Array
    """How often the word is in the document ``[postings]``."""

    def of_documents(self, chosen: Int64Array) -> DocumentWords:
        """Return the words of some documents, each by its number, in this order."""
        word_of = np.repeat(np.arange(len(self.words)), np.diff(self.starts))
        is_chosen = np.zeros(self.rows, bool)
        is_chosen[chosen] = True
        postings = np.flatnonzero(is_chosen[self.documents])
        by_document = postings[np.argsort(self.documents[postings], kind="stable")]
        counts = self.counts[by_document]
        is_used = np.zeros(len(self.words), bool)
        is_used[word_of[postings]] = True
        number_of = np.cumsum(is_used) - 1
        numbers = np.repeat(number_of[word_of[by_document]], counts)
        lengths = np.bincount(self.documents[by_document], counts, self.rows).astype(np.int64)
        ends = np.cumsum(lengths)
        begins = ends - lengths
        ids = []
        for begin, end in zip(begins[chosen].tolist(), ends[chosen].tolist(), strict=True):
            ids.append(numbers[begin:end].tolist())
        used = np.flatnonzero(is_used).tolist()
        vocabulary = {self.words[word]: number for number, word in enumerate(used)}
        return DocumentWords(ids, vocabulary)


def in_alphabet(ids: Sequence[Sequence[int]], vocabulary: dict[str, int]) -> DocumentWords:
    """Return the words of documents with numbers in the order of the alphabet.

    Args:
        ids: the numbers of the words of each document.
        vocabulary: the number of each word that is there.
    """
    numbers = {word: number for number, word in enumerate(sorted(vocabulary))}
    return DocumentWords(_renumbered(ids, vocabulary, numbers), numbers)


def together(first: DocumentWords, second: DocumentWords, is_first: BoolArray) -> DocumentWords:
    """Return the words of the documents of two lists.

    Args:
        first: some of the documents.
        second: the others.
        is_first: which documents are the next ones of the first list ``[documents]``.
    """
    numbers = {word: number for number, word in enumerate(sorted({*first.vocab, *second.vocab}))}
    of_first = iter(_renumbered(first.ids, first.vocab, numbers))
    of_second = iter(_renumbered(second.ids, second.vocab, numbers))
    ids = []
    for is_of_first in is_first.tolist():
        ids.append(next(of_first if is_of_first else of_second))
    return DocumentWords(ids, numbers)


def _renumbered(ids: Sequence[Sequence[int]], old: dict[str, int], new: dict[str, int]) -> list[list[int]]:
    """Return the words of documents with the numbers of another vocabulary."""
    if old == new:
        return list(map(list, ids))
    number_of = [new[word] for word in sorted(old, key=old.__getitem__)]
    return [list(map(number_of.__getitem__, document)) for document in ids]
