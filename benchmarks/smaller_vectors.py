"""What smaller vectors cost: Spearman's correlation on STS-B, and bytes a vector.

    SENTCLI_DATA=... python benchmarks/smaller_vectors.py [--model minilm]

Binary vectors are compared by the share of equal bits, all others by cosine. Principal components are learned from
10,000 lines of wiki.txt.
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
    encoder = SentenceEncoder.load(parser.parse_args().model)
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


def similarity(first, second):
    """Return cosines, or the share of equal bits of packed vectors."""
    if first.dtype == np.uint8:
        return 1 - np.unpackbits(first ^ second, axis=1).mean(axis=1)
    return sts.cosine(first, second)


if __name__ == "__main__":
    main()
