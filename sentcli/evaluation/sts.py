"""The seven semantic textual similarity tasks, by SimCSE's protocol.

A task's score is the Spearman correlation between the cosine of the two sentence vectors and the gold score over the
concatenation of all its subsets ("all"). The mean over the subsets, plain and weighted by their sizes, is reported
beside it, because other papers print those (princeton-nlp/SimCSE#4, #150).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.encoder.encoding import Progress
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import DataError, InputError, SentcliError, nearest

Floats = npt.NDArray[np.floating[Any]]

SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),  # the SMT subset's text is not freely available; no paper uses it
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
SPLITS = {
    "STSBenchmark": {"train": "sts-train.csv", "dev": "sts-dev.csv", "test": "sts-test.csv"},
    "SICKRelatedness": {
        "train": "SICK_train.txt",
        "dev": "SICK_trial.txt",
        "test": "SICK_test_annotated.txt",
    },
}
STSB_TRAIN = Path("STS") / "STSBenchmark" / SPLITS["STSBenchmark"]["train"]
"""In a SentEval ``downstream`` folder."""
TASKS = (*SUBSETS, *SPLITS)
SPLIT_NAMES = ("test", "dev", "train")


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs with gold similarities."""

    name: str
    first: list[str]
    second: list[str]
    gold: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class TaskScore:
    """Scores of one task, all times 100."""

    task: str
    spearman: float
    pearson: float
    pairs: int
    spearman_mean: float
    """Mean of the subsets' Spearman correlations."""
    spearman_wmean: float
    """The same, weighted by the subsets' numbers of pairs."""
    subsets: dict[str, float]
    """Spearman of each subset."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {key: value for key, value in vars(self).items() if key != "task"}


@dataclass(frozen=True)
class STSResult:
    """Scores of several tasks."""

    split: str
    tasks: tuple[TaskScore, ...]
    truncated: int
    """Distinct sentences longer than the model's maximum length."""

    @property
    def average(self) -> float:
        """Mean of the tasks' scores, each rounded to two decimals first, as the papers print it."""
        return round(float(np.mean([round(task.spearman, 2) for task in self.tasks])), 2)


def load_task(data: Path, task: str, split: str = "test") -> list[Pairs]:
    """Read one task from a SentEval ``downstream`` folder, one `Pairs` for each subset.

    Raises:
        InputError: unknown task, or a split that it does not have.
        DataError: a missing file, files of unequal length, a line that does not parse.
    """
    if task in SUBSETS:
        if split != "test":
            raise InputError(f"{task} has a test split only; dev and train: {', '.join(SPLITS)}")
        folder = data / "STS" / f"{task}-en-test"
        return [_read_subset(folder, name) for name in SUBSETS[task]]
    if task not in SPLITS:
        raise InputError(f"unknown task {task!r}{nearest(task, list(TASKS))}; one of: {', '.join(TASKS)}")
    name = SPLITS[task][split]
    if task == "STSBenchmark":
        return [read_stsb(data / "STS" / task / name)]
    return [_read_columns(data / "SICK" / name, task, gold=3, first=1, second=2, header=True)]


def load_tasks(data: Path, tasks: Sequence[str] | None, split: str) -> dict[str, list[Pairs]]:
    """Read several tasks; None is every task that has the split.

    Raises:
        InputError: as `load_task`; also if `data` is no SentEval folder.
    """
    if split not in SPLIT_NAMES:
        raise InputError(
            f"unknown split {split!r}{nearest(split, list(SPLIT_NAMES))}; one of: {', '.join(SPLIT_NAMES)}"
        )
    if not (data / "STS").is_dir() and not (data / "SICK").is_dir():
        raise InputError(f"{data} is not a SentEval 'downstream' folder: it has neither STS/ nor SICK/")
    chosen = tasks if tasks else (TASKS if split == "test" else tuple(SPLITS))
    return {task: load_task(data, task, split) for task in chosen}


def _read_subset(folder: Path, name: str) -> Pairs:
    inputs, golds = folder / f"STS.input.{name}.txt", folder / f"STS.gs.{name}.txt"
    sentences, scores = _read_lines(inputs), _read_lines(golds)
    if len(sentences) != len(scores):
        raise DataError(
            inputs, f"{len(sentences)} lines of sentences, but {len(scores)} of gold scores in {golds.name}"
        )
    first, second, gold = [], [], []
    for line, (pair, score) in enumerate(zip(sentences, scores, strict=True), 1):
        if not score.strip():  # not judged (STS15 and STS16 publish more pairs than they score)
            continue
        fields = pair.split("\t")
        if len(fields) < 2:
            raise DataError(inputs, "expected two sentences with a tab between them", line=line)
        first.append(detokenised(fields[0]))
        second.append(detokenised(fields[1]))
        gold.append(_number(score, golds, line))
    return _pairs(golds, name, first, second, gold)


def read_stsb(path: Path) -> Pairs:
    """Read one of STS-B's files (sts-train.csv, sts-dev.csv, sts-test.csv).

    Raises:
        DataError: for a line that does not parse; InputError if the file is missing.
    """
    return _read_columns(path, "STSBenchmark", gold=4, first=5, second=6, header=False)


def _read_columns(path: Path, name: str, *, gold: int, first: int, second: int, header: bool) -> Pairs:
    one, two, scores = [], [], []
    for line, text in enumerate(_read_lines(path), 1):
        if line == 1 and header:
            continue
        fields = text.split("\t")
        if len(fields) <= max(gold, first, second):
            raise DataError(path, f"{len(fields)} tab-separated fields, too few", line=line)
        one.append(detokenised(fields[first]))
        two.append(detokenised(fields[second]))
        scores.append(_number(fields[gold], path, line))
    return _pairs(path, name, one, two, scores)


def _pairs(path: Path, name: str, first: list[str], second: list[str], gold: list[float]) -> Pairs:
    if len(set(gold)) < 2:
        raise DataError(path, f"{len(gold)} pairs, and no two different scores: nothing to correlate with")
    return Pairs(name, first, second, np.array(gold))


def _read_lines(path: Path) -> list[str]:
    """Split at line feeds only: some sentences hold other characters that Unicode calls line separators."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; it is part of SentEval's data/downstream folder") from error
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise DataError(path, "not UTF-8", line=line) from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines and lines[-1] == "" else lines


def _number(text: str, path: Path, line: int) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise DataError(path, f"{text!r} is not a score", line=line) from error
    if not math.isfinite(number):
        raise DataError(path, f"{text!r} is not a score", line=line)
    return number


def detokenised(text: str) -> str:
    """Return whitespace-separated tokens joined by one blank, as SentEval feeds them to encoders."""
    return " ".join(text.split())


def cosine(first: Floats, second: Floats) -> npt.NDArray[np.float64]:
    """Return row-wise cosine similarity ``[n]`` in float64; 0 where a vector is zero, as SentEval does."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    similarity: npt.NDArray[np.float64] = np.divide(
        np.einsum("nd,nd->n", a, b), norms, out=np.zeros(len(a)), where=norms > 0
    )
    return similarity


def aggregate(task: str, subsets: Sequence[tuple[str, Floats, Floats]]) -> TaskScore:
    """Score one task.

    Args:
        task: its name.
        subsets: name, predicted similarity ``[n]`` and gold score ``[n]`` of each subset.

    Raises:
        SentcliError: if a correlation is undefined, because all predictions or all gold scores are equal.
    """
    from scipy.stats import pearsonr, spearmanr

    names = [name for name, _, _ in subsets]
    for name, predicted, gold in subsets:
        for what, values in (("similarities", predicted), ("gold scores", gold)):
            if len(values) < 2 or np.ptp(values) == 0 or not np.isfinite(values).all():
                raise SentcliError(f"{task} {name}: no correlation, the {what} are all equal or not finite")
    by_subset = [100 * float(spearmanr(predicted, gold).statistic) for _, predicted, gold in subsets]
    predicted = np.concatenate([values for _, values, _ in subsets])
    gold = np.concatenate([values for _, _, values in subsets])
    return TaskScore(
        task=task,
        spearman=100 * float(spearmanr(predicted, gold).statistic),
        pearson=100 * float(pearsonr(predicted, gold).statistic),
        pairs=len(gold),
        spearman_mean=float(np.mean(by_subset)),
        spearman_wmean=float(np.average(by_subset, weights=[len(values) for _, _, values in subsets])),
        subsets=dict(zip(names, by_subset, strict=True)),
    )


def evaluate(
    encoder: SentenceEncoder,
    tasks: dict[str, list[Pairs]],
    split: str = "test",
    progress: Progress | None = None,
) -> STSResult:
    """Score an encoder; every distinct sentence of all tasks is encoded once.

    Args:
        encoder: the model.
        tasks: from `load_tasks`.
        split: named in the result.
        progress: as in `SentenceEncoder.encode`.
    """
    pairs = [subset for subsets in tasks.values() for subset in subsets]
    texts = [text for subset in pairs for text in (*subset.first, *subset.second)]
    vectors, stats = encoder.encode_counted(texts, progress=progress)
    scores, start = [], 0
    for task, subsets in tasks.items():
        predicted = []
        for subset in subsets:
            n = len(subset)
            similarity = cosine(vectors[start : start + n], vectors[start + n : start + 2 * n])
            predicted.append((subset.name, similarity, subset.gold))
            start += 2 * n
        scores.append(aggregate(task, predicted))
    return STSResult(split, tuple(scores), stats.truncated)


def distinct_sentences(tasks: dict[str, list[Pairs]]) -> int:
    """Count the distinct sentences of some tasks (what `evaluate` encodes)."""
    return len({text for subsets in tasks.values() for s in subsets for text in (*s.first, *s.second)})
