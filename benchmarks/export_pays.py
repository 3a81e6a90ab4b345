"""From how many texts on an export pays that has to be made first: `export_pays` in sentcli/encoder/__init__.py.

    python benchmarks/export_pays.py SentEval/data/downstream models/sentcli-bert-mini minilm

For each model: the seconds of its export, the milliseconds of a text with torch and with the export (medians of five
passes that take turns), and the texts from which on the export has saved its own time.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from sentcli import SentenceEncoder
from sentcli.evaluation import sts

TEXTS = 2000
PASSES = 5


def main(folder, *models):
    texts = []
    for task in sts.load_similarity_tasks(Path(folder)):
        texts += task.texts
    texts = list(dict.fromkeys(texts))
    texts = texts[:: max(1, len(texts) // TEXTS)]
    for model in models:
        on_torch = SentenceEncoder.load(model, backend="torch", device="cpu")
        started = time.perf_counter()
        exported = SentenceEncoder.load(model, backend="onnx", device="cpu")
        seconds = time.perf_counter() - started
        passes = {on_torch: [], exported: []}
        for encoder in passes:
            encoder.encode(texts[:64])
        for _ in range(PASSES):
            for encoder, times in passes.items():
                started = time.perf_counter()
                encoder.encode(texts)
                times.append(1000 * (time.perf_counter() - started) / len(texts))
        slow, fast = map(statistics.median, passes.values())
        pays = "never pays"
        if slow > fast:
            pays = f"pays from {1000 * seconds / (slow - fast):,.0f} texts on"
        print(f"{model}: export {seconds:.1f} s, torch {slow:.2f} ms a text, onnx {fast:.2f} ms; {pays}", flush=True)


if __name__ == "__main__":
    os.environ["SENTCLI_CACHE"] = tempfile.mkdtemp()  # in which there is no export
    main(*sys.argv[1:])
