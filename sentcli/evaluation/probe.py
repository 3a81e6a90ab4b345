"""Linear classifiers on frozen vectors: what the protocols share."""

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
"""The toolkit's, for folds, shuffles and first weights."""
Step = Callable[[int], None]
"""Called with the number of classifiers that are finished."""


@dataclass(frozen=True)
class Fold:
    """Rows to train on, and rows that stop the training and choose the penalty."""

    train: Rows
    dev: Rows
    drawn: int = 0
    """Rows that were shuffled to draw `dev`: one shuffle of the sequence has been used."""


@dataclass(frozen=True)
class Grid:
    """Classifiers to be trained on one data set: one for every fold and each of its penalties."""

    x: Floats
    """Features ``[n, dim]``."""
    y: Rows
    """Classes ``[n]``."""
    classes: int
    """How many there are."""
    folds: Sequence[Fold]
    """Rows of `x`."""
    penalties: Sequence[Sequence[float]]
    """Equally many for each fold."""

    @property
    def runs(self) -> int:
        """Classifiers of a fold."""
        return len(self.penalties[0])

    def of(self, folds: Sequence[int]) -> Grid:
        """Return the part of some folds, given their numbers."""
        return replace(self, folds=[self.folds[i] for i in folds], penalties=[self.penalties[i] for i in folds])

    def empty_weights(self) -> Floats:
        """Return room for the weights of all classifiers, see `Fitted`."""
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
        """Of cross-validation."""

    def penalties(self, task: Examples) -> tuple[float, ...]:
        """Return the strengths to choose from, in the order that breaks ties."""

    def last_fold(self, rows: Rows) -> Fold:
        """Return what the classifier that is tested is trained on, where there is no development set."""

    def train(self, grid: Grid, finished: Step) -> Fitted:
        """Train them; `finished` is called with the number of classifiers that have been trained."""

    def describe(self) -> dict[str, Any]:
        """Return the choices that move a number."""


def with_ones(x: Floats) -> Tensor:
    """Return features ``[n, dim + 1]`` with a last column of ones, so that the bias is one weight more."""
    import torch

    return torch.from_numpy(np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1))


def first_weights(width: int, outputs: int) -> Tensor:
    """Return what torch makes of the toolkit's seed ``[outputs, width + 1]``; the last column is the bias."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layer = torch.nn.Linear(width, outputs)
    return torch.cat([layer.weight.detach(), layer.bias.detach()[:, None]], dim=1)


def split(y: Rows, folds: int) -> list[tuple[Rows, Rows]]:
    """Return the toolkit's stratified folds, as rows to train on and rows to test on.

    Raises:
        InputError: if a class has fewer examples than there are folds.
    """
    from sklearn.model_selection import StratifiedKFold

    fewest = int(np.bincount(y).min())
    if fewest < folds:
        raise InputError(f"a class has {fewest} training examples, too few for {folds} folds")
    return list(StratifiedKFold(folds, shuffle=True, random_state=SEED).split(np.zeros(len(y)), y))
