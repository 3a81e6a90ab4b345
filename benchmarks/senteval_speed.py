"""SentEval's classifiers: trained together against one after the other, on the same features.

    SENTCLI_DATA=... python benchmarks/senteval_speed.py [--task CR] [--protocol full] [--outer 1]

The plain side trains a torch module after the other, as the original toolkit does. It takes long, so both sides do the
first outer folds only.

Claim: >= 5 x.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from common import data_folder, machine

from sentcli import SentenceEncoder
from sentcli.evaluation import probe, transfer
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.transfer import features
from sentcli.evaluation.transfer_data import load_examples

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.reference import plain_senteval as plain


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", default="CR", choices=("MR", "CR", "SUBJ", "MPQA"))
    parser.add_argument("--protocol", default="full", choices=("full", "fast"))
    parser.add_argument("--outer", type=int, default=1, help="outer folds")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print(machine(), flush=True)
    trainer, settings = transfer.PROTOCOLS[options.protocol], getattr(plain, options.protocol.upper())
    tasks = load_examples(data_folder() / "senteval", [options.task])
    encoded = EvaluatedModel.of(SentenceEncoder.load("minilm", normalize=False)).encode(tasks[0].texts)
    x, y = features(tasks[0], encoded)["all"], tasks[0].labels["all"]
    outer = [rows for rows, _ in probe.stratified(y, trainer.folds)[: options.outer]]

    def together() -> float:
        began = time.perf_counter()
        folds = [probe.Fold(r[fit], r[dev]) for r in outer for fit, dev in probe.stratified(y[r], trainer.folds)]
        penalties = trainer.penalties(has_test=False)
        fitted = trainer.train(probe.Grid(x, y, 2, folds, [penalties] * len(folds)), lambda count: None)
        accuracies["together"] = fitted.accuracy.reshape(len(outer), -1, len(penalties)).mean(axis=1).max(axis=1)
        return time.perf_counter() - began

    def apart() -> float:
        began = time.perf_counter()
        accuracies["apart"] = np.array([plain.chosen(x[rows], y[rows], 2, settings)[1] for rows in outer]) / 100
        return time.perf_counter() - began

    accuracies: dict[str, np.ndarray] = {}
    pairs = [(together(), apart()) for _ in range(options.runs)]
    ratios = sorted(slow / fast for fast, slow in pairs)
    seconds = [statistics.median(side) for side in zip(*pairs, strict=True)]
    print(
        f"{options.task} {options.protocol}, {options.outer} of {trainer.folds} outer folds, {x.shape[1]} dimensions, "
        f"{torch.get_num_threads()} threads: together {seconds[0]:.1f} s, one after the other {seconds[1]:.1f} s\n"
        f"  ratio {statistics.median(ratios):.2f} (median of {options.runs}; {ratios[0]:.2f} to {ratios[-1]:.2f}); "
        f"largest difference of a dev accuracy {100 * np.abs(accuracies['together'] - accuracies['apart']).max():.3f}"
    )


if __name__ == "__main__":
    main()
