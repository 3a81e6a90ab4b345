"""The ways of reading documents that are longer than a model reads: cut, in pieces, or in passages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
import numpy.typing as npt

from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.model.cutting import Cutter
from sentcli.model.encoding import Progress
from sentcli.search.exact import Vectors
from sentcli.search.neighbours import Neighbours
from sentcli.search.rows import BLOCK_DOCUMENTS
from sentcli.search.searcher import CompressedSearch, Searcher

Reading = Literal["cut", "chunk-mean", "passages", "passages with titles"]
"""``cut`` leaves out what is too long, ``chunk-mean`` takes the mean of the pieces of a document, and of passages the
best one counts, which may have the title of its document in front; without it a title is not read."""
FLAGS: dict[Reading, list[str]] = {
    "cut": [],
    "chunk-mean": ["--on-long", "chunk-mean"],
    "passages": ["--passages"],
    "passages with titles": ["--passages", "--context", "title"],
}
"""What ``encode`` is given to read documents so."""
Rows = npt.NDArray[np.int64]
MOST_TOKENS = 512
"""The tokens of a passage, of models that read more."""


@dataclass(frozen=True)
class ReadDocuments:
    """The documents of a set as a model has read them."""

    vectors: Vectors
    """``[documents, dim]``, or of passages ``[passages, dim]``."""
    owners: Rows | None
    """The row of the document of each passage ``[passages]``; None if each vector is a document."""
    truncated: int
    """The documents that were cut."""

    def per_document(self, documents: int) -> float:
        """Return how many vectors a document has in the mean."""
        return len(self.vectors) / max(documents, 1)

    def nearest(self, searcher: Searcher | CompressedSearch, queries: Vectors, k: int) -> Neighbours:
        """Return the nearest documents of each query ``[queries, k]``, each by its best passage."""
        if self.owners is None:
            return searcher.search(queries, k)
        asked = k
        while True:
            asked = min(asked * 4, len(self.vectors))
            found = searcher.search(queries, asked)
            documents = _of_documents(found, self.owners, k)
            if asked == len(self.vectors) or (documents.positions >= 0).all():
                return documents


def _of_documents(passages: Neighbours, owners: Rows, k: int) -> Neighbours:
    """Return the first passage of each document, at most `k`, with the rows of documents as positions."""
    shape = (len(passages.positions), k)
    positions = np.full(shape, -1, np.int64)
    scores = np.full(shape, -np.inf, passages.scores.dtype)
    for query, found in enumerate(passages.positions):
        is_there = found >= 0
        documents, first = np.unique(owners[found[is_there]], return_index=True)
        order = np.argsort(first)[:k]
        positions[query, : len(order)] = documents[order]
        scores[query, : len(order)] = passages.scores[query, is_there][first[order]]
    return Neighbours(positions, scores)


def read_documents(
    model: EvaluatedModel, data: RetrievalSet, reading: Reading, prompt: str, progress: Progress
) -> ReadDocuments:
    """Encode the documents of a set; texts that were encoded before come from the cache.

    Args:
        model: it is loaded.
        data: the set.
        reading: how they are read.
        prompt: the text in front of each.
        progress: called with what was encoded.

    Raises:
        InputError: for pieces of a model that is served, or with a prompt.
    """
    length = data.facts.document_length
    vectors: list[Vectors] = []
    truncated = 0
    if reading in ("cut", "chunk-mean"):
        texts = data.texts()
        while block := list(islice(texts, BLOCK_DOCUMENTS)):
            if reading == "cut":
                encoded = model.encode(block, progress, prompt=prompt, length=length)
                truncated += encoded.truncated(block)
                vectors.append(encoded.vectors_of(block))
            else:  # the cache has the vectors of the beginnings
                pieces = model.load().encode_distinct(block, prompt, on_long="chunk-mean", progress=progress)
                vectors.append(pieces.vectors)
        return ReadDocuments(np.concatenate(vectors), None, truncated)
    owners: list[int] = []
    passages = passages_of(model, data, reading, prompt)
    while rows := list(islice(passages, BLOCK_DOCUMENTS)):
        texts_of_block = []
        for row, text in rows:
            owners.append(row)
            texts_of_block.append(text)
        encoded = model.encode(texts_of_block, progress, prompt=prompt, length=length)
        vectors.append(encoded.vectors_of(texts_of_block))
    return ReadDocuments(np.concatenate(vectors), np.array(owners, np.int64), truncated)


def passages_of(model: EvaluatedModel, data: RetrievalSet, reading: Reading, prompt: str) -> Iterator[tuple[int, str]]:
    """Yield the passages of the documents of a set, each with the row of its document."""
    cutter = _cutter(model, data, prompt)
    for row, (title, text) in enumerate(data.titled_texts()):
        context = ""
        if title and reading == "passages with titles":
            context = f"{title}\n"
        for span in cutter.cut(text, reserved=cutter.length(context)):
            yield row, context + text[span.start : span.end]


def pieces_of(model: EvaluatedModel, texts: Sequence[str], prompt: str, data: RetrievalSet) -> list[str]:
    """Return texts in passages, by which the time of reading them in pieces or passages is measured."""
    cutter = _cutter(model, data, prompt)
    pieces = []
    for text in texts:
        for span in cutter.cut(text):
            pieces.append(text[span.start : span.end])
    return pieces


def _cutter(model: EvaluatedModel, data: RetrievalSet, prompt: str) -> Cutter:
    """Return what cuts documents into passages that a model reads whole.

    Raises:
        InputError: for a model that is served, whose tokenizer is not known.
    """
    encoder = model.load()
    if data.facts.document_length is not None:
        encoder = encoder.with_max_length(data.facts.document_length)
    tokenizer = encoder.local.tokenizer
    of_prompt = Cutter(tokenizer, tokenizer.max_length).length(prompt)
    return Cutter(tokenizer, min(tokenizer.max_length - tokenizer.special_tokens - of_prompt, MOST_TOKENS))
