"""Encoding with MiniLM on a CPU in fp32, against sentence-transformers' `encode` (batch 32) in the same process.

    SENTCLI_DATA=... python benchmarks/encode_speed.py [--runs 5] [--only wiki|sts]

Claims: 3,000 wiki sentences >= 1.15 x rows/s; the sentences of the seven STS sets >= 1.5 x (each distinct one once).
"""

import argparse

import numpy as np
from common import compare, data_folder, machine
from sentence_transformers import SentenceTransformer

from sentcli import SentenceEncoder
from sentcli.evaluation import sts_pairs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=["wiki", "sts"])
    options = parser.parse_args()
    encoder = SentenceEncoder.load("minilm", device="cpu")
    peer = SentenceTransformer(str(encoder.spec.folder), device="cpu")
    print(machine())
    texts = {}
    if options.only != "sts":
        with (data_folder() / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
            texts["3,000 wiki sentences"] = [next(handle).rstrip("\n") for _ in range(3000)]
    if options.only != "wiki":
        tasks = sts_pairs.load_pairs(data_folder() / "senteval", None, "test")
        texts["seven STS sets"] = [t for subsets in tasks.values() for s in subsets for t in (*s.first, *s.second)]
    for name, sentences in texts.items():
        mine, theirs = encoder.encode(sentences[:500]), peer.encode(sentences[:500])
        assert np.einsum("nd,nd->n", mine, theirs).min() > 0.999999, "the vectors differ"
        rows = f"{name} ({len(sentences)} texts, {len(set(sentences))} distinct)"
        compare(
            rows, lambda s=sentences: encoder.encode(s), lambda s=sentences: peer.encode(s, batch_size=32),
            len(sentences), "rows", options.runs,
        )  # fmt: skip


if __name__ == "__main__":
    main()
