"""What is trained on: sentences of files, sentences of tasks without their labels, scored pairs, subsets of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError, nearest
from sentcli.evaluation import sts
from sentcli.evaluation.transfer_tasks import Examples, load_tasks
from sentcli.io.digests import file_digest
from sentcli.io.readers import ReadOptions, TextCollector, pair_files, scored_pairs, task_name
from sentcli.io.sources import open_source

SUBSET_STREAM = 2**31 + 1
"""Sets the random numbers that draw a subset apart from those of order and views."""
HIGHEST_SCORE = 5.0
"""The score of STS-B that becomes 1."""
FOLD_SEED = 42
"""Shuffles the pairs before folds are made, as in the code in which IS-BERT's paper trained on AFS."""
TOPICS = "topics"
"""Hold out each file in turn."""
PAIRS = "pairs"
"""Train on the sentences of scored pairs, without the scores."""


@dataclass(frozen=True)
class Subset:
    """Which rows of the data are trained on."""

    limit: int | None = None
    """Take so many rows at most; None takes all."""
    fraction: float | None = None
    """Take this share of all rows, at least one."""
    seed: int | None = None
    """Draw the rows at random, a smaller subset always part of a larger; None takes the first."""

    def __post_init__(self) -> None:
        """Refuse what is no number of rows."""
        for name, value in (("limit", self.limit), ("subset_seed", self.seed)):
            if value is not None and (type(value) is not int or value < (name == "limit")):
                raise InputError(f"{name} {value!r}: expected a whole number, at least {int(name == 'limit')}")
        if self.fraction is not None and not (isinstance(self.fraction, (int, float)) and 0 < self.fraction <= 1):
            raise InputError(f"fraction {self.fraction!r}: expected a share above 0, at most 1")

    @property
    def read_limit(self) -> int | None:
        """After how many rows reading may stop."""
        return self.limit if self.seed is None and self.fraction is None else None

    def rows(self, total: int) -> npt.NDArray[np.int64]:
        """Return the chosen row numbers, in the order of the data."""
        count = total if self.fraction is None else max(1, round(self.fraction * total))
        count = min(count, total if self.limit is None else self.limit)
        if self.seed is None or count == total:
            return np.arange(min(count, total))
        return np.sort(np.random.default_rng([self.seed, SUBSET_STREAM]).permutation(total)[:count])


@dataclass(frozen=True)
class TrainingSentences:
    """Sentences to train on, or pairs of them."""

    sentences: Sequence[str]
    """The sentences; of pairs, the first ones."""
    files: tuple[dict[str, object], ...]
    """Name, SHA-256 and number of sentences taken, of each file."""
    blank: int
    """Rows left out because they hold nothing but white space."""
    partners: list[str] | None = None
    """The second sentences of pairs."""
    scores: list[float] | None = None
    """The scores of pairs, between 0 and 1."""


def read_corpus(files: Sequence[str], *, text_field: str = "text", subset: Subset | None = None) -> TrainingSentences:
    """Read sentences, one a line or one a row of a table.

    Args:
        files: paths as `open_source` takes them.
        text_field: column of a table.
        subset: which of the sentences.
    """
    subset = subset or Subset()
    collector = TextCollector(ReadOptions(text_field=text_field), subset.read_limit)
    taken, sources = [], [open_source(name) for name in files]
    for source in sources:
        taken.append(collector.read(source))
    texts = collector.texts()
    if not texts:
        raise InputError(f"no sentence to train on in {', '.join(files)}")
    chosen = subset.rows(len(texts))
    about = _described([(Path(n).name, s.path) for n, s in zip(files, sources, strict=True)], taken, chosen)
    return TrainingSentences(texts if len(chosen) == len(texts) else texts.select(chosen), about, collector.blank)


def _described(
    files: list[tuple[str, Path]], taken: list[int], chosen: npt.NDArray[np.int64]
) -> tuple[dict[str, object], ...]:
    """Describe the files, given how many rows came from each and which of all rows were chosen."""
    counts = np.histogram(chosen, np.cumsum([0, *taken]))[0].tolist()
    return tuple(
        {"file": name, "sha256": file_digest(path), "sentences": count}
        for (name, path), count in zip(files, counts, strict=True)
    )


def read_pairs(
    files: Sequence[str], *, subset: Subset | None = None, hold_out: str | None = None
) -> tuple[TrainingSentences, sts.Pairs | None]:
    """Read scored pairs of sentences.

    Args:
        files: a SentEval ``data/downstream`` folder, whose STS-B training set is read; SentEval's ``sts-train.csv``
            itself; tables with the columns ``sentence1``, ``sentence2`` and ``score`` (0 to 5); or a folder of such.
        subset: which of the pairs.
        hold_out: pairs to leave out: those of a file, by its name without the suffix, or a fold such as ``3/10``.

    Returns:
        What is trained on, and what is held out.
    """
    subset = subset or Subset()
    limit = subset.read_limit if hold_out is None else None
    rows: list[tuple[str, str, float]] = []
    taken, paths, names = [], [], [table for name in files for table in _tables(name)]
    for name in names:
        path, pairs = _pairs(name)
        before = len(rows)
        for number, (first, second, score) in enumerate(pairs, 1):
            if len(rows) == limit:
                break
            if not 0 <= score <= HIGHEST_SCORE:
                message = f"score {score} is not between 0 and {HIGHEST_SCORE:g}"
                raise DataError(name, message, line=number, unit="pair")
            rows.append((first, second, score / HIGHEST_SCORE))
        taken.append(len(rows) - before)
        paths.append(path)
    if not rows:
        raise InputError(f"no pair to train on in {', '.join(files)}")
    held_out = _held_out(hold_out, [task_name(name) for name in names], taken)
    rest = np.setdiff1d(np.arange(len(rows)), held_out)
    if not len(rest):
        raise InputError(f"--hold-out {hold_out} leaves no pair to train on")
    chosen = rest[subset.rows(len(rest))]
    sentences, partners, scores = (list(column) for column in zip(*(rows[i] for i in chosen), strict=True))
    about = _described([(path.name, path) for path in paths], taken, chosen)
    corpus = TrainingSentences(sentences, about, 0, partners, scores)
    return corpus, None if hold_out is None else sts.scored(hold_out, [rows[i] for i in held_out])


def every_hold_out(kind: str, files: Sequence[str]) -> list[str]:
    """Return what ``topics`` or ``N-fold`` means: the names of all files, or all N folds; else the name itself."""
    if kind == TOPICS:
        names = [task_name(table) for name in files for table in _tables(name)]
        _refuse_twins(names)
        if len(names) < 2:
            raise InputError("--hold-out topics: give a folder of tables, one for each topic, or several tables")
        return names
    if match := re.fullmatch(r"(\d+)-fold", kind):
        count = int(match[1])
        if count < 2:
            raise InputError(f"--hold-out {kind}: at least two folds are needed")
        return [f"{number}/{count}" for number in range(1, count + 1)]
    return [kind]


def _held_out(hold_out: str | None, names: list[str], taken: list[int]) -> npt.NDArray[np.int64]:
    """Return the numbers of the pairs that are held out."""
    total = sum(taken)
    if hold_out is None:
        return np.arange(0)
    if match := re.fullmatch(r"(\d+)/(\d+)", hold_out):
        from sklearn.model_selection import KFold

        number, count = int(match[1]), int(match[2])
        if not 1 <= number <= count or not 2 <= count <= total:
            raise InputError(f"--hold-out {hold_out}: expected a fold of {total} pairs, such as 1/10")
        folds = KFold(count, shuffle=True, random_state=FOLD_SEED).split(np.arange(total))
        return list(folds)[number - 1][1]
    _refuse_twins(names)
    if hold_out not in names:
        raise InputError(
            f"--hold-out {hold_out}: no such file of pairs{nearest(hold_out, names)}; a fold such as 1/10, or one of: "
            f"{', '.join(names)}"
        )
    ends = np.cumsum([0, *taken])
    place = names.index(hold_out)
    return np.arange(ends[place], ends[place + 1])


def _refuse_twins(names: Sequence[str]) -> None:
    if twin := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two files of pairs are called {twin}: rename one, so that --hold-out can tell them apart")


def _tables(name: str) -> list[str]:
    """Return the tables that a name means."""
    path = Path(name)
    if path.is_dir() and (path / sts.STSB_TRAIN).parent.is_dir():
        return [str(path / sts.STSB_TRAIN)]
    return pair_files(name)


def _pairs(name: str) -> tuple[Path, Iterator[tuple[str, str, float]]]:
    """Return a table's file, and its pairs."""
    path = Path(name)
    if path.name == sts.STSB_TRAIN.name:
        columns = sts.read_stsb(path)
        return path, zip(columns.first, columns.second, columns.gold.tolist(), strict=True)
    source = open_source(name)
    return source.path, scored_pairs(source)


def read_task_text(
    name: str, data: Sequence[str], *, subset: Subset | None = None, hold_out: str | None = None
) -> TrainingSentences:
    """Read the distinct sentences of some tasks without their labels, as IS-BERT's paper does ("IS-BERT-task").

    Those of tasks come in an order that depends on their text alone, so that a subset of the first is as good as any:
    the files are sorted by label, and SentEval sorts by length.

    Args:
        name: ``pairs`` for what `read_pairs` reads of `data`, or transfer tasks such as ``MR,CR``; of a task with a
            test set the training sentences, of one that is tested by folds all.
        data: for tasks, a SentEval ``data/downstream`` folder.
        subset: which of the sentences; of pairs, which of the pairs.
        hold_out: pairs to leave out.
    """
    if name == PAIRS:
        corpus, _ = read_pairs(data, subset=subset, hold_out=hold_out)
        assert corpus.partners is not None
        subset, texts = None, [*corpus.sentences, *corpus.partners]
    elif len(data) != 1 or hold_out is not None:
        raise InputError(f"--text-of {name} reads one SentEval data/downstream folder, without --hold-out")
    else:
        names = [part.strip() for part in name.split(",") if part.strip()]
        texts = [text for task in load_tasks(Path(data[0]), names) for text in _sentences(task)]
    sentences = list(dict.fromkeys(text for text in texts if text.strip()))
    if name != PAIRS:
        sentences.sort(key=lambda text: hashlib.sha256(text.encode()).digest())
    chosen = [sentences[row] for row in (subset or Subset()).rows(len(sentences))]
    whole = hashlib.sha256("\n".join(sentences).encode()).hexdigest()
    return TrainingSentences(chosen, ({"file": f"text of {name}", "sha256": whole, "sentences": len(chosen)},), 0)


def _sentences(task: Examples) -> list[str]:
    learned = task.splits.get("all") or task.splits["train"]
    return [text for example in learned for text in example.texts]
