"""Scoring runs on retrieval sets, and the sets as tasks for models."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sentcli.evaluation import significance
from sentcli.evaluation.evaluated import EvaluatedModel, TextVectors
from sentcli.evaluation.retrieval import Collection, RetrievalSet
from sentcli.evaluation.retrieval_metrics import each_query, main_metric, means, ranked, score
from sentcli.evaluation.retrieval_ways import SearchSettings, SetSearch
from sentcli.evaluation.scores import RETRIEVAL, TaskScore, average_draws
from sentcli.search.fusion import Way
from sentcli.search.trec import Run

OnRun = Callable[[str, str, Run], None]
"""Takes a set's name (a forum as ``cqadupstack/android``), the way, and the hits."""


def score_run(data: RetrievalSet, run: Run, top_k: int, facts: dict[str, Any] | None = None) -> TaskScore:
    """Score the hits of a set's queries, ranked as trec_eval ranks them; a query without any counts, with 0.

    Args:
        data: the set.
        run: scores by query and document.
        top_k: hits that were asked for.
        facts: what else is to be said of the search; None values are left out.
    """
    full = ranked(run, data.qrels)
    main, values = main_metric(top_k), each_query(full, data.qrels, top_k)
    draws = significance.mean_draws(values[main], stream=zlib.crc32(data.name.encode()))
    more = {"queries_without_hits": sum(not hits for hits in full.values()) or None, **(facts or {})}
    return TaskScore(
        task=data.name,
        kind=RETRIEVAL.name,
        metrics=score(full, data.qrels, top_k),
        headline=(main,),
        facts={
            "queries": len(data.qrels),
            "documents": len(data.ids),
            **{key: value for key, value in more.items() if value is not None},
        },
        intervals={main: significance.interval(draws)},
        draws={main: draws},
        items=tuple(data.qrels),
        item_values=values,
    )


def mean_of(name: str, parts: Sequence[TaskScore]) -> TaskScore:
    """Return the mean over several sets that count as one, such as the forums of CQADupStack."""
    counts = ("queries", "documents", "queries_without_hits", "truncated")
    sums = {key: sum(part.facts.get(key, 0) for part in parts) for key in counts}
    recalls = [part.facts["index_recall@10"] for part in parts if "index_recall@10" in part.facts]
    draws, (main,) = average_draws(parts), parts[0].headline
    assert draws is not None
    return TaskScore(
        task=name,
        kind=RETRIEVAL.name,
        metrics=means([part.metrics for part in parts]),
        headline=(main,),
        facts={
            **{key: count for key, count in sums.items() if count or key != "queries_without_hits"},
            **({"index_recall@10": float(np.mean(recalls))} if recalls else {}),
        },
        intervals={main: significance.interval(draws)},
        draws={main: draws},
        parts=tuple(parts),
    )


@dataclass(frozen=True)
class RetrievalTask:
    """One way of searching one set."""

    set_name: str
    """A forum as ``cqadupstack/android``."""
    search: SetSearch
    way: Way
    protocol: dict[str, Any]
    """What decides the score beside model and set."""
    on_run: OnRun | None = None
    """Takes the hits."""
    texts: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The set and the way."""
        return f"{self.set_name} {self.way}"

    @property
    def identity(self) -> list[Any]:
        """Everything beside the model that decides the score."""
        data, facts = self.search.data, self.search.data.facts
        of_set = [data.digest, data.split, facts.self_hits, facts.join_title]
        return ["retrieve", of_set, [facts.query_length, facts.document_length], self.protocol]

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Search the set, or take the hits by vectors of the way before, and score the run."""
        run = self.search.run(self.search.hits(self.way, model))
        if self.on_run is not None:
            self.on_run(self.set_name, self.way, run)
        facts: dict[str, Any] = {}
        if model is not None and self.way != "bm25":
            dense = self.search.by_vectors(model)
            facts = {"index_recall@10": dense.index_recall, "index": dense.index, "truncated": dense.truncated}
        return score_run(self.search.data, run, self.search.plan.top_k, facts)


class Bench:
    """Sets on which models are scored.

    Args:
        collections: what is scored.
        plan: how it is searched.
    """

    def __init__(self, collections: Sequence[Collection], plan: SearchSettings) -> None:
        self.collections, self.plan = collections, plan
        self.searches = {name: SetSearch(data, plan) for name, data in self._sets()}
        """What searches each set; a forum as ``cqadupstack/android``."""

    def _sets(self) -> Iterator[tuple[str, RetrievalSet]]:
        for collection in self.collections:
            several = bool(collection.facts.forums) and len(collection.members) > 1
            for name, data in collection.members.items():
                yield (f"{collection.name}/{name}" if several else collection.name), data

    def tasks(self, way: Way, model: EvaluatedModel | None, on_run: OnRun | None = None) -> list[RetrievalTask]:
        """Return the sets as tasks for a model, or for BM25, which needs none."""
        protocol = self.plan.protocol(way, model)
        return [RetrievalTask(name, search, way, protocol, on_run) for name, search in self.searches.items()]

    def joined(self, scores: Sequence[TaskScore]) -> list[TaskScore]:
        """Return the scores of the collections, given those of `tasks`: the forums of one become their mean."""
        collected, rest = [], list(scores)
        for collection in self.collections:
            parts, rest = rest[: len(collection.members)], rest[len(collection.members) :]
            several = len(parts) > 1
            collected.append(mean_of(collection.name, parts) if several else replace(parts[0], task=collection.name))
        return collected
