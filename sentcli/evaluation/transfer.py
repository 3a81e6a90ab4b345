"""SentEval's transfer tasks: the accuracy of a linear classifier on frozen sentence vectors.

The protocol is that of Conneau and Kiela, "SentEval" (LREC 2018), with the settings of the SimCSE papers. Folds, the
order of the batches and the first weights are those of the original toolkit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sentcli import console
from sentcli.arrays import Float32Array, Float64Array, Int64Array
from sentcli.errors import InputError
from sentcli.evaluation import significance, transfer_data
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.logistic import LbfgsTrainer
from sentcli.evaluation.probe import AdvanceClassifiers, Fold, GradientTrainer, Grid, stratified
from sentcli.evaluation.score_kinds import TRANSFER, ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.transfer_data import Examples
from sentcli.io.digests import json_digest
from sentcli.stores.text_vectors import TextVectors

Trainer = GradientTrainer | LbfgsTrainer
PROTOCOLS: dict[str, Trainer] = {
    "full": GradientTrainer(10, "adam", batch_size=64, tenacity=5, epoch_size=4),
    "fast": GradientTrainer(5, "rmsprop", batch_size=128, tenacity=3, epoch_size=2),
    "lbfgs": LbfgsTrainer(),
}


def features(task: Examples, vectors: TextVectors) -> dict[str, Float32Array]:
    """Return the features of each split: the vector of a text, or for pairs ``|u - v|`` and ``u * v``."""
    by_split = {}
    for split, examples in task.splits.items():
        first = vectors.vectors_of([example.texts[0] for example in examples])
        if len(examples[0].texts) == 1:
            by_split[split] = first
        else:
            by_split[split] = pair_features(first, vectors.vectors_of([example.texts[1] for example in examples]))
    return by_split


def pair_features(first: Float32Array, second: Float32Array) -> Float32Array:
    """Return the features of pairs of texts, ``|u - v|`` and ``u * v`` ``[n, 2 dim]``."""
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def classifiers(trainer: Trainer, task: Examples) -> int:
    """Return how many classifiers `score_transfer` trains."""
    tried = len(trainer.penalties(has_test=task.validation == "test"))
    if task.validation == "dev and test":
        return tried
    validated = trainer.folds * tried + 1
    if task.validation == "test":
        return validated
    return trainer.folds * validated


@dataclass(frozen=True)
class TransferTask:
    """Examples on which classifiers are trained and tested."""

    examples: Examples
    protocol: str
    """A key of `PROTOCOLS`."""
    kind: ClassVar[ScoreKind] = TRANSFER

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
        return ["transfer", PROTOCOLS[self.protocol].describe(), self.name, json_digest(self.examples.content)]

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Train and test classifiers on pooled vectors that are not normalised, as the toolkit does."""
        trainer = PROTOCOLS[self.protocol]
        with console.counting(f"{self.name}: classifiers", classifiers(trainer, self.examples)) as finished:
            return score_transfer(trainer, self.examples, vectors, finished)


def transfer_choices(protocol: str, tasks: Sequence[TransferTask]) -> dict[str, Any]:
    """Return every choice of a protocol of `PROTOCOLS` that moves the scores of tasks, except those of the model."""
    features = {"name": protocol, "features": "pooled vectors before normalisation; |u - v| and u * v of pairs"}
    if not tasks:
        return features
    return features | PROTOCOLS[protocol].describe()


def load_transfer_tasks(data: Path, names: str | Sequence[str] | None, protocol: str) -> list[TransferTask]:
    """Read tasks of a SentEval ``downstream`` folder, as `load_examples` does, for a protocol of `PROTOCOLS`."""
    return [TransferTask(examples, protocol) for examples in transfer_data.load_examples(data, names)]


def score_transfer(
    trainer: Trainer, task: Examples, vectors: TextVectors, finished: AdvanceClassifiers = lambda count: None
) -> TaskScore:
    """Choose the penalty, train, and test.

    Args:
        trainer: of the protocol.
        task: the examples.
        vectors: of their texts, pooled and not normalised.
        finished: is called with the number of classifiers that have been trained since the last call.
    """
    y = task.labels
    experiment = _Experiment(trainer, task, features(task, vectors), y, finished)
    train = "train"
    test = "test"
    if task.validation == "folds":
        train = test = "all"
        tested = experiment.nested()
    elif task.validation == "test":
        tested = experiment.with_test_set()
    else:
        tested = experiment.with_dev_set()
    correct = tested.predicted == y[test]
    metrics = {"accuracy": tested.accuracy, "dev_accuracy": tested.dev_accuracy}
    if task.f1:
        from sklearn.metrics import f1_score

        metrics["f1"] = 100 * float(f1_score(y[test], tested.predicted))
    return TaskScore(
        task=task.name,
        kind=TRANSFER.name,
        metrics=metrics,
        shown_metrics=("accuracy",),
        details={
            "penalties": tested.penalties,
            "train": len(y[train]),
            "test": len(correct),
            "truncated": vectors.truncated(task.texts),
        },
        intervals={"accuracy": significance.accuracy_interval(correct)},
        correct=correct,
    )


class _Tested(NamedTuple):
    """The results of classifiers on their test examples."""

    predicted: Int64Array
    """The classes of the test examples, in the toolkit's order."""
    accuracy: float
    """The accuracy on the test examples, times 100."""
    dev_accuracy: float
    """The accuracy by which the penalties were chosen, times 100."""
    penalties: list[float]
    """The chosen penalty of each outer fold: the weight of L2, or scikit-learn's C, which is stronger if smaller."""


def _stratified(
    task: Examples, y: Int64Array, folds: int, groups: Int64Array | None = None
) -> list[tuple[Int64Array, Int64Array]]:
    """Return the folds of a task's examples; the error of too few names their files."""
    try:
        return stratified(y, folds, groups)
    except InputError as error:
        place = f"{task.name}: {task.files}" if task.files else task.name
        raise InputError(f"{place}: {error}") from error


def outer_folds(trainer: Trainer, task: Examples) -> list[tuple[Int64Array, Int64Array]]:
    """Return the folds of a task without splits, each as rows to train on and rows to test on.

    Raises:
        InputError: if a class has too few examples, or there are too few groups.
    """
    return _stratified(task, task.labels["all"], trainer.folds, task.groups)


@dataclass(frozen=True)
class _Experiment:
    """The classifiers of a task, whose penalties are chosen by folds or by a development set."""

    trainer: Trainer
    task: Examples
    x: dict[str, Float32Array]
    """The features of each split ``[n, dim]``."""
    y: dict[str, Int64Array]
    """The classes of each split ``[n]``."""
    finished: AdvanceClassifiers

    def with_dev_set(self) -> _Tested:
        """Choose the penalty by the development set, and test on the test set."""
        x = self.x
        y = self.y
        count = len(y["train"])
        rows = np.arange(count + len(y["dev"]))
        penalties = self.trainer.penalties(has_test=False)
        grid = Grid(
            x=np.concatenate([x["train"], x["dev"]]),
            y=np.concatenate([y["train"], y["dev"]]),
            classes=self.task.classes,
            folds=[Fold(rows[:count], rows[count:])],
            penalties=[penalties],
        )
        trained = self.trainer.train(grid, self.finished)
        chosen, dev_accuracy = best(trained.accuracy)
        predicted = trained.predict(0, chosen, x["test"])
        return _Tested(predicted, _accuracy(predicted, y["test"]), dev_accuracy, [penalties[chosen]])

    def with_test_set(self) -> _Tested:
        """Choose the penalty by folds of the training set, and test on the test set."""
        rows = np.arange(len(self.y["train"]))
        (predicted,), dev_accuracy, penalties = self._cross_validated("train", [(rows, self.x["test"])])
        return _Tested(predicted, _accuracy(predicted, self.y["test"]), dev_accuracy, penalties)

    def nested(self) -> _Tested:
        """Test by outer folds, in each of which inner folds of its training rows choose the penalty."""
        y = self.y["all"]
        outer = outer_folds(self.trainer, self.task)
        splits = [(rows, self.x["all"][test]) for rows, test in outer]
        of_folds, dev_accuracy, penalties = self._cross_validated("all", splits)
        predicted = np.zeros_like(y)
        accuracies = []
        for (_, test), of_fold in zip(outer, of_folds, strict=True):
            predicted[test] = of_fold
            accuracies.append(_accuracy(of_fold, y[test]))
        return _Tested(predicted, float(np.mean(accuracies)), dev_accuracy, penalties)

    def _cross_validated(
        self, part: str, splits: Sequence[tuple[Int64Array, Float32Array]]
    ) -> tuple[list[Int64Array], float, list[float]]:
        """Choose the penalty of each split by folds of its training rows, train on all of them, and test.

        Args:
            part: the part of the data that has the rows.
            splits: the rows that each is trained on, and the features that it is tested on.

        Returns:
            The predicted classes of each split, the mean accuracy by which penalties were chosen, and the penalties.
        """
        trainer = self.trainer
        task = self.task
        y = self.y[part]
        penalties = trainer.penalties(has_test=task.validation == "test")
        groups = task.groups
        inner = []
        last = []
        for rows, _ in splits:
            groups_of_rows = None if groups is None else groups[rows]
            for fit, dev in _stratified(task, y[rows], trainer.folds, groups_of_rows):
                inner.append(Fold(rows[fit], rows[dev]))
            last.append(trainer.last_fold(rows))
        grid = Grid(self.x[part], y, task.classes, inner, [penalties] * len(inner))
        trained = trainer.train(grid, self.finished)
        chosen = []
        dev_accuracies = []
        for accuracy in trained.accuracy.reshape(len(splits), trainer.folds, -1):
            number, dev_accuracy = best(accuracy)
            chosen.append(penalties[number])
            dev_accuracies.append(dev_accuracy)
        final_grid = replace(grid, folds=last, penalties=[[penalty] for penalty in chosen])
        final = trainer.train(final_grid, self.finished)
        predicted = [final.predict(number, 0, features) for number, (_, features) in enumerate(splits)]
        return predicted, float(np.mean(dev_accuracies)), chosen


def _accuracy(predicted: Int64Array, y: Int64Array) -> float:
    return 100 * float((predicted == y).mean())


def best(accuracy: Float64Array) -> tuple[int, float]:
    """Return the position and the mean accuracy of the best penalty of ``[folds, penalties]``, times 100.

    The toolkit compares means that are rounded to two decimals, and takes the first of equal ones.
    """
    means = 100 * accuracy.mean(axis=0)
    chosen = int(np.argmax(np.round(means, 2)))
    return chosen, float(means[chosen])
