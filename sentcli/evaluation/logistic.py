"""Logistic regressions of one data set, trained together for all folds and penalties.

The objective is scikit-learn's, so the classifiers are those of `sklearn.linear_model.LogisticRegression` (a test
compares them). An iteration is one matrix product for all of them, instead of one pass over the examples for each.

The vectors are centred and turned to their principal axes first, which changes no minimum: the bias, which has no
penalty, takes up the mean, and the penalty does not depend on the axes. There the curvature is nearly diagonal and
known, from the variances and the penalty, so that L-BFGS starts from it and needs a fraction of the iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sentcli.evaluation.probe import TOOLKIT_SEED, Fitted, Floats, Fold, Grid, Rows, Step, with_ones

PENALTIES = tuple(2.0**power for power in range(-2, 4))
TEST_PENALTIES = tuple(2.0**power for power in range(-1, 6))
"""Values of scikit-learn's C that the toolkit tries with cross-validation, and for tasks with a test set."""
TOLERANCE = 1e-6
"""A problem is solved if no component of the gradient of the mean loss is larger (scikit-learn's default is 1e-4)."""
MOST_SCORES = 2**25
"""The greatest number of scores (examples, classifiers, classes) that are computed at the same time."""


@dataclass(frozen=True)
class LbfgsTrainer:
    """Trains logistic regressions until they converge."""

    folds: int = 10
    max_iter: int = 1000

    def penalties(self, *, has_test: bool) -> tuple[float, ...]:
        """Return the toolkit's grid of scikit-learn's C, the strongest penalty first."""
        return TEST_PENALTIES if has_test else PENALTIES

    def last_fold(self, rows: Rows) -> Fold:
        """Return all rows to train on, since there is no early stopping."""
        return Fold(rows, rows[:0])

    def describe(self) -> dict[str, Any]:
        """Return the choices that move a score."""
        return {
            "classifier": "logistic regression, scikit-learn's objective, L-BFGS",
            "folds": self.folds,
            "max_iter": self.max_iter,
            "tolerance": TOLERANCE,
            "C": list(PENALTIES),
            "C of tasks with a test set": list(TEST_PENALTIES),
            "seed": TOOLKIT_SEED,
        }

    def train(self, grid: Grid, finished: Step) -> Fitted:
        """Train as many at a time as fit into memory."""
        weights = grid.empty_weights()
        accuracy = np.zeros(weights.shape[:2])
        folds_at_a_time = max(MOST_SCORES // (len(grid.x) * grid.classes * grid.runs), 1)
        for start in range(0, len(grid.folds), folds_at_a_time):
            part = range(start, min(start + folds_at_a_time, len(grid.folds)))
            weights[part] = _minimised(grid.of(part), self.max_iter, finished)
        for number, fold in enumerate(grid.folds):
            if len(fold.dev):
                x = grid.x[fold.dev]
                scores = x @ weights[number, :, :-1] + weights[number, :, -1:]
                accuracy[number] = (scores.argmax(axis=2) == grid.y[fold.dev]).mean(axis=1)
        return Fitted(weights, accuracy)


def _minimised(grid: Grid, max_iter: int, finished: Step) -> Floats:
    """Return the weights of the minima ``[folds, penalties, dim + 1, classes]``."""
    import torch

    problems = _Problems(grid)
    solved = torch.zeros(len(problems), problems.width * problems.columns)
    for numbers, weight in _lbfgs(problems, max_iter):
        solved[numbers] = weight
        finished(len(numbers))
    weights = problems.in_axes_of_vectors(solved.view(len(grid.folds), grid.runs, problems.width, problems.columns))
    if problems.columns == 1:  # two classes need the weights of one
        weights = torch.cat([torch.zeros_like(weights), weights], dim=3)
    return weights.numpy()


class _Problems:
    """Mean log loss plus an L2 penalty, for folds and penalties; a problem is a row of weights ``[p, w * c]``."""

    def __init__(self, grid: Grid) -> None:
        import torch

        used = np.unique(np.concatenate([fold.train for fold in grid.folds]))
        # of all rows, so that the axes are the same for every part of the folds
        vectors = torch.from_numpy(np.ascontiguousarray(grid.x, np.float32))
        self.mean = vectors.mean(dim=0)
        centred = vectors - self.mean
        variances, self.axes = torch.linalg.eigh(centred.T @ centred / len(vectors))
        self.x = with_ones((centred[torch.from_numpy(used)] @ self.axes).numpy())
        self.columns = 1 if grid.classes == 2 else grid.classes
        self.width = self.x.shape[1]
        label = torch.from_numpy(grid.y[used])
        one_hot = torch.nn.functional.one_hot(label, grid.classes)
        self.target = (label[:, None] if self.columns == 1 else one_hot).float()
        counts = [len(fold.train) for fold in grid.folds]
        share = torch.zeros(len(used), len(grid.folds))
        for number, fold in enumerate(grid.folds):
            share[np.searchsorted(used, fold.train), number] = 1 / counts[number]
        self.share = share.repeat_interleave(grid.runs, dim=1)
        """The weight of each example in the mean loss of each problem ``[n, p]``; 0 for examples of other folds."""
        c = torch.tensor(grid.penalties, dtype=torch.float32) * torch.tensor(counts)[:, None]
        self.penalty = (1 / c).flatten()
        likely = (1 - 1 / grid.classes) / grid.classes  # the curvature of the loss where all classes are as likely
        of_loss = likely * torch.cat([variances.clamp_min(0), torch.ones(1)]).repeat_interleave(self.columns)
        self.curvature = of_loss + self.penalty[:, None] * self._penalised(torch.ones(len(self), len(of_loss)))
        """The diagonal of the second derivatives, about, by which L-BFGS begins ``[p, w * c]``."""

    def in_axes_of_vectors(self, weights: Any) -> Any:
        """Return weights ``[..., w, c]`` of the vectors as they were given, of weights in their principal axes."""
        import torch

        turned = self.axes @ weights[..., :-1, :]
        bias = weights[..., -1:, :] - (self.mean[:, None] * turned).sum(dim=-2, keepdim=True)
        return torch.cat([turned, bias], dim=-2)

    def __len__(self) -> int:
        return len(self.penalty)

    def keep(self, unsolved: Any) -> None:
        """Drop the problems that are solved."""
        self.share, self.penalty = self.share[:, unsolved], self.penalty[unsolved]
        self.curvature = self.curvature[unsolved]

    def scores(self, weight: Any) -> Any:
        """Return the scores of the examples ``[n, p, c]`` for weights ``[p, w * c]``."""
        columns = weight.view(len(weight), self.width, self.columns).transpose(0, 1).reshape(self.width, -1)
        return (self.x @ columns).view(len(self.x), len(weight), self.columns)

    def loss(self, weight: Any, scores: Any) -> Any:
        """Return the loss of each problem ``[p]``."""
        import torch

        if self.columns == 1:
            losses = (torch.nn.functional.softplus(scores) - scores * self.target[:, None])[..., 0]
        else:
            losses = scores.logsumexp(dim=2) - (scores * self.target[:, None]).sum(dim=2)
        return (losses * self.share).sum(dim=0) + 0.5 * self.penalty * (self._penalised(weight) ** 2).sum(dim=1)

    def slope(self, weight: Any, scores: Any) -> Any:
        """Return the gradient of `loss` ``[p, w * c]``."""
        guess = scores.sigmoid() if self.columns == 1 else scores.softmax(dim=2)
        error = ((guess - self.target[:, None]) * self.share[..., None]).view(len(self.x), -1)
        slope = (self.x.T @ error).view(self.width, len(weight), self.columns).transpose(0, 1).reshape(len(weight), -1)
        return slope + self.penalty[:, None] * self._penalised(weight)

    def _penalised(self, weight: Any) -> Any:
        """Return the weights with the biases, the last row, set to 0."""
        penalised = weight.clone()
        penalised[:, -self.columns :] = 0
        return penalised


def _lbfgs(problems: _Problems, max_iter: int) -> Any:
    """Yield numbers and weights of problems as L-BFGS solves them (Nocedal and Wright, algorithms 7.4 and 7.5)."""
    import torch

    numbers = torch.arange(len(problems))
    weight = torch.zeros(len(problems), problems.width * problems.columns)
    scores = problems.scores(weight)
    loss, slope = problems.loss(weight, scores), problems.slope(weight, scores)
    steps: list[tuple[Any, Any, Any]] = []
    for _ in range(max_iter):
        direction = _direction(slope, steps, problems.curvature)
        moved, scores, new_loss, stuck = _search(problems, weight, direction, scores, loss, slope)
        new_slope = problems.slope(moved, scores)
        change, bend = moved - weight, new_slope - slope
        curve = (change * bend).sum(dim=1)
        inverse = torch.where(curve > 0, 1 / curve, 0.0)  # 0 ignores a step without positive curvature
        # Number of past steps from which the curvature is estimated
        steps = [*steps[-9:], (change, bend, inverse)]
        weight, loss, slope = moved, new_loss, new_slope
        done = (slope.abs().amax(dim=1) <= TOLERANCE) | stuck
        if done.any():
            yield numbers[done], weight[done]
            unsolved = ~done
            numbers, weight, loss, slope = numbers[unsolved], weight[unsolved], loss[unsolved], slope[unsolved]
            scores = scores[:, unsolved]
            steps = [(change[unsolved], bend[unsolved], inverse[unsolved]) for change, bend, inverse in steps]
            problems.keep(unsolved)
        if not len(numbers):
            return
    yield numbers, weight


def _direction(slope: Any, steps: Sequence[tuple[Any, Any, Any]], curvature: Any) -> Any:
    """Return the direction of the next step ``[p, w * c]`` (algorithm 7.4, begun by a diagonal of the curvature)."""
    direction, factors = -slope, []
    for change, bend, inverse in reversed(steps):
        factor = inverse * (change * direction).sum(dim=1)
        direction = direction - factor[:, None] * bend
        factors.append(factor)
    direction = direction / curvature
    if steps:
        change, bend, inverse = steps[-1]
        scale = (change * bend).sum(dim=1) / (bend * bend / curvature).sum(dim=1).clamp_min(1e-30)
        direction = direction * (scale * (inverse > 0) + (inverse == 0)).clamp_min(1e-30)[:, None]
    for (change, bend, inverse), factor in zip(steps, reversed(factors), strict=True):
        direction = direction + change * (factor - inverse * (bend * direction).sum(dim=1))[:, None]
    return direction


def _search(problems: _Problems, weight: Any, direction: Any, scores: Any, loss: Any, slope: Any) -> Any:
    """Halve steps that decrease the loss too little; return weights, scores, losses and which problems are stuck."""
    import torch

    predicted = (direction * slope).sum(dim=1)
    along = problems.scores(direction)
    size = torch.ones(len(weight))
    # Relative error of a sum of losses in single precision
    allowed = 1e-6 * loss.abs()
    for _ in range(20):
        moved, new_scores = weight + size[:, None] * direction, scores + size[:, None] * along
        new_loss = problems.loss(moved, new_scores)
        # Share of the decrease predicted by the slope that a step must bring (Armijo)
        too_small = new_loss > loss + 1e-4 * size * predicted + allowed
        if not too_small.any():
            return moved, new_scores, new_loss, predicted >= 0
        size = torch.where(too_small, size / 2, size)
    size = torch.where(too_small, 0.0, size)
    moved, new_scores = weight + size[:, None] * direction, scores + size[:, None] * along
    return moved, new_scores, problems.loss(moved, new_scores), too_small
