"""SentEval's transfer tasks: the accuracy of a linear classifier on frozen sentence vectors.

The protocol is that of Conneau and Kiela, "SentEval" (LREC 2018), with the settings of the SimCSE papers. Folds, the
order of the batches and the first weights are those of the original toolkit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.errors import DataError, InputError, nearest
from sentcli.evaluation import significance
from sentcli.evaluation.cache import digest
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.files import detokenised, fields, read_lines
from sentcli.evaluation.logistic import LbfgsTrainer
from sentcli.evaluation.probe import Fold, GradientTrainer, Grid, Step, Trainer, stratified
from sentcli.evaluation.score_kinds import TRANSFER, ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.text_vectors import TextVectors

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
PROTOCOLS: dict[str, Trainer] = {
    "full": GradientTrainer(10, "adam", batch_size=64, tenacity=5, epoch_size=4),
    "fast": GradientTrainer(5, "rmsprop", batch_size=128, tenacity=3, epoch_size=2),
    "lbfgs": LbfgsTrainer(),
}
FOLDERS = ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC", "SICK")
"""The folders of the tasks in SentEval's ``downstream`` folder."""
Validation = Literal["folds", "test", "dev and test"]
"""The splits of a task: ``folds`` has none, so it needs nested cross-validation; with ``test``, the penalty is chosen
by cross-validation on the training set; with ``dev and test``, by the development set."""


@dataclass(frozen=True)
class Example:
    """One or two texts with a class."""

    texts: tuple[str, ...]
    label: int
    group: int | None = None
    """Examples of one group are in one fold; None stands for a group of its own."""

    @property
    def order(self) -> tuple[int, ...]:
        """The key by which the toolkit sorts examples before it makes folds: numbers of tokens, then the class."""
        numbers_of_tokens = [len(text.split()) for text in self.texts]
        return (*numbers_of_tokens, self.label)


@dataclass(frozen=True)
class Examples:
    """Examples of one task, in the toolkit's order."""

    name: str
    classes: int
    validation: Validation
    splits: dict[str, list[Example]]
    f1: bool = False
    """Whether F1 is reported beside the accuracy."""
    files: str = ""
    """The names of the files of the first split, for messages."""

    @property
    def texts(self) -> list[str]:
        """Every text of every example."""
        texts: list[str] = []
        for examples in self.splits.values():
            for example in examples:
                texts += example.texts
        return texts

    @property
    def groups(self) -> Rows | None:
        """The group of each example of the first split; None if they have none."""
        first_split = next(iter(self.splits.values()))
        groups = [example.group for example in first_split]
        if None in groups:
            return None
        return np.array(groups, np.int64)

    @property
    def content(self) -> list[Any]:
        """The content as JSON, for its hash."""
        content = []
        for split, examples in self.splits.items():
            rows = [[*example.texts, example.label] for example in examples]
            content.append([split, rows])
        return content


def load_tasks(data: Path, names: Sequence[str] | None = None) -> list[Examples]:
    """Read tasks from a SentEval ``downstream`` folder; None is the seven that the papers average.

    Raises:
        InputError: for an unknown task, a missing file, or a folder that holds none of them.
        DataError: for a line that does not parse.
    """
    chosen = list(dict.fromkeys(AVERAGED if names is None else names))
    for name in chosen:
        if name not in LAYOUTS:
            raise InputError(f"unknown task {name!r}{nearest(name, list(LAYOUTS))}; one of: {', '.join(LAYOUTS)}")
    if not any((data / folder).is_dir() for folder in FOLDERS):
        raise InputError(f"{data} is not a SentEval 'downstream' folder: it has neither MR/ nor TREC/ nor SST/")
    return [LAYOUTS[name].read(data, name) for name in chosen]


@dataclass(frozen=True)
class TaskFiles:
    """The files of a task below the folder, and how their lines are read."""

    validation: Validation
    classes: tuple[str, ...]
    files: Mapping[str, Mapping[str, str | None]]
    """The files of each split, with the class of their lines; None if the lines have it."""
    columns: tuple[int, ...] = ()
    """The tab-separated columns of the texts and of the class; empty where the class stands before a separator."""
    separator: str = " "
    encoding: str = "utf-8"
    header: bool = False
    f1: bool = False

    def read(self, data: Path, name: str) -> Examples:
        """Read the examples of all splits, in the toolkit's order.

        Raises:
            InputError: for a missing file, a split without examples, or a class without a training example.
            DataError: for a line that does not parse.
        """
        splits: dict[str, list[Example]] = {}
        for split, files in self.files.items():
            examples: list[Example] = []
            for file, label in files.items():
                examples += self._examples(data / file, name, label)
            splits[split] = sorted(examples, key=lambda example: example.order)
        for split, examples in splits.items():
            if not examples:
                raise InputError(f"{name}: {self._paths(data, split)}: there are no {split} examples")
        first_split, training = next(iter(splits.items()))
        paths = self._paths(data, first_split)
        missing = set(range(len(self.classes))) - {example.label for example in training}
        if missing:
            classes = ", ".join(f"{label} ({self.classes[label]})" for label in sorted(missing))
            raise InputError(f"{name}: {paths}: no training example is of class {classes}")
        return Examples(name, len(self.classes), self.validation, splits, self.f1, files=paths)

    def _paths(self, data: Path, split: str) -> str:
        """Return the names of the files of a split, for messages."""
        return " and ".join(str(data / file) for file in self.files[split])

    def _examples(self, path: Path, name: str, of_file: str | None) -> Iterator[Example]:
        """Yield the examples of a file, whose class is that of the file, or of each line where that is None."""
        for number, line in enumerate(read_lines(path, name, self.encoding), 1):
            if number == 1 and self.header:
                continue
            texts = [line]
            label = of_file
            if self.columns:
                values = fields(line.strip(), max(self.columns) + 1, path, number)
                *texts, label = (values[column] for column in self.columns)
            elif label is None:
                label, _, text = line.strip().partition(self.separator)
                if self.separator == ":":  # TREC has a finer class in between
                    _, _, text = text.partition(" ")
                texts = [text]
            if label not in self.classes:
                problem = f"{label[:40]!r} is not a class; these are: {', '.join(self.classes)}"
                raise DataError(path, problem, line=number)
            yield Example(tuple(map(detokenised, texts)), self.classes.index(label))


def _by_file(positive: str, negative: str) -> TaskFiles:
    return TaskFiles("folds", ("0", "1"), {"all": {positive: "1", negative: "0"}}, encoding="latin-1")


def _by_split(pattern: str, *names: str) -> dict[str, dict[str, str | None]]:
    """Return the only file of each split; the names in the pattern are of train, dev and test, or of train and test."""
    splits = ("train", "dev", "test") if len(names) == 3 else ("train", "test")
    files: dict[str, dict[str, str | None]] = {}
    for split, name in zip(splits, names, strict=True):
        files[split] = {pattern.format(name): None}
    return files


LAYOUTS = {
    "MR": _by_file("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": _by_file("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": _by_file("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": _by_file("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
    "SST2": TaskFiles(
        "dev and test", ("0", "1"), _by_split("SST/binary/sentiment-{}", "train", "dev", "test"), columns=(0, 1)
    ),
    "TREC": TaskFiles(
        "test",
        ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
        _by_split("TREC/{}.label", "train_5500", "TREC_10"),
        separator=":",
        encoding="latin-1",
    ),
    "MRPC": TaskFiles(
        "test",
        ("0", "1"),
        _by_split("MRPC/msr_paraphrase_{}.txt", "train", "test"),
        columns=(3, 4, 0),
        encoding="utf-8-sig",
        header=True,
        f1=True,
    ),
    "SST5": TaskFiles("dev and test", tuple("01234"), _by_split("SST/fine/sentiment-{}", "train", "dev", "test")),
    "SICKEntailment": TaskFiles(
        "dev and test",
        ("CONTRADICTION", "NEUTRAL", "ENTAILMENT"),
        _by_split("SICK/SICK_{}.txt", "train", "trial", "test_annotated"),
        columns=(1, 2, 4),
        header=True,
    ),
}
AVERAGED = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
"""The seven tasks of the papers' tables."""


def features(task: Examples, vectors: TextVectors) -> dict[str, Floats]:
    """Return the features of each split: the vector of a text, or for pairs ``|u - v|`` and ``u * v``."""
    by_split = {}
    for split, examples in task.splits.items():
        first = vectors.of([example.texts[0] for example in examples])
        if len(examples[0].texts) == 1:
            by_split[split] = first
        else:
            by_split[split] = pair_features(first, vectors.of([example.texts[1] for example in examples]))
    return by_split


def pair_features(first: Floats, second: Floats) -> Floats:
    """Return the features of pairs of texts, ``|u - v|`` and ``u * v`` ``[n, 2 dim]``."""
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def labels(task: Examples) -> dict[str, npt.NDArray[np.int64]]:
    """Return the classes of each split."""
    by_split = {}
    for split, examples in task.splits.items():
        by_split[split] = np.array([example.label for example in examples], np.int64)
    return by_split


def classifiers(trainer: Trainer, task: Examples) -> int:
    """Return how many classifiers `score` trains."""
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
    x = features(task, vectors)
    y = labels(task)
    if task.validation == "folds":
        train, test = "all", "all"
        accuracy, dev_accuracy, penalties, predicted = _nested(trainer, task, x, y, finished)
    else:
        train, test = "train", "test"
        accuracy, dev_accuracy, penalties, predicted = _split(trainer, task, x, y, finished)
    metrics = {"accuracy": accuracy, "dev_accuracy": dev_accuracy}
    correct = predicted == y[test]
    if task.f1:
        from sklearn.metrics import f1_score

        metrics["f1"] = 100 * float(f1_score(y["test"], predicted))
    return TaskScore(
        task=task.name,
        kind=TRANSFER.name,
        metrics=metrics,
        shown_metrics=("accuracy",),
        details={
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


def _stratified(task: Examples, y: Rows, folds: int, groups: Rows | None = None) -> list[tuple[Rows, Rows]]:
    """Return the folds of a task's examples; the error of too few names their files."""
    try:
        return stratified(y, folds, groups)
    except InputError as error:
        place = f"{task.name}: {task.files}" if task.files else task.name
        raise InputError(f"{place}: {error}") from error


def _split(trainer: Trainer, task: Examples, x: dict[str, Floats], y: dict[str, Rows], finished: Step) -> _Tested:
    """Choose the penalty by the development set, or by folds of the training set, and test on the test set."""
    has_dev = task.validation == "dev and test"
    penalties = trainer.penalties(has_test=not has_dev)
    train_x, train_y = x["train"], y["train"]
    rows = np.arange(len(train_y))
    if has_dev:
        joint_x = np.concatenate([train_x, x["dev"]])
        joint_y = np.concatenate([train_y, y["dev"]])
        fold = Fold(rows, np.arange(len(train_y), len(joint_y)))
        tried = trainer.train(Grid(joint_x, joint_y, task.classes, [fold], [penalties]), finished)
        chosen, dev_accuracy = best(tried.accuracy)
        predicted = tried.predict(0, chosen, x["test"])
    else:
        folds = [Fold(fit, dev) for fit, dev in _stratified(task, train_y, trainer.folds)]
        grid = Grid(train_x, train_y, task.classes, folds, [penalties] * len(folds))
        chosen, dev_accuracy = best(trainer.train(grid, finished).accuracy)
        final_grid = replace(grid, folds=[trainer.last_fold(rows)], penalties=[[penalties[chosen]]])
        predicted = trainer.train(final_grid, finished).predict(0, 0, x["test"])
    accuracy = 100 * float((predicted == y["test"]).mean())
    return accuracy, dev_accuracy, [penalties[chosen]], predicted


def outer_folds(trainer: Trainer, task: Examples) -> list[tuple[Rows, Rows]]:
    """Return the folds of a task without splits, each as rows to train on and rows to test on.

    Raises:
        InputError: if a class has too few examples, or there are too few groups.
    """
    return _stratified(task, labels(task)["all"], trainer.folds, task.groups)


def _nested(trainer: Trainer, task: Examples, xs: dict[str, Floats], ys: dict[str, Rows], finished: Step) -> _Tested:
    """Test by outer folds, in each of which inner folds of its training rows choose the penalty."""
    x, y = xs["all"], ys["all"]
    penalties = trainer.penalties(has_test=False)
    groups = task.groups
    outer = outer_folds(trainer, task)
    inner = []
    for rows, _ in outer:
        groups_of_rows = None if groups is None else groups[rows]
        for fit, dev in _stratified(task, y[rows], trainer.folds, groups_of_rows):
            inner.append(Fold(rows[fit], rows[dev]))
    grid = Grid(x, y, task.classes, inner, [penalties] * len(inner))
    tried = trainer.train(grid, finished)
    chosen = []
    dev_accuracies = []
    for accuracy_of_inner in tried.accuracy.reshape(len(outer), trainer.folds, -1):
        number, dev_accuracy = best(accuracy_of_inner)
        chosen.append(penalties[number])
        dev_accuracies.append(dev_accuracy)
    last = [trainer.last_fold(rows) for rows, _ in outer]
    final_grid = replace(grid, folds=last, penalties=[[penalty] for penalty in chosen])
    final = trainer.train(final_grid, finished)
    predicted = np.zeros_like(y)
    accuracies = []
    for fold, (_, test) in enumerate(outer):
        predicted[test] = final.predict(fold, 0, x[test])
        accuracies.append(100 * (predicted[test] == y[test]).mean())
    return float(np.mean(accuracies)), float(np.mean(dev_accuracies)), chosen, predicted


def best(accuracy: npt.NDArray[np.float64]) -> tuple[int, float]:
    """Return the position and the mean accuracy of the best penalty of ``[folds, penalties]``, times 100.

    The toolkit compares means that are rounded to two decimals, and takes the first of equal ones.
    """
    means = 100 * accuracy.mean(axis=0)
    chosen = int(np.argmax(np.round(means, 2)))
    return chosen, float(means[chosen])
