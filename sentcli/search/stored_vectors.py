"""Vectors that are stored with their rows, in a directory or in a file, and their search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.spec import Similarity
from sentcli.search import searcher as searching
from sentcli.search.bm25 import BM25, LANGUAGE
from sentcli.search.exact import Blocks
from sentcli.search.options import SearchOptions
from sentcli.search.provenance import Provenance
from sentcli.search.rows import Rows
from sentcli.search.searcher import CompressedSearch, Searcher, StreamedSearch

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder


@dataclass(frozen=True)
class OpenedVectors:
    """Vectors that are ready to be searched with a model's queries."""

    searcher: Searcher | StreamedSearch
    """Finds the nearest of the vectors as they are kept."""
    query_prompt: str
    document_prompt: str
    smaller: CompressedSearch | None = None
    """The same for vectors that were made smaller: it fits the queries to them, and rescores."""
    how_smaller: dict[str, Any] = field(default_factory=dict)
    """How they were made smaller, and whether they are rescored, for the protocol."""

    def protocol(self) -> dict[str, Any]:
        """Return every choice that moves a score."""
        index: Any = "exact"
        if isinstance(self.searcher, Searcher) and (self.searcher.parts or self.searcher.scan):
            index = self.searcher.protocol()
        return {
            **self.how_smaller,
            "similarity": self.searcher.similarity,
            "index": index,
            "query_prompt": self.query_prompt,
            "document_prompt": self.document_prompt,
        }


class StoredVectors(ABC):
    """One table of vectors: rows, their vectors, and what is known of how these were made."""

    origin: Provenance

    @property
    @abstractmethod
    def blocks(self) -> Blocks:
        """The vectors ``[rows, dim]``, mapped from their files."""

    @property
    @abstractmethod
    def rows(self) -> Rows:
        """The rows of the vectors."""

    @abstractmethod
    def open_index(
        self,
        name: str | None,
        similarity: Similarity | None = None,
        query_prompt: str | None = None,
        device: str = "cpu",
        own_prompt: str = "",
        own_similarity: Callable[[], Similarity] = lambda: "cosine",
    ) -> tuple[Searcher, str | None]:
        """Return a search over the vectors, exact or with an index.

        Args:
            name: the name or the kind of the index; None leaves it to the vectors.
            similarity: the similarity of the search; None takes that of the index, or the model's.
            query_prompt: the prompt of the queries; None takes that of the index, or the model's own.
            device: the device of exact search.
            own_prompt: the model's own prompt of queries.
            own_similarity: returns the similarity that the model's folder names, or raises an error for one that is not
                supported; it is asked where no index says it.

        Returns:
            The search, and the query prompt that an index was built for; None stands for the model's own.
        """

    def notes_on(self, searcher: Searcher) -> list[str]:
        """Return sentences on the index that is searched; of exact search there is nothing to say."""
        return []

    def bm25(self, language: str | None) -> BM25:
        """Return an index of the words of the rows, which is built now."""
        return BM25.build(self.rows.texts(), language=language or LANGUAGE)

    def opened(self, options: SearchOptions, encoder: SentenceEncoder, rescore: StoredVectors | None) -> OpenedVectors:
        """Return the vectors, ready for the queries of a model.

        Args:
            options: the index, the similarity and the prompts.
            encoder: the model, which has to be the one that made the vectors.
            rescore: full vectors of the same rows, by which the best hits of smaller ones are compared.

        Raises:
            InputError: if the model or an option does not fit the vectors.
        """
        query, document = options.prompts(encoder)
        if not self.origin.known:
            document = self.origin.prompt or ""
        self.origin.check_encoder(encoder, document, self.blocks.dimension)
        searcher, index_prompt = self.open_index(
            options.index,
            options.similarity,
            options.query_prompt,
            encoder.backend.device,
            encoder.role_prompt("query"),
            own_similarity=lambda: encoder.spec.similarity,
        )
        for note in self.notes_on(searcher):
            console.note(note)
        if options.query_prompt is None and index_prompt is not None:
            query = index_prompt
        smaller = self._smaller(searcher, encoder, document, rescore)
        how_smaller = self.origin.made_smaller()
        if rescore is not None:
            how_smaller = {**how_smaller, "rescored": searching.FULL_RESCORED}
        return OpenedVectors(searcher, query, document, smaller, how_smaller)

    def _smaller(
        self, searcher: Searcher, encoder: SentenceEncoder, document: str, full: StoredVectors | None
    ) -> CompressedSearch | None:
        """Return a search that fits queries to vectors that were made smaller; None for full vectors."""
        origin = self.origin
        if not origin.made_smaller():
            if full is not None:
                raise InputError(f"--rescore goes with vectors that were made smaller; {origin.name} is full")
            return None
        fit = partial(origin.fitted, normalized=bool(encoder.spec.normalizes))
        if full is None:
            return CompressedSearch(searcher, fit)
        origin.check_same_rows(full.origin)
        full_prompt = document if full.origin.known else ""
        full.origin.check_encoder(encoder, full_prompt, full.blocks.dimension)
        if len(full.blocks) != len(self.rows):
            counts = f"{len(full.blocks):,} rows, {origin.name} has {len(self.rows):,}"
            raise InputError(f"--rescore {full.origin.name} has {counts}")
        return CompressedSearch(searcher, fit, full.blocks)
