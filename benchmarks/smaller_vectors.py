"""What smaller vectors cost: Spearman's correlation on STS-B, and bytes a vector; what a search by them finds.

    SENTCLI_DATA=... python benchmarks/smaller_vectors.py [--model minilm] [--search]

Binary vectors are compared by the share of equal bits, all others by cosine. With `--search`: of the ten nearest among
3,900 lines of wiki.txt by the full vectors, 100 others as queries, the share that smaller vectors find alone, and that
is found among their best 100 by the full ones (`retrieve --rescore`). Queries keep their numbers.
"""

import argparse

import numpy as np
from common import data_folder
from scipy.stats import spearmanr

from sentcli import SentenceEncoder
from sentcli.compression import Compression
from sentcli.evaluation import sts, sts_pairs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--search", action="store_true")
    options = parser.parse_args()
    encoder = SentenceEncoder.load(options.model)
    if options.search:
        search(encoder)
        return
    choices = {"float32": Compression()}
    choices |= {f"--output-dtype {kind}": Compression(kind) for kind in ("float16", "int8", "binary")}
    for size in (256, 128, 64):
        choices[f"--truncate-dim {size}"] = Compression(truncate_dim=size, renormalize=True)
    found = {}
    for split in ("dev", "test"):
        (pairs,) = sts_pairs.load_pairs(data_folder() / "senteval", ["STSBenchmark"], split)["STSBenchmark"]
        sides = [encoder.encode(texts) for texts in (pairs.first, pairs.second)]
        for name, compression in choices.items():
            first, second = (compression.apply(side) for side in sides)
            found[name, split] = 100 * spearmanr(similarity(first, second), pairs.gold).statistic
    whole = encoder.dimension * 4
    print("| choice | bytes a vector | STS-B dev | change | STS-B test | change |\n|---|---|---|---|---|---|")
    for name, compression in choices.items():
        size = compression.dimension(encoder.dimension) * np.dtype(compression.dtype).itemsize
        cells = [f"{found[name, s]:.2f} | {found[name, s] - found['float32', s]:+.2f}" for s in ("dev", "test")]
        print(f"| {name} | {size} ({size / whole:.1%}) | {' | '.join(cells)} |")


def search(encoder: SentenceEncoder, k: int = 10) -> None:
    """Print the share of the nearest lines that smaller vectors find."""
    with (data_folder() / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
        vectors = encoder.encode([next(handle).rstrip("\n") for _ in range(4000)])
    rows, queries = vectors[:3900], vectors[3900:]
    nearest = np.argsort(-queries @ rows.T, axis=1)[:, :k]
    choices = {"int8": Compression("int8"), "binary": Compression("binary")}
    choices["the first 128 dimensions"] = Compression(truncate_dim=128, renormalize=True)
    choices["the first 64 dimensions, binary"] = Compression("binary", truncate_dim=64)
    print("| vectors | bytes a row | alone | with `--rescore` |\n|---|---|---|---|")
    for name, compression in choices.items():
        small = compression.apply(rows)
        numbers = 2.0 * np.unpackbits(small, axis=1) - 1 if small.dtype == np.uint8 else small.astype(np.float32)
        cut = queries[:, : numbers.shape[1]]
        order = np.argsort(-(cut @ (numbers / np.linalg.norm(numbers, axis=1, keepdims=True)).T), axis=1)
        again = [best[np.argsort(-rows[best] @ query)] for best, query in zip(order[:, :100], queries, strict=True)]
        shares = [
            np.mean([len({*a[:k]} & {*b}) / k for a, b in zip(found, nearest, strict=True)]) for found in (order, again)
        ]
        print(f"| {name} | {small[0].nbytes} | {shares[0]:.3f} | {shares[1]:.3f} |")


def similarity(first, second):
    """Return cosines, or the share of equal bits of packed vectors."""
    if first.dtype == np.uint8:
        return 1 - np.unpackbits(first ^ second, axis=1).mean(axis=1)
    return sts.cosine(first, second)


if __name__ == "__main__":
    main()
