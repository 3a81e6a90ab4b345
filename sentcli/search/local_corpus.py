"""A corpus on this machine: a directory or file of vectors, or a file of texts that is encoded to be searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.errors import InputError
from sentcli.search import searcher as searching
from sentcli.search.bm25 import BM25, LANGUAGE
from sentcli.search.conditions import Condition
from sentcli.search.exact import Mask, Neighbours, Vectors, require_faiss
from sentcli.search.options import SearchOptions
from sentcli.search.rows import Document, RowsInMemory, RowsOnDisk, counted, matching, positions_of
from sentcli.search.searcher import Searcher, SmallerSearch
from sentcli.search.store import Store
from sentcli.search.vector_file import VectorFile, open_vectors

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.origin import Origin

EncodeRows = Callable[["SentenceEncoder", Sequence[str], str], Vectors]
"""Returns the vectors ``[n, dim]`` of texts, given the encoder and the prompt."""


@dataclass(frozen=True)
class LocalCorpus:
    """Rows on this machine; see `corpus.Corpus`."""

    title: str
    rows: RowsInMemory | RowsOnDisk
    stored: Store | VectorFile | None = None
    """The vectors of the rows; None for a file of texts."""
    encode: EncodeRows | None = None
    """Encodes the rows of a file of texts."""
    mask: Mask | None = None
    """The rows that may be found ``[n]``; None stands for all."""
    searcher: Searcher | SmallerSearch | None = None
    bm25: BM25 | None = None

    @property
    def origin(self) -> Origin | None:
        """How the vectors were made; None for a file of texts."""
        return None if self.stored is None else self.stored.origin

    @property
    def schema(self) -> dict[str, Any]:
        """The Arrow types of all columns by name."""
        return self.rows.schema

    @property
    def deepest(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __len__(self) -> int:
        return len(self.rows) if self.mask is None else int(self.mask.sum())

    def select(self, condition: Condition) -> LocalCorpus:
        """Return the corpus of those rows that meet a condition."""
        met = matching(self.rows, condition)
        return replace(self, mask=met if self.mask is None else met & self.mask)

    def counts(self, column: str) -> list[tuple[Any, int]]:
        """Count the rows with each value of a column, the most frequent value first."""
        return counted(self.rows, column, self.mask)

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Return rows by their ids, of those that are there."""
        positions = positions_of(self.rows, ids)
        return dict(zip(positions, self.rows.take(list(positions.values())), strict=True))

    def take(self, positions: Sequence[int]) -> dict[int, Document]:
        """Return rows by their positions in the file."""
        return dict(zip(positions, self.rows.take(positions), strict=True))

    def nearest(self, vectors: Vectors, k: int) -> Neighbours:
        """Return the nearest rows of each query ``[queries, dim]``."""
        assert self.searcher is not None
        return self.searcher.search(vectors, k, self.mask)

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
        bm25 = self._words(search.language) if search.by_words else None
        facts: dict[str, Any] = {} if bm25 is None else {"bm25": bm25.described()}
        if encoder is None:
            return replace(self, bm25=bm25), facts
        require_faiss()
        query, document = search.prompts(encoder)
        searcher: Searcher | SmallerSearch
        if self.stored is None:
            searcher = whole = self._encoded(search, encoder, document)
        else:
            origin = self.stored.origin
            document = document if origin.known else origin.prompt or ""
            origin.check_encoder(encoder, document, self.stored.blocks.dimension)
            whole, query = self._opened(search, encoder, query)
            facts |= origin.made_smaller() | ({"rescored": searching.FULL_RESCORED} if rescore is not None else {})
            searcher = self._smaller(whole, encoder, document, rescore)
        index = whole.described() if whole.parts else "exact"
        facts |= {"similarity": whole.similarity, "index": index, "query_prompt": query, "document_prompt": document}
        return replace(self, searcher=searcher, bm25=bm25), facts

    def _encoded(self, search: SearchOptions, encoder: SentenceEncoder, prompt: str) -> Searcher:
        """Return the search over the vectors of texts, which are made now."""
        assert self.encode is not None
        assert isinstance(self.rows, RowsInMemory)
        if repeated := len(self.rows) - len({row.id for row in self.rows.rows}):
            console.warn(
                f"{repeated} rows have an id that another row has, too: the ids of hits do not tell them apart"
            )
        if self.rows.had_vectors:
            console.note(
                f"the vectors in {self.title} are not read and its texts encoded again: a directory, .parquet or "
                ".safetensors of encode is searched as it is"
            )
        is_exact = search.index in (None, "flat")
        left = self.mask if self.mask is not None and is_exact else np.ones(len(self.rows), np.bool_)
        texts = [text for text, is_left in zip(self.rows.texts(), left, strict=True) if is_left]
        vectors = np.zeros((len(self.rows), encoder.dimension), np.float32)
        vectors[left] = self.encode(encoder, texts, prompt)
        searcher = searching.build(search.index or "flat", vectors, search.similarity or "cosine")
        searcher.device = encoder.backend.device
        return searcher

    def _opened(self, search: SearchOptions, encoder: SentenceEncoder, query: str) -> tuple[Searcher, str]:
        """Return the search over stored vectors, and the prompt of the queries, which an index may choose."""
        assert self.stored is not None
        device = encoder.backend.device
        if not isinstance(self.stored, Store):
            self.stored.origin.check_similarity(search.similarity or "cosine")
            searcher = searching.build(search.index or "flat", self.stored.blocks, search.similarity or "cosine")
            searcher.device = device
            return searcher, query
        own_prompt = encoder.role_prompt("query")
        opened = self.stored.open_index(search.index, search.similarity, search.query_prompt, device, own_prompt)
        if opened.recall is not None:
            kind = opened.searcher.recipe.kind
            console.note(f"index {kind}: recall@{opened.k} {opened.recall:.3f} against exact search when it was built")
        if opened.unindexed:
            console.note(f"{opened.unindexed} rows were added since the index was built; they are searched exactly")
        if search.query_prompt is None and opened.query_prompt is not None:
            query = opened.query_prompt
        return opened.searcher, query

    def _smaller(
        self, searcher: Searcher, encoder: SentenceEncoder, document: str, rescore: str | None
    ) -> Searcher | SmallerSearch:
        """Return the search itself, or over vectors that were made smaller one that fits the queries to them."""
        assert self.stored is not None
        origin = self.stored.origin
        if not origin.made_smaller():
            if rescore is not None:
                raise InputError(f"--rescore goes with vectors that were made smaller; {origin.name} is full")
            return searcher
        fit = partial(origin.fitted, normalized=encoder.spec.normalizes)
        if rescore is None:
            return SmallerSearch(searcher, fit)
        full = open_vectors(rescore)
        origin.check_same_rows(full.origin)
        full.origin.check_encoder(encoder, document if full.origin.known else "", full.blocks.dimension)
        if len(full.blocks) != len(self.rows):
            raise InputError(f"--rescore {rescore} has {len(full.blocks):,} rows, {origin.name} has {len(self.rows):,}")
        return SmallerSearch(searcher, fit, full.blocks)

    def _words(self, language: str | None) -> BM25:
        """Return the BM25 index of a directory, or one that is built now."""
        if isinstance(self.stored, Store):
            if (index := self.stored.words(language)) is not None:
                return index
            option = f" --language {language}" if language not in (None, LANGUAGE) else ""
            command = f"sentcli index {self.stored.origin.name} --type bm25{option}"
            console.note(f"BM25 of {len(self.rows)} rows is made now; {command} keeps it")
        return BM25.build(self.rows.texts(), language=language or LANGUAGE)
