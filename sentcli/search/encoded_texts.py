"""Texts whose vectors are made for a search: at once, or block by block as they are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.arrays import BoolArray, Vectors
from sentcli.errors import InputError
from sentcli.search import searcher as searching
from sentcli.search.options import SearchOptions
from sentcli.search.rows import Rows, RowsInMemory
from sentcli.search.searcher import Searcher, StreamedSearch
from sentcli.search.stored_vectors import StoredVectors, vector_protocol

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

EncodeRows = Callable[["SentenceEncoder", str, Sequence[str]], Vectors]
"""Returns the vectors ``[n, dim]`` of texts, given the encoder, the prompt and the texts."""


@dataclass(frozen=True)
class EncodedTexts:
    """The rows of a file of texts, which a model encodes to be searched."""

    title: str
    rows: Rows
    encode: EncodeRows
    mask: BoolArray | None
    """The rows that may be found ``[n]``; None stands for all."""

    def opened(
        self, options: SearchOptions, encoder: SentenceEncoder, rescore: StoredVectors | None
    ) -> tuple[Searcher | StreamedSearch, dict[str, Any]]:
        """Encode the rows, or open a search that does; see `StoredVectors.opened`.

        Raises:
            InputError: if there are full vectors to rescore by, which texts do not need.
        """
        if rescore is not None:
            raise InputError(f"--rescore goes with a --corpus of smaller vectors; {self.title} holds texts")
        query, document = options.prompts(encoder)
        searcher = self._searcher(options, encoder, document)
        return searcher, vector_protocol(searcher, query, document)

    def _searcher(self, options: SearchOptions, encoder: SentenceEncoder, prompt: str) -> Searcher | StreamedSearch:
        """Return the search over the rows, given the text in front of each."""
        rows = self.rows
        if isinstance(rows, RowsInMemory):
            return self._encoded(rows, options, encoder, prompt)
        similarity = options.similarity_of(encoder.spec)
        device = encoder.backend.device
        encode = partial(self.encode, encoder, prompt)
        streamed = StreamedSearch(rows, encode, similarity, device)
        if options.exact:
            return streamed
        vectors = np.concatenate(list(streamed.blocks()))
        return searching.searcher_over(str(options.index), vectors, similarity, device)

    def _encoded(self, rows: RowsInMemory, options: SearchOptions, encoder: SentenceEncoder, prompt: str) -> Searcher:
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
        vectors[encoded] = self.encode(encoder, prompt, texts)
        similarity = options.similarity_of(encoder.spec)
        return searching.searcher_over(options.index or "flat", vectors, similarity, encoder.backend.device)
