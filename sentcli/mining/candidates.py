"""The documents that a search finds for queries, ranked among those that are no known positive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sentcli.errors import InputError
from sentcli.mining.copies import MiningCorpus
from sentcli.mining.options import MiningOptions
from sentcli.model.spec import Similarity
from sentcli.search import fusion
from sentcli.search.exact import Vectors
from sentcli.search.neighbours import Integers
from sentcli.search.searcher import build


def check_ranks(corpus: MiningCorpus, options: MiningOptions) -> None:
    """Refuse ranks that no document of a corpus can have; the last rank may be behind the last document.

    Raises:
        InputError: if the first rank is behind the last document.
    """
    first, _ = options.rank_bounds
    count = len(corpus.rows)
    if first > count:
        raise InputError(
            f"--ranks {options.ranks} begins behind the last of {count:,} documents with a text of their own"
        )


def find(
    texts: Sequence[str],
    vectors: Vectors,
    corpus: MiningCorpus,
    document_vectors: Vectors,
    options: MiningOptions,
    most_known: int,
    similarity: Similarity,
    device: str,
) -> Integers:
    """Return the documents that the search finds for each query, best first ``[queries, k]``; -1 stands for none.

    Args:
        texts: of the queries.
        vectors: of the queries ``[queries, dim]``.
        corpus: the documents.
        document_vectors: ``[documents, dim]``.
        options: the way of searching, and the last rank.
        most_known: the most documents that are known of a query and have no rank; so many more are found.
        similarity: ``cosine`` or ``dot``.
        device: of exact search.

    Raises:
        InputError: if the first rank is behind the last document.
    """
    check_ranks(corpus, options)
    rows = corpus.rows
    _, last = options.rank_bounds
    k = min(last + most_known, len(rows))
    depth = min(fusion.depth([options.search], k), len(rows))
    lists = []
    if options.search != "bm25":
        chosen = document_vectors
        if len(rows) < len(document_vectors):
            chosen = document_vectors[rows]
        lists.append(build("flat", chosen, similarity, device).search(vectors, depth))
    if options.by_words:
        lists.append(corpus.bm25.search(texts, depth))
    hits = lists[0]
    if len(lists) > 1:
        hits = fusion.reciprocal_rank(lists, k)
    positions = hits.positions[:, :k]
    return np.where(positions < 0, -1, rows[positions])
