"""Linear classifiers on frozen vectors: folds, grids, the protocol of their trainers, and SentEval's own classifier.

The toolkit trains one classifier after the other: 410 for a task of nested ten-fold cross-validation with four
penalties. Here the weights of all classifiers with the same number of training examples are one tensor. The toolkit
seeds every classifier alike, so they take their examples in the same order, and all penalties of a fold get the same
batches. Shuffles, first weights and early stopping are the toolkit's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from sentcli.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

TOOLKIT_SEED = 1111
"""The seed of the toolkit, for folds, shuffles and first weights."""
AdvanceClassifiers = Callable[[int], None]
"""Is called with the number of classifiers that have been trained since the last call."""


@dataclass(frozen=True)
class Fold:
    """Rows to train on, and rows that stop the training and choose the penalty."""

    train: Int64Array
    dev: Int64Array
    drawn: int = 0
    """If a shuffle drew `dev`, its number of rows: the training then starts with the second shuffle of its sequence."""


@dataclass(frozen=True)
class Grid:
    """Classifiers to be trained on one data set: one for every fold and each of its penalties."""

    x: Float32Array
    """Features ``[n, dim]``."""
    y: Int64Array
    """Classes ``[n]``."""
    classes: int
    """The number of classes."""
    folds: Sequence[Fold]
    penalties: Sequence[Sequence[float]]
    """The penalties of each fold; every fold has the same number of them."""

    @property
    def runs(self) -> int:
        """The number of classifiers of a fold."""
        return len(self.penalties[0])

    def of_folds(self, folds: Sequence[int]) -> Grid:
        """Return the grid of some folds, given by their numbers."""
        chosen = [self.folds[number] for number in folds]
        penalties = [self.penalties[number] for number in folds]
        return replace(self, folds=chosen, penalties=penalties)

    def empty_weights(self) -> Float32Array:
        """Return zeros in the shape of `TrainedClassifiers.weights`."""
        width = self.x.shape[1] + 1
        return np.zeros((len(self.folds), self.runs, width, self.classes), np.float32)


@dataclass(frozen=True)
class TrainedClassifiers:
    """Classifiers of some folds and penalties."""

    weights: Float32Array
    """``[folds, penalties, dim + 1, classes]``; the last row is the bias."""
    accuracy: Float64Array
    """On each fold's `dev` ``[folds, penalties]``."""

    def predict(self, fold: int, penalty: int, x: Float32Array) -> Int64Array:
        """Return the classes of ``x`` ``[n, dim]``."""
        weight = self.weights[fold, penalty]
        return (x @ weight[:-1] + weight[-1]).argmax(axis=1)


def with_ones(x: Float32Array) -> Tensor:
    """Return features ``[n, dim + 1]`` with a last column of ones, whose weight is the bias."""
    import torch

    ones = np.ones((len(x), 1), np.float32)
    return torch.from_numpy(np.concatenate([x, ones], axis=1))


def first_weights(width: int, outputs: int) -> Tensor:
    """Return a new linear layer of torch under the toolkit's seed ``[outputs, width + 1]``; the bias is last."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(TOOLKIT_SEED)
        layer = torch.nn.Linear(width, outputs)
    return torch.cat([layer.weight.detach(), layer.bias.detach()[:, None]], dim=1)


def stratified(y: Int64Array, folds: int, groups: Int64Array | None = None) -> list[tuple[Int64Array, Int64Array]]:
    """Return the stratified folds of the toolkit, each as rows to train on and rows to test on.

    Args:
        y: the class of each row ``[n]``.
        folds: their number.
        groups: a number for each row; rows of one number are in one fold, and the folds are scikit-learn's
            `StratifiedGroupKFold` ``[n]``.

    Raises:
        InputError: if a class has fewer examples than there are folds, or there are too few groups.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    fewest = int(np.bincount(y).min())
    if fewest < folds:
        raise InputError(f"a class has {fewest} training examples, too few for {folds} folds")
    no_features = np.zeros(len(y))
    if groups is None:
        splitter = StratifiedKFold(folds, shuffle=True, random_state=TOOLKIT_SEED)
        return list(splitter.split(no_features, y))
    count = len(np.unique(groups))
    splits: list[tuple[Int64Array, Int64Array]] = []
    if count >= folds:
        grouped = StratifiedGroupKFold(folds, shuffle=True, random_state=TOOLKIT_SEED)
        splits = list(grouped.split(no_features, y, groups))
    if not splits or any(len(test) == 0 for _, test in splits):
        raise InputError(f"{count} groups to train and test on are too few, or too unequal, for {folds} folds")
    return splits


L2 = (1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True)
class GradientTrainer:
    """The toolkit's own classifier: a linear layer, cross entropy, an optimiser of torch, early stopping.

    Source: SentEval, ``senteval/tools/classifier.py``.
    """

    folds: int
    optimizer: str
    """``adam`` (rate 1e-3) or ``rmsprop`` (rate 1e-2)."""
    batch_size: int
    tenacity: int
    """Rounds without an improvement, in the whole training, that are allowed; the next one stops it."""
    epoch_size: int
    """Epochs in a round, after which `dev` is scored."""
    max_epochs: int = 200

    def penalties(self, *, has_test: bool) -> tuple[float, ...]:
        """Return the weights of the L2 penalty, the weakest first; of equally good ones the first is chosen.

        Args:
            has_test: the task has a test set but no development set.
        """
        return L2

    def last_fold(self, rows: Int64Array) -> Fold:
        """Split the training rows of the final classifier of a task without a development set.

        The first 5 % of the shuffled rows are held out and stop the training.
        """
        order = np.random.RandomState(TOOLKIT_SEED).permutation(len(rows))
        count = max(int(0.05 * len(rows)), 1)
        return Fold(train=rows[order[count:]], dev=rows[order[:count]], drawn=len(rows))

    def describe(self) -> dict[str, Any]:
        """Return the choices that move a score."""
        return {
            "classifier": "linear, cross entropy",
            "folds": self.folds,
            "optimizer": self.optimizer,
            "batch_size": self.batch_size,
            "tenacity": self.tenacity,
            "epoch_size": self.epoch_size,
            "max_epochs": self.max_epochs,
            "l2": list(L2),
            "seed": TOOLKIT_SEED,
        }

    def train(self, grid: Grid, finished: AdvanceClassifiers) -> TrainedClassifiers:
        """Train all classifiers of a grid, those with the same number of examples together.

        Args:
            grid: the classifiers.
            finished: is called as they are done.
        """
        weights = grid.empty_weights()
        accuracy = np.zeros(weights.shape[:2])
        folds_of_shape: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, fold in enumerate(grid.folds):
            folds_of_shape[len(fold.train), fold.drawn].append(number)
        for numbers in folds_of_shape.values():
            training = _Together(self, grid.of_folds(numbers))
            weights[numbers], accuracy[numbers] = training.run(finished)
        return TrainedClassifiers(weights, accuracy)


class _Together:
    """The training of classifiers with the same number of training examples, whose weights are one tensor.

    Weights are kept as ``[folds, penalties * classes, dim + 1]`` and scores as ``[folds, penalties, classes, batch]``:
    with the long axes last, and rows looked up by ``index_select``, a step took a fifth of the time.
    """

    def __init__(self, trainer: GradientTrainer, grid: Grid) -> None:
        import torch

        self.trainer = trainer
        self.classes = grid.classes
        self.folds = grid.folds
        self.runs = grid.runs
        self.x = with_ones(grid.x)
        self.one_hot = torch.nn.functional.one_hot(torch.from_numpy(grid.y), self.classes).float()
        self.rows = torch.from_numpy(np.stack([fold.train for fold in self.folds]))
        penalty = torch.tensor(grid.penalties, dtype=torch.float32)
        self.penalty = penalty.repeat_interleave(self.classes, dim=1)[..., None]
        self.shuffles = np.random.RandomState(TOOLKIT_SEED)
        if self.folds[0].drawn:
            self.shuffles.permutation(self.folds[0].drawn)
        weight = first_weights(grid.x.shape[1], self.classes)
        self.weight = weight.repeat(len(self.folds), self.runs, 1)
        self.optimizer = self._optimizer()
        self.active = np.arange(len(self.folds))
        """The numbers of the folds in `weight`; a fold is removed when all its classifiers have stopped."""

    def _optimizer(self) -> Any:
        import torch

        if self.trainer.optimizer == "adam":
            return torch.optim.Adam([self.weight], fused=True)
        return torch.optim.RMSprop([self.weight])

    def run(self, finished: AdvanceClassifiers) -> tuple[Float32Array, Float64Array]:
        """Return the best weights ``[folds, penalties, dim + 1, classes]`` and their accuracy on `dev`."""
        count = len(self.folds)
        width = self.weight.shape[2]
        best = np.full((count, self.runs), -1, np.int64)
        best_weights = np.zeros((count, self.runs, width, self.classes), np.float32)
        worse = np.zeros((count, self.runs), np.int64)
        going = np.ones((count, self.runs), bool)
        epochs = 0
        while going.any() and epochs <= self.trainer.max_epochs:
            for _ in range(self.trainer.epoch_size):
                self._epoch()
            epochs += self.trainer.epoch_size
            right = self._right()
            going_before = int(going.sum())
            by_run = self.weight.view(len(self.weight), self.runs, self.classes, -1)
            weights = by_run.transpose(2, 3).numpy().copy()
            for place, fold in enumerate(self.active.tolist()):
                better = going[fold] & (right[place] > best[fold])
                best[fold, better] = right[place, better]
                best_weights[fold, better] = weights[place, better]
                not_better = going[fold] & ~better
                stopped = not_better & (worse[fold] >= self.trainer.tenacity)
                going[fold] &= ~stopped
                worse[fold, not_better] += 1
            finished(going_before - int(going.sum()))
            self._remove_stopped(going)
        finished(int(going.sum()))
        dev_sizes = np.array([len(fold.dev) for fold in self.folds])
        return best_weights, best / dev_sizes[:, None]

    def _epoch(self) -> None:
        import torch

        order = torch.from_numpy(self.shuffles.permutation(self.rows.shape[1]))
        for start in range(0, len(order), self.trainer.batch_size):
            batch = order[start : start + self.trainer.batch_size]
            rows = self.rows[:, batch]
            folds, size = rows.shape
            every_row = rows.flatten()
            x = self.x.index_select(0, every_row).view(folds, size, -1)
            target = self.one_hot.index_select(0, every_row).view(folds, 1, size, -1).transpose(2, 3)
            scores = torch.bmm(self.weight, x.transpose(1, 2)).view(folds, self.runs, self.classes, size)
            error = (torch.softmax(scores, dim=2) - target) / size
            self.weight.grad = torch.baddbmm(self.weight * self.penalty, error.flatten(1, 2), x)
            self.optimizer.step()

    def _right(self) -> Int64Array:
        """Return how many examples of its fold's `dev` each classifier has right ``[active folds, penalties]``."""
        import torch

        right = []
        for weight, fold in zip(self.weight, self.active.tolist(), strict=True):
            dev = torch.from_numpy(self.folds[fold].dev)
            scores = weight @ self.x.index_select(0, dev).T
            predicted = scores.view(self.runs, self.classes, len(dev)).argmax(dim=1)
            labels = self.one_hot[dev].argmax(dim=1)
            right.append((predicted == labels).sum(dim=1))
        return torch.stack(right).numpy()

    def _remove_stopped(self, going: BoolArray) -> None:
        """Remove the folds whose classifiers have all stopped."""
        import torch

        is_active = going[self.active].any(axis=1)
        if is_active.all() or not is_active.any():
            return
        places = torch.from_numpy(np.flatnonzero(is_active))
        state = dict(self.optimizer.state[self.weight])
        for name, value in state.items():
            if torch.is_tensor(value) and value.ndim:  # moments have a row for each fold, the number of steps has none
                state[name] = value[places]
        self.weight = self.weight[places]
        self.penalty = self.penalty[places]
        self.rows = self.rows[places]
        self.active = self.active[is_active]
        self.optimizer = self._optimizer()
        self.optimizer.state[self.weight] = state
