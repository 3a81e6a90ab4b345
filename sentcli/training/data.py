"""The training data: sentences of files, unlabelled sentences of tasks, scored pairs, and subsets of these."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le

from sentcli.bounds import check
from sentcli.errors import DataError, InputError, nearest
from sentcli.evaluation import sts
from sentcli.evaluation.transfer_tasks import Examples, load_tasks
from sentcli.io.digests import file_digest
from sentcli.io.labelled import STSB_RANGE, range_of
from sentcli.io.readers import ReadOptions, TextCollector, pair_files, scored_pairs, task_name
from sentcli.io.sources import open_source

PAIRED: Literal["seed"] = "seed"
"""The seed of a subset that is drawn by the seed of the training."""
SUBSET_STREAM = 2**31 + 1
"""Sets the random numbers that draw a subset apart from those of order and views."""
FOLD_SEED = 42
"""The seed that shuffles pairs before they are split into folds, as in IS-BERT's code for AFS."""
TOPICS = "topics"
"""The value of ``--hold-out`` that holds out each file in turn."""
PAIRS = "pairs"
"""The value of ``--text-of`` that trains on the sentences of scored pairs, without the scores."""


@dataclass(frozen=True)
class Subset:
    """Which rows of the data are trained on."""

    limit: int | None = None
    """The largest number of rows; None takes all."""
    fraction: float | None = None
    """The share of all rows that is taken, at least one row."""
    seed: int | Literal["seed"] | None = None
    """Draws the rows at random, so that a smaller subset is part of a larger one; None takes the first rows, and
    `PAIRED` stands for the seed of the training until `settled` is called."""

    def __post_init__(self) -> None:
        """Check the bounds under the names that users give: the seed is ``subset_seed`` to them."""
        for name, value, kind, *bounds in (
            ("limit", self.limit, int, Ge(1)),
            ("subset_seed", None if self.seed == PAIRED else self.seed, int, Ge(0)),
            ("fraction", self.fraction, float, Gt(0), Le(1)),
        ):
            if value is not None:
                check(name, value, kind, tuple(bounds))

    def settled(self, recipe: Subset, seed: int) -> Subset:
        """Return the subset with what the recipe says where this one says nothing, and with a number as its seed.

        Args:
            recipe: the subset of the recipe.
            seed: the seed of the training.
        """
        size = recipe if self.limit is None and self.fraction is None else self
        drawn_by = recipe.seed if self.seed is None else self.seed
        return replace(size, seed=seed if drawn_by == PAIRED else drawn_by)

    @property
    def read_limit(self) -> int | None:
        """The number of rows after which reading may stop, or None if all have to be read."""
        return self.limit if self.seed is None and self.fraction is None else None

    def rows(self, total: int) -> npt.NDArray[np.int64]:
        """Return the chosen row numbers, in the order of the data."""
        count = total if self.fraction is None else max(1, round(self.fraction * total))
        count = min(count, total if self.limit is None else self.limit)
        if self.seed is None or count == total:
            return np.arange(min(count, total))
        assert self.seed != PAIRED
        return np.sort(np.random.default_rng([self.seed, SUBSET_STREAM]).permutation(total)[:count])


@dataclass(frozen=True)
class TrainingSentences:
    """Sentences to train on, or pairs of them."""

    sentences: Sequence[str]
    """The sentences, or the first sentence of each pair."""
    files: tuple[dict[str, object], ...]
    """For each file: its name, its SHA-256, and how many of its sentences are trained on."""
    blank: int
    """The number of rows that were left out because they hold nothing but white space."""
    partners: list[str] | None = None
    """The second sentence of each pair."""
    scores: list[float] | None = None
    """The score of each pair, between 0 and 1."""
    score_range: tuple[float, float] = STSB_RANGE
    """The scores in the files that became 0 and 1."""


def read_corpus(files: Sequence[str], *, text_field: str = "text", subset: Subset | None = None) -> TrainingSentences:
    """Read sentences: one for each line of a text file, or one for each row of a table.

    Args:
        files: paths as `open_source` takes them.
        text_field: the column of a table that holds the sentences.
        subset: which of the sentences are trained on.
    """
    subset = subset or Subset()
    collector = TextCollector(ReadOptions(text_field=text_field), subset.read_limit)
    sources = [open_source(name) for name in files]
    row_counts = [collector.read(source) for source in sources]
    texts = collector.texts()
    if not texts:
        raise InputError(f"no sentence to train on in {', '.join(files)}")
    chosen = subset.rows(len(texts))
    paths = [(Path(name).name, source.path) for name, source in zip(files, sources, strict=True)]
    sentences = texts if len(chosen) == len(texts) else texts.select(chosen)
    return TrainingSentences(sentences, _file_facts(paths, row_counts, chosen), collector.blank)


def repetitions(texts: Sequence[str]) -> int:
    """Return how many texts repeat an earlier one; they are compared by 64-bit hashes."""
    return len(texts) - len(np.unique(np.fromiter(map(hash, texts), np.int64, len(texts))))


def _file_facts(
    files: list[tuple[str, Path]], row_counts: list[int], chosen: npt.NDArray[np.int64]
) -> tuple[dict[str, object], ...]:
    """Describe the files, given how many rows came from each and which of all rows were chosen."""
    counts = np.histogram(chosen, np.cumsum([0, *row_counts]))[0].tolist()
    return tuple(
        {"file": name, "sha256": file_digest(path), "sentences": count}
        for (name, path), count in zip(files, counts, strict=True)
    )


def read_pairs(
    files: Sequence[str],
    *,
    subset: Subset | None = None,
    hold_out: str | None = None,
    score_range: tuple[float, float] | None = None,
) -> tuple[TrainingSentences, sts.Pairs | None]:
    """Read scored pairs of sentences.

    Args:
        files: a SentEval ``data/downstream`` folder, whose STS-B training set is read; SentEval's ``sts-train.csv``
            itself; tables with the columns ``sentence1``, ``sentence2`` and ``score``; or a folder of tables.
        subset: which of the pairs are trained on.
        hold_out: which pairs are left out: those of a file, named without its suffix, or a fold such as ``3/10``.
        score_range: the scores that become 0 and 1; None takes what `range_of` finds.

    Returns:
        The training pairs, and the pairs that are held out.
    """
    subset = subset or Subset()
    limit = subset.read_limit if hold_out is None else None
    rows: list[tuple[str, str, float]] = []
    row_counts, paths, names = [], [], [table for name in files for table in _tables(name)]
    for name in names:
        path, pairs = _pairs(name)
        before = len(rows)
        for number, (first, second, score) in enumerate(pairs, 1):
            if len(rows) == limit:
                break
            if score_range is not None and not score_range[0] <= score <= score_range[1]:
                message = f"score {score:g} is not between {score_range[0]:g} and {score_range[1]:g}"
                raise DataError(name, message, line=number, unit="pair")
            rows.append((first, second, score))
        row_counts.append(len(rows) - before)
        paths.append(path)
    if not rows:
        raise InputError(f"no pair to train on in {', '.join(files)}")
    of_stsb = all(Path(name).name == sts.STSB_TRAIN.name for name in names)
    low, high = score_range or (STSB_RANGE if of_stsb else range_of([score for _, _, score in rows]))
    rows = [(first, second, (score - low) / (high - low)) for first, second, score in rows]
    held_out = _held_out(hold_out, [task_name(name) for name in names], row_counts)
    rest = np.setdiff1d(np.arange(len(rows)), held_out)
    if not len(rest):
        raise InputError(f"--hold-out {hold_out} leaves no pair to train on")
    chosen = rest[subset.rows(len(rest))]
    sentences, partners, scores = (list(column) for column in zip(*(rows[i] for i in chosen), strict=True))
    facts = _file_facts([(path.name, path) for path in paths], row_counts, chosen)
    corpus = TrainingSentences(sentences, facts, 0, partners, scores, (low, high))
    return corpus, None if hold_out is None else sts.scored(hold_out, [rows[i] for i in held_out])


def every_hold_out(kind: str, files: Sequence[str]) -> list[str]:
    """Return the names of all files for ``topics``, all N folds for ``N-fold``, and any other value as it is."""
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


def _held_out(hold_out: str | None, names: list[str], row_counts: list[int]) -> npt.NDArray[np.int64]:
    """Return the numbers of the pairs that are held out."""
    total = sum(row_counts)
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
    starts = np.cumsum([0, *row_counts])
    number = names.index(hold_out)
    return np.arange(starts[number], starts[number + 1])


def _refuse_twins(names: Sequence[str]) -> None:
    if twin := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two files of pairs are called {twin}: rename one, so that --hold-out can tell them apart")


def _tables(name: str) -> list[str]:
    """Return the tables that a name stands for: a SentEval folder, a folder of tables, or one table."""
    path = Path(name)
    if path.is_dir() and (path / sts.STSB_TRAIN).parent.is_dir():
        return [str(path / sts.STSB_TRAIN)]
    return pair_files(name)


def _pairs(name: str) -> tuple[Path, Iterator[tuple[str, str, float]]]:
    """Return the path of a table, and its pairs with their scores."""
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

    The sentences of tasks are ordered by a hash of their text, so that the first of them are as good a subset as any:
    the files are sorted by label, and SentEval sorts by length.

    Args:
        name: ``pairs`` for the pairs that `read_pairs` reads, or transfer tasks such as ``MR,CR``. A task with a test
            set gives its training sentences, one that is tested by cross-validation gives all.
        data: for tasks, a SentEval ``data/downstream`` folder.
        subset: which of the sentences, or of the pairs, are trained on.
        hold_out: which pairs are left out, as for `read_pairs`.
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
    examples = task.splits.get("all") or task.splits["train"]
    return [text for example in examples for text in example.texts]
