"""Retrieval sets as tasks: searching a set by vectors, by words or by both fused, and the scores of a run."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sentcli import console
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError
from sentcli.evaluation import significance
from sentcli.evaluation.cache import digest
from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask, TextVectors
from sentcli.evaluation.reranking import EvaluatedReranker
from sentcli.evaluation.retrieval import RetrievalSet, SetRows
from sentcli.evaluation.retrieval_metrics import Run, each_query, main_metric, ranked, score, write_run
from sentcli.evaluation.score_kinds import RETRIEVAL, ScoreKind
from sentcli.evaluation.scores import TaskScore, average_draws
from sentcli.io.atomic import check_output
from sentcli.model.encoding import EncodeStats, Progress
from sentcli.model.spec import ModelSpec
from sentcli.search import bm25, fusion
from sentcli.search.exact import Vectors
from sentcli.search.fusion import fuse
from sentcli.search.local_corpus import LocalCorpus
from sentcli.search.neighbours import Neighbours
from sentcli.search.options import SearchMode, SearchOptions
from sentcli.search.recall import recall, sample
from sentcli.search.searcher import Searcher

SHOWN_HITS = 10
"""Hits of each query of one's own set that are kept beside its score, to be shown."""
TOP_K = 1000
"""Hits of each query that are scored unless another number is given."""


def protocol(search: SearchOptions, mode: SearchMode, model: EvaluatedModel | None) -> dict[str, Any]:
    """Return every choice that moves the scores of a way of searching sets, except those of set and model."""
    top_k = search.top_k or TOP_K
    choices: dict[str, Any] = {"search": mode}
    if model is not None:
        query_prompt, document_prompt = search.prompts(model.spec)
        choices["similarity"] = search.similarity_of(model.spec)
        choices["index"] = "exact" if search.exact else search.index
        choices["query_prompt"] = query_prompt
        choices["document_prompt"] = document_prompt
        if search.query_length is not None:
            choices["query_length"] = search.query_length
        depth = fusion.depth(search.modes, top_k)
        if not search.exact and mode == "dense" and depth > top_k:
            choices["depth"] = depth  # an index that is asked for more hits may find others
    if mode != "dense":
        choices["bm25"] = bm25.protocol(language=search.language or bm25.LANGUAGE)
    return {**choices, **fusion.protocol(mode, top_k, search.weight), "top_k": top_k}


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
    own: np.ndarray[Any, np.dtype[np.int64]] = field(init=False)
    """The row of each query's own document, which is no hit; -1 where there is none ``[queries]``."""
    _last: tuple[EvaluatedModel, DenseSearch] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        rows = self.data.own_rows
        self.own = np.array([rows.get(query, -1) for query in self.data.queries], np.int64)

    @cached_property
    def by_words(self) -> Neighbours:
        """The hits of BM25."""
        corpus = LocalCorpus(self.data.name, SetRows(self.data))
        corpus, _ = corpus.prepare(replace(self.options, search="bm25"), None)
        return self.found(corpus.by_words(list(self.data.queries.values()), self.count))

    def by_vectors(self, model: EvaluatedModel) -> DenseSearch:
        """Encode queries and documents and search; the last model's result is kept for fusions."""
        if self._last is None or self._last[0] is not model:
            encoder = model.load()  # before there is a bar
            with console.encoding(f"{self.data.name}: encoding", len(self.data.ids) + len(self.data.queries)) as bar:
                self._last = model, self._by_vectors(model, encoder, bar)
        return self._last[1]

    def _by_vectors(self, model: EvaluatedModel, encoder: SentenceEncoder, progress: Progress) -> DenseSearch:
        facts = self.data.facts
        truncated = 0
        options = replace(self.options, search="dense", index=None if self.finds_all else self.options.index)

        def encode(length: int | None, prompt: str, texts: Sequence[str]) -> Vectors:
            nonlocal truncated
            encoded = model.encode(texts, progress, prompt=prompt, length=length)
            progress(EncodeStats(texts=len(texts) - len(set(texts))))  # repeated texts are not encoded
            truncated += encoded.truncated(texts)
            return encoded.of(texts)

        def encode_documents(_: object, prompt: str, texts: Sequence[str]) -> Vectors:
            return encode(facts.document_length, prompt, texts)

        query_prompt, _ = options.prompts(encoder)
        queries = encode(options.query_length or facts.query_length, query_prompt, list(self.data.queries.values()))
        corpus = LocalCorpus(self.data.name, SetRows(self.data), encode=encode_documents)
        corpus, facts_of_search = corpus.prepare(options, encoder)
        hits = corpus.nearest(queries, self.count)
        index = None if self.options.exact else facts_of_search["index"]
        searcher = corpus.searcher
        index_recall = None
        if isinstance(searcher, Searcher):
            exact = sample(searcher.blocks, searcher.similarity, queries, device=searcher.device)
            index_recall = recall(searcher.blocks, searcher.similarity, exact, hits.positions)
        return DenseSearch(self.found(hits), truncated, index_recall, index)

    def hits(self, mode: SearchMode, model: EvaluatedModel | None) -> Neighbours:
        """Search in one way."""
        if model is None or mode == "bm25":
            return self.by_words
        dense = self.by_vectors(model).hits
        if mode == "dense":
            return dense
        return fuse(mode, dense, self.by_words, self.top_k, self.options.weight)

    @property
    def top_k(self) -> int:
        """The number of hits of each query that are scored."""
        return self.options.top_k or TOP_K

    def run(self, hits: Neighbours) -> Run:
        """Return hits by query and document, best first, at most `top_k` of each query."""
        ids = self.data.ids
        best = _first(hits, self.top_k)
        run: Run = {}
        for query, positions, scores in zip(self.data.queries, best.positions, best.scores, strict=True):
            run[query] = {ids[row]: float(score) for row, score in zip(positions, scores, strict=True) if row >= 0}
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
        removed = (hits.positions == self.own[:, None]) | (hits.positions < 0)
        order = np.argsort(removed, axis=1, kind="stable")
        positions = np.take_along_axis(np.where(removed, -1, hits.positions), order, 1)
        scores = np.take_along_axis(hits.scores, order, 1)
        return _first(Neighbours(positions, scores), self.depth)


def _first(hits: Neighbours, k: int) -> Neighbours:
    return Neighbours(hits.positions[:, :k], hits.scores[:, :k])


def score_run(data: RetrievalSet, run: Run, top_k: int, details: dict[str, Any] | None = None) -> TaskScore:
    """Score the hits of a set's queries, ranked as trec_eval ranks them; a query without hits counts as 0.

    Args:
        data: the set.
        run: scores by query and document.
        top_k: hits that each query was to have.
        details: further ones of the search for the JSON; those that are None are left out.
    """
    full = ranked(run, data.qrels)
    main = main_metric(top_k)
    values = each_query(full, data.qrels, top_k)
    draws = significance.mean_draws(values[main], stream=zlib.crc32(data.name.encode()))
    entries: dict[str, Any] = {"queries": len(data.qrels), "documents": len(data.ids)}
    without_hits = sum(not hits for hits in full.values())
    if without_hits:
        entries["queries_without_hits"] = without_hits
    for key, value in (details or {}).items():
        if value is not None:
            entries[key] = value
    task_score = TaskScore(
        task=data.name,
        kind=RETRIEVAL.name,
        metrics=score(full, data.qrels, top_k),
        headline=(main,),
        details=entries,
        items=tuple(data.qrels),
        item_values=values,
    )
    return task_score.with_samples(draws)


def mean_of(name: str, parts: Sequence[TaskScore]) -> TaskScore:
    """Return the mean over several sets that count as one, such as the forums of CQADupStack."""
    metrics = {}
    for metric in parts[0].metrics:
        values = [part.metrics[metric] for part in parts]
        metrics[metric] = float(np.mean(values))
    details: dict[str, Any] = {}
    for key in ("queries", "documents", "queries_without_hits", "truncated"):
        count = sum(part.details.get(key, 0) for part in parts)
        if count or key != "queries_without_hits":
            details[key] = count
    recalls = [part.details["index_recall@10"] for part in parts if "index_recall@10" in part.details]
    if recalls:
        details["index_recall@10"] = float(np.mean(recalls))
    draws = average_draws(parts)
    assert draws is not None
    mean = TaskScore(name, RETRIEVAL.name, metrics, parts[0].headline, details, parts=tuple(parts))
    return mean.with_samples(draws)


@dataclass(frozen=True)
class RetrievalTask:
    """One way of searching one set, of a benchmark or of the user."""

    name: str
    search: SetSearch
    mode: SearchMode
    protocol: dict[str, Any]
    """Every choice that decides the score besides model and set."""
    run_file: Path | None = None
    """The TREC run that is written when the set is scored."""
    own: bool = False
    """Whether the set is the user's own data, which `evaluate` scores."""
    draws: int = significance.DRAWS
    """Samples of the queries of one's own set; 0 leaves out intervals and samples."""
    reranker: EvaluatedReranker | None = None
    """Orders the first hits anew."""
    texts: Sequence[str] = ()
    kind: ClassVar[ScoreKind] = RETRIEVAL

    @classmethod
    def of_own(cls, name: str, data: RetrievalSet, draws: int) -> RetrievalTask:
        """Return the task of the user's own set, which is searched by vectors."""
        own = "left out" if data.facts.self_hits == "removed" else "kept"
        protocol = {"similarity": "cosine", "top_k": TOP_K, "split": data.split, "own_document": own}
        return cls(name, SetSearch(data, SearchOptions()), "dense", protocol, own=True, draws=draws)

    def for_model(self, spec: ModelSpec) -> RetrievalTask:
        """Return the task as a model takes it: one's own set is searched by the similarity that its folder names."""
        if not self.own or spec.similarity == self.protocol["similarity"]:
            return self
        search = SetSearch(self.data, replace(self.search.options, similarity=spec.similarity))
        return replace(self, search=search, protocol={**self.protocol, "similarity": spec.similarity})

    def reranked(self, reranker: EvaluatedReranker) -> RetrievalTask:
        """Return the task with its first hits ordered anew."""
        return replace(self, reranker=reranker, protocol={**self.protocol, **reranker.protocol})

    @property
    def data(self) -> RetrievalSet:
        """The set."""
        return self.search.data

    @property
    def caveats(self) -> Mapping[str, Any]:
        """How far to trust a set that ``data make-set`` made."""
        return {"trust": self.data.trust} if self.data.trust else {}

    @property
    def description(self) -> str:
        """The number of queries and documents, and the split."""
        return f"{len(self.data.queries):,} queries of the split {self.data.split}, {len(self.data.ids):,} documents"

    @property
    def all_texts(self) -> Sequence[str]:
        """The queries, and as many documents."""
        queries = list(self.data.queries.values())
        return [*queries, *islice(self.data.texts(), len(queries))]

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""
        data = self.data
        facts = self.data.facts
        how_read: list[Any] = [facts.query_length, facts.document_length]
        if self.reranker is not None:
            how_read.append(self.reranker.key)
        if self.own:
            return ["evaluate", self.name, self.draws, data.digest, [*how_read, facts.join_title], self.protocol]
        of_set = [data.digest, data.split, facts.self_hits, facts.join_title]
        return ["retrieve", of_set, how_read, self.protocol]

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Search the set and score the run; the vectors of `texts` are not used, since the search encodes by itself."""
        search = self.search
        if model is not None and model.key is None:  # a model in training has learnt since: its hits are not kept
            search = replace(search)
        hits = search.hits(self.mode, model)
        if self.reranker is not None:
            hits = self.reranker.reordered(self.data, hits)
        run = search.run(hits)
        if self.run_file is not None:
            check_output(self.run_file, overwrite=True)
            write_run(run, self.run_file)
        details: dict[str, Any] = {}
        if model is not None and self.mode != "bm25":
            dense = search.by_vectors(model)
            details = {"index_recall@10": dense.index_recall, "index": dense.index, "truncated": dense.truncated}
        score = score_run(self.data, run, search.top_k, details)
        if not self.own:
            return score
        shown = {query: list(islice(documents, SHOWN_HITS)) for query, documents in run.items()}
        score = replace(score, task=self.name, hits=shown).of_own_data(len(self.data.queries))
        if not self.draws:
            score = replace(score, draws={}, intervals={})
        return score


def retrieval_tasks(tasks: Sequence[OwnTask], option: str) -> list[RetrievalTask]:
    """Return the user's own tasks for an option that is for retrieval sets alone.

    Raises:
        InputError: for data that are no retrieval set.
    """
    sets = []
    for task in tasks:
        if not isinstance(task, RetrievalTask):
            raise InputError(f"{option} is for retrieval sets, and {task.name} is none: leave one of them out")
        sets.append(task)
    return sets


@dataclass(frozen=True)
class SampledSet(RetrievalSet):
    """A retrieval set whose documents are in memory."""

    documents: tuple[str, ...] = ()
    """The texts of the documents, in the order of `ids`."""

    def texts(self) -> Iterator[str]:
        """Yield the texts of the documents in the order of `ids`."""
        return iter(self.documents)


def sampled(data: RetrievalSet, rows: Sequence[int], model: str) -> SampledSet:
    """Return some queries with their judged documents and the best hits of a model and of BM25.

    Scores on it are higher than on the whole set, because most documents are missing, and only they can be compared.

    Args:
        data: the whole set, which is searched once; the vectors of the documents are cached.
        rows: the positions of the queries.
        model: its name.
    """
    every_query = list(data.queries.items())
    queries = dict(every_query[row] for row in rows)
    qrels = {query: data.qrels[query] for query in queries}
    part = replace(data, queries=queries, qrels=qrels)
    search = SetSearch(part, SearchOptions(search="dense,bm25", top_k=20))
    judged = set(chain.from_iterable(qrels.values()))
    document_rows = {row for row, document in enumerate(data.ids) if document in judged}
    for hits in (search.by_words, search.by_vectors(EvaluatedModel(model)).hits):
        document_rows.update(hits.positions[hits.positions >= 0].tolist())
    chosen = sorted(document_rows)
    texts = list(data.texts())
    fields = {name: value for name, value in vars(part).items() if name in RetrievalSet.__dataclass_fields__}
    fields["ids"] = [data.ids[row] for row in chosen]
    fields["digest"] = digest([data.digest, list(queries), fields["ids"]])
    return SampledSet(**fields, documents=tuple(texts[row] for row in chosen))
