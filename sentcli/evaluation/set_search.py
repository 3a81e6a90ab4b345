"""The search of a retrieval set: by words, by the vectors of models, or by both fused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from sentcli import console
from sentcli.arrays import Int64Array, Vectors
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.retrieval import RetrievalSet, SetRows
from sentcli.evaluation.retrieval_metrics import Run
from sentcli.evaluation.set_passages import SetPassages, best_documents, passages_needed
from sentcli.model.encoding import EncodeStats, Progress
from sentcli.search import bm25, fusion
from sentcli.search.fusion import fuse
from sentcli.search.local_corpus import LocalCorpus
from sentcli.search.neighbours import Neighbours
from sentcli.search.options import SearchMode, SearchOptions
from sentcli.search.recall import recall, sample
from sentcli.search.rows import Rows
from sentcli.search.searcher import Searcher
from sentcli.stores.options import PassageOptions

SCORED_HITS = 1000
"""Hits of each query that are scored unless another number is given."""


def search_protocol(
    search: SearchOptions, mode: SearchMode, model: EvaluatedModel | None, passages: PassageOptions | None = None
) -> dict[str, Any]:
    """Return every choice that moves the scores of a way of searching sets, except those of set and model."""
    top_k = search.top_k or SCORED_HITS
    choices: dict[str, Any] = {"search": mode}
    if model is not None:
        query_prompt, document_prompt = search.prompts(model.spec)
        choices["similarity"] = search.similarity_of(model.spec)
        choices["index"] = "exact" if search.exact else search.index
        choices["query_prompt"] = query_prompt
        choices["document_prompt"] = document_prompt
        if search.query_length is not None:
            choices["query_length"] = search.query_length
        if passages is not None and mode != "bm25":
            choices["passages"] = asdict(passages)
        depth = fusion.depth(search.modes, top_k)
        if not search.exact and mode == "dense" and depth > top_k:
            choices["depth"] = depth  # an index that is asked for more hits may find others
    if mode != "dense":
        choices["bm25"] = bm25.words_protocol(language=search.language or bm25.LANGUAGE)
    return {**choices, **fusion.fusion_protocol(mode, top_k, search.weight), "top_k": top_k}


@dataclass(frozen=True)
class DenseSearch:
    """The result of a search by vectors."""

    hits: Neighbours
    truncated: int
    """Texts that were longer than the maximum length."""
    index_recall: float | None = None
    """Share of the exact ten best documents among the ten best of an index."""
    index: dict[str, Any] | str | None = None
    """The description of the index; ``exact`` if the index was not used, because every document has to be found."""


@dataclass
class SetSearch:
    """The queries of a set, and the search for them among its documents, by words once and by the vectors of models."""

    data: RetrievalSet
    options: SearchOptions
    passages: PassageOptions | None = None
    """How documents are cut for vectors, each found by its best passage; None encodes whole documents. BM25, which
    reads all of a text, always compares whole ones."""
    own: Int64Array = field(init=False)
    """The row of each query's own document, which is no hit; -1 where there is none ``[queries]``."""
    _last: tuple[EvaluatedModel, DenseSearch] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        own_rows = self.data.own_rows
        own = [own_rows.get(query, -1) for query in self.data.queries]
        self.own = np.array(own, np.int64)

    @cached_property
    def by_words(self) -> Neighbours:
        """The hits of BM25."""
        corpus = LocalCorpus(self.data.name, SetRows(self.data))
        corpus, _ = corpus.prepare(replace(self.options, search="bm25"), None)
        hits = corpus.by_words(list(self.data.queries.values()), self.count)
        return self.found(hits)

    def by_vectors(self, model: EvaluatedModel) -> DenseSearch:
        """Encode queries and documents and search; the last model's result is kept for fusions."""
        if self._last is None or self._last[0] is not model:
            encoder = model.load(self.text_count)  # before there is a bar
            with console.encoding(f"{self.data.name}: encoding", self.text_count) as bar:
                self._last = model, self._by_vectors(model, encoder, bar)
        return self._last[1]

    def _by_vectors(self, model: EvaluatedModel, encoder: SentenceEncoder, progress: Progress) -> DenseSearch:
        facts = self.data.facts
        truncated = 0
        options = replace(self.options, search="dense")
        if self.finds_all:
            options = replace(options, index=None)

        def encode(length: int | None, prompt: str, texts: Sequence[str]) -> Vectors:
            nonlocal truncated
            encoded = model.encode(texts, progress, prompt=prompt, length=length)
            progress(EncodeStats(texts=len(texts) - len(set(texts))))  # repeated texts are not encoded
            truncated += encoded.truncated(texts)
            return encoded.vectors_of(texts)

        def encode_documents(_: object, prompt: str, texts: Sequence[str]) -> Vectors:
            return encode(facts.document_length, prompt, texts)

        query_prompt, _ = options.prompts(encoder)
        query_length = options.query_length or facts.query_length
        queries = encode(query_length, query_prompt, list(self.data.queries.values()))
        passages = self.passages_of(model)
        rows: Rows = SetRows(self.data)
        wanted = self.count
        if passages is not None:
            rows = passages
            wanted = passages_needed(passages.owners, self.count)
        corpus = LocalCorpus(self.data.name, rows, encode=encode_documents)
        corpus, facts_of_search = corpus.prepare(options, encoder)
        hits = corpus.nearest(queries, wanted)
        index = None if self.options.exact else facts_of_search["index"]
        searcher = corpus.searcher
        index_recall = None
        if isinstance(searcher, Searcher):
            exact = sample(searcher.blocks, searcher.similarity, queries, device=searcher.device)
            index_recall = recall(searcher.blocks, searcher.similarity, exact, hits.positions)
        if passages is not None:
            hits = best_documents(hits, passages.owners, self.count)
        return DenseSearch(self.found(hits), truncated, index_recall, index)

    def passages_of(self, model: EvaluatedModel | None) -> SetPassages | None:
        """Return the passages that a model reads; None where it reads whole documents."""
        if self.passages is None or model is None:
            return None
        _, prompt = self.options.prompts(model.spec)
        return SetPassages.of(model, self.data, self.passages, prompt)

    def hits(self, mode: SearchMode, model: EvaluatedModel | None) -> Neighbours:
        """Search in one way."""
        if model is None or mode == "bm25":
            return self.by_words
        dense = self.by_vectors(model).hits
        if mode == "dense":
            return dense
        return fuse(mode, dense, self.by_words, self.top_k, self.options.weight)

    @property
    def text_count(self) -> int:
        """The number of documents and queries."""
        return len(self.data.ids) + len(self.data.queries)

    @property
    def top_k(self) -> int:
        """The number of hits of each query that are scored."""
        return self.options.top_k or SCORED_HITS

    def run(self, hits: Neighbours) -> Run:
        """Return hits by query and document, best first, at most `top_k` of each query."""
        ids = self.data.ids
        best = _first(hits, self.top_k)
        run: Run = {}
        rows = best.positions.tolist()
        scores = best.scores.tolist()
        for query, rows_of_query, scores_of_query in zip(self.data.queries, rows, scores, strict=True):
            run[query] = {}
            for row, score in zip(rows_of_query, scores_of_query, strict=True):
                if row >= 0:
                    run[query][ids[row]] = score
        return run

    @property
    def depth(self) -> int:
        """The number of hits that each search has to find; fused searches need more than `top_k`."""
        return fusion.depth(self.options.modes, self.top_k)

    @property
    def finds_all(self) -> bool:
        """Whether a search has to find every document, which an index cannot speed up."""
        return self.count >= len(self.data.ids)

    @property
    def count(self) -> int:
        """The number of hits to search for, with one more where the query's own document is removed."""
        return min(self.depth + bool(self.data.own_rows), len(self.data.ids))

    def found(self, hits: Neighbours) -> Neighbours:
        """Return the hits that count among `count` of each query, without those that are the query itself."""
        is_removed = (hits.positions == self.own[:, None]) | (hits.positions < 0)
        positions = np.where(is_removed, -1, hits.positions)
        removed_last = np.argsort(is_removed, axis=1, kind="stable")
        positions = np.take_along_axis(positions, removed_last, 1)
        scores = np.take_along_axis(hits.scores, removed_last, 1)
        return _first(Neighbours(positions, scores), self.depth)


def _first(hits: Neighbours, k: int) -> Neighbours:
    return Neighbours(hits.positions[:, :k], hits.scores[:, :k])
