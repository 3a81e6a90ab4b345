"""The documents that a search finds for queries, among which those that are no known positive are ranked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sentcli.arrays import Int64Array, Vectors
from sentcli.errors import InputError
from sentcli.mining.copies import MiningCorpus
from sentcli.mining.options import MiningOptions
from sentcli.model.spec import Similarity
from sentcli.search import fusion
from sentcli.search.searcher import Searcher, searcher_over


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


class CandidateSearch:
    """Finds the documents of queries, by vectors, by words or by both.

    Args:
        corpus: the documents.
        vectors: of all documents ``[documents, dim]``.
        options: the way of searching, and the last rank.
        similarity: ``cosine`` or ``dot``.
        device: of exact search.

    Raises:
        InputError: if the first rank is behind the last document.
    """

    def __init__(
        self, corpus: MiningCorpus, vectors: Vectors, options: MiningOptions, similarity: Similarity, device: str
    ) -> None:
        check_ranks(corpus, options)
        self.corpus = corpus
        self.options = options
        self.searcher: Searcher | None = None
        if options.search != "bm25":
            rows = corpus.rows
            if len(rows) < len(vectors):
                vectors = vectors[rows]
            self.searcher = searcher_over("flat", vectors, similarity, device)

    def find(self, texts: Sequence[str], vectors: Vectors, most_known: int) -> Int64Array:
        """Return the documents that are found for each query, best first ``[queries, k]``; -1 stands for none.

        Args:
            texts: of the queries.
            vectors: of the queries ``[queries, dim]``.
            most_known: the most documents that are known of a query and have no rank; so many more are found.
        """
        rows = self.corpus.rows
        _, last = self.options.rank_bounds
        k = min(last + most_known, len(rows))
        depth = min(fusion.depth([self.options.search], k), len(rows))
        lists = []
        if self.searcher is not None:
            lists.append(self.searcher.search(vectors, depth))
        if self.options.by_words:
            lists.append(self.corpus.bm25.search(texts, depth))
        hits = lists[0]
        if len(lists) > 1:
            hits = fusion.reciprocal_rank(lists, k)
        positions = hits.positions[:, :k]
        return np.where(positions < 0, -1, rows[positions])
