"""Tables about a GPU in parts of less than 90 seconds on an H100: encoding, files, search and training.

    python benchmarks/gpu.py [--part encode|files|search|train] [--device cuda] [--model minilm] [--runs 3]

Each part makes its data in place and runs sentcli beside its peers and beside what the card reaches without it, in
turn, after a run of each that does not count. A speed is the median of the runs, a ratio the median of theirs with the
least and the greatest; above 1 sentcli is faster. What a machine lacks is said in its row.

    encode   batches that lie on the card, tokenizers alone, sentence-transformers at its best batch, onnxruntime
    files    the whole command `encode` from a file to a directory and to .npy, against encoding in memory
    search   a million rows: faiss on the GPU, products with torch, an inverted file
    train    SimCSE against sentence-transformers' trainer, and the step of each method

Texts are lines of Wikipedia from SENTCLI_DATA, where it is set, and made words otherwise. MiniLM may be a folder; the
model of BERT-base's shape has random weights. The last lines are the row of the card for
docs/studies/speed-by-processor.md. `--device cpu --small` tries the script itself.
"""

import argparse
import os
import platform
import tempfile
import time
from importlib import import_module
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from common import machine
from gpu_parts.sheet import Setting, Sheet

PARTS = ("encode", "files", "search", "train")
VERSIONS = ("torch", "transformers", "sentence-transformers", "onnxruntime-gpu", "faiss-gpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=(*PARTS, "all"), default="all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="minilm", help="a folder or a name")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="try the script on a few rows and a small model")
    options = parser.parse_args()
    import transformers

    transformers.logging.set_verbosity_error()
    began, sheet = time.perf_counter(), Sheet()
    with tempfile.TemporaryDirectory() as work:
        setting = Setting(options.device, options.model, Path(work), options.small, options.runs)
        for part in PARTS if options.part == "all" else (options.part,):
            import_module(f"gpu_parts.{part}").run(setting, sheet)
    sheet.cells["card"] = card(options.device)
    sheet.print(f"{sheet.cells['card']}; {options.part}, {time.perf_counter() - began:.0f} s")


def card(device: str) -> str:
    """Return the card, the processor beside it and the versions of what was compared."""
    import torch

    from sentcli.machine import library_version

    versions = [f"{name} {version}" for name in VERSIONS if (version := library_version(name))]
    if not device.startswith("cuda"):
        return f"no GPU, {machine()}"
    name = torch.cuda.get_device_name(device)
    return f"{name} beside {machine()}, {', '.join(versions)}, {platform.system()}"


if __name__ == "__main__":
    main()
