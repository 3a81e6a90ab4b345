"""The files of SentEval's transfer tasks, and the examples that are read from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sentcli.arrays import Int64Array
from sentcli.errors import DataError, InputError
from sentcli.evaluation.files import detokenised, fields, read_lines, task_names

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

    def of_every(self, step: int) -> Examples:
        """Return the first of every `step` examples of each split."""
        return replace(self, splits={split: examples[::step] for split, examples in self.splits.items()})

    @property
    def groups(self) -> Int64Array | None:
        """The group of each example of the first split; None if they have none."""
        first_split = next(iter(self.splits.values()))
        groups = [example.group for example in first_split]
        if None in groups:
            return None
        return np.array(groups, np.int64)

    @property
    def labels(self) -> dict[str, Int64Array]:
        """The classes of each split."""
        by_split = {}
        for split, examples in self.splits.items():
            by_split[split] = np.array([example.label for example in examples], np.int64)
        return by_split

    @property
    def content(self) -> list[Any]:
        """The content as JSON, for its hash."""
        content = []
        for split, examples in self.splits.items():
            rows = [[*example.texts, example.label] for example in examples]
            content.append([split, rows])
        return content


def load_examples(data: Path, names: str | Sequence[str] | None = None) -> list[Examples]:
    """Read tasks from a SentEval ``downstream`` folder, as for `task_names`; None is the seven that papers average.

    Raises:
        InputError: for an unknown task, a missing file, or a folder that holds none of them.
        DataError: for a line that does not parse.
    """
    chosen = task_names(AVERAGED if names is None else names, LAYOUTS)
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
                paths = self._paths(data, split)
                raise InputError(f"{name}: {paths}: there are no {split} examples")
        first_split, training = next(iter(splits.items()))
        paths = self._paths(data, first_split)
        present = {example.label for example in training}
        missing = []
        for number, class_name in enumerate(self.classes):
            if number not in present:
                missing.append(f"{number} ({class_name})")
        if missing:
            raise InputError(f"{name}: {paths}: no training example is of class {', '.join(missing)}")
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
            number_of_class = self.classes.index(label)
            yield Example(tuple(map(detokenised, texts)), number_of_class)


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
