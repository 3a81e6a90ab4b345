"""Linear classifiers on frozen vectors: folds, grids, first weights, and the protocol of their trainers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError
from sentcli.evaluation.transfer_tasks import Examples

if TYPE_CHECKING:
    from torch import Tensor

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
SEED = 1111
"""The seed of the toolkit, for folds, shuffles and first weights."""
Step = Callable[[int], None]
"""Is called with the number of classifiers that have been trained since the last call."""


@dataclass(frozen=True)
class Fold:
    """Rows to train on, and rows that stop the training and choose the penalty."""

    train: Rows
    dev: Rows
    drawn: int = 0
    """If a shuffle drew `dev`, its number of rows: the training then starts with the second shuffle of its sequence."""


@dataclass(frozen=True)
class Grid:
    """Classifiers to be trained on one data set: one for every fold and each of its penalties."""

    x: Floats
    """Features ``[n, dim]``."""
    y: Rows
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

    def of(self, folds: Sequence[int]) -> Grid:
        """Return the grid of some folds, given by their numbers."""
        return replace(self, folds=[self.folds[i] for i in folds], penalties=[self.penalties[i] for i in folds])

    def empty_weights(self) -> Floats:
        """Return zeros in the shape of `Fitted.weights`."""
        return np.zeros((len(self.folds), self.runs, self.x.shape[1] + 1, self.classes), np.float32)


@dataclass(frozen=True)
class Fitted:
    """Classifiers of some folds and penalties."""

    weights: Floats
    """``[folds, penalties, dim + 1, classes]``; the last row is the bias."""
    accuracy: npt.NDArray[np.float64]
    """On each fold's `dev` ``[folds, penalties]``."""

    def predict(self, fold: int, penalty: int, x: Floats) -> Rows:
        """Return the classes of ``x`` ``[n, dim]``."""
        weight = self.weights[fold, penalty]
        return (x @ weight[:-1] + weight[-1]).argmax(axis=1)


class Trainer(Protocol):
    """Trains the classifiers of several folds."""

    @property
    def folds(self) -> int:
        """The number of folds of cross-validation."""

    def penalties(self, task: Examples) -> tuple[float, ...]:
        """Return the penalties to choose from; of equally good ones the first is chosen."""

    def last_fold(self, rows: Rows) -> Fold:
        """Split the training rows for the final classifier of a task without a development set."""

    def train(self, grid: Grid, finished: Step) -> Fitted:
        """Train all classifiers of a grid, and call `finished` as they are done."""

    def describe(self) -> dict[str, Any]:
        """Return the choices that move a score."""


def with_ones(x: Floats) -> Tensor:
    """Return features ``[n, dim + 1]`` with a last column of ones, whose weight is the bias."""
    import torch

    return torch.from_numpy(np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1))


def first_weights(width: int, outputs: int) -> Tensor:
    """Return a new linear layer of torch under the toolkit's seed ``[outputs, width + 1]``; the bias is last."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layer = torch.nn.Linear(width, outputs)
    return torch.cat([layer.weight.detach(), layer.bias.detach()[:, None]], dim=1)


def split(y: Rows, folds: int) -> list[tuple[Rows, Rows]]:
    """Return the stratified folds of the toolkit, each as rows to train on and rows to test on.

    Raises:
        InputError: if a class has fewer examples than there are folds.
    """
    from sklearn.model_selection import StratifiedKFold

    fewest = int(np.bincount(y).min())
    if fewest < folds:
        raise InputError(f"a class has {fewest} training examples, too few for {folds} folds")
    return list(StratifiedKFold(folds, shuffle=True, random_state=SEED).split(np.zeros(len(y)), y))
