"""Does the gate of `evaluate --baseline` cry out where nothing has changed but how the same numbers are computed?

    SENTCLI_DATA=... python benchmarks/false_alarms.py [--set time] [--runs 1000]

A set is encoded by MiniLM in fp32 with several backends, token budgets, threads and orders of the texts. Each run takes
two of these encodings and a random three quarters of the queries, and asks whether the second one is still as good as
the first one. Printed are the alarms, the greatest change of a query, and what the vectors of the fixed texts say.
"""

import argparse
from collections import Counter
from itertools import permutations

import numpy as np
from common import data_folder, machine

from sentcli import SentenceEncoder
from sentcli.evaluation.readings import ReadDocuments
from sentcli.evaluation.retrieval import load_set
from sentcli.evaluation.set_search import SetSearch
from sentcli.evaluation.significance import compare_means
from sentcli.evaluation.variant_grid import Encoding, Storage
from sentcli.evaluation.variants import HITS, EncodedSet, score_variant
from sentcli.model.probe_vectors import ProbeVectors
from sentcli.search.options import SearchOptions

ALLOWED = (0.01, 0.001)


def encodings(data):
    """Yield a name, the set's per-query scores and the canaries of each way of encoding it."""
    import torch

    search = SetSearch(data, SearchOptions(top_k=HITS))
    texts, generator = [*data.queries.values(), *data.texts()], np.random.default_rng(0)
    for backend in ("torch", "onnx", "openvino"):
        for budget in (256, 1024, 8192):
            for threads in (1, 2):
                torch.set_num_threads(threads)
                encoder = SentenceEncoder.load("minilm", backend=backend)
                if backend != "torch":
                    encoder.backend.streams = threads
                order = generator.permutation(len(texts))
                made = encoder.encode_distinct([texts[i] for i in order], batch_tokens=budget).vectors
                vectors = np.empty_like(made)
                vectors[order] = made
                count = len(data.queries)
                documents = ReadDocuments(vectors[count:], None, 0)
                encoded = EncodedSet(Encoding(), vectors[:count], documents, True, 0.0, 1.0)
                values = score_variant(search, encoded, Storage()).values
                name = f"{backend}, {budget} tokens, {threads} threads"
                print(f"{name}: nDCG@10 {values.mean():.6f}", flush=True)
                yield name, values, ProbeVectors.of(encoder.loaded, "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", default="time")
    parser.add_argument("--runs", type=int, default=1000)
    arguments = parser.parse_args()
    print(machine())
    ways = list(encodings(load_set(data_folder() / "retrieval" / arguments.set)))
    pairs, generator = list(permutations(range(len(ways)), 2)), np.random.default_rng(1)
    alarms, greatest = Counter(), 0.0
    for _ in range(arguments.runs):
        first, second = (ways[i][1] for i in pairs[generator.integers(len(pairs))])
        chosen = generator.permutation(len(first))[: 3 * len(first) // 4]
        before, after = first[chosen], second[chosen]
        greatest = max(greatest, float(np.abs(after - before).max()))
        found = compare_means(after, before)
        alarms.update(allow for allow in ALLOWED if not found.excludes_loss(allow))
    for allow in ALLOWED:
        print(f"allow {allow:g}: {alarms[allow]} alarms in {arguments.runs} runs")
    print(f"the greatest change of a query: {greatest:.4f}")
    told = Counter(ways[i][2].compare(ways[j][2])[0] for i, j in pairs)
    print(f"the fixed texts, in {len(pairs)} pairs: {', '.join(f'{name} {count}' for name, count in told.items())}")


if __name__ == "__main__":
    main()
