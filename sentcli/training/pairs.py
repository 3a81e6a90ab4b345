"""Scored pairs of sentences to train on, and what is held out of them to be scored at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError, nearest
from sentcli.evaluation import sts
from sentcli.io.pairs import pair_files, scored_pairs, task_name
from sentcli.io.sources import open_source
from sentcli.training.data import Corpus, Subset, described

HIGHEST_SCORE = 5.0
"""Of STS-B."""
FOLD_SEED = 42
"""Of the shuffle before folds are made: that of the code in which IS-BERT's paper trained on AFS."""
TOPICS = "topics"
"""Hold out each file in turn."""

Row = tuple[str, str, float]


def read_pairs(
    files: Sequence[str], *, subset: Subset | None = None, hold_out: str | None = None
) -> tuple[Corpus, sts.Pairs | None]:
    """Read scored pairs of sentences.

    Args:
        files: a SentEval ``data/downstream`` folder, whose STS-B training set is read; SentEval's ``sts-train.csv``
            itself; tables with the columns ``sentence1``, ``sentence2`` and ``score`` (0 to 5); or a folder of such.
        subset: which of the pairs.
        hold_out: pairs to leave out: those of a file, by its name without the suffix, or a fold such as ``3/10``.

    Returns:
        What is trained on, and what is held out.

    Raises:
        InputError: if there is no pair, a column is missing, a score is not between 0 and 5, or there is no such file.
    """
    subset = subset or Subset()
    limit = subset.read_limit if hold_out is None else None
    found: list[Row] = []
    taken, paths, names = [], [], [each for name in files for each in _files(name)]
    for name in names:
        path, pairs = _rows(name)
        before = len(found)
        for row, (one, two, score) in enumerate(pairs, 1):
            if len(found) == limit:
                break
            if not 0 <= score <= HIGHEST_SCORE:
                raise DataError(name, f"score {score} is not between 0 and {HIGHEST_SCORE:g}", line=row, unit="pair")
            found.append((one, two, score / HIGHEST_SCORE))
        taken.append(len(found) - before)
        paths.append(path)
    if not found:
        raise InputError(f"no pair to train on in {', '.join(files)}")
    held = _held_out(hold_out, [task_name(name) for name in names], taken)
    rest = np.setdiff1d(np.arange(len(found)), held)
    if not len(rest):
        raise InputError(f"--hold-out {hold_out} leaves no pair to train on")
    chosen = rest[subset.rows(len(rest))]
    first, second, gold = (list(column) for column in zip(*(found[i] for i in chosen), strict=True))
    corpus = Corpus(first, described([(path.name, path) for path in paths], taken, chosen), 0, second, gold)
    return corpus, None if hold_out is None else sts.scored(hold_out, [found[i] for i in held])


def every_hold_out(kind: str, files: Sequence[str]) -> list[str]:
    """Return what ``topics`` or ``N-fold`` means: the names of all files, or all N folds; else the name itself.

    Raises:
        InputError: for a single file, or fewer than two folds.
    """
    if kind == TOPICS:
        names = [task_name(each) for name in files for each in _files(name)]
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
        found: npt.NDArray[np.int64] = list(folds)[number - 1][1]
        return found
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


def _files(name: str) -> list[str]:
    """Return the tables that a name means."""
    path = Path(name)
    if path.is_dir() and (path / sts.STSB_TRAIN).parent.is_dir():
        return [str(path / sts.STSB_TRAIN)]
    return pair_files(name)


def _rows(name: str) -> tuple[Path, Iterator[Row]]:
    """Return a table's file, and its pairs."""
    path = Path(name)
    if path.name == sts.STSB_TRAIN.name:
        columns = sts.read_stsb(path)
        return path, zip(columns.first, columns.second, columns.gold.tolist(), strict=True)
    source = open_source(name)
    return source.path, scored_pairs(source)
