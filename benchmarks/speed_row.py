"""One row of docs/studies/speed-by-processor.md: how fast this processor multiplies, encodes and trains.

    SENTCLI_DATA=... python benchmarks/speed_row.py [--runs 3]          (or: make speed-row)

Encoding: 1,000 Wikipedia sentences with MiniLM, sentence-transformers with batches of 32 beside sentcli as it is
(`auto`, fp32) and in bf16 on OpenVINO, all in turn in one process. Training: 8 steps of 64 sentences of 32 tokens,
sentence-transformers' trainer beside `sentcli train` in fp32 and in bf16, each in a process of its own, in turn. A
ratio is the median of those of the runs, with the least and the greatest. Let nothing else run beside it.
"""

import argparse
import statistics

import train_speed
from common import data_folder, machine, matmul_rate, seconds

ROWS = 1000
COLUMNS = (
    "processor", "fp32 products, GFLOP/s", "bf16 products, GFLOP/s",
    "encode, x sentence-transformers", "encode bf16, x sentence-transformers", "encode bf16, x own fp32",
    "train, x sentence-transformers", "train bf16, x own fp32",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    import torch

    from sentcli.precision import half_precision_supported

    bf16 = half_precision_supported(torch.device("cpu"), "bf16")
    encoding, training = encoding_times(runs, bf16=bf16), training_times(runs, bf16=bf16)
    cells = [
        machine(),
        f"{matmul_rate():.0f}",
        f"{matmul_rate(torch.bfloat16):.0f}" if bf16 else "-",
        ratio(encoding, "peer", "fp32"),
        ratio(encoding, "peer", "bf16"),
        ratio(encoding, "fp32", "bf16"),
        ratio(training, "peer", "fp32"),
        ratio(training, "fp32", "bf16"),
    ]
    for row in (COLUMNS, ["---"] * len(COLUMNS), cells):
        print(f"| {' | '.join(row)} |")


def encoding_times(runs: int, *, bf16: bool) -> dict[str, list[float]]:
    """Return the seconds of each side, by run."""
    from sentence_transformers import SentenceTransformer

    from sentcli import SentenceEncoder

    with (data_folder() / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
        texts = [next(handle).rstrip("\n") for _ in range(ROWS)]
    own = SentenceEncoder.load("minilm", device="cpu")
    peer = SentenceTransformer(str(own.spec.folder), device="cpu")
    sides = {"peer": lambda: peer.encode(texts, batch_size=32), "fp32": lambda: own.encode(texts)}
    if bf16:
        half = SentenceEncoder.load("minilm", device="cpu", backend="openvino", precision="bf16")
        sides["bf16"] = lambda: half.encode(texts)
    for side in sides.values():
        side()
    rounds = [{name: seconds(side) for name, side in sides.items()} for _ in range(runs)]
    return {name: [times[name] for times in rounds] for name in sides}


def training_times(runs: int, *, bf16: bool) -> dict[str, list[float]]:
    """Return the seconds of each side, by run."""
    sides = {"peer": ("peer", "fp32"), "fp32": ("ours", "fp32"), **({"bf16": ("ours", "bf16")} if bf16 else {})}
    rounds = [
        {name: train_speed.child(side, steps=8, precision=precision) for name, (side, precision) in sides.items()}
        for _ in range(runs)
    ]
    return {name: [times[name] for times in rounds] for name in sides}


def ratio(times: dict[str, list[float]], slow: str, fast: str) -> str:
    """Return how many times as fast the second side is, with the range over the runs."""
    if fast not in times:
        return "-"
    ratios = sorted(a / b for a, b in zip(times[slow], times[fast], strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


if __name__ == "__main__":
    main()
