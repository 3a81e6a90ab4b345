"""Retrieval sets in BEIR layout: exact search, BEIR's own evaluator."""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli.encoder.encoding import EncodeStats, Progress
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import DataError, InputError
from sentcli.io.sources import open_source, records
from sentcli.search.exact import ExactIndex
from sentcli.search.trec import Run

SELF_RETRIEVAL = ("arguana", "quora")
"""Sets whose queries are documents: there a query's own document is left out of its hits."""
CUTOFFS = (1, 3, 5, 10, 100, 1000)


@dataclass(frozen=True)
class RetrievalSet:
    """A BEIR folder in memory."""

    name: str
    split: str
    documents: dict[str, str]
    """Title and text, joined by a blank as BEIR does."""
    queries: dict[str, str]
    """Those with a judgement."""
    qrels: dict[str, dict[str, int]]
    unknown_documents: int
    """Judgements whose document is not in the corpus; they count as not found."""
    unknown_queries: int
    """Judged queries that queries.jsonl does not have; left out."""


@dataclass(frozen=True)
class RetrievalResult:
    """Scores of one set, 0 to 1."""

    name: str
    metrics: dict[str, float]
    queries: int
    documents: int
    run: Run
    stats: EncodeStats

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**self.metrics, "queries": self.queries, "documents": self.documents}


def load_set(folder: Path, split: str = "test") -> RetrievalSet:
    """Read ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv`` (each may be gzipped).

    Raises:
        InputError: if the folder is not in BEIR layout.
        DataError: a broken line, a document without id, the same id twice, judgements that do not parse.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder; BEIR sets are read from disk (corpus.jsonl, queries.jsonl, qrels/)"
        )
    documents = _texts(_part(folder, "corpus.jsonl"), lambda r: f"{r.get('title') or ''} {r['text']}".strip())
    queries = _texts(_part(folder, "queries.jsonl"), lambda r: str(r["text"]))
    qrels = read_qrels(_part(folder, f"qrels/{split}.tsv"))
    judged = {query: judgements for query, judgements in qrels.items() if query in queries}
    if not judged:
        raise InputError(f"{folder}: no query of qrels/{split}.tsv is in queries.jsonl")
    unknown = sum(document not in documents for judgements in judged.values() for document in judgements)
    return RetrievalSet(
        name=folder.resolve().name,
        split=split,
        documents=documents,
        queries={query: queries[query] for query in judged},
        qrels=judged,
        unknown_documents=unknown,
        unknown_queries=len(qrels) - len(judged),
    )


def _part(folder: Path, name: str) -> Path:
    path = folder / name
    if path.exists():
        return path
    packed = path.with_name(path.name + ".gz")
    if packed.exists():
        return packed
    others = sorted(p.stem for p in path.parent.glob("*.tsv")) if name.startswith("qrels/") else []
    has = f"; it has: {', '.join(others)}" if others else ""
    raise InputError(f"{path} is missing: {folder} is not in BEIR layout{has}")


def _texts(path: Path, text: Callable[[dict[str, Any]], str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line, record in records(open_source(str(path))):
        key = record.get("_id")
        if key is None or key == "":
            raise DataError(path, "no '_id'", line=line)
        if str(key) in found:
            raise DataError(path, f"the id {key!r} stands twice", line=line)
        if not isinstance(record.get("text"), str):
            raise DataError(path, "'text' is missing, null or no string", line=line)
        found[str(key)] = text(record)
    if not found:
        raise DataError(path, "the file is empty")
    return found


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Read ``query-id  corpus-id  score`` rows under a header line.

    Raises:
        DataError: for a row that does not parse.
    """
    qrels: dict[str, dict[str, int]] = {}
    source = open_source(str(path), "txt")
    lines = (record["text"] for _, record in records(source))
    for number, row in enumerate(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
        if number == 1 and (not row or not row[-1].strip().lstrip("-").isdigit()):
            continue  # the header
        if not row:
            continue
        try:
            query, document, score = row
            qrels.setdefault(query, {})[document] = int(score)
        except ValueError as error:
            raise DataError(path, "expected query-id, corpus-id and a whole number", line=number) from error
    return qrels


def search(
    encoder: SentenceEncoder,
    data: RetrievalSet,
    top_k: int = 1000,
    *,
    query_prompt: str = "",
    document_prompt: str = "",
    progress: Progress | None = None,
) -> tuple[Run, EncodeStats]:
    """Encode queries and documents and return the `top_k` documents of each query by cosine similarity."""
    ids = list(data.documents)
    vectors, stats = encoder.encode_counted(list(data.documents.values()), prompt=document_prompt, progress=progress)
    index = ExactIndex(encoder.dimension)
    index.add([vectors])
    queries, query_stats = encoder.encode_counted(list(data.queries.values()), prompt=query_prompt, progress=progress)
    leave_out_self = data.name.lower() in SELF_RETRIEVAL
    found = index.search(queries, top_k + leave_out_self)
    run: Run = {}
    for row, query in enumerate(data.queries):
        hits = {ids[p]: float(s) for p, s in zip(found.positions[row], found.scores[row], strict=True)}
        if leave_out_self:
            hits.pop(query, None)
        run[query] = dict(list(hits.items())[:top_k])
    return run, stats + query_stats


def score(run: Run, qrels: dict[str, dict[str, int]], top_k: int) -> dict[str, float]:
    """Return nDCG, MAP, recall, precision and MRR at the cut-offs up to `top_k`, from BEIR's evaluator.

    BEIR itself drops hits whose document id equals the query id; here they count (see `SELF_RETRIEVAL`).
    """
    from beir.retrieval.evaluation import EvaluateRetrieval

    logging.getLogger("beir").setLevel(logging.WARNING)
    cutoffs = [k for k in CUTOFFS if k <= top_k] or [top_k]
    parts = EvaluateRetrieval.evaluate(qrels, run, cutoffs, ignore_identical_ids=False)
    reciprocal = EvaluateRetrieval.evaluate_custom(qrels, run, cutoffs, metric="mrr")
    merged = {name: value for part in (*parts, reciprocal) for name, value in part.items()}
    return {
        name.lower().replace("p@", "precision@") if name.startswith("P@") else name.lower(): float(value)
        for name, value in merged.items()
    }


def evaluate(
    encoder: SentenceEncoder,
    data: RetrievalSet,
    top_k: int = 1000,
    *,
    query_prompt: str = "",
    document_prompt: str = "",
    progress: Progress | None = None,
) -> RetrievalResult:
    """Search and score one set."""
    run, stats = search(
        encoder, data, top_k, query_prompt=query_prompt, document_prompt=document_prompt, progress=progress
    )
    metrics = score(run, data.qrels, top_k)
    return RetrievalResult(data.name, metrics, len(data.queries), len(data.documents), run, stats)
