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

from sentcli.arrays import Int64Array
from sentcli.evaluation.probe import TOOLKIT_SEED, AdvanceClassifiers, Fold, Grid, TrainedClassifiers, with_ones

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

    def last_fold(self, rows: Int64Array) -> Fold:
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

    def train(self, grid: Grid, finished: AdvanceClassifiers) -> TrainedClassifiers:
        """Train as many at a time as fit into memory."""
        import torch

        weights = grid.empty_weights()
        scores_of_a_fold = len(grid.x) * grid.classes * grid.runs
        folds_at_a_time = max(MOST_SCORES // scores_of_a_fold, 1)
        for start in range(0, len(grid.folds), folds_at_a_time):
            part = range(start, min(start + folds_at_a_time, len(grid.folds)))
            problems = _Problems(grid.of_folds(part))
            solved = torch.zeros(len(problems), problems.width * problems.columns)
            for numbers, weight in _lbfgs(problems, self.max_iter):
                solved[numbers] = weight
                finished(len(numbers))
            by_fold = solved.view(len(part), grid.runs, problems.width, problems.columns)
            # two classes need the weights of one, the last
            weights[part, :, :, -problems.columns :] = problems.in_axes_of_vectors(by_fold).numpy()
        accuracy = np.zeros(weights.shape[:2])
        for number, fold in enumerate(grid.folds):
            if len(fold.dev):
                scores = grid.x[fold.dev] @ weights[number, :, :-1] + weights[number, :, -1:]
                predicted = scores.argmax(axis=2)
                accuracy[number] = (predicted == grid.y[fold.dev]).mean(axis=1)
        return TrainedClassifiers(weights, accuracy)


class _Problems:
    """Mean log loss plus an L2 penalty, for folds and penalties; a problem is a row of weights ``[p, w * c]``."""

    def __init__(self, grid: Grid) -> None:
        import torch

        # of all rows, so that the axes are the same for every part of the folds
        vectors = torch.from_numpy(np.ascontiguousarray(grid.x, np.float32))
        self.mean = vectors.mean(dim=0)
        centred = vectors - self.mean
        covariance = centred.T @ centred / len(vectors)
        variances, self.axes = torch.linalg.eigh(covariance)
        used = np.unique(np.concatenate([fold.train for fold in grid.folds]))
        turned = centred[torch.from_numpy(used)] @ self.axes
        self.x = with_ones(turned.numpy())
        self.width = self.x.shape[1]
        label = torch.from_numpy(grid.y[used])
        if grid.classes == 2:  # the scores of one class say those of the other
            self.target = label[:, None].float()
        else:
            self.target = torch.nn.functional.one_hot(label, grid.classes).float()
        self.columns = self.target.shape[1]
        counts = torch.empty(len(grid.folds), 1)
        share = torch.zeros(len(used), len(grid.folds))
        for number, fold in enumerate(grid.folds):
            counts[number] = len(fold.train)
            share[np.searchsorted(used, fold.train), number] = 1 / len(fold.train)
        self.share = share.repeat_interleave(grid.runs, dim=1)
        """The weight of each example in the mean loss of each problem ``[n, p]``; 0 for examples of other folds."""
        c = torch.tensor(grid.penalties, dtype=torch.float32) * counts
        self.penalty = (1 / c).flatten()
        likely = (1 - 1 / grid.classes) / grid.classes  # the curvature of the loss where all classes are as likely
        variances_and_bias = torch.cat([variances.clamp_min(0), torch.ones(1)])
        of_loss = likely * variances_and_bias.repeat_interleave(self.columns)
        every_weight = torch.ones(len(self), len(of_loss))
        of_penalty = self.penalty[:, None] * self._penalised(every_weight)
        self.curvature = of_loss + of_penalty
        """Roughly the diagonal of the second derivatives, with which L-BFGS begins ``[p, w * c]``."""

    def in_axes_of_vectors(self, weights: Any) -> Any:
        """Return weights ``[..., w, c]`` in the principal axes as weights of the vectors as they were given."""
        import torch

        turned = self.axes @ weights[..., :-1, :]
        bias = weights[..., -1:, :] - (self.mean[:, None] * turned).sum(dim=-2, keepdim=True)
        return torch.cat([turned, bias], dim=-2)

    def __len__(self) -> int:
        return len(self.penalty)

    def keep(self, unsolved: Any) -> None:
        """Drop the problems that are solved."""
        self.share = self.share[:, unsolved]
        self.penalty = self.penalty[unsolved]
        self.curvature = self.curvature[unsolved]

    def scores(self, weight: Any) -> Any:
        """Return the scores of the examples ``[n, p, c]`` for weights ``[p, w * c]``."""
        by_problem = weight.view(len(weight), self.width, self.columns)
        by_feature = by_problem.transpose(0, 1).reshape(self.width, -1)
        scores = self.x @ by_feature
        return scores.view(len(self.x), len(weight), self.columns)

    def loss(self, weight: Any, scores: Any) -> Any:
        """Return the loss of each problem ``[p]``."""
        import torch

        of_target = scores * self.target[:, None]
        if self.columns == 1:
            losses = (torch.nn.functional.softplus(scores) - of_target)[..., 0]
        else:
            losses = scores.logsumexp(dim=2) - of_target.sum(dim=2)
        mean_loss = (losses * self.share).sum(dim=0)
        squares = (self._penalised(weight) ** 2).sum(dim=1)
        return mean_loss + 0.5 * self.penalty * squares

    def slope(self, weight: Any, scores: Any) -> Any:
        """Return the gradient of `loss` ``[p, w * c]``."""
        likelihood = scores.sigmoid() if self.columns == 1 else scores.softmax(dim=2)
        error = (likelihood - self.target[:, None]) * self.share[..., None]
        by_feature = self.x.T @ error.view(len(self.x), -1)
        by_problem = by_feature.view(self.width, len(weight), self.columns).transpose(0, 1)
        of_loss = by_problem.reshape(len(weight), -1)
        return of_loss + self.penalty[:, None] * self._penalised(weight)

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
    loss = problems.loss(weight, scores)
    slope = problems.slope(weight, scores)
    steps: list[tuple[Any, Any, Any]] = []
    for _ in range(max_iter):
        direction = _direction(slope, steps, problems.curvature)
        new_weight, scores, loss, stuck = _search(problems, weight, direction, scores, loss, slope)
        new_slope = problems.slope(new_weight, scores)
        change = new_weight - weight
        bend = new_slope - slope
        curve = (change * bend).sum(dim=1)
        inverse = torch.where(curve > 0, 1 / curve, 0.0)  # 0 ignores a step without positive curvature
        steps = [*steps[-9:], (change, bend, inverse)]  # the curvature is estimated from the last ten
        weight = new_weight
        slope = new_slope
        done = (slope.abs().amax(dim=1) <= TOLERANCE) | stuck
        if done.any():
            yield numbers[done], weight[done]
            unsolved = ~done
            numbers = numbers[unsolved]
            weight = weight[unsolved]
            loss = loss[unsolved]
            slope = slope[unsolved]
            scores = scores[:, unsolved]
            steps = [(change[unsolved], bend[unsolved], inverse[unsolved]) for change, bend, inverse in steps]
            problems.keep(unsolved)
        if not len(numbers):
            return
    yield numbers, weight


def _direction(slope: Any, steps: Sequence[tuple[Any, Any, Any]], curvature: Any) -> Any:
    """Return the direction of the next step ``[p, w * c]`` (algorithm 7.4, begun by a diagonal of the curvature)."""
    import torch

    direction = -slope
    factors = []
    for change, bend, inverse in reversed(steps):
        factor = inverse * (change * direction).sum(dim=1)
        direction = direction - factor[:, None] * bend
        factors.append(factor)
    direction = direction / curvature
    if steps:
        change, bend, inverse = steps[-1]
        curve = (change * bend).sum(dim=1)
        expected = (bend * bend / curvature).sum(dim=1).clamp_min(1e-30)
        scale = torch.where(inverse > 0, curve / expected, 1.0)
        direction = direction * scale.clamp_min(1e-30)[:, None]
    for (change, bend, inverse), factor in zip(steps, reversed(factors), strict=True):
        correction = factor - inverse * (bend * direction).sum(dim=1)
        direction = direction + change * correction[:, None]
    return direction


def _search(problems: _Problems, weight: Any, direction: Any, scores: Any, loss: Any, slope: Any) -> Any:
    """Halve steps that decrease the loss too little; return weights, scores, losses and which problems are stuck."""
    import torch

    predicted = (direction * slope).sum(dim=1)
    along = problems.scores(direction)
    size = torch.ones(len(weight))
    allowed = 1e-6 * loss.abs()  # the relative error of a sum of losses in single precision
    for _ in range(20):
        moved = weight + size[:, None] * direction
        new_scores = scores + size[:, None] * along
        new_loss = problems.loss(moved, new_scores)
        # a step must bring this share of the decrease that the slope predicts (Armijo)
        too_small = new_loss > loss + 1e-4 * size * predicted + allowed
        if not too_small.any():
            return moved, new_scores, new_loss, predicted >= 0
        size = torch.where(too_small, size / 2, size)
    size = torch.where(too_small, 0.0, size)
    moved = weight + size[:, None] * direction
    new_scores = scores + size[:, None] * along
    return moved, new_scores, problems.loss(moved, new_scores), too_small
