"""A corpus on this machine: a directory or file of vectors, or a file of texts that is encoded to be searched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.spec import Similarity
from sentcli.search import searcher as searching
from sentcli.search.bm25 import BM25, LANGUAGE
from sentcli.search.conditions import Condition
from sentcli.search.exact import Mask, Neighbours, Vectors
from sentcli.search.exact import search as exact_search
from sentcli.search.faiss_border import require_faiss
from sentcli.search.options import SearchOptions
from sentcli.search.rows import BLOCK_DOCUMENTS, Document, Rows, RowsInMemory, counted, matching, positions_of
from sentcli.search.searcher import Searcher, SmallerSearch
from sentcli.search.store import IndexManifest, Store
from sentcli.search.vector_file import VectorFile, open_vectors

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.origin import Origin

EncodeRows = Callable[["SentenceEncoder", str, Sequence[str]], Vectors]
"""Returns the vectors ``[n, dim]`` of texts, given the encoder, the prompt and the texts."""


@dataclass(frozen=True)
class StreamedSearch:
    """Exact search over rows that are encoded block by block as they are compared, all of them in each search."""

    rows: Rows
    encode: Callable[[Sequence[str]], Vectors]
    """Returns the vectors ``[n, dim]`` of texts."""
    similarity: Similarity
    device: str

    def blocks(self, mask: Mask | None = None) -> Iterator[Vectors]:
        """Yield the vectors of the rows that may be found."""
        texts = self.rows.texts() if mask is None else compress(self.rows.texts(), mask)
        while block := list(islice(texts, BLOCK_DOCUMENTS)):
            yield self.encode(block)

    def search(self, queries: npt.NDArray[np.generic], k: int, mask: Mask | None = None) -> Neighbours:
        """Return the `k` nearest rows of each query ``[queries, dim]``, as `Searcher.search` does."""
        hits = exact_search(queries, self.blocks(mask), k, similarity=self.similarity, device=self.device)
        return hits if mask is None else Neighbours(np.flatnonzero(mask)[hits.positions], hits.scores)


@dataclass(frozen=True)
class LocalCorpus:
    """Rows on this machine; see `corpus.Corpus`."""

    title: str
    rows: Rows
    stored: Store | VectorFile | None = None
    """The vectors of the rows; None for a file of texts."""
    encode: EncodeRows | None = None
    """Encodes the rows of a file of texts."""
    mask: Mask | None = None
    """The rows that may be found ``[n]``; None stands for all."""
    searcher: Searcher | SmallerSearch | StreamedSearch | None = None
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
        hits = self.searcher.search(vectors, k, self.mask)
        self._say_fewer(hits, min(k, len(self)))
        return hits

    def _say_fewer(self, hits: Neighbours, k: int) -> None:
        """Warn where an index found fewer rows than were asked for, as one does that looks in few of its clusters."""
        found = (hits.positions >= 0).sum(axis=1)
        lacking = found[found < k]
        if len(lacking):
            searcher = self.searcher.searcher if isinstance(self.searcher, SmallerSearch) else self.searcher
            index = searcher.protocol() if isinstance(searcher, Searcher) else {}
            facts = " ".join(f"{name} {value}" for name, value in index.items() if name != "factory")
            console.warn(
                f"the index ({facts}) found fewer than {k:,} rows for {len(lacking):,} of {len(found):,} queries, the "
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
        bm25 = self._words(search.language) if search.by_words else None
        protocol: dict[str, Any] = {} if bm25 is None else {"bm25": bm25.protocol()}
        if encoder is None:
            return replace(self, bm25=bm25), protocol
        if search.needs_faiss:
            require_faiss()
        query, document = search.prompts(encoder)
        searcher: Searcher | SmallerSearch | StreamedSearch
        whole: Searcher | StreamedSearch
        if self.stored is None:
            searcher = whole = self._encoded(search, encoder, document)
        else:
            origin = self.stored.origin
            document = document if origin.known else origin.prompt or ""
            origin.check_encoder(encoder, document, self.stored.blocks.dimension)
            whole, query = self._opened(search, encoder, query)
            protocol |= origin.made_smaller() | ({"rescored": searching.FULL_RESCORED} if rescore is not None else {})
            searcher = self._smaller(whole, encoder, document, rescore)
        index: Any = "exact"
        if isinstance(whole, Searcher) and (whole.parts or whole.scan):
            index = whole.protocol()
        protocol |= {"similarity": whole.similarity, "index": index, "query_prompt": query, "document_prompt": document}
        return replace(self, searcher=searcher, bm25=bm25), protocol

    def _encoded(self, search: SearchOptions, encoder: SentenceEncoder, prompt: str) -> Searcher | StreamedSearch:
        """Return the search over the vectors of texts, which are made now, or as they are compared."""
        assert self.encode is not None
        similarity, device = search.similarity_of(encoder.spec), encoder.backend.device
        if not isinstance(self.rows, RowsInMemory):
            streamed = StreamedSearch(self.rows, partial(self.encode, encoder, prompt), similarity, device)
            if search.exact:
                return streamed
            vectors = np.concatenate(list(streamed.blocks()))
            return searching.build(str(search.index), vectors, similarity, device)
        if repeated := len(self.rows) - len({row.id for row in self.rows.rows}):
            console.warn(
                f"{repeated} rows have an id that another row has, too: the ids of hits do not tell them apart"
            )
        if self.rows.had_vectors:
            console.note(
                f"the vectors in {self.title} are not read and its texts encoded again: a directory, .parquet or "
                ".safetensors of encode is searched as it is"
            )
        left = self.mask if self.mask is not None and search.exact else np.ones(len(self.rows), np.bool_)
        texts = [text for text, is_left in zip(self.rows.texts(), left, strict=True) if is_left]
        vectors = np.zeros((len(self.rows), encoder.dimension), np.float32)
        vectors[left] = self.encode(encoder, prompt, texts)
        return searching.build(search.index or "flat", vectors, similarity, device)

    def _opened(self, search: SearchOptions, encoder: SentenceEncoder, query: str) -> tuple[Searcher, str]:
        """Return the search over stored vectors, and the prompt of the queries, which an index may choose."""
        assert self.stored is not None
        device = encoder.backend.device
        if not isinstance(self.stored, Store):
            similarity = search.similarity_of(encoder.spec)
            self.stored.origin.check_similarity(similarity)
            return searching.build(search.index or "flat", self.stored.blocks, similarity, device), query
        own_prompt = encoder.role_prompt("query")
        searcher, prompt = self.stored.open_index(
            search.index,
            search.similarity,
            search.query_prompt,
            device,
            own_prompt,
            own_similarity=lambda: encoder.spec.similarity,
        )
        if isinstance(searcher.recipe, IndexManifest):
            if measured := searcher.recipe.recall:
                recall = f"recall@{measured.get('k', 10)} {measured['chosen']['recall']:.3f}"
                console.note(f"index {searcher.recipe.kind}: {recall} against exact search when it was built")
            if unindexed := len(self.rows) - searcher.recipe.rows:
                console.note(f"{unindexed} rows were added since the index was built; they are searched exactly")
        return searcher, prompt if search.query_prompt is None and prompt is not None else query

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
        fit = partial(origin.fitted, normalized=bool(encoder.spec.normalizes))
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
