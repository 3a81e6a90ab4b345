"""Retrieval: `sentcli retrieve --beir`'s search and scoring against BEIR's own.

    python benchmarks/retrieval_peers.py search [--k 100,1000] [--runs 5]
    SENTCLI_DATA=... SENTCLI_VECTOR_CACHE_MB=0 python benchmarks/retrieval_peers.py sets [--sets scifact,cranfield]

`search`: 1,000 queries in 200,000 random vectors of 384 dimensions. Both sides are given ready vectors and hand back a
run, {query: {document: score}}: BEIR's `DenseRetrievalExactSearch` has a model that returns them, so its sorting of
documents and its heaps are included, as they are in every use of it. The machine's rate is that of torch's product of
the same matrices, in blocks, without looking for the best.

`sets`: reading, encoding, search and scores of a set, with MiniLM on both sides; loading it is included in ours alone.

Claims: search >= 1.8 x, at >= 80 % of the machine's rate; sets >= 1.5 x, with the same nDCG@10 to three decimals.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from beir.datasets.data_loader import GenericDataLoader
from beir.retrieval.evaluation import EvaluateRetrieval
from beir.retrieval.models import SentenceBERT
from beir.retrieval.search.dense import DenseRetrievalExactSearch
from common import compare, data_folder, machine, report_pairs, seconds

import sentcli
from sentcli.search.exact import TopK
from sentcli.zoo import resolve

QUERIES, DOCUMENTS, DIMENSION = 1_000, 200_000, 384
ROWS = 8_192
"""Rows of one product when the machine's rate is measured: a result that stays in the cache is the fastest."""


class Ready:
    """A model of BEIR's whose vectors are there already; a document's text is its row."""

    def __init__(self, queries: torch.Tensor, documents: torch.Tensor) -> None:
        self.queries, self.documents = queries, documents

    def encode_queries(self, queries: list[str], **_: Any) -> torch.Tensor:
        """Return the queries' vectors."""
        return self.queries

    def encode_corpus(self, corpus: list[dict[str, str]], **_: Any) -> torch.Tensor:
        """Return the vectors of a part of the documents."""
        return self.documents[[int(document["text"]) for document in corpus]]


def unit_vectors(rows: int, seed: int) -> np.ndarray:
    found = np.random.default_rng(seed).normal(size=(rows, DIMENSION)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def product_seconds(queries: np.ndarray, documents: np.ndarray) -> float:
    """Return what the plain products take, the best of five."""
    a, b = torch.from_numpy(queries), torch.from_numpy(documents)
    out = torch.empty(len(a) * ROWS)

    def work() -> None:
        for start in range(0, len(b), ROWS):
            part = b[start : start + ROWS]
            torch.mm(a, part.T, out=out[: len(a) * len(part)].view(len(a), len(part)))

    work()
    return min(seconds(work) for _ in range(5))


def search(cutoffs: list[int], runs: int) -> None:
    """Compare exact search of ready vectors."""
    queries, documents = unit_vectors(QUERIES, 0), unit_vectors(DOCUMENTS, 1)
    ids = [f"d{i}" for i in range(DOCUMENTS)]
    asked = {f"q{i}": "" for i in range(QUERIES)}
    corpus = {key: {"title": "", "text": str(i)} for i, key in enumerate(ids)}
    peer = DenseRetrievalExactSearch(Ready(torch.from_numpy(queries), torch.from_numpy(documents)))
    best = product_seconds(queries, documents)
    gigaflop = 2 * QUERIES * DOCUMENTS * DIMENSION / 1e9
    print(f"the products alone: {best:.2f} s, {gigaflop / best:.0f} GFLOP/s", flush=True)
    for k in cutoffs:
        found: dict[str, dict[str, dict[str, float]]] = {}

        def exact(k: int = k) -> Any:
            top = TopK(queries, k)
            top.add(documents)
            return top.best()

        def ours(found: dict[str, Any] = found, exact: Callable[[], Any] = exact) -> None:
            best = exact()
            rows = zip(asked, best.positions.tolist(), best.scores.tolist(), strict=True)
            found["ours"] = {query: {ids[i]: score for i, score in zip(*row, strict=True)} for query, *row in rows}

        def theirs(found: dict[str, Any] = found, k: int = k) -> None:
            found["theirs"] = peer.search(corpus, asked, k, "cos_sim")

        compare(f"exact search and run, k {k}", ours, theirs, QUERIES, "queries", runs)
        alone = statistics.median(seconds(exact) for _ in range(runs))
        same = statistics.mean(len(found["ours"][query].keys() & found["theirs"][query].keys()) / k for query in asked)
        print(
            f"  search alone {alone:.2f} s: {best / alone:.0%} of the machine's rate; {same:.4%} of hits are BEIR's",
            flush=True,
        )


def sets(names: list[str], runs: int, backend: str) -> None:
    """Compare whole sets."""
    if os.environ.get("SENTCLI_VECTOR_CACHE_MB") != "0":
        raise SystemExit("set SENTCLI_VECTOR_CACHE_MB=0: kept vectors are no measurement")
    peer = SentenceBERT(str(resolve("minilm")[0]), device="cpu")
    sentcli.SentenceEncoder.load("minilm", backend=backend).encode(["warm"] * 10)
    peer.q_model.encode(["warm"] * 10)
    for name in names:
        folder: Path = data_folder() / "retrieval" / name
        found: dict[str, float] = {}

        def ours(folder: Path = folder, found: dict[str, float] = found) -> None:
            result = sentcli.retrieve("minilm", beir=[folder], backend=backend, device="cpu", rerun=True, quiet=True)
            found["ours"] = result.to_dict()["results"][folder.name]["ndcg@10"]

        def theirs(folder: Path = folder, found: dict[str, float] = found) -> None:
            corpus, queries, qrels = GenericDataLoader(str(folder)).load(split="test")
            run = DenseRetrievalExactSearch(peer, batch_size=128, show_progress_bar=False).search(
                corpus, queries, 1000, "cos_sim"
            )
            ndcg, *_ = EvaluateRetrieval.evaluate(qrels, run, [10, 100, 1000], ignore_identical_ids=False)
            found["theirs"] = ndcg["NDCG@10"]

        pairs = [(seconds(ours), seconds(theirs)) for _ in range(runs)]  # both models are warm
        print(f"{name}: " + ", ".join(f"{mine:.0f} s and {other:.0f} s" for mine, other in pairs))
        report_pairs(f"{name}, from files to scores", pairs, 1, "sets")
        print(f"  nDCG@10 {found['ours']:.5f}, BEIR's {found['theirs']:.5f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["search", "sets"])
    parser.add_argument("--k", default="100,1000")
    parser.add_argument("--sets", default="scifact,cranfield")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--backend", default="auto")
    arguments = parser.parse_args()
    print(machine(), flush=True)
    if arguments.what == "search":
        search([int(k) for k in arguments.k.split(",")], arguments.runs)
    else:
        sets(arguments.sets.split(","), arguments.runs, arguments.backend)


if __name__ == "__main__":
    main()
