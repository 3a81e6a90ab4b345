"""Scores of a run: the means of BEIR's own evaluator, and the values of each query that they are the means of."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.evaluation.retrieval import Qrels
from sentcli.search.trec import Run

CUTOFFS = (1, 3, 5, 10, 100, 1000)
MEASURES = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P"}
"""By their names here, what trec_eval calls them; ``mrr`` and ``r_cap`` are BEIR's own."""
MAIN_CUTOFF = 10
"""That of BEIR's tables."""
Floats = npt.NDArray[np.float64]


def cutoffs(top_k: int) -> list[int]:
    """Return the ranks down to which is measured."""
    return [k for k in CUTOFFS if k <= top_k] or [top_k]


def main_metric(top_k: int) -> str:
    """Return the metric of tables: ``ndcg@10``, or less deep if the search was."""
    ranks = cutoffs(top_k)
    return f"ndcg@{max((k for k in ranks if k <= MAIN_CUTOFF), default=ranks[0])}"


def ranked(run: Run, qrels: Qrels) -> Run:
    """Return the hits of every judged query and no other, in trec_eval's order, each with its rank, negated, as score.

    Of hits with equal scores, in the float32 that trec_eval keeps, it takes the one with the last id first. Whoever
    sorts by these scores, BEIR or trec_eval, sees that order. A query that the run lacks has no hits, and scores 0.
    """
    return {query: _order(run.get(query, {})) for query in qrels}


def _order(hits: Mapping[str, float]) -> dict[str, float]:
    with np.errstate(over="ignore"):
        scores = np.array(list(hits.values()), np.float32).tolist()
    best = sorted(zip(scores, hits, strict=True), reverse=True)
    return {document: -float(rank) for rank, (_, document) in enumerate(best, 1)}


def score(run: Run, qrels: Qrels, top_k: int) -> dict[str, float]:
    """Return nDCG, MAP, recall, precision, MRR and capped recall at the cut-offs up to `top_k`, from BEIR's evaluator.

    Recall at k is capped by dividing by k where more documents are relevant. BEIR itself drops hits whose document id
    equals the query id; here they count (see `RetrievalSet.own_rows`). Where no document is relevant for a query,
    trec_eval's scores are 0, and so is the capped recall, which BEIR would divide by zero for.

    Args:
        run: hits of each query, no two with equal scores; see `ranked`.
        qrels: judgements of the same queries.
        top_k: hits that were asked for.
    """
    from beir.retrieval.evaluation import EvaluateRetrieval

    ranks = cutoffs(top_k)
    findable = {query: hits for query, hits in run.items() if any(s > 0 for s in qrels[query].values())}
    with _quiet():
        parts = EvaluateRetrieval.evaluate(qrels, run, ranks, ignore_identical_ids=False)
        reciprocal = EvaluateRetrieval.evaluate_custom(qrels, run, ranks, metric="mrr")
        capped = EvaluateRetrieval.evaluate_custom(qrels, findable, ranks, metric="r_cap")
    merged = {name: value for part in (*parts, reciprocal, capped) for name, value in part.items()}
    return {_name(name): float(value) for name, value in merged.items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep BEIR from logging, and from giving the root logger a handler, by which other libraries would begin to."""
    logging.getLogger("beir").setLevel(logging.WARNING)
    handlers = logging.root.handlers[:]
    try:
        yield
    finally:
        logging.root.handlers[:] = handlers


def _name(beir: str) -> str:
    return beir.lower().replace("p@", "precision@") if beir.startswith("P@") else beir.lower()


def each_query(run: Run, qrels: Qrels, top_k: int) -> dict[str, Floats]:
    """Return what `score` returns the means of: by metric, one value for each query in the order of `qrels` ``[q]``."""
    import pytrec_eval

    ranks = cutoffs(top_k)
    measures = {f"{name}.{','.join(map(str, ranks))}" for name in MEASURES.values()}
    by_query = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    values = {
        f"{ours}@{k}": np.array([by_query[query][f"{theirs}_{k}"] for query in qrels])
        for ours, theirs in MEASURES.items()
        for k in ranks
    }
    places = [_relevant_ranks(run[query], judgements, ranks[-1]) for query, judgements in qrels.items()]
    relevant = [sum(score > 0 for score in judgements.values()) for judgements in qrels.values()]
    for k in ranks:
        values[f"mrr@{k}"] = np.array([1 / hits[0] if hits and hits[0] <= k else 0.0 for hits in places])
        values[f"r_cap@{k}"] = np.array(
            [sum(rank <= k for rank in hits) / max(min(n, k), 1) for hits, n in zip(places, relevant, strict=True)]
        )
    return values


def _relevant_ranks(hits: Mapping[str, float], judgements: Mapping[str, int], depth: int) -> list[int]:
    """Return the ranks of the relevant hits."""
    best = sorted(hits, key=hits.__getitem__, reverse=True)[:depth]
    return [rank for rank, document in enumerate(best, 1) if judgements.get(document, 0) > 0]


def means(parts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean of each metric over several sets."""
    return {name: float(np.mean([part[name] for part in parts])) for name in parts[0]}
