"""One table about a GPU, in less than ten minutes: encoding, training and search, beside the peer and the CPU.

    SENTCLI_DATA=... python benchmarks/gpu.py [--device cuda] [--model minilm] [--texts 50000]

Encoding is the median of three runs in each precision, beside sentence-transformers at its best batch size; the cosine
is to fp32 on the CPU. Memory is the largest that torch held. Training is SimCSE in bf16, 100 steps of 256.
`--device cpu --texts 200` tries the script itself.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import data_folder, machine

from sentcli import SentenceEncoder
from sentcli.search import searcher
from sentcli.zoo import resolve

ROWS = []


def row(what, rate, unit, ratio="", cosine="", memory=""):
    """Add a line to the table."""
    ROWS.append(f"| {what} | {rate:,.0f} {unit} | {ratio} | {cosine} | {memory} |")
    print(ROWS[-1], file=sys.stderr, flush=True)


def timed(work, runs=3):
    """Return the median seconds of several calls after one."""
    work()
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def peak(device, work):
    """Return the gigabytes that torch held at most on a device while it worked, as text."""
    import torch

    if not device.startswith("cuda"):
        work()
        return ""
    torch.cuda.reset_peak_memory_stats(device)
    work()
    return f"{torch.cuda.max_memory_allocated(device) / 1e9:.1f} GB"


def encoding(model, device, texts):
    """Compare encoders in each precision with sentence-transformers in the same, and with fp32 on the CPU."""
    import torch
    from sentence_transformers import SentenceTransformer

    few = texts[:500]
    truth = SentenceEncoder.load(model, device="cpu", backend="torch").encode(few)
    folder = str(resolve(model)[0])
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        if device == "cpu" and precision != "fp32":
            continue
        ours = SentenceEncoder.load(model, device=device, backend="torch", precision=precision)
        peer = SentenceTransformer(folder, device=device, model_kwargs={"dtype": dtype})
        mine = timed(lambda: ours.encode(texts))  # noqa: B023
        sizes = {size: timed(lambda: peer.encode(texts, batch_size=size), 1) for size in (64, 256, 1024)}  # noqa: B023
        best = min(sizes, key=sizes.__getitem__)
        theirs = timed(lambda: peer.encode(texts, batch_size=best))  # noqa: B023
        cosine = np.einsum("nd,nd->n", ours.encode(few), truth).min()
        memory = peak(device, lambda: ours.encode(texts))  # noqa: B023
        row(f"encode {precision}", len(texts) / mine, "texts/s", f"{theirs / mine:.2f} x st", f"{cosine:.5f}", memory)
    try:
        ours = SentenceEncoder.load(model, device=device, backend="onnx")
    except Exception as error:  # what is missing is said in the table
        ROWS.append(f"| onnxruntime | not run: {error} | | | |")
        return
    cosine = np.einsum("nd,nd->n", ours.encode(few), truth).min()
    row("encode onnxruntime fp32", len(texts) / timed(lambda: ours.encode(texts)), "texts/s", "", f"{cosine:.5f}")


def training(model, device, texts, work):
    """Train with one process, and with two where there are two GPUs."""
    import torch

    source = work / "texts.txt"
    source.write_text("\n".join(text.replace("\n", " ") for text in texts))
    precision = "fp32" if device == "cpu" else "bf16"
    steps = "5" if device == "cpu" else "100"
    batch = "16" if device == "cpu" else "256"
    command = [
        "train",
        "--method",
        "simcse",
        "-m",
        model,
        "--data",
        str(source),
        "--batch-size",
        batch,
        "--save-every",
        "0",
    ]
    command += ["--max-steps", steps, "--set", f"precision={precision}", "--learning-rate", "3e-5", "-q"]
    processes = [1, 2] if torch.cuda.device_count() > 1 else [1]
    for count in processes:
        output = work / f"model{count}"
        launch = (
            ["-m", "torch.distributed.run", f"--nproc-per-node={count}", "-m", "sentcli"]
            if count > 1
            else ["-m", "sentcli"]
        )
        on = [] if count > 1 else ["--device", device]
        json_file = work / f"{count}.json"
        subprocess.run(
            [sys.executable, *launch, *command, *on, "-o", str(output), "--json", str(json_file)], check=True
        )

        rate = json.loads(json_file.read_text())["results"]["sentences_per_second"]
        row(f"train SimCSE {precision}, {count} process{'es' * (count > 1)}", rate, "sentences/s")


def search(device, rows):
    """Search a million rows on the device, in float32 and by a scan in bf16, and on the CPU."""
    random = np.random.default_rng(0)
    vectors = random.normal(size=(rows, 384)).astype(np.float32)
    queries = random.normal(size=(4096, 384)).astype(np.float32)
    on_cpu = searcher.build("flat", vectors)
    theirs = timed(lambda: on_cpu.search(queries[:1000], 10), 1) / 1000
    expected = on_cpu.search(queries[:1000], 10).positions
    for scan in (False, True):
        on_device = searcher.build("flat", vectors, device=device)
        on_device.scan = scan
        name = "scanned in bf16" if scan else "in float32"
        began = time.perf_counter()
        on_device.search(queries[:1], 10)
        opening = time.perf_counter() - began
        row(f"exact search {name}: opening {rows:,} rows", rows / opening, "rows/s", f"{opening:.2f} s")
        same = np.mean(on_device.search(queries[:1000], 10).positions == expected)
        for count, k in ((1, 10), (len(queries), 10), (len(queries), 100), (len(queries), 1000)):
            mine = timed(lambda: on_device.search(queries[:count], k)) / count  # noqa: B023
            row(
                f"exact search {name}: {count:,} queries, k {k}",
                1 / mine,
                "queries/s",
                f"{theirs / mine:.1f} x CPU at k 10",
                f"same {same:.4f}",
                f"again {on_device.protocol().get('searched_again', 0):.4f}",
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--texts", type=int, default=50_000)
    options = parser.parse_args()
    import torch

    name = torch.cuda.get_device_name(options.device) if options.device.startswith("cuda") else "no GPU"
    with (data_folder() / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
        texts = [line.strip() for line in handle if line.strip()][: options.texts]
    began = time.perf_counter()
    encoding(options.model, options.device, texts)
    with tempfile.TemporaryDirectory() as work:
        training(options.model, options.device, texts, Path(work))
    search(options.device, 20 * options.texts)
    print(f"{name}; {machine()}; sentcli on {os.uname().sysname}; {time.perf_counter() - began:.0f} s\n")
    print("| what | speed | ratio | least cosine to the CPU | memory |\n|---|---|---|---|---|")
    print("\n".join(ROWS))


if __name__ == "__main__":
    main()
