"""The seven STS tasks with MiniLM: `sentcli sts-eval`'s evaluation against sentence-transformers' evaluator.

    SENTCLI_DATA=... python benchmarks/sts_peers.py [--tasks STS16,STSBenchmark] [--runs 3]

Both score the same pairs in the same process, in turn, encoding included; loading is not. Nothing is kept from run to
run. sentence-transformers' `EmbeddingSimilarityEvaluator` is given each task's pairs, all subsets together.

Claim: >= 2 x.
"""

import argparse
import statistics
import time

from common import data_folder, machine
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from sentcli import SentenceEncoder
from sentcli.evaluation import sts
from sentcli.zoo import resolve


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", help="with commas; default: all seven")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--backend", default="auto")
    options = parser.parse_args()
    print(machine(), flush=True)
    tasks = sts.load_similarity_tasks(data_folder() / "senteval", options.tasks)
    encoder = SentenceEncoder.load("minilm", backend=options.backend)
    peer = SentenceTransformer(str(resolve("minilm")[0]), device="cpu")
    encoder.encode(["warm"] * 10)
    peer.encode(["warm"] * 10)
    found: dict[str, dict[str, float]] = {}

    def ours() -> float:
        began = time.perf_counter()
        found["ours"] = {name: score.value for name, score in sts.evaluate_similarity(encoder, tasks).items()}
        return time.perf_counter() - began

    def theirs() -> float:
        began = time.perf_counter()
        scores = {}
        for task in tasks:
            pairs = task.pairs
            evaluator = EmbeddingSimilarityEvaluator(
                pairs.first, pairs.second, pairs.gold.tolist(), main_similarity="cosine"
            )
            scores[task.name] = 100 * evaluator(peer)["spearman_cosine"]
        found["theirs"] = scores
        return time.perf_counter() - began

    pairs = [(ours(), theirs()) for _ in range(options.runs)]
    ratios = sorted(slow / fast for fast, slow in pairs)
    fast, slow = (statistics.median(side) for side in zip(*pairs, strict=True))
    count = sum(map(len, tasks))
    texts = {text for task in tasks for text in task.texts}
    print(f"{count} pairs, {len(texts)} distinct sentences, backend {encoder.backend.name}")
    print(f"sentcli {fast:.1f} s, sentence-transformers {slow:.1f} s")
    difference = max(abs(found["ours"][task.name] - found["theirs"][task.name]) for task in tasks)
    print(
        f"  ratio {statistics.median(ratios):.2f} (median of {len(ratios)}; {ratios[0]:.2f} to {ratios[-1]:.2f}); "
        f"largest difference of a score {difference:.3f}"
    )


if __name__ == "__main__":
    main()
