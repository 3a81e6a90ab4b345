"""What a model with [CLS] pooling gains from a last layer for position 0 alone, on onnxruntime in fp32.

    SENTCLI_DATA=... python benchmarks/first_token.py [--runs 5]

MiniLM with cls pooling against the same model with mean pooling, whose last layer is whole. Claim: >= 1.10 x.
"""

import argparse

from common import compare, data_folder, machine

from sentcli import SentenceEncoder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    print(machine())
    first, whole = (SentenceEncoder.load("minilm", backend="onnx", pooling=pooling) for pooling in ("cls", "mean"))
    with (data_folder() / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
        texts = [next(handle).rstrip("\n") for _ in range(2000)]
    compare(
        "2,000 wiki sentences, [CLS] against mean", lambda: first.encode(texts), lambda: whole.encode(texts),
        len(texts), "rows", runs,
    )  # fmt: skip


if __name__ == "__main__":
    main()
