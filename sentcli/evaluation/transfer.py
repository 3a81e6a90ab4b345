"""SentEval's transfer tasks: the accuracy of a linear classifier on frozen sentence vectors.

The protocol is that of Conneau and Kiela, "SentEval" (LREC 2018), with the settings of the SimCSE papers. Folds, the
order of the batches and the first weights are those of the original toolkit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.evaluation import significance
from sentcli.evaluation.evaluated import EvaluatedModel, TextVectors
from sentcli.evaluation.logistic import LbfgsTrainer
from sentcli.evaluation.probe import Fold, Grid, Step, Trainer, split
from sentcli.evaluation.score_kinds import TRANSFER
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.stores import digest
from sentcli.evaluation.toolkit_classifier import GradientTrainer
from sentcli.evaluation.transfer_tasks import Examples, content, features, labels

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
PROTOCOLS: dict[str, Trainer] = {
    "full": GradientTrainer(10, "adam", batch_size=64, tenacity=5, epoch_size=4),
    "fast": GradientTrainer(5, "rmsprop", batch_size=128, tenacity=3, epoch_size=2),
    "lbfgs": LbfgsTrainer(),
}


def classifiers(trainer: Trainer, task: Examples) -> int:
    """Return how many classifiers `score` trains."""
    tried = len(trainer.penalties(task))
    if task.kind == "folds":
        return trainer.folds * (trainer.folds * tried + 1)
    return trainer.folds * tried + 1 if task.kind == "test" else tried


@dataclass(frozen=True)
class TransferTask:
    """Examples on which classifiers are trained and tested."""

    examples: Examples
    protocol: str
    """A key of `PROTOCOLS`."""

    @property
    def name(self) -> str:
        """The name of the examples."""
        return self.examples.name

    @property
    def texts(self) -> list[str]:
        """Every text of every example."""
        return self.examples.texts

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""
        return ["transfer", PROTOCOLS[self.protocol].describe(), self.name, digest(content(self.examples))]

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Train and test classifiers on pooled vectors that are not normalised, as the toolkit does."""
        trainer = PROTOCOLS[self.protocol]
        with console.counting(f"{self.name}: classifiers", classifiers(trainer, self.examples)) as finished:
            return score(trainer, self.examples, vectors, finished)


def score(trainer: Trainer, task: Examples, vectors: TextVectors, finished: Step = lambda count: None) -> TaskScore:
    """Choose the penalty, train, and test.

    Args:
        trainer: of the protocol.
        task: the examples.
        vectors: of their texts, pooled and not normalised.
        finished: is called with the number of classifiers that have been trained since the last call.
    """
    x, y = features(task, vectors), labels(task)
    train, test, run = ("all", "all", _nested) if task.kind == "folds" else ("train", "test", _split)
    accuracy, dev_accuracy, penalties, predicted = run(trainer, task, x, y, finished)
    metrics = {"accuracy": accuracy, "dev_accuracy": dev_accuracy}
    correct = predicted == y[test]
    if task.f1:
        from sklearn.metrics import f1_score

        metrics["f1"] = 100 * float(f1_score(y["test"], predicted))
    return TaskScore(
        task=task.name,
        kind=TRANSFER.name,
        metrics=metrics,
        headline=("accuracy",),
        facts={
            "penalties": penalties,
            "train": len(y[train]),
            "test": len(correct),
            "truncated": vectors.truncated(task.texts),
        },
        intervals={"accuracy": significance.accuracy_interval(correct)},
        correct=correct,
    )


_Tested = tuple[float, float, list[float], Rows]
"""The results of classifiers: their accuracy on the test examples and that by which the penalties were chosen, both
times 100; the chosen penalty of each outer fold, the weight of L2 or scikit-learn's C, which is stronger if smaller;
and the predicted classes of the test examples, in the toolkit's order."""


def _split(trainer: Trainer, task: Examples, x: dict[str, Floats], y: dict[str, Rows], finished: Step) -> _Tested:
    train, test = y["train"], y["test"]
    penalties = trainer.penalties(task)
    if task.kind == "test":
        folds = [Fold(fit, dev) for fit, dev in split(train, trainer.folds)]
        grid = trainer.train(Grid(x["train"], train, task.classes, folds, [penalties] * len(folds)), finished)
        chosen, dev_accuracy = best(grid.accuracy)
        last = [trainer.last_fold(np.arange(len(train)))]
        final = trainer.train(Grid(x["train"], train, task.classes, last, [[penalties[chosen]]]), finished)
        predicted = final.predict(0, 0, x["test"])
    else:
        n, m = len(train), len(y["dev"])
        fold = Fold(np.arange(n), np.arange(n, n + m))
        both = np.concatenate([x["train"], x["dev"]]), np.concatenate([train, y["dev"]])
        grid = trainer.train(Grid(*both, task.classes, [fold], [penalties]), finished)
        chosen, dev_accuracy = best(grid.accuracy)
        predicted = grid.predict(0, chosen, x["test"])
    return 100 * float((predicted == test).mean()), dev_accuracy, [penalties[chosen]], predicted


def _nested(trainer: Trainer, task: Examples, xs: dict[str, Floats], ys: dict[str, Rows], finished: Step) -> _Tested:
    x, y = xs["all"], ys["all"]
    penalties = trainer.penalties(task)
    outer = split(y, trainer.folds)
    inner = [Fold(rows[fit], rows[dev]) for rows, _ in outer for fit, dev in split(y[rows], trainer.folds)]
    grid = trainer.train(Grid(x, y, task.classes, inner, [penalties] * len(inner)), finished)
    choices = [best(accuracy) for accuracy in grid.accuracy.reshape(len(outer), trainer.folds, -1)]
    chosen = [penalties[choice] for choice, _ in choices]
    last = [trainer.last_fold(rows) for rows, _ in outer]
    final = trainer.train(Grid(x, y, task.classes, last, [[penalty] for penalty in chosen]), finished)
    predicted = np.zeros_like(y)
    for fold, (_, test) in enumerate(outer):
        predicted[test] = final.predict(fold, 0, x[test])
    correct = predicted == y
    accuracy = float(np.mean([100 * correct[test].mean() for _, test in outer]))
    dev_accuracy = float(np.mean([accuracy for _, accuracy in choices]))
    return accuracy, dev_accuracy, chosen, predicted


def best(accuracy: npt.NDArray[np.float64]) -> tuple[int, float]:
    """Return the position and the mean accuracy of the best penalty of ``[folds, penalties]``, times 100.

    The toolkit compares means that are rounded to two decimals, and takes the first of equal ones.
    """
    means = 100 * accuracy.mean(axis=0)
    chosen = int(np.argmax(np.round(means, 2)))
    return chosen, float(means[chosen])
