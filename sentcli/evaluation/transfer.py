"""SentEval's transfer tasks: how well a linear classifier does on frozen sentence vectors.

The protocol is that of Conneau and Kiela, "SentEval" (LREC 2018), with the settings of the SimCSE papers. Folds, the
order of the batches and the first weights are those of the original toolkit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.evaluation import significance
from sentcli.evaluation.cache import digest
from sentcli.evaluation.candidate import Measurement
from sentcli.evaluation.logistic import LbfgsTrainer
from sentcli.evaluation.probe import Fold, Step, Trainer, split
from sentcli.evaluation.toolkit_classifier import GradientTrainer
from sentcli.evaluation.transfer_tasks import TransferTask, content, features, labels
from sentcli.evaluation.vectors import TextVectors

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
PROTOCOLS: dict[str, Trainer] = {
    "full": GradientTrainer(10, "adam", batch_size=64, tenacity=5, epoch_size=4),
    "fast": GradientTrainer(5, "rmsprop", batch_size=128, tenacity=3, epoch_size=2),
    "lbfgs": LbfgsTrainer(),
}


@dataclass(frozen=True)
class TransferScore:
    """What a classifier reaches on one task, times 100."""

    task: str
    accuracy: float
    dev_accuracy: float
    """By which the penalty was chosen."""
    penalties: list[float]
    """L2 penalty that was chosen, of each outer fold; with scikit-learn its C, the smaller the stronger."""
    train: int
    test: int
    """Examples."""
    correct: list[bool]
    """Of each test example, in the toolkit's order; for tests of significance."""
    f1: float | None = None
    truncated: int = 0
    """Distinct texts longer than the model's maximum length."""

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the accuracy."""
        return significance.accuracy_interval(np.array(self.correct))

    def to_record(self) -> dict[str, Any]:
        """Return everything."""
        return dict(vars(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        left_out = ("task", "correct", *(("f1",) if self.f1 is None else ()))
        return {key: value for key, value in vars(self).items() if key not in left_out} | {"interval": self.interval}


@dataclass(frozen=True)
class TransferResult:
    """Scores of several tasks."""

    tasks: tuple[TransferScore, ...]

    @property
    def average(self) -> float:
        """Mean of the accuracies, each rounded to two decimals first, as the papers print it."""
        return round(float(np.mean([round(task.accuracy, 2) for task in self.tasks])), 2)

    @property
    def average_interval(self) -> tuple[float, float]:
        """95 % interval of the average, the tasks taken as independent (normal approximation)."""
        variances = [np.var(task.correct) / len(task.correct) for task in self.tasks]
        spread = 1.96 * 100 * float(np.sqrt(np.sum(variances))) / len(variances)
        return self.average - spread, self.average + spread


def compare(result: TransferResult, other: TransferResult) -> dict[str, significance.Discordance]:
    """Return what sets a model apart from another one on the test examples of each task (McNemar's test)."""
    return {
        one.task: significance.mcnemar(np.array(one.correct), np.array(two.correct))
        for one, two in zip(result.tasks, other.tasks, strict=True)
    }


def classifiers(trainer: Trainer, task: TransferTask) -> int:
    """Return how many classifiers `score` trains."""
    tried = len(trainer.penalties(task))
    if task.kind == "folds":
        return trainer.folds * (trainer.folds * tried + 1)
    return trainer.folds * tried + 1 if task.kind == "test" else tried


def measurement(
    protocol: str, task: TransferTask, counting: Callable[[str, int], AbstractContextManager[Step]]
) -> Measurement[TransferScore]:
    """Return what scores a model on a task.

    Args:
        protocol: a key of `PROTOCOLS`.
        task: the task.
        counting: shows the progress of training a task's classifiers.
    """
    trainer = PROTOCOLS[protocol]

    def run(found: TextVectors) -> TransferScore:
        with counting(f"{task.name}: classifiers", classifiers(trainer, task)) as finished:
            return score(trainer, task, found, finished)

    facts = ["transfer", trainer.describe(), task.name, digest(content(task))]
    return Measurement(task.name, task.texts, facts, run, lambda record: TransferScore(**record))


def score(
    trainer: Trainer, task: TransferTask, found: TextVectors, finished: Step = lambda count: None
) -> TransferScore:
    """Choose the penalty, train, and test.

    Args:
        trainer: the protocol.
        task: the task.
        found: the vectors of its texts, pooled and not normalised: that is what the toolkit's classifiers see.
        finished: called with the number of classifiers that have been trained.
    """
    x, y = features(task, found), labels(task)
    if task.kind == "folds":
        result = _nested(trainer, task, x["all"], y["all"], finished)
    else:
        result = _split(trainer, task, x, y, finished)
    return replace(result, truncated=found.truncated(task.texts))


def _split(
    trainer: Trainer, task: TransferTask, x: dict[str, Floats], y: dict[str, Rows], finished: Step
) -> TransferScore:
    train, test = y["train"], y["test"]
    penalties = trainer.penalties(task)
    if task.kind == "test":
        folds = [Fold(fit, dev) for fit, dev in split(train, trainer.folds)]
        tried = trainer.train(x["train"], train, task.classes, folds, [penalties] * len(folds), finished)
        chosen, dev_accuracy = best(tried.accuracy)
        last = [trainer.last_fold(np.arange(len(train)))]
        fitted = trainer.train(x["train"], train, task.classes, last, [[penalties[chosen]]], finished)
        predicted = fitted.predict(0, 0, x["test"])
    else:
        n, m = len(train), len(y["dev"])
        fold = Fold(np.arange(n), np.arange(n, n + m))
        both = np.concatenate([x["train"], x["dev"]]), np.concatenate([train, y["dev"]])
        tried = trainer.train(*both, task.classes, [fold], [penalties], finished)
        chosen, dev_accuracy = best(tried.accuracy)
        predicted = tried.predict(0, chosen, x["test"])
    right = predicted == test
    return TransferScore(
        task=task.name,
        accuracy=100 * float(right.mean()),
        dev_accuracy=dev_accuracy,
        penalties=[penalties[chosen]],
        train=len(train),
        test=len(test),
        correct=right.tolist(),
        f1=_f1(test, predicted) if task.f1 else None,
    )


def _nested(trainer: Trainer, task: TransferTask, x: Floats, y: Rows, finished: Step) -> TransferScore:
    penalties = trainer.penalties(task)
    outer = split(y, trainer.folds)
    inner = [Fold(rows[fit], rows[dev]) for rows, _ in outer for fit, dev in split(y[rows], trainer.folds)]
    tried = trainer.train(x, y, task.classes, inner, [penalties] * len(inner), finished)
    choices = [best(accuracy) for accuracy in tried.accuracy.reshape(len(outer), trainer.folds, -1)]
    chosen = [penalties[choice] for choice, _ in choices]
    held = [trainer.last_fold(rows) for rows, _ in outer]
    last = trainer.train(x, y, task.classes, held, [[penalty] for penalty in chosen], finished)
    right = np.zeros(len(y), bool)
    for fold, (_, test) in enumerate(outer):
        right[test] = last.predict(fold, 0, x[test]) == y[test]
    return TransferScore(
        task=task.name,
        accuracy=float(np.mean([100 * right[test].mean() for _, test in outer])),
        dev_accuracy=float(np.mean([accuracy for _, accuracy in choices])),
        penalties=chosen,
        train=len(y),
        test=len(y),
        correct=right.tolist(),
    )


def best(accuracy: npt.NDArray[np.float64]) -> tuple[int, float]:
    """Return the position and the mean accuracy of the best penalty of ``[folds, penalties]``, times 100.

    The toolkit compares means that are rounded to two decimals, and takes the first of equal ones.
    """
    means = 100 * accuracy.mean(axis=0)
    chosen = int(np.argmax(np.round(means, 2)))
    return chosen, float(means[chosen])


def _f1(wanted: Rows, found: Rows) -> float:
    from sklearn.metrics import f1_score

    return 100 * float(f1_score(wanted, found))
