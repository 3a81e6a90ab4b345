"""The classifier of `evaluate --kind labels` on 10,000 texts, beside an earlier version of it.

    python benchmarks/classifier.py --before FILE     # FILE is an earlier sentcli/evaluation/logistic.py

SUBJ's 10,000 sentences by the vectors of a model; nested cross-validation with ten folds outside and inside, and
six penalties. Both take turns in one process.
"""

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import data_folder, machine

from sentcli import SentenceEncoder
from sentcli.evaluation import logistic, transfer, transfer_data
from sentcli.stores.text_vectors import TextVectors


def scored(module: Any, task: transfer_data.Examples, vectors: TextVectors) -> str:
    """Return accuracy, seconds and processor seconds of the nested cross-validation, in words."""
    began, used = time.perf_counter(), time.process_time()
    score = transfer.score_transfer(module.LbfgsTrainer(), task, vectors)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    return f"accuracy {score.metrics['accuracy']:.2f}, {seconds:.1f} s, {used:.1f} s of the processor"


def main() -> None:
    """Print accuracies and times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="an earlier logistic.py")
    parser.add_argument("--model", default="sentcli-bert-mini")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    (task,) = transfer_data.load_examples(data_folder() / "senteval", ["SUBJ"])
    texts = list(dict.fromkeys(task.texts))
    encoded = SentenceEncoder.load(options.model).encode(texts)
    vectors = TextVectors({text: row for row, text in enumerate(texts)}, encoded, np.zeros(len(texts), np.int64))
    modules = {"now": logistic}
    if options.before is not None:
        spec = importlib.util.spec_from_file_location("before", options.before)
        modules["before"] = importlib.util.module_from_spec(spec)
        sys.modules["before"] = modules["before"]  # its dataclasses look for their module
        spec.loader.exec_module(modules["before"])
    for _ in range(options.rounds):
        for name, module in modules.items():
            print(f"{name}: {scored(module, task, vectors)}", flush=True)


if __name__ == "__main__":
    main()
