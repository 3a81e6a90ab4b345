"""Peak memory of `sentcli encode` on 200,000 short lines with a 1-layer model, npy output on disk.

    python benchmarks/encode_memory.py [--rows 200000]

Claim: under 1.2 GB (the resident set of the process at its largest, as the kernel counts it, torch included).
"""

import argparse
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from common import machine


def one_layer_model(folder: Path) -> None:
    """Write a 1-layer, 384-dimensional BERT with MiniLM's tokenizer and random weights."""
    from transformers import BertConfig, BertModel

    from sentcli import SentenceEncoder

    encoder = SentenceEncoder.load("minilm")
    config = BertConfig(
        vocab_size=encoder.torch_module.backbone.config.vocab_size, hidden_size=384, num_hidden_layers=1,
        num_attention_heads=12, intermediate_size=1536,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    encoder.hf_tokenizer.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    rows = parser.parse_args().rows
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one_layer_model(folder / "model")
        rng = random.Random(0)
        words = [f"word{i}" for i in range(5000)]
        with (folder / "lines.txt").open("w", encoding="utf-8") as handle:
            for i in range(rows):
                handle.write(f"{i} {' '.join(rng.choices(words, k=6))}\n")
        command = [sys.executable, "-m", "sentcli", "encode", folder / "lines.txt", "-o", folder / "v.npy"]
        subprocess.run([*command, "-m", folder / "model", "--pooling", "mean"], check=True)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        size = (folder / "v.npy").stat().st_size
        print(f"{rows} rows: peak resident set {peak / 1e9:.2f} GB, output {size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
