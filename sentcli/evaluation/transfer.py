"""SentEval's transfer tasks: the accuracy of a linear classifier on frozen sentence vectors.

The protocol is that of Conneau and Kiela, "SentEval" (LREC 2018), with the settings of the SimCSE papers. Folds, the
order of the batches and the first weights are those of the original toolkit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.errors import DataError, InputError, nearest
from sentcli.evaluation import significance
from sentcli.evaluation.evaluated import EvaluatedModel, TextVectors
from sentcli.evaluation.files import detokenised, fields, read_lines
from sentcli.evaluation.logistic import LbfgsTrainer
from sentcli.evaluation.probe import Fold, GradientTrainer, Grid, Step, Trainer, stratified
from sentcli.evaluation.score_kinds import TRANSFER, ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.stores import digest

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
PROTOCOLS: dict[str, Trainer] = {
    "full": GradientTrainer(10, "adam", batch_size=64, tenacity=5, epoch_size=4),
    "fast": GradientTrainer(5, "rmsprop", batch_size=128, tenacity=3, epoch_size=2),
    "lbfgs": LbfgsTrainer(),
}
Validation = Literal["folds", "test", "dev and test"]
"""The splits of a task: ``folds`` has none, so it needs nested cross-validation; with ``test``, the penalty is chosen
by cross-validation on the training set; with ``dev and test``, by the development set."""
TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
SICK_CLASSES = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")


@dataclass(frozen=True)
class Example:
    """One or two texts with a class."""

    texts: tuple[str, ...]
    label: int

    @property
    def order(self) -> tuple[int, ...]:
        """The key by which the toolkit sorts examples before it makes folds: numbers of tokens, then the class."""
        return (*(len(text.split()) for text in self.texts), self.label)


@dataclass(frozen=True)
class Examples:
    """Examples of one task, in the toolkit's order."""

    name: str
    classes: int
    validation: Validation
    splits: dict[str, list[Example]]
    f1: bool = False
    """Whether F1 is reported beside the accuracy."""

    @property
    def texts(self) -> list[str]:
        """Every text of every example."""
        return [text for examples in self.splits.values() for example in examples for text in example.texts]

    @property
    def content(self) -> list[Any]:
        """The content as JSON, for its hash."""
        return [[split, [[*e.texts, e.label] for e in examples]] for split, examples in self.splits.items()]


def load_tasks(data: Path, names: Sequence[str] | None = None) -> list[Examples]:
    """Read tasks from a SentEval ``downstream`` folder; None is the seven that the papers average.

    Raises:
        InputError: for an unknown task, a missing file, or a folder that holds none of them.
        DataError: for a line that does not parse.
    """
    chosen = tuple(dict.fromkeys(names)) if names is not None else AVERAGED
    for name in chosen:
        if name not in READERS:
            raise InputError(f"unknown task {name!r}{nearest(name, list(READERS))}; one of: {', '.join(READERS)}")
    if not any((data / folder).is_dir() for folder in ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC", "SICK")):
        raise InputError(f"{data} is not a SentEval 'downstream' folder: it has neither MR/ nor TREC/ nor SST/")
    return [READERS[name](data, name) for name in chosen]


def _task(
    name: str, classes: int, validation: Validation, splits: dict[str, Iterator[Example]], *, f1: bool = False
) -> Examples:
    ordered = {split: sorted(examples, key=lambda example: example.order) for split, examples in splits.items()}
    for split, examples in ordered.items():
        if not examples:
            raise InputError(f"{name}: there are no {split} examples")
    training = next(iter(ordered.values()))
    if missing := set(range(classes)) - {example.label for example in training}:
        raise InputError(f"{name}: no training example is of class {', '.join(map(str, sorted(missing)))}")
    return Examples(name, classes, validation, ordered, f1)


def _polar(positive: str, negative: str) -> Callable[[Path, str], Examples]:
    """Return the reader of a task with a file for each of its two classes."""

    def read(data: Path, name: str) -> Examples:
        def examples() -> Iterator[Example]:
            for label, file in ((1, positive), (0, negative)):
                for line in read_lines(data / name / file, name, "latin-1"):
                    yield Example((detokenised(line),), label)

        return _task(name, 2, "folds", {"all": examples()})

    return read


def _read_trec(data: Path, name: str) -> Examples:
    def examples(file: str) -> Iterator[Example]:
        path = data / name / file
        for number, line in enumerate(read_lines(path, name, "latin-1"), 1):
            label, _, rest = line.strip().partition(":")
            if label not in TREC_CLASSES:
                raise DataError(path, f"{label[:40]!r} is none of {', '.join(TREC_CLASSES)}", line=number)
            yield Example((detokenised(rest.partition(" ")[2]),), TREC_CLASSES.index(label))

    return _task(name, 6, "test", {"train": examples("train_5500.label"), "test": examples("TREC_10.label")})


def _sst(folder: str, classes: int) -> Callable[[Path, str], Examples]:
    def read(data: Path, name: str) -> Examples:
        def examples(file: str) -> Iterator[Example]:
            path = data / "SST" / folder / file
            for number, line in enumerate(read_lines(path, name), 1):
                if classes == 2:
                    text, label = fields(line.strip(), 2, path, number)[:2]
                else:
                    label, _, text = line.strip().partition(" ")
                yield Example((detokenised(text),), _class(label, classes, path, number))

        splits = {split: examples(f"sentiment-{split}") for split in ("train", "dev", "test")}
        return _task(name, classes, "dev and test", splits)

    return read


def _read_mrpc(data: Path, name: str) -> Examples:
    def examples(split: str) -> Iterator[Example]:
        path = data / name / f"msr_paraphrase_{split}.txt"
        for number, line in enumerate(read_lines(path, name, "utf-8-sig")[1:], 2):
            label, _, _, first, second = fields(line.strip(), 5, path, number)[:5]
            yield Example((detokenised(first), detokenised(second)), _class(label, 2, path, number))

    return _task(name, 2, "test", {split: examples(split) for split in ("train", "test")}, f1=True)


def _read_sick_entailment(data: Path, name: str) -> Examples:
    def examples(file: str) -> Iterator[Example]:
        path = data / "SICK" / file
        for number, line in enumerate(read_lines(path, name)[1:], 2):
            _, first, second, _, label = fields(line.strip(), 5, path, number)[:5]
            if label not in SICK_CLASSES:
                raise DataError(path, f"{label[:40]!r} is none of {', '.join(SICK_CLASSES)}", line=number)
            yield Example((detokenised(first), detokenised(second)), SICK_CLASSES.index(label))

    files = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
    return _task(name, 3, "dev and test", {split: examples(file) for split, file in files.items()})


def _class(text: str, classes: int, path: Path, line: int) -> int:
    if not text.isdecimal() or int(text) >= classes:
        raise DataError(path, f"{text[:40]!r} is not a class from 0 to {classes - 1}", line=line)
    return int(text)


READERS: dict[str, Callable[[Path, str], Examples]] = {
    "MR": _polar("rt-polarity.pos", "rt-polarity.neg"),
    "CR": _polar("custrev.pos", "custrev.neg"),
    "SUBJ": _polar("subj.objective", "subj.subjective"),
    "MPQA": _polar("mpqa.pos", "mpqa.neg"),
    "SST2": _sst("binary", 2),
    "TREC": _read_trec,
    "MRPC": _read_mrpc,
    "SST5": _sst("fine", 5),
    "SICKEntailment": _read_sick_entailment,
}
AVERAGED = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
"""The seven tasks of the papers' tables."""


def features(task: Examples, vectors: TextVectors) -> dict[str, Floats]:
    """Return the features of each split: the vector of a text, or for pairs ``|u - v|`` and ``u * v``."""
    return {
        split: joined(*(vectors.of(side) for side in zip(*(e.texts for e in examples), strict=True)))
        for split, examples in task.splits.items()
    }


def joined(first: Floats, second: Floats | None = None) -> Floats:
    """Return the features of texts ``[n, dim]``, or of pairs: ``|u - v|`` and ``u * v`` ``[n, 2 dim]``."""
    if second is None:
        return first
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def labels(task: Examples) -> dict[str, npt.NDArray[np.int64]]:
    """Return the classes of each split."""
    return {split: np.array([e.label for e in examples], np.int64) for split, examples in task.splits.items()}


def classifiers(trainer: Trainer, task: Examples) -> int:
    """Return how many classifiers `score` trains."""
    tried = len(trainer.penalties(has_test=task.validation == "test"))
    if task.validation == "folds":
        return trainer.folds * (trainer.folds * tried + 1)
    return trainer.folds * tried + 1 if task.validation == "test" else tried


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
        return ["transfer", PROTOCOLS[self.protocol].describe(), self.name, digest(self.examples.content)]

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
    train, test, run = ("all", "all", _nested) if task.validation == "folds" else ("train", "test", _split)
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
    penalties = trainer.penalties(has_test=task.validation == "test")
    if task.validation == "test":
        folds = [Fold(fit, dev) for fit, dev in stratified(train, trainer.folds)]
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
    penalties = trainer.penalties(has_test=task.validation == "test")
    outer = stratified(y, trainer.folds)
    inner = [Fold(rows[fit], rows[dev]) for rows, _ in outer for fit, dev in stratified(y[rows], trainer.folds)]
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
