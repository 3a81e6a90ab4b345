"""Vectors that are stored with their rows, in a directory or in a file, and their search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.model.passages import encoded_texts
from sentcli.model.spec import ModelSpec, Similarity
from sentcli.search import searcher as searching
from sentcli.search.bm25 import BM25, LANGUAGE
from sentcli.search.exact import Blocks
from sentcli.search.options import SearchOptions
from sentcli.search.provenance import Provenance, rows_to_compare
from sentcli.search.rows import Rows
from sentcli.search.searcher import CompressedSearch, Searcher, StreamedSearch

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder


def vector_protocol(searcher: Searcher | StreamedSearch, query_prompt: str, document_prompt: str) -> dict[str, Any]:
    """Return every choice of a search over vectors that moves a score, given the texts in front of both sides."""
    index: Any = "exact"
    if isinstance(searcher, Searcher) and (searcher.parts or searcher.scan):
        index = searcher.protocol()
    return {
        "similarity": searcher.similarity,
        "index": index,
        "query_prompt": query_prompt,
        "document_prompt": document_prompt,
    }


@dataclass(frozen=True)
class SearchRequest:
    """The search over vectors that is asked for."""

    index: str | None = None
    """The name or the kind of the index; None leaves it to the vectors."""
    similarity: Similarity | None = None
    """The similarity of query and row; None takes that of the index, or else the model's."""
    query_prompt: str | None = None
    """The prompt of the queries; None takes that of the index, or else the model's own."""
    device: str = "cpu"
    """The device of exact search."""
    model: ModelSpec | None = None
    """The model of the queries, whose own prompt and similarity hold where no index has others."""

    @property
    def own_prompt(self) -> str:
        """The model's own prompt of queries."""
        if self.model is None:
            return ""
        return self.model.role_prompt("query")

    @property
    def own_similarity(self) -> Similarity:
        """The similarity that the model's folder names.

        Raises:
            InputError: if that is not supported.
        """
        if self.model is None:
            return "cosine"
        return self.model.similarity


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
    def open_index(self, request: SearchRequest) -> tuple[Searcher, str | None]:
        """Return a search over the vectors, exact or with an index, and the query prompt that an index was built for.

        None in the place of the prompt stands for the model's own.
        """

    def notes_on(self, searcher: Searcher) -> list[str]:
        """Return sentences on the index that is searched; of exact search there is nothing to say."""
        return []

    def bm25(self, language: str | None) -> BM25:
        """Return an index of the words of the rows, which is built now."""
        return BM25.build(self.encoded_texts(), language=language or LANGUAGE)

    def encoded_texts(self) -> Iterator[str]:
        """Yield what was encoded of every row: its text, behind what stands before it."""
        return encoded_texts(self.rows, self.origin.context)

    def document_prompt(self, encoder: SentenceEncoder, given: str | None) -> str:
        """Return the text in front of each document: the one that is given, that of the record, or the model's own."""
        if given is not None:
            return given
        return self.origin.document_prompt(encoder)

    def check_made_by(self, encoder: SentenceEncoder, prompt: str) -> None:
        """Refuse a model that has not made these vectors: by their record, or by some of their texts if there is none.

        Args:
            encoder: the model.
            prompt: the text in front of each document.

        Raises:
            InputError: if it makes others.
        """
        origin = self.origin
        origin.check_encoder(encoder, prompt, self.blocks.dimension)
        if origin.known or origin.made_smaller():
            return
        sample = rows_to_compare(len(self.rows))
        texts = [row.text for row in self.rows.take(sample.tolist())]
        origin.check_texts(texts, self.blocks.take(sample), encoder, prompt)

    def facts(self, encoder: SentenceEncoder | None, prompt: str | None) -> VectorFacts:
        """Return how the vectors were made: what they say, or else a model; `VectorFacts.known` tells whether one does.

        Args:
            encoder: the model that the user names, which has to have made them; None if none is named.
            prompt: the text in front of each document; None takes that of the record, or the model's own.

        Raises:
            InputError: if the model makes others, or they are principal components, which are not searched.
        """
        self.origin.check_numbers()
        if encoder is None:
            return self.origin
        prompt = self.document_prompt(encoder, prompt)
        self.check_made_by(encoder, prompt)
        if self.origin.known:
            return self.origin
        return VectorFacts.of(encoder, prompt)

    def opened(
        self, options: SearchOptions, encoder: SentenceEncoder, rescore: StoredVectors | None
    ) -> tuple[Searcher | CompressedSearch, dict[str, Any]]:
        """Return the search over the vectors, ready for the queries of a model, and its `vector_protocol`.

        Args:
            options: the index, the similarity and the prompts.
            encoder: the model, which has to be the one that made the vectors.
            rescore: full vectors of the same rows, by which the best hits of smaller ones are compared.

        Raises:
            InputError: if the model or an option does not fit the vectors.
        """
        origin = self.origin
        query, document = options.prompts(encoder)
        self.check_made_by(encoder, document)
        device = encoder.backend.device
        request = SearchRequest(options.index, options.similarity, options.query_prompt, device, encoder.spec)
        searcher, index_prompt = self.open_index(request)
        for note in self.notes_on(searcher):
            console.note(note)
        if options.query_prompt is None and index_prompt is not None:
            query = index_prompt
        smaller = self._smaller(searcher, encoder, document, rescore)
        how_smaller = origin.made_smaller()
        if rescore is not None:
            how_smaller = {**how_smaller, "rescored": searching.FULL_RESCORED}
        return smaller or searcher, {**how_smaller, **vector_protocol(searcher, query, document)}

    def _smaller(
        self, searcher: Searcher, encoder: SentenceEncoder, document: str, full: StoredVectors | None
    ) -> CompressedSearch | None:
        """Return a search that fits queries to vectors that were made smaller; None for full vectors."""
        origin = self.origin
        if not origin.made_smaller():
            if full is not None:
                raise InputError(f"--rescore goes with vectors that were made smaller; {origin.name} is full")
            return None
        fit = partial(origin.compress, normalized=bool(encoder.spec.normalizes))
        if full is None:
            return CompressedSearch(searcher, fit)
        full_origin = full.origin
        full_blocks = full.blocks
        origin.check_same_rows(full_origin)
        full.check_made_by(encoder, document)
        full_count = len(full_blocks)
        count = len(self.rows)
        if full_count != count:
            counts = f"{full_count:,} rows, {origin.name} has {count:,}"
            raise InputError(f"--rescore {full_origin.name} has {counts}")
        return CompressedSearch(searcher, fit, full_blocks)
