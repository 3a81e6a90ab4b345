"""STS-Benchmark and SICK with SentEval's supervised head: a distribution over the grades 1 to 5 from frozen vectors.

Source: SentEval, ``senteval/tools/relatedness.py``; the encoding of scores is that of Tai, Socher and Manning (ACL
2015), section 4.2. Adam, batches of 64, scored by Pearson on the development set every 50 epochs, stopped at the fourth
round without an improvement. The squared error is averaged over grades and pairs, which is what the toolkit's code does
on a torch of today; an older one took the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from sentcli import console
from sentcli.arrays import Float32Array, Float64Array
from sentcli.errors import InputError
from sentcli.evaluation import sts, sts_pairs
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.files import task_names
from sentcli.evaluation.probe import TOOLKIT_SEED, first_weights, with_ones
from sentcli.evaluation.score_kinds import TRAINED_HEAD, ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.transfer import pair_features
from sentcli.io.digests import json_digest
from sentcli.stores.text_vectors import TextVectors

GRADES = 5
_BATCH_SIZE = 64
EPOCHS_OF_A_ROUND = 50
"""Epochs between two scores on the development set."""
TENACITY = 3
"""Rounds without an improvement that are allowed; the next one ends the training."""
MAX_EPOCHS = 1000
HEAD_PROTOCOL = {
    "head": "linear, softmax over the grades 1 to 5, mean squared error",
    "optimizer": "adam",
    "batch_size": _BATCH_SIZE,
    "epoch_size": EPOCHS_OF_A_ROUND,
    "tenacity": TENACITY,
    "max_epochs": MAX_EPOCHS,
    "seed": TOOLKIT_SEED,
}


@dataclass(frozen=True)
class GradedTask:
    """Scored pairs in three splits, for training and testing a head."""

    name: str
    splits: dict[str, sts_pairs.Pairs]
    """``train``, ``dev`` and ``test``."""
    resamples: int = 0
    """Samples of the test pairs, for intervals and comparisons."""
    kind: ScoreKind = TRAINED_HEAD

    @property
    def texts(self) -> list[str]:
        """Every sentence of every pair."""
        return list(chain.from_iterable(pairs.texts for pairs in self.splits.values()))

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""
        content = json_digest(sts_pairs.content(list(self.splits.values())))
        return ["head", HEAD_PROTOCOL, self.resamples, self.name, self.kind.name, content]

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Train the head on pooled vectors that are not normalised, and score its expected grades of the test pairs.

        Raises:
            SentcliError: if the head predicts the same for all pairs.
        """
        features = {}
        for split, pairs in self.splits.items():
            features[split] = pair_features(vectors.vectors_of(pairs.first), vectors.vectors_of(pairs.second))
        test = self.splits["test"]
        with console.counting(f"{self.name}: epochs", MAX_EPOCHS + EPOCHS_OF_A_ROUND) as finished:
            predicted, dev_pearson = train_head(
                x=features["train"],
                gold=self.splits["train"].gold,
                dev_x=features["dev"],
                dev_gold=self.splits["dev"].gold,
                test_x=features["test"],
                finished=finished,
            )
        ranked = sts.resolved(predicted, GRADES)
        score = sts.correlations(self.name, [(self.name, ranked, test.gold)], self.resamples)
        squared_error = float(np.mean((predicted - test.gold) ** 2))
        metrics = {"mse": squared_error}
        if dev_pearson is not None:
            metrics["dev_pearson"] = dev_pearson
        details = {"truncated": vectors.truncated(self.texts), "zero_vectors": vectors.zero(test.texts)}
        return replace(
            score,
            kind=self.kind.name,
            metrics=score.metrics | metrics,
            details=score.details | details,
        )


def load_relatedness_tasks(data: Path, names: str | Sequence[str] | None = None, **options: Any) -> list[GradedTask]:
    """Read tasks with a training split, as for `task_names`, in the toolkit's order: by tokens, then by score.

    Args:
        data: a SentEval ``downstream`` folder.
        names: of tasks; None is all that have a training split.
        options: those of `GradedTask`.

    Raises:
        InputError: if a task has no training split; as `sts_pairs.load_task`.
    """
    tasks = []
    for name in task_names(sts_pairs.SPLITS if names is None else names, sts_pairs.TASKS):
        if name not in sts_pairs.SPLITS:
            raise InputError(f"{name} has no training split for a head; one of: {', '.join(sts_pairs.SPLITS)}")
        splits = {}
        for split in ("train", "dev", "test"):
            (pairs,) = sts_pairs.load_task(data, name, split)
            splits[split] = _sorted(pairs)
        tasks.append(GradedTask(name, splits, **options))
    return tasks


def _sorted(pairs: sts_pairs.Pairs) -> sts_pairs.Pairs:
    """Return pairs ordered by the numbers of tokens of both sentences, and by the score."""

    def order(row: int) -> tuple[int, int, float]:
        return len(pairs.first[row].split()), len(pairs.second[row].split()), float(pairs.gold[row])

    return pairs.of_rows(sorted(range(len(pairs)), key=order))


def grades(scores: Float64Array) -> Float32Array:
    """Return scores as distributions over the grades 1 to 5 ``[n, 5]``; those of scores below 1 sum to less than 1."""
    scores = scores[:, None]
    floor = np.floor(scores)
    all_grades = np.arange(1, GRADES + 1)
    above = np.where(all_grades == floor + 1, scores - floor, 0)
    return np.where(all_grades == floor, floor - scores + 1, above).astype(np.float32)


def train_head(
    x: Float32Array,
    gold: Float64Array,
    dev_x: Float32Array,
    dev_gold: Float64Array,
    test_x: Float32Array,
    finished: Callable[[int], None] = lambda epochs: None,
) -> tuple[Float64Array, float | None]:
    """Train the head.

    Args:
        x: features ``[n, d]``.
        gold: scores ``[n]``.
        dev_x: features of the development set ``[m, d]``, which stops the training.
        dev_gold: its scores ``[m]``.
        test_x: features of the test set ``[k, d]``.
        finished: is called with the number of epochs after each round.

    Returns:
        The expected grade of each test pair ``[k]``, and the best Pearson correlation on the development set
        x 100, None if the predictions for it never vary.
    """
    import torch
    from scipy.stats import pearsonr

    head = _Head(x, grades(gold))
    shuffles = np.random.RandomState(TOOLKIT_SEED)
    on_dev = with_ones(dev_x)
    on_test = with_ones(test_x)
    best = -2.0
    best_pearson = None
    predicted = head.expected(on_test)
    worse = 0
    epochs = 0
    while epochs <= MAX_EPOCHS:
        for _ in range(EPOCHS_OF_A_ROUND):
            head.epoch(torch.from_numpy(shuffles.permutation(len(x))))
        epochs += EPOCHS_OF_A_ROUND
        finished(EPOCHS_OF_A_ROUND)
        dev_predicted = head.expected(on_dev)
        pearson = None
        if np.ptp(dev_predicted) > 0:
            pearson = 100 * float(pearsonr(dev_predicted, dev_gold).statistic)
        chosen_by = pearson or 0.0  # a round that predicts the same for all pairs is better than a negative correlation
        if chosen_by > best:
            best = chosen_by
            best_pearson = pearson
            predicted = head.expected(on_test)
        elif worse < TENACITY:
            worse += 1
        else:
            break
    return predicted, best_pearson


class _Head:
    """A linear layer with a softmax; its gradient is written out, which is faster than autograd for small products."""

    def __init__(self, x: Float32Array, target: Float32Array) -> None:
        import torch

        self.x = with_ones(x)
        self.target = torch.from_numpy(target)
        self.weight = first_weights(x.shape[1], GRADES)
        self.optimizer = torch.optim.Adam([self.weight], fused=True)

    def epoch(self, order: Any) -> None:
        """Take a step for each batch of rows in `order`."""
        x = self.x[order]
        target = self.target[order]
        for start in range(0, len(order), _BATCH_SIZE):
            batch = x[start : start + _BATCH_SIZE]
            goal = target[start : start + _BATCH_SIZE]
            share = (batch @ self.weight.T).softmax(dim=1)
            slope = share * (share - goal)
            slope = (slope - share * slope.sum(dim=1, keepdim=True)) * (2 / goal.numel())
            self.weight.grad = slope.T @ batch
            self.optimizer.step()

    def expected(self, x: Any) -> Float64Array:
        """Return the expected grade ``[n]``."""
        shares = (x @ self.weight.T).softmax(dim=1).numpy()
        return shares @ np.arange(1.0, GRADES + 1)
