"""Encoding with MiniLM on a CPU: every backend of sentcli against those of its peers, all on the same weights.

    SENTCLI_DATA=... python benchmarks/encode_peers.py --peers OUT --peer-python peers/bin/python [--only short]

`prepare_peers.py` says how the peers' environment and files are made. Every side has a process; they take turns.

Claims, against sentence-transformers on torch (batch 32): onnxruntime fp32 >= 1.4 x, the best backend in fp32 >= 1.6 x
and not slower than sentence-transformers' own OpenVINO; int8 >= 2.1 x, and >= 1.3 x sentence-transformers' own int8.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import data_folder, machine, matmul_rate

from sentcli.zoo import resolve

HERE = Path(__file__).parent
BASE = "st torch fp32"
OURS = [
    "sentcli torch fp32",
    "sentcli onnx fp32",
    "sentcli openvino fp32",
    "sentcli openvino bf16",
    "sentcli onnx int8",
    "sentcli openvino int8",
]
PEERS = {
    "st onnx fp32": "onnx",
    "st openvino f32": "openvino",
    "st openvino default": "openvino",
    "st onnx quint8-avx2": "onnx",
    "st onnx qint8-vnni": "onnx",
    "fastembed": "fastembed",
}


def texts() -> dict[str, list[str]]:
    """Return 3,000 short lines, 300 long passages, and 1,000 lines of which one in ten is long."""
    data = data_folder()
    with (data / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
        short = [next(handle).rstrip("\n") for _ in range(3000)]
    with (data / "retrieval" / "scifact" / "corpus.jsonl").open(encoding="utf-8") as handle:
        documents = [json.loads(next(handle)) for _ in range(300)]
    long = [f"{document['title']} {document['text']}" for document in documents]
    skewed = [long[i // 10 % 300] if i % 10 == 0 else short[i] for i in range(1000)]
    return {"short": short, "long": long, "skewed": skewed}


class Side:
    """A process that encodes when it is asked."""

    def __init__(self, name: str, python: str, folder: Path, source: Path) -> None:
        command = [python, str(HERE / "encode_worker.py"), name, str(folder), str(source)]
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def answer(self, request: str | None = None) -> str:
        """Send a request, if there is one, and return the answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        if request is not None:
            self.process.stdin.write(request + "\n")
        line = self.process.stdout.readline().strip()
        if not line:
            raise SystemExit(f"{self.name} has failed")
        return line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--peer-python")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=["short", "long", "skewed"])
    options = parser.parse_args()
    folder, _ = resolve("minilm")
    print(machine())
    print(f"matrix products of 1024 x 384 by 384 x 1536 in fp32: {matmul_rate():.0f} GFLOP/s", flush=True)
    sets = {name: found for name, found in texts().items() if name in options.only}
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "texts.json"
        source.write_text(json.dumps(sets), "utf-8")
        sides = [Side(name, sys.executable, folder, source) for name in (BASE, *OURS)]
        if options.peers is not None:
            sides += [Side(n, options.peer_python, options.peers / form, source) for n, form in PEERS.items()]
        for side in sides:
            assert side.answer() == "ready"
        for name, found in sets.items():
            compare(name, found, sides, options.runs, Path(work))
        for side in sides:
            side.process.kill()


def compare(name: str, found: list[str], sides: list[Side], runs: int, work: Path) -> None:
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    for _ in range(runs):
        for side in sides:
            seconds[side.name].append(float(side.answer(name)))
    vectors = {}
    for side in sides:
        side.answer(f"vectors {name} {work / 'v.npy'}")
        vectors[side.name] = np.load(work / "v.npy")
    flops = 2 * 12 * 384**2 * 6 * tokens(found)
    print(
        f"\n{name}: {len(found)} texts, {tokens(found) / len(found):.0f} tokens a text, median of {runs} runs in turn"
    )
    print("| side | texts/s | x st torch | from | to | GFLOP/s of linear layers | mean cosine |")
    print("|---|---|---|---|---|---|---|")
    for side, times in seconds.items():
        ratios = sorted(base / own for base, own in zip(seconds[BASE], times, strict=True))
        middle = statistics.median(times)
        cosine = float(np.einsum("nd,nd->n", vectors[side], vectors[BASE]).mean())
        print(
            f"| {side} | {len(found) / middle:.1f} | {statistics.median(ratios):.2f} "
            f"| {ratios[0]:.2f} | {ratios[-1]:.2f} | {flops / middle / 1e9:.0f} | {cosine:.5f} |",
            flush=True,
        )


def tokens(found: list[str]) -> int:
    """Count the tokens that MiniLM sees."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(resolve("minilm")[0] / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return sum(len(encoding.ids) for encoding in tokenizer.encode_batch_fast(found))


if __name__ == "__main__":
    main()
