"""The examples of SentEval's transfer tasks, and their features for a classifier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError, nearest
from sentcli.evaluation.evaluated import TextVectors
from sentcli.evaluation.files import detokenised, fields, read_lines

Floats = npt.NDArray[np.float32]
Kind = Literal["folds", "test", "dev and test"]
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
    kind: Kind
    """The splits of the task: ``folds`` has none, so it needs nested cross-validation; with ``test``, the penalty is
    chosen by cross-validation on the training set; with ``dev and test``, by the development set."""
    splits: dict[str, list[Example]]
    f1: bool = False
    """Whether F1 is reported beside the accuracy."""

    @property
    def texts(self) -> list[str]:
        """Every text of every example."""
        return [text for examples in self.splits.values() for example in examples for text in example.texts]


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


def _task(name: str, classes: int, kind: Kind, splits: dict[str, Iterator[Example]], *, f1: bool = False) -> Examples:
    ordered = {split: sorted(examples, key=lambda example: example.order) for split, examples in splits.items()}
    for split, examples in ordered.items():
        if not examples:
            raise InputError(f"{name}: there are no {split} examples")
    training = next(iter(ordered.values()))
    if missing := set(range(classes)) - {example.label for example in training}:
        raise InputError(f"{name}: no training example is of class {', '.join(map(str, sorted(missing)))}")
    return Examples(name, classes, kind, ordered, f1)


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


def content(task: Examples) -> list[Any]:
    """Return the content of a task as JSON, for its hash."""
    return [[split, [[*e.texts, e.label] for e in examples]] for split, examples in task.splits.items()]
