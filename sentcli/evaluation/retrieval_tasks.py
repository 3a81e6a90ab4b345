"""Retrieval sets as tasks, and the scores of a run."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sentcli.errors import InputError
from sentcli.evaluation import significance
from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask
from sentcli.evaluation.reranking import EvaluatedReranker
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.retrieval_metrics import Run, each_query, main_metric, ranked, run_metrics, write_run
from sentcli.evaluation.score_kinds import RETRIEVAL, ScoreKind
from sentcli.evaluation.scores import TaskScore, average_replicates
from sentcli.evaluation.set_search import SCORED_HITS, SetSearch
from sentcli.io.atomic import check_output
from sentcli.io.digests import json_digest
from sentcli.model.spec import ModelSpec
from sentcli.search.options import SearchMode, SearchOptions
from sentcli.stores.options import PassageOptions
from sentcli.stores.text_vectors import TextVectors

WHERE_ANY = ("queries_without_hits", "unjudged_copies")
"""Counts that are said where they are not 0."""
SHOWN_HITS = 10
"""Hits of each query of one's own set that are kept beside its score, to be shown."""


def score_run(data: RetrievalSet, run: Run, top_k: int, details: dict[str, Any] | None = None) -> TaskScore:
    """Score the hits of a set's queries, ranked as trec_eval ranks them; a query without hits counts as 0.

    Args:
        data: the set.
        run: scores by query and document.
        top_k: hits that each query was to have.
        details: further ones of the search for the JSON; those that are None are left out.
    """
    ranked_run = ranked(run, data.qrels)
    main = main_metric(top_k)
    values = each_query(ranked_run, data.qrels, top_k)
    entries: dict[str, Any] = {"queries": len(data.qrels), "documents": len(data.ids)}
    without_hits = sum(not hits for hits in ranked_run.values())
    if without_hits:
        entries["queries_without_hits"] = without_hits
    if data.unjudged_copies:
        entries["unjudged_copies"] = data.unjudged_copies
    for key, value in (details or {}).items():
        if value is not None:
            entries[key] = value
    task_score = TaskScore(
        task=data.name,
        kind=RETRIEVAL.name,
        metrics=run_metrics(ranked_run, data.qrels, top_k),
        shown_metrics=(main,),
        details=entries,
        items=tuple(data.qrels),
        item_values=values,
    )
    stream = zlib.crc32(data.name.encode())
    return task_score.with_replicates(significance.mean_replicates(values[main], stream=stream))


def mean_of(name: str, parts: Sequence[TaskScore]) -> TaskScore:
    """Return the mean over several sets that count as one, such as the forums of CQADupStack."""
    metrics = {}
    for metric in parts[0].metrics:
        values = [part.metrics[metric] for part in parts]
        metrics[metric] = float(np.mean(values))
    counts: Counter[str] = Counter(queries=0, documents=0, truncated=0, **dict.fromkeys(WHERE_ANY, 0))
    recalls = []
    for part in parts:
        for key in counts:
            counts[key] += part.details.get(key, 0)
        if "index_recall@10" in part.details:
            recalls.append(part.details["index_recall@10"])
    details: dict[str, Any] = dict(counts)
    for key in WHERE_ANY:
        if not counts[key]:
            del details[key]
    if recalls:
        details["index_recall@10"] = float(np.mean(recalls))
    mean = TaskScore(
        task=name,
        kind=RETRIEVAL.name,
        metrics=metrics,
        shown_metrics=parts[0].shown_metrics,
        details=details,
        parts=tuple(parts),
    )
    replicates = average_replicates(parts)
    assert replicates is not None
    return mean.with_replicates(replicates)


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
    resamples: int = significance.RESAMPLES
    """Samples of the queries of one's own set; 0 leaves out intervals and samples."""
    reranker: EvaluatedReranker | None = None
    """Orders the first hits anew."""
    texts: Sequence[str] = ()
    kind: ClassVar[ScoreKind] = RETRIEVAL

    @classmethod
    def of_own(cls, name: str, data: RetrievalSet, resamples: int) -> RetrievalTask:
        """Return the task of the user's own set, which is searched by vectors."""
        own = "left out" if data.facts.self_hits == "removed" else "kept"
        protocol = {"similarity": "cosine", "top_k": SCORED_HITS, "split": data.split, "own_document": own}
        return cls(name, SetSearch(data, SearchOptions()), "dense", protocol, own=True, resamples=resamples)

    def for_model(self, spec: ModelSpec) -> RetrievalTask:
        """Return the task as a model takes it: one's own set is searched by the similarity that its folder names."""
        if not self.own or spec.similarity == self.protocol["similarity"]:
            return self
        options = replace(self.search.options, similarity=spec.similarity)
        search = SetSearch(self.data, options, self.search.passages)
        return replace(self, search=search, protocol={**self.protocol, "similarity": spec.similarity})

    def in_passages(self, passages: PassageOptions) -> RetrievalTask:
        """Return the task with documents that are cut into passages, each found by its best one."""
        search = SetSearch(self.data, self.search.options, passages)
        return replace(self, search=search, protocol={**self.protocol, "passages": asdict(passages)})

    def reranked(self, reranker: EvaluatedReranker) -> RetrievalTask:
        """Return the task with its first hits ordered anew."""
        return replace(self, reranker=reranker, protocol={**self.protocol, **reranker.protocol})

    @property
    def data(self) -> RetrievalSet:
        """The set."""
        return self.search.data

    @property
    def text_count(self) -> int:
        """The number of documents and queries, which the search encodes."""
        return self.search.text_count

    @property
    def caveats(self) -> Mapping[str, Any]:
        """How far to trust a set that ``data make-set`` made."""
        return {"trust": self.data.trust} if self.data.trust else {}

    @property
    def description(self) -> str:
        """The number of queries and documents, and the split."""
        queries = f"{len(self.data.queries):,} queries of the split {self.data.split}"
        return f"{queries}, {len(self.data.ids):,} documents"

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
        reading: list[Any] = [facts.query_length, facts.document_length]
        if self.reranker is not None:
            reading.append(self.reranker.key)
        if self.own:
            reading.append(facts.join_title)
            return ["evaluate", self.name, self.resamples, data.digest, reading, self.protocol]
        of_set = [data.digest, data.split, facts.self_hits, facts.join_title]
        return ["retrieve", of_set, reading, self.protocol]

    def predicted(self, model: EvaluatedModel | None) -> Run:
        """Return the hits of each query, best first, with their similarities or the scores of what ordered them."""
        hits = self.search.hits(self.mode, model)
        if self.reranker is not None:
            hits = self.reranker.reordered(self.data, hits, self.search.passages_of(model))
        return self.search.run(hits)

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Search the set and score the run; the vectors of `texts` are not used, since the search encodes by itself."""
        search = self.search
        if model is not None and model.key is None:  # a model in training has learnt since: its hits are not kept
            search = replace(search)
        run = replace(self, search=search).predicted(model)
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
        first_hits = {}
        for query, documents in run.items():
            first_hits[query] = list(islice(documents, SHOWN_HITS))
        score = replace(score, task=self.name, hits=first_hits)
        if not self.resamples:
            score = replace(score, replicates={}, intervals={})
        return score.of_own_data(len(self.data.queries))


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


def sampled(data: RetrievalSet, rows: Sequence[int], model: EvaluatedModel) -> SampledSet:
    """Return some queries with their judged documents and the best hits of a model and of BM25.

    Scores on it are higher than on the whole set, because most documents are missing, and only they can be compared.

    Args:
        data: the whole set, which is searched once; the vectors of the documents are cached.
        rows: the positions of the queries.
        model: whose best hits are among the documents.
    """
    all_ids = list(data.queries)
    queries = {}
    qrels = {}
    judged: set[str] = set()
    for row in rows:
        query = all_ids[row]
        queries[query] = data.queries[query]
        qrels[query] = data.qrels[query]
        judged.update(qrels[query])
    part = replace(data, queries=queries, qrels=qrels)
    search = SetSearch(part, SearchOptions(search="dense,bm25", top_k=20))
    document_rows = {row for row, document in enumerate(data.ids) if document in judged}
    for hits in (search.by_words, search.by_vectors(model).hits):
        document_rows.update(hits.positions[hits.positions >= 0].tolist())
    ids = []
    texts = []
    for row, text in enumerate(data.texts()):
        if row in document_rows:
            ids.append(data.ids[row])
            texts.append(text)
    values = {each.name: getattr(part, each.name) for each in fields(RetrievalSet)}
    values["ids"] = ids
    values["digest"] = json_digest([data.digest, list(queries), ids])
    return SampledSet(**values, documents=tuple(texts))
