"""A collection of Milvus as a corpus: vectors and words are searched there, and fused here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.errors import InputError
from sentcli.search.conditions import Condition
from sentcli.search.exact import Neighbours, Vectors
from sentcli.search.milvus import MilvusCollection
from sentcli.search.milvus_rows import filter_of
from sentcli.search.options import SearchOptions
from sentcli.search.origin import Origin
from sentcli.search.rows import Document

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder


@dataclass(frozen=True)
class MilvusCorpus:
    """The rows of a collection that meet a condition; see `corpus.Corpus`."""

    collection: MilvusCollection
    condition: str = ""
    """A filter of Milvus; empty stands for all rows."""
    positions: dict[str, int] = field(default_factory=dict)
    """A position for each id that was found."""
    deepest: int = 16_384
    """Milvus returns at most so many hits for a query."""

    @property
    def title(self) -> str:
        """The address and the name."""
        return self.collection.title

    @property
    def origin(self) -> Origin:
        """How the vectors were made."""
        return self.collection.origin

    @property
    def schema(self) -> dict[str, Any]:
        """The Arrow types of all columns by name."""
        return self.collection.record.schema()

    def __len__(self) -> int:
        return self.collection.count(self.condition)

    def select(self, condition: Condition) -> MilvusCorpus:
        """Return the corpus of those rows that meet a condition."""
        added = filter_of(condition.tree, self.collection.record.columns)
        return replace(self, condition=f"({self.condition}) and ({added})" if self.condition else added)

    def counts(self, column: str) -> list[tuple[Any, int]]:
        """Count the rows with each value of a column, the most frequent value first."""
        return self.collection.counted(column, self.condition)

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return rows by their ids, of those that are there."""
        return self.collection.documents(ids)

    def take(self, positions: Sequence[int]) -> dict[int, Document]:
        """Return rows by their positions, of those that are still there."""
        ids = list(self.positions)
        rows = self.documents([ids[position] for position in positions])
        return {position: rows[ids[position]] for position in positions if ids[position] in rows}

    def prepare(
        self, search: SearchOptions, encoder: SentenceEncoder | None, rescore: str | None = None
    ) -> tuple[MilvusCorpus, dict[str, Any]]:
        """Compare the encoder with the vectors; see `corpus.Corpus.prepare`."""
        record = self.collection.record
        facts: dict[str, Any] = {}
        if search.by_words:
            facts["bm25"] = {"method": "milvus", "language": record.language}
        if encoder is None:
            return self, facts
        if search.similarity not in (None, record.similarity):
            raise InputError(f"{self.title} was made for similarity {record.similarity!r}, not {search.similarity!r}")
        query, document = search.prompts(encoder)
        self.origin.check_encoder(encoder, document, record.dimension)
        if record.recall is not None:
            recall = f"recall@{record.recall['k']} {record.recall['chosen']['recall']:.3f}"
            console.note(f"index {record.kind}: {recall} against exact search when it was measured")
        index = {"kind": record.kind, **record.efforts}
        document = record.settings.get("prompt") or ""
        facts |= {"similarity": record.similarity, "index": index, "query_prompt": query, "document_prompt": document}
        return self, facts

    def nearest(self, vectors: Vectors, k: int) -> Neighbours:
        """Return the nearest rows of each query ``[queries, dim]``."""
        if self.origin.made_smaller():
            vectors = self.origin.fitted(vectors, normalized=bool(self.origin.normalize))
        return self._neighbours(self.collection.nearest(vectors, k, self.condition))

    def by_words(self, queries: Sequence[str], k: int) -> Neighbours:
        """Return the best rows of each query by Milvus's BM25."""
        return self._neighbours(self.collection.by_words(queries, k, self.condition))

    def _neighbours(self, hits_by_query: list[list[tuple[str, float]]]) -> Neighbours:
        """Return hits by position instead of by id."""
        width = max(map(len, hits_by_query), default=0)
        positions = np.full((len(hits_by_query), width), -1, np.int64)
        scores = np.zeros(positions.shape, np.float32)
        for query, hits in enumerate(hits_by_query):
            for place, (key, score) in enumerate(hits):
                positions[query, place] = self.positions.setdefault(key, len(self.positions))
                scores[query, place] = score
        return Neighbours(positions, scores)
