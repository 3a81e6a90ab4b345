"""The reranker under evaluation: the first hits of each query are ordered anew by a cross-encoder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from typing import Any

import numpy as np

from sentcli import console
from sentcli.arrays import Float32Array
from sentcli.encoder import loading
from sentcli.encoder.reranker import Reranker, read_reranker
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.evaluation.retrieval import RetrievalSet, SetRows
from sentcli.evaluation.set_passages import SetPassages
from sentcli.io.digests import json_digest
from sentcli.machine import usable_cores
from sentcli.model.identity import ModelSource, cache_key
from sentcli.model.options import LoadOptions
from sentcli.model.spec import EncoderSpec
from sentcli.model.tokenizing import pair_text
from sentcli.search.neighbours import Neighbours
from sentcli.stores.vector_cache import VectorCache

MEASURED_PAIRS = 200
"""Pairs that are scored without the cache to measure the speed."""


@dataclass(eq=False)
class EvaluatedReranker:
    """A cross-encoder that is loaded when pairs have to be scored, and whose scores are cached from run to run.

    Args:
        name: of the model.
        options: for loading it; pooling, normalisation and maximum length are those of encoders, and not taken.
        depth: the number of first hits of each query that are ordered anew.
        rerun: score pairs again instead of reading the cache.
    """

    name: str
    options: LoadOptions
    depth: int
    rerun: bool = False
    spec: EncoderSpec = field(init=False)
    key: str | None = field(init=False)
    """A hash of everything that decides the scores."""

    def __post_init__(self) -> None:
        self.options = replace(self.options, pooling=None, normalize=None, max_length=None)
        self.spec = read_reranker(self.name)
        self.key = cache_key(self.spec, self.options)

    @property
    def protocol(self) -> dict[str, Any]:
        """The choices that move a score."""
        choices = {"rerank": self.name, "rerank_depth": self.depth}
        for key, value in ModelSource.of(self.spec).provenance.items():
            choices[f"rerank_{key}"] = value
        return choices

    @cached_property
    def model(self) -> Reranker:
        """The model, which is loaded at first use."""
        loaded = loading.load_model(self.name, self.spec, self.options, console.note)
        return Reranker(SentenceEncoder(loaded))

    def scores(self, pairs: Sequence[tuple[str, str]]) -> Float32Array:
        """Score pairs of query and document, or read their scores from the cache ``[n]``."""
        encoder = self.model.encoder  # before there is a bar
        cache = VectorCache(json_digest([self.key, encoder.describe()]), fresh=self.rerun)
        row_of_text: dict[str, int] = {}
        rows = []
        for query, document in pairs:
            text = pair_text(query, document)
            rows.append(row_of_text.setdefault(text, len(row_of_text)))
        with console.encoding("reranking", len(row_of_text)) as progress:
            scores = cache.encode(encoder, list(row_of_text), progress).vectors
        return np.asarray(scores[rows, 0])

    def reordered(self, data: RetrievalSet, hits: Neighbours, passages: SetPassages | None = None) -> Neighbours:
        """Return the hits of a set's queries, the first of them by the scores of the cross-encoder.

        The others stay behind in their order, with scores that fall by 1 from one to the next.

        Args:
            data: the set.
            hits: the documents of each query.
            passages: of the documents, of which the one with the highest score counts (Dai and Callan, "Deeper Text
                Understanding for IR with Contextual Neural Language Modeling", SIGIR 2019, MaxP).
        """
        first = hits.positions[:, : self.depth]
        is_hit = first >= 0
        rows = np.unique(first[is_hit]).tolist()
        if passages is not None:
            texts = passages.of_documents(rows)
        else:
            documents = SetRows(data).take(rows)
            texts = {row: [document.text] for row, document in zip(rows, documents, strict=True)}
        queries = list(data.queries.values())
        pairs: list[tuple[str, str]] = []
        begins = []
        for query, rank in np.argwhere(is_hit).tolist():
            begins.append(len(pairs))
            pairs += product([queries[query]], texts[first[query, rank]])
        pair_scores = self.scores(pairs)
        if begins:
            pair_scores = np.maximum.reduceat(pair_scores, begins)
        first_scores = np.full(first.shape, -np.inf, np.float32)
        first_scores[is_hit] = pair_scores
        best_first = np.argsort(-first_scores, axis=1, kind="stable")
        positions = hits.positions.copy()
        positions[:, : self.depth] = np.take_along_axis(first, best_first, 1)
        scores = np.empty(hits.scores.shape, np.float32)
        scores[:, : self.depth] = np.take_along_axis(first_scores, best_first, 1)
        lowest = np.floor(pair_scores.min(initial=0))
        others = max(hits.positions.shape[1] - self.depth, 0)
        scores[:, self.depth :] = lowest - 1 - np.arange(others)
        return Neighbours(positions, scores)

    def milliseconds(self, data: RetrievalSet) -> float:
        """Measure what a query with `depth` hits takes, without the cache, on queries and documents of a set."""
        count = max(MEASURED_PAIRS // self.depth, 1)
        queries = islice(data.queries.values(), count)
        documents = islice(data.texts(), self.depth)
        pairs = list(product(queries, documents))
        self.model.scores(pairs[: usable_cores()])
        started = time.perf_counter()
        self.model.scores(pairs)
        seconds = time.perf_counter() - started
        return 1000 * seconds * self.depth / len(pairs)
