"""Runs in the format of TREC, and their scores: the means of BEIR's own evaluator, and the values of each query."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from sentcli.arrays import Float64Array
from sentcli.errors import DataError, InputError
from sentcli.evaluation.beir_files import Qrels, relevant_documents
from sentcli.io.atomic import replacing
from sentcli.io.formats import records
from sentcli.io.sources import open_source
from sentcli.search.neighbours import require_finite

CUTOFFS = (1, 3, 5, 10, 100, 1000)
_TREC_EVAL_NAMES = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P"}
"""The names of metrics in trec_eval by their names here; ``mrr`` and ``r_cap`` are BEIR's own."""
MAIN_CUTOFF = 10
"""The cut-off of the nDCG in BEIR's tables."""


def cutoffs(top_k: int) -> list[int]:
    """Return the cut-offs of the metrics for searches of a depth."""
    return [k for k in CUTOFFS if k <= top_k] or [top_k]


def main_metric(top_k: int) -> str:
    """Return the metric of tables: ``ndcg@10``, or one with a smaller cut-off if the search has fewer hits."""
    main = cutoffs(min(top_k, MAIN_CUTOFF))[-1]
    return f"ndcg@{main}"


def ranked(run: Run, qrels: Qrels) -> Run:
    """Return the hits of the judged queries in trec_eval's order, with the negated rank of each hit as its score.

    trec_eval keeps scores in float32, and of hits with equal scores it takes the one with the last id first. With
    these scores, BEIR and trec_eval sort the hits alike. A query that the run does not have has no hits, and scores 0.
    """
    return {query: _order(run.get(query, {})) for query in qrels}


def _order(hits: Mapping[str, float]) -> dict[str, float]:
    scores = np.array(list(hits.values()), np.float64)
    require_finite(scores)
    with np.errstate(over="ignore"):
        single_precision = scores.astype(np.float32).tolist()
    best = sorted(zip(single_precision, hits, strict=True), reverse=True)
    return {document: -float(rank) for rank, (_, document) in enumerate(best, 1)}


def run_metrics(run: Run, qrels: Qrels, top_k: int) -> dict[str, float]:
    """Return nDCG, MAP, recall, precision, MRR and capped recall at the cut-offs up to `top_k`, by BEIR's evaluator.

    Capped recall at k divides by k if more than k documents are relevant. BEIR itself drops hits whose document id
    equals the query id; here they count (see `RetrievalSet.own_rows`). A query without a relevant document scores 0,
    as in trec_eval, also in capped recall, where BEIR would divide by zero.

    Args:
        run: hits of each query, all with different scores; see `ranked`.
        qrels: judgements of the same queries.
        top_k: hits that each query was to have.
    """
    from beir.retrieval.evaluation import EvaluateRetrieval

    ranks = cutoffs(top_k)
    findable = {query: hits for query, hits in run.items() if relevant_documents(qrels[query])}
    # BEIR is kept from logging, and the handler that it adds to the root logger for all libraries is removed
    logging.getLogger("beir").setLevel(logging.WARNING)
    handlers = logging.root.handlers[:]
    try:
        parts = [
            *EvaluateRetrieval.evaluate(qrels, run, ranks, ignore_identical_ids=False),
            EvaluateRetrieval.evaluate_custom(qrels, run, ranks, metric="mrr"),
            EvaluateRetrieval.evaluate_custom(qrels, findable, ranks, metric="r_cap"),
        ]
    finally:
        logging.root.handlers[:] = handlers
    scores = {}
    for part in parts:
        for name, value in part.items():
            our_name = name.lower()
            if name.startswith("P@"):
                our_name = f"precision{name[1:]}"
            scores[our_name] = float(value)
    return scores


def each_query(run: Run, qrels: Qrels, top_k: int) -> dict[str, Float64Array]:
    """Return the values of each query, whose means `run_metrics` returns, by metric in the order of `qrels`."""
    import pytrec_eval

    ranks = cutoffs(top_k)
    cut = ",".join(map(str, ranks))
    measures = {f"{name}.{cut}" for name in _TREC_EVAL_NAMES.values()}
    by_query = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    values = {}
    for ours, theirs in _TREC_EVAL_NAMES.items():
        for k in ranks:
            of_queries = [by_query[query][f"{theirs}_{k}"] for query in qrels]
            values[f"{ours}@{k}"] = np.array(of_queries)
    is_relevant = np.zeros((len(qrels), ranks[-1]), bool)  # the hits of each query, best first
    relevant_count = np.zeros(len(qrels), np.int64)
    for row, (query, judgements) in enumerate(qrels.items()):
        relevant = relevant_documents(judgements)
        relevant_count[row] = len(relevant)
        scores = run[query]
        best = sorted(scores, key=scores.__getitem__, reverse=True)[: ranks[-1]]
        is_relevant[row, : len(best)] = [document in relevant for document in best]
    for k in ranks:
        hits = is_relevant[:, :k]
        first_rank = hits.argmax(axis=1) + 1
        values[f"mrr@{k}"] = np.where(hits.any(axis=1), 1 / first_rank, 0.0)
        # of more than k relevant documents, k can be found
        findable = np.clip(relevant_count, 1, k)
        values[f"r_cap@{k}"] = hits.sum(axis=1) / findable
    return values


Run = dict[str, dict[str, float]]
"""Scores by query id and document id."""


def check_ids(ids: Iterable[str]) -> None:
    """Refuse ids that a TREC run cannot hold.

    Raises:
        InputError: if an id is empty or holds white space.
    """
    for key in ids:
        if len(key.split()) != 1 or key.split()[0] != key:
            raise InputError(f"a TREC run cannot hold the id {key!r}: white space or empty")


def write_run(run: Run, path: Path) -> None:
    """Write a run, best document first.

    Raises:
        InputError: if an id is empty or holds white space.
    """
    check_ids(run)
    for documents in run.values():
        check_ids(documents)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as handle:
        for query, documents in run.items():
            ranked = sorted(documents.items(), key=lambda item: -item[1])
            for rank, (document, score) in enumerate(ranked, 1):
                handle.write(f"{query} Q0 {document} {rank} {score:.9g} sentcli\n")  # all that a float32 holds


def read_run(path: Path) -> Run:
    """Read a run, which may be gzipped: six columns separated by white space, of which rank and name are ignored.

    The hits of a query stay in the order of the file. As in trec_eval, only the scores decide the ranks.

    Raises:
        InputError: if there is no such file.
        DataError: for a line without six columns, a score that is not finite, a repeated document of a query, or an
            empty file.
    """
    run: Run = {}
    for line, record in records(open_source(str(path), "txt")):
        row = record["text"].split()
        if not row:
            continue
        if len(row) != 6:
            raise DataError(path, f"expected query Q0 document rank score name, found {len(row)} columns", line=line)
        query, _, document, _, score, _ = row
        hits = run.setdefault(query, {})
        if document in hits:
            raise DataError(path, f"the document {document!r} stands twice for the query {query!r}", line=line)
        try:
            hits[document] = float(score)
        except ValueError:
            hits[document] = math.nan
        if not math.isfinite(hits[document]):
            raise DataError(path, f"the score {score!r} is no finite number", line=line)
    if not run:
        raise DataError(path, "the file is empty: a TREC run has a line for each hit")
    return run
