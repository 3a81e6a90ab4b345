"""Peak memory of `sentcli encode` on 100,000 and on 1,000,000 short lines with a 1-layer model, shards on disk.

    python benchmarks/encode_memory.py [--rows 100000 1000000]

Claim: the larger input needs at most 5 % more (the resident set of the process at its largest).
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import machine


def one_layer_model(folder: Path) -> None:
    """Write a 1-layer, 384-dimensional BERT with MiniLM's tokenizer and random weights."""
    from transformers import BertConfig, BertModel

    from sentcli import SentenceEncoder

    encoder = SentenceEncoder.load("minilm", backend="torch")
    config = BertConfig(
        vocab_size=encoder.torch_module.backbone.config.vocab_size, hidden_size=384, num_hidden_layers=1,
        num_attention_heads=12, intermediate_size=1536,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    encoder.hf_tokenizer.save_pretrained(folder)


def lines(path: Path, rows: int) -> None:
    """Write short lines; one in ten stands there twice."""
    words = [f"word{i}" for i in range(5000)]
    with path.open("w", encoding="utf-8") as handle:
        for i in range(rows):
            number = i - i % 10 // 9
            handle.write(f"{number} {' '.join(random.Random(number).choices(words, k=6))}\n")


def peak(source: Path, output: Path, model: Path) -> tuple[float, float]:
    """Encode and return the peak resident set in bytes and the seconds."""
    command = [sys.executable, "-m", "sentcli", "encode", source, "-o", output, "-m", model, "--pooling", "mean", "-q"]
    began = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"encode ended with {process.returncode}")
    return usage.ru_maxrss * 1024, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    counts = parser.parse_args().rows
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SENTCLI_CACHE"] = str(folder / "cache")
        one_layer_model(folder / "model")
        lines(folder / "few.txt", 10)
        peak(folder / "few.txt", folder / "few", folder / "model")  # makes the export
        found = []
        for rows in counts:
            lines(folder / "lines.txt", rows)
            size, seconds = peak(folder / "lines.txt", folder / f"out{rows}", folder / "model")
            found.append(size)
            print(f"{rows:,} rows: peak resident set {size / 1e6:,.0f} MB, {rows / seconds:,.0f} rows/s", flush=True)
        print(f"ratio of the last to the first: {found[-1] / found[0]:.3f}")


if __name__ == "__main__":
    main()
