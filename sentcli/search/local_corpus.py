"""A corpus on this machine: a directory or file of vectors, or a file of texts that is encoded to be searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.arrays import BoolArray, Vectors
from sentcli.errors import InputError
from sentcli.search.bm25 import BM25, LANGUAGE
from sentcli.search.conditions import Condition
from sentcli.search.faiss_border import require_faiss
from sentcli.search.neighbours import MORE_HITS, Neighbours
from sentcli.search.options import SearchOptions
from sentcli.search.rows import Document, Rows, RowsInMemory, counted, matching, positions_of
from sentcli.search.searcher import CompressedSearch, Searcher, StreamedSearch, searcher_over
from sentcli.search.stored_vectors import StoredVectors, vector_protocol
from sentcli.search.vector_file import open_vectors

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.provenance import Provenance

EncodeRows = Callable[["SentenceEncoder", str, Sequence[str]], Vectors]
"""Returns the vectors ``[n, dim]`` of texts, given the encoder, the prompt and the texts."""
MOST_EQUAL = 1024
"""The most hits that are asked for because rows behind the last one are equal to it, or 16 times as many as wanted."""


@dataclass(frozen=True)
class LocalCorpus:
    """Rows on this machine; see `corpus.Corpus`."""

    title: str
    rows: Rows
    stored: StoredVectors | None = None
    """The vectors of the rows; None for a file of texts."""
    encode: EncodeRows | None = None
    """Encodes the rows of a file of texts."""
    mask: BoolArray | None = None
    """The rows that may be found ``[n]``; None stands for all."""
    searcher: Searcher | CompressedSearch | StreamedSearch | None = None
    bm25: BM25 | None = None

    @property
    def origin(self) -> Provenance | None:
        """How the vectors were made; None for a file of texts."""
        if self.stored is None:
            return None
        return self.stored.origin

    @property
    def schema(self) -> dict[str, Any]:
        """The Arrow types of all columns by name."""
        return self.rows.schema

    @property
    def max_top_k(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __len__(self) -> int:
        if self.mask is None:
            return len(self.rows)
        return int(self.mask.sum())

    def select(self, condition: Condition) -> LocalCorpus:
        """Return the corpus of those rows that meet a condition."""
        mask = matching(self.rows, condition)
        if self.mask is not None:
            mask &= self.mask
        return replace(self, mask=mask)

    def counts(self, column: str) -> list[tuple[Any, int]]:
        """Count the rows with each value of a column, the most frequent value first."""
        return counted(self.rows, column, self.mask)

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return rows by their ids, of those that are there."""
        rows = self.rows
        positions = positions_of(rows, ids)
        documents = rows.take(list(positions.values()))
        return dict(zip(positions, documents, strict=True))

    def take(self, positions: Sequence[int]) -> dict[int, Document]:
        """Return rows by their positions in the file."""
        return dict(zip(positions, self.rows.take(positions), strict=True))

    def nearest(self, vectors: Vectors, k: int) -> Neighbours:
        """Return the nearest rows of each query ``[queries, dim]``."""
        hits = self._nearest(vectors, k)
        self._say_fewer(hits, min(k, len(self)))
        return hits

    def _nearest(self, vectors: Vectors, k: int) -> Neighbours:
        """Return the nearest rows, those whose scores differ by rounding alone in the order of the corpus."""
        searcher = self.searcher
        assert searcher is not None
        has_index = isinstance(searcher, Searcher) and bool(searcher.parts)
        if has_index or isinstance(searcher, CompressedSearch):  # which would find others if more were asked for
            return searcher.search(vectors, k, self.mask).in_order_of_rows()
        asked = min(k + MORE_HITS, len(self))
        most = asked
        if isinstance(searcher, Searcher):  # others make all vectors again to be asked again
            most = min(max(MOST_EQUAL, 16 * k), len(self))
        while True:
            hits = searcher.search(vectors, asked, self.mask).in_order_of_rows()
            is_cut = asked > k and np.any(hits.scores[:, -1] == hits.scores[:, k - 1])
            if not is_cut or asked >= most:
                return Neighbours(hits.positions[:, :k], hits.scores[:, :k])
            asked = min(asked * 4, most)

    def _say_fewer(self, hits: Neighbours, k: int) -> None:
        """Warn where an index found fewer rows than were asked for, as one does that looks in few of its clusters."""
        counts = (hits.positions >= 0).sum(axis=1)
        lacking = counts[counts < k]
        if not len(lacking):
            return
        searcher = self.searcher
        if isinstance(searcher, CompressedSearch):
            searcher = searcher.searcher
        index = searcher.protocol() if isinstance(searcher, Searcher) else {}
        facts = " ".join(f"{name} {value}" for name, value in index.items() if name != "factory")
        console.warn(
            f"the index ({facts}) found fewer than {k:,} rows for {len(lacking):,} of {len(counts):,} queries, the "
            f"least {lacking.min():,}: --index flat finds all"
        )

    def by_words(self, queries: Sequence[str], k: int) -> Neighbours:
        """Return the best rows of each query by BM25."""
        assert self.bm25 is not None
        return self.bm25.search(queries, k, self.mask)

    def prepare(
        self, search: SearchOptions, encoder: SentenceEncoder | None, rescore: str | None = None
    ) -> tuple[LocalCorpus, dict[str, Any]]:
        """Open or build what `nearest` and `by_words` need; see `corpus.Corpus.prepare`.

        Vectors of a file of texts are made of the rows that may be found, but an index in memory is over all rows.
        """
        protocol = {}
        bm25 = None
        if search.by_words:
            bm25 = self._words(search.language)
            protocol["bm25"] = bm25.protocol()
        if encoder is None:
            return replace(self, bm25=bm25), protocol
        if search.needs_faiss:
            require_faiss()
        searcher, of_vectors = self._opened(search, encoder, rescore)
        return replace(self, searcher=searcher, bm25=bm25), protocol | of_vectors

    def _opened(
        self, search: SearchOptions, encoder: SentenceEncoder, rescore: str | None
    ) -> tuple[Searcher | CompressedSearch | StreamedSearch, dict[str, Any]]:
        """Return the search over the vectors of the rows, which texts get now, and its `vector_protocol`.

        Raises:
            InputError: if there are full vectors to rescore by, which texts do not need.
        """
        full = None
        if rescore is not None:
            full = open_vectors(rescore)
        if self.stored is not None:
            return self.stored.opened(search, encoder, full)
        if rescore is not None:
            raise InputError(f"--rescore goes with a --corpus of smaller vectors; {self.title} holds texts")
        query, document = search.prompts(encoder)
        searcher = self._of_texts(search, encoder, document)
        return searcher, vector_protocol(searcher, query, document)

    def _of_texts(self, options: SearchOptions, encoder: SentenceEncoder, prompt: str) -> Searcher | StreamedSearch:
        """Return the search over the rows, given the text in front of each."""
        assert self.encode is not None
        rows = self.rows
        encode = partial(self.encode, encoder, prompt)
        if isinstance(rows, RowsInMemory):
            return self._encoded(rows, options, encoder, encode)
        similarity = options.similarity_of(encoder.spec)
        device = encoder.backend.device
        streamed = StreamedSearch(rows, encode, similarity, device)
        if options.exact:
            return streamed
        vectors = np.concatenate(list(streamed.blocks()))
        return searcher_over(str(options.index), vectors, similarity, device)

    def _encoded(
        self,
        rows: RowsInMemory,
        options: SearchOptions,
        encoder: SentenceEncoder,
        encode: Callable[[Sequence[str]], Vectors],
    ) -> Searcher:
        """Return the search over the vectors of rows in memory, which are made now.

        They are made of the rows that may be found, but an index is over all rows.
        """
        count = len(rows)
        repeated = count - len({row.id for row in rows.rows})
        if repeated:
            console.warn(
                f"{repeated} rows have an id that another row has, too: the ids of hits do not tell them apart"
            )
        if rows.had_vectors:
            console.note(
                f"the vectors in {self.title} are not read and its texts encoded again: a directory, .parquet or "
                ".safetensors of encode is searched as it is"
            )
        encoded = np.ones(count, np.bool_)
        if self.mask is not None and options.exact:
            encoded = self.mask
        vectors = np.zeros((count, encoder.dimension), np.float32)
        texts = list(compress(rows.texts(), encoded))
        vectors[encoded] = encode(texts)
        similarity = options.similarity_of(encoder.spec)
        return searcher_over(options.index or "flat", vectors, similarity, encoder.backend.device)

    def _words(self, language: str | None) -> BM25:
        """Return the BM25 index of a directory, or one that is built now."""
        if self.stored is not None:
            return self.stored.bm25(language)
        return BM25.build(self.rows.texts(), language=language or LANGUAGE)
