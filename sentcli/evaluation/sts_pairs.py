"""Scored pairs of sentences: those of the seven semantic textual similarity tasks, and of tables of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sentcli.arrays import Float64Array
from sentcli.bounds import one_of
from sentcli.errors import DataError, InputError
from sentcli.evaluation.files import detokenised, fields, number, read_lines, task_names
from sentcli.io.labelled import LabelledTable, read_table
from sentcli.io.labelled_records import pair_files, task_name

SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),  # the SMT subset's text is not freely available; no paper uses it
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
SPLITS = {
    "STSBenchmark": {"train": "sts-train.csv", "dev": "sts-dev.csv", "test": "sts-test.csv"},
    "SICKRelatedness": {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"},
}
STSB_TRAIN = Path("STS") / "STSBenchmark" / SPLITS["STSBenchmark"]["train"]
"""The path in a SentEval ``downstream`` folder."""
TASKS = (*SUBSETS, *SPLITS)
SPLIT_NAMES = ("test", "dev", "train")


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs with gold similarities."""

    name: str
    first: list[str]
    second: list[str]
    gold: Float64Array

    def __len__(self) -> int:
        return len(self.first)

    @property
    def texts(self) -> list[str]:
        """Every sentence, the first ones in front."""
        return [*self.first, *self.second]

    def of_rows(self, rows: Sequence[int]) -> Pairs:
        """Return some of the pairs, given by their positions from 0."""
        first = [self.first[row] for row in rows]
        second = [self.second[row] for row in rows]
        return Pairs(self.name, first, second, self.gold[list(rows)])


def load_task(data: Path, task: str, split: str = "test") -> list[Pairs]:
    """Read one task from a SentEval ``downstream`` folder, one `Pairs` for each subset.

    Raises:
        InputError: for an unknown task, a split that it does not have, or a missing file.
        DataError: for files of unequal length, or a line that does not parse.
    """
    one_of("task", task, TASKS)
    if task == "STSBenchmark":
        return [_read_stsb(data / "STS" / task / SPLITS[task][split])]
    if task == "SICKRelatedness":
        path = data / "SICK" / SPLITS[task][split]
        return [_read_columns(path, task, gold=3, first=1, second=2, header=True)]
    if split != "test":
        raise InputError(f"{task} has a test split only; dev and train: {', '.join(SPLITS)}")
    folder = data / "STS" / f"{task}-en-test"
    return [_read_subset(folder, name, task) for name in SUBSETS[task]]


def load_pairs(data: Path, tasks: str | Sequence[str] | None, split: str) -> dict[str, list[Pairs]]:
    """Read several tasks, as for `task_names`; None reads every task that has the split.

    Raises:
        InputError: as `load_task`; also if `data` is no SentEval folder.
    """
    one_of("split", split, SPLIT_NAMES)
    if not (data / "STS").is_dir() and not (data / "SICK").is_dir():
        raise InputError(f"{data} is not a SentEval 'downstream' folder: it has neither STS/ nor SICK/")
    if tasks is None:
        tasks = TASKS if split == "test" else tuple(SPLITS)
    return {task: load_task(data, task, split) for task in task_names(tasks, TASKS)}


def _read_subset(folder: Path, name: str, task: str) -> Pairs:
    inputs = folder / f"STS.input.{name}.txt"
    golds = folder / f"STS.gs.{name}.txt"
    sentences = read_lines(inputs, task)
    scores = read_lines(golds, task)
    if len(sentences) != len(scores):
        raise DataError(
            inputs, f"{len(sentences)} lines of sentences, but {len(scores)} of gold scores in {golds.name}"
        )
    rows = []
    for line, (pair, score) in enumerate(zip(sentences, scores, strict=True), 1):
        if score.strip():  # others were not judged: STS15 and STS16 publish more pairs than they score
            first, second, *_ = fields(pair, 2, inputs, line)
            gold = number(score, golds, line)
            rows.append((detokenised(first), detokenised(second), gold))
    return pairs_of_rows(golds, name, rows)


def _read_stsb(path: Path) -> Pairs:
    """Read one of STS-B's files (sts-train.csv, sts-dev.csv, sts-test.csv).

    Raises:
        DataError: for a line that does not parse; InputError if the file is missing.
    """
    return _read_columns(path, "STSBenchmark", gold=4, first=5, second=6, header=False)


def read_pairs(file: str, columns: str | None = None) -> dict[str, list[Pairs]]:
    """Read a task from each table with the columns ``sentence1``, ``sentence2`` and ``score``.

    Args:
        file: csv, tsv, jsonl or parquet, also gzipped, or a folder of such files; a task is named after its file.
        columns: other names of the columns, as ``A,B,SCORE``.

    Raises:
        DataError: for a row that lacks a column or a score; InputError if there is no such file.
    """
    tasks: dict[str, list[Pairs]] = {}
    for table in pair_files(file):
        name = task_name(table)
        if name == "average":
            raise InputError(f"{table}: a task cannot be called average; rename the file")
        if name in tasks:
            raise InputError(f"{table}: there is a task {name} already; rename the file")
        tasks[name] = [scored_table(read_table(table, kind="scored", fields=columns), name)]
    return tasks


def scored_table(table: LabelledTable, name: str) -> Pairs:
    """Return the pairs of a table of scored pairs under a name.

    Raises:
        DataError: if all scores are equal.
    """
    first, second = table.texts
    gold = map(float, table.values or [])
    return pairs_of_rows(table.name, name, zip(first, second, gold, strict=True))


def _read_columns(path: Path, name: str, *, gold: int, first: int, second: int, header: bool) -> Pairs:
    """Read the pairs of a file with tab-separated columns, whose numbers from 0 are given."""
    rows = []
    for line, text in enumerate(read_lines(path, name), 1):
        if line == 1 and header:
            continue
        columns = fields(text, 1 + max(gold, first, second), path, line)
        score = number(columns[gold], path, line)
        first_text = detokenised(columns[first])
        second_text = detokenised(columns[second])
        rows.append((first_text, second_text, score))
    return pairs_of_rows(path, name, rows)


def pairs_of_rows(source: str | Path, name: str, rows: Iterable[tuple[str, str, float]]) -> Pairs:
    """Return rows of two sentences and a score as pairs.

    Args:
        source: of the rows, mostly a file, for messages.
        name: of the pairs.
        rows: the first sentence, the second one, and the score of each pair.

    Raises:
        DataError: if all scores are equal.
    """
    rows = list(rows)
    scores = {score for _, _, score in rows}
    if len(scores) < 2:
        raise DataError(Path(source), f"{len(rows)} pairs, and no two different scores: nothing to correlate with")
    first, second, gold = zip(*rows, strict=True)
    return Pairs(name, list(first), list(second), np.array(gold))


def content(subsets: Sequence[Pairs]) -> list[Any]:
    """Return the content of a task as JSON, for its hash."""
    return [[pairs.name, pairs.first, pairs.second, pairs.gold.tolist()] for pairs in subsets]
