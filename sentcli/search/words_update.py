"""The words of rows that have changed: an index of the words of the rows before knows those of most texts already."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress

import numpy as np

from sentcli.arrays import Int64Array, looked_up
from sentcli.io.digests import text_digests
from sentcli.search.bm25 import BM25, cut
from sentcli.search.document_words import DocumentWords, together
from sentcli.search.stored_vectors import StoredVectors


def words_of(
    stored: StoredVectors, language: str, earlier: BM25, earlier_stored: StoredVectors
) -> tuple[DocumentWords, int]:
    """Return the words of each row, and how many texts were cut for them.

    Args:
        stored: rows, which may have texts that the earlier ones have.
        language: of the texts.
        earlier: an index of words of the earlier rows, in the same language.
        earlier_stored: the rows from which it was built.
    """
    counts = earlier.counts
    if counts is None:
        return cut(stored.encoded_texts(), language), len(stored.rows)
    found = _rows_with(earlier_stored.encoded_texts(), stored.encoded_texts())
    is_there = found >= 0
    new = cut(compress(stored.encoded_texts(), ~is_there), language)
    known = counts.of_documents(found[is_there])
    return together(known, new, is_there), len(new.ids)


def _rows_with(there: Iterable[str], texts: Iterable[str]) -> Int64Array:
    """Return a row that has each text, or -1 ``[texts]``."""
    digests = text_digests(there)
    wanted = text_digests(texts)
    order = np.argsort(digests, kind="stable")
    return looked_up(wanted, digests[order], order)
