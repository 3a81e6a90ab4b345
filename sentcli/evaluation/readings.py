"""The ways of reading documents that are longer than a model reads: cut, in pieces, or in passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from sentcli.arrays import Int64Array, Vectors
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.set_passages import SetPassages, best_documents, passages_needed
from sentcli.model.encoding import Progress
from sentcli.model.passages import Context
from sentcli.search.neighbours import Neighbours
from sentcli.search.rows import BLOCK_DOCUMENTS
from sentcli.search.searcher import CompressedSearch, Searcher
from sentcli.stores.options import PassageOptions

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


@dataclass(frozen=True)
class ReadDocuments:
    """The documents of a set as a model has read them."""

    vectors: Vectors
    """``[documents, dim]``, or of passages ``[passages, dim]``."""
    owners: Int64Array | None
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
        found = searcher.search(queries, passages_needed(self.owners, k))
        return best_documents(found, self.owners, k)


def encode_documents(
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
    vectors: list[Vectors] = []
    truncated = 0
    texts = data.texts()
    owners = None
    if reading not in ("cut", "chunk-mean"):
        passages = _passages(model, data, reading, prompt)
        texts = passages.texts()
        owners = passages.owners
    while block := list(islice(texts, BLOCK_DOCUMENTS)):
        if reading == "chunk-mean":  # the cache has the vectors of the beginnings
            pieces = model.load().encode_distinct(block, prompt, on_long="chunk-mean", progress=progress)
            vectors.append(pieces.vectors)
            continue
        encoded = model.encode(block, progress, prompt=prompt, length=data.facts.document_length)
        vectors.append(encoded.vectors_of(block))
        if reading == "cut":
            truncated += encoded.truncated(block)
    return ReadDocuments(np.concatenate(vectors), owners, truncated)


def pieces_of(model: EvaluatedModel, texts: Sequence[str], prompt: str, data: RetrievalSet) -> list[str]:
    """Return texts in passages, by which the time of reading them in pieces or passages is measured."""
    cutter = _passages(model, data, "passages", prompt).cut.cutter
    pieces = []
    for text in texts:
        for span in cutter.cut(text):
            pieces.append(text[span.start : span.end])
    return pieces


def _passages(model: EvaluatedModel, data: RetrievalSet, reading: Reading, prompt: str) -> SetPassages:
    context: Context = "title" if reading == "passages with titles" else "none"
    return SetPassages.of(model, data, PassageOptions(passages=True, context=context), prompt)
