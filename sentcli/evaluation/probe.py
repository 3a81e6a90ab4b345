"""Linear classifiers on frozen vectors: what the protocols share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError
from sentcli.evaluation.transfer_tasks import Examples

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
class Fitted:
    """Classifiers of some folds and penalties."""

    weights: Floats
    """``[folds, penalties, dim + 1, classes]``; the last row is the bias."""
    accuracy: npt.NDArray[np.float64]
    """On each fold's `dev` ``[folds, penalties]``."""

    def predict(self, fold: int, penalty: int, x: Floats) -> Rows:
        """Return the classes of ``x`` ``[n, dim]``."""
        weight = self.weights[fold, penalty]
        found: Rows = (x @ weight[:-1] + weight[-1]).argmax(axis=1)
        return found


class Trainer(Protocol):
    """Trains the classifiers of several folds."""

    @property
    def folds(self) -> int:
        """Of cross-validation."""

    def penalties(self, task: Examples) -> tuple[float, ...]:
        """Return the strengths to choose from, in the order that breaks ties."""

    def last_fold(self, rows: Rows) -> Fold:
        """Return what the classifier that is tested is trained on, where there is no development set."""

    def train(
        self,
        x: Floats,
        y: Rows,
        classes: int,
        folds: Sequence[Fold],
        penalties: Sequence[Sequence[float]],
        finished: Step,
    ) -> Fitted:
        """Train a classifier for every fold and each of its penalties.

        Args:
            x: features ``[n, dim]``.
            y: classes ``[n]``.
            classes: how many there are.
            folds: rows of `x`.
            penalties: equally many for each fold.
            finished: called with the number of classifiers that have been trained.
        """

    def describe(self) -> dict[str, Any]:
        """Return the choices that move a number."""


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
