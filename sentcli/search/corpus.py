"""What can be searched: rows in a file, a directory or a database, and the one search by vectors, words or both.

A kind of corpus is a class with the members of `Corpus`. Conditions, counts, fusion and hits are written once above it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sentcli.arrays import Vectors
from sentcli.io.forms import finite
from sentcli.search.conditions import Condition
from sentcli.search.fusion import depth, fuse
from sentcli.search.neighbours import Neighbours
from sentcli.search.options import CorpusOptions, SearchMode, SearchOptions
from sentcli.search.rows import Document

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.provenance import Provenance

PLACE_COLUMNS = ("document", "passage", "start", "end")
"""The columns that say where a passage is from; see `sentcli.model.passages`."""


class Corpus(Protocol):
    """Rows that can be searched.

    A position is a number by which `nearest` and `by_words` name a row and `take` returns it; of equal similarities the
    lower position comes first.
    """

    @property
    def title(self) -> str:
        """The name for messages."""

    @property
    def origin(self) -> Provenance | None:
        """How the vectors were made; None if `prepare` makes them."""

    @property
    def schema(self) -> dict[str, Any]:
        """The Arrow types of all columns by name, with id and text."""

    @property
    def max_top_k(self) -> int:
        """The largest number of hits that a query can have."""

    def __len__(self) -> int:
        """Return the number of rows that may be found."""

    def select(self, condition: Condition) -> Corpus:
        """Return the corpus of those rows that meet a condition."""

    def counts(self, column: str) -> list[tuple[Any, int]]:
        """Count the rows with each value of a column, the most frequent value first."""

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return rows by their ids, of those that are there."""

    def prepare(
        self, search: SearchOptions, encoder: SentenceEncoder | None, rescore: str | None = None
    ) -> tuple[Corpus, dict[str, Any]]:
        """Return the corpus ready for `nearest` and `by_words`, and every choice of it that moves a score.

        Args:
            search: how queries and documents are compared.
            encoder: of the queries; None for a search by words alone.
            rescore: full vectors of the same rows, of a corpus whose vectors were made smaller.

        Returns:
            With an encoder, the choices have ``similarity``, ``index``, ``query_prompt`` and ``document_prompt``.

        Raises:
            InputError: if its vectors do not compare with those of the encoder, or it cannot be searched so.
        """

    def nearest(self, vectors: Vectors, k: int) -> Neighbours:
        """Return the positions and similarities of the nearest rows of each query ``[queries, dim]``, at most `k`."""

    def by_words(self, queries: Sequence[str], k: int) -> Neighbours:
        """Return the positions and BM25 scores of the best rows of each query, at most `k`."""

    def take(self, positions: Sequence[int]) -> dict[int, Document]:
        """Return rows by their positions; one that was deleted since it was found is left out."""


OpenBackend = Callable[[str, CorpusOptions, SearchOptions], AbstractContextManager[Corpus]]
"""Opens a corpus of a backend, given its name on the command line, such as ``milvus:reviews.db``, and the options of
the corpus and of the search; raises an InputError if there is none, or an option does not go with it."""


@dataclass(frozen=True)
class Hit:
    """A document that a search has found."""

    rank: int
    score: float
    row: Document
    rerank_score: float | None = None
    """The score of the cross-encoder that has ordered the hits."""
    probability: float | None = None
    """The probability that it is right, by its similarity; None where none is kept."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        hit: dict[str, Any] = {"rank": self.rank, "id": self.row.id, "score": self.score}
        if self.rerank_score is not None:
            hit["rerank_score"] = self.rerank_score
        if self.probability is not None:
            hit["probability"] = self.probability
        hit["text"] = self.row.text
        columns = dict(self.row.columns)
        if has_passages(columns):
            for name in PLACE_COLUMNS:
                hit[name] = columns.pop(name)
        if columns:
            as_text = json.dumps(finite(columns), default=str)
            hit["columns"] = json.loads(as_text)
        return hit


def has_passages(columns: Iterable[str]) -> bool:
    """Tell by the columns of rows whether they are passages of documents."""
    return set(PLACE_COLUMNS).issubset(columns)


def search_documents(
    corpus: Corpus,
    mode: SearchMode,
    queries: Sequence[str],
    vectors: Vectors | None,
    k: int,
    dense_weight: float = 0.5,
    *,
    per_document: int | None,
) -> list[list[Hit]]:
    """Return the best rows of each query; of passages, so many of a document, which is ranked by its best passage.

    Passages are asked for until each query has `k`, or the corpus has no more.

    Args:
        corpus: rows or passages; the other arguments are those of `search_rows`.
        mode: how they are searched.
        queries: the texts of the queries.
        vectors: the vectors of the queries.
        k: the number of hits of each query.
        dense_weight: the share of the dense score in ``weighted``.
        per_document: the most hits of a document; None where each row is a document.
    """
    if per_document is None:
        return search_rows(corpus, mode, queries, vectors, k, dense_weight)
    most = min(len(corpus), corpus.max_top_k)
    asked = k
    while True:
        asked = min(asked * 4, max(most, k))
        kept = []
        least = k
        for hits in search_rows(corpus, mode, queries, vectors, asked, dense_weight):
            of_query = _of_documents(hits, per_document)[:k]
            least = min(least, len(of_query))
            kept.append(of_query)
        if asked >= most or least == k:
            return kept


def _of_documents(hits: Sequence[Hit], most: int) -> list[Hit]:
    """Return the first hits of each document."""
    counts: Counter[str] = Counter()
    kept = []
    for hit in hits:
        document = hit.row.columns["document"]
        counts[document] += 1
        if counts[document] <= most:
            kept.append(hit)
    return kept


def search_rows(
    corpus: Corpus, mode: SearchMode, queries: Sequence[str], vectors: Vectors | None, k: int, dense_weight: float = 0.5
) -> list[list[Hit]]:
    """Return the best hits of each query, at most `k`.

    Args:
        corpus: one that `Corpus.prepare` returned.
        mode: one of `options.SEARCH_MODES`.
        queries: the texts of the queries.
        vectors: the vectors of the queries ``[queries, dim]``; not needed for ``bm25``.
        k: the number of hits of each query.
        dense_weight: the share of the dense score in ``weighted``.
    """
    candidates = min(depth([mode], k), corpus.max_top_k)
    hits = dense = by_words = Neighbours.none(len(queries))
    if mode != "bm25":
        assert vectors is not None
        hits = dense = corpus.nearest(vectors, candidates)
    if mode != "dense":
        hits = by_words = corpus.by_words(queries, candidates)
    if mode in ("rrf", "weighted"):
        hits = fuse(mode, dense, by_words, k, dense_weight)
    distinct = np.unique(hits.positions[hits.positions >= 0])  # a row may be a hit of several queries
    rows = corpus.take(distinct.tolist())
    ranked = []
    for positions, scores in zip(hits.positions.tolist(), hits.scores.tolist(), strict=True):
        of_query: list[Hit] = []
        for position, score in zip(positions, scores, strict=True):
            if position in rows:
                of_query.append(Hit(len(of_query) + 1, score, rows[position]))
        ranked.append(of_query)
    return ranked
