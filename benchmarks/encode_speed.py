"""Encoding with MiniLM on a CPU in fp32, against sentence-transformers' `encode` (batch 32) in the same process.

    SENTCLI_DATA=... python benchmarks/encode_speed.py [--runs 5] [--only wiki|sts]
    SENTCLI_DATA=... python benchmarks/encode_speed.py --only int8

Claims: 3,000 wiki sentences >= 1.15 x rows/s; the sentences of the seven STS sets >= 1.5 x (each distinct one once).
With `--only int8` both sides are sentcli in int8 on onnxruntime, which runs each text by itself, against batches of 512
tokens: the time, how far the vectors are from those in fp32 and from each other, and STS-B.
"""

import argparse

import numpy as np
from common import compare, data_folder, machine
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from sentcli import SentenceEncoder
from sentcli.evaluation import sts, sts_pairs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=["wiki", "sts", "int8"])
    options = parser.parse_args()
    print(machine())
    if options.only == "int8":
        alone_and_in_batches(options.runs)
        return
    encoder = SentenceEncoder.load("minilm", device="cpu")
    peer = SentenceTransformer(str(encoder.spec.folder), device="cpu")
    texts = {}
    if options.only != "sts":
        texts["3,000 wiki sentences"] = wiki(3000)
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


def wiki(count: int) -> list[str]:
    """Return the first sentences of Wikipedia."""
    with (data_folder() / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
        return [next(handle).rstrip("\n") for _ in range(count)]


def alone_and_in_batches(runs: int) -> None:
    """Compare int8 text by text with int8 in batches: time, vectors and STS-B."""
    encoder = SentenceEncoder.load("minilm", backend="onnx", precision="int8")
    whole = SentenceEncoder.load("minilm", backend="onnx")

    def encode(texts: list[str], batches: str) -> np.ndarray:
        encoder.backend.batches = batches
        return encoder.encode(texts)

    texts = wiki(3000)
    exact = whole.encode(texts)
    vectors = {name: encode(texts, kind) for name, kind in (("alone", "one text"), ("in batches", "padded"))}
    for name, found in vectors.items():
        print(f"{name}: mean cosine with fp32 {sts.cosine(found, exact).mean():.4f}{scores(encode, name)}")
    print(f"a batch lowers the cosine of a vector with itself by {1 - sts.cosine(*vectors.values()).min():.3f} at most")
    compare(
        "3,000 wiki sentences in int8, batches (sentcli) against texts alone (peer)",
        lambda: encode(texts, "padded"), lambda: encode(texts, "one text"), len(texts), "rows", runs,
    )  # fmt: skip


def scores(encode, name: str) -> str:
    """Return the scores on STS-B in words."""
    said = ""
    for split in ("dev", "test"):
        (pairs,) = sts_pairs.load_pairs(data_folder() / "senteval", ["STSBenchmark"], split)["STSBenchmark"]
        sides = (encode(texts, "one text" if name == "alone" else "padded") for texts in (pairs.first, pairs.second))
        said += f", STS-B {split} {100 * spearmanr(sts.cosine(*sides), pairs.gold).statistic:.2f}"
    return said


if __name__ == "__main__":
    main()
