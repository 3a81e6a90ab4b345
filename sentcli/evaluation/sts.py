"""The seven semantic textual similarity tasks, by SimCSE's protocol.

A task's score is the Spearman correlation between the cosine of the two sentence vectors and the gold score over the
concatenation of all its subsets ("all"). The mean over the subsets, plain and weighted by their sizes, is reported
beside it, because other papers print those (princeton-nlp/SimCSE#4, #150).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import DataError, InputError, SentcliError, nearest
from sentcli.evaluation import significance, vectors
from sentcli.evaluation.cache import digest
from sentcli.evaluation.candidate import Measurement
from sentcli.evaluation.files import detokenised, fields, number, read_lines
from sentcli.evaluation.vectors import TextVectors
from sentcli.io.pairs import pair_files, scored_pairs, task_name
from sentcli.io.sources import open_source
from sentcli.model.encoding import Progress

Floats = npt.NDArray[Any]

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
ROUNDING = 1e-6
"""Relative differences of similarities that single precision does not resolve: they count as equal."""
SPLIT_NAMES = ("test", "dev", "train")


@dataclass(frozen=True)
class Aggregation:
    """How the subsets of a task become one number."""

    score: str
    """The attribute of `TaskScore` that holds it."""
    title: str


AGGREGATIONS = {
    "all": Aggregation("spearman", "all (subsets concatenated)"),
    "mean": Aggregation("spearman_mean", "mean of the subsets"),
    "wmean": Aggregation("spearman_wmean", "mean of the subsets, weighted by size"),
}


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
    truncated: int = 0
    """Distinct sentences longer than the model's maximum length."""
    zero_vectors: int = 0
    """Sentences whose vector is zero; their similarity to any other counts as 0."""
    dev_pearson: float | None = None
    """Of a trained head, on the development set."""
    mse: float | None = None
    """Of a trained head: mean squared error, in the unit of the gold scores."""
    draws: npt.NDArray[np.float64] | None = field(default=None, repr=False)
    """The aggregated score of samples of the pairs ``[draws]``, see `significance.spearman_draws`; None if not asked
    for."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; ``interval`` holds 95 % of the draws, if there are any."""
        found = {key: value for key, value in vars(self).items() if key not in ("task", "draws") and value is not None}
        return found if self.draws is None else {**found, "interval": significance.interval(self.draws)}

    def to_record(self) -> dict[str, Any]:
        """Return everything, for `from_record`."""
        return {**vars(self), "draws": None if self.draws is None else self.draws.tolist()}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> TaskScore:
        """Return what `to_record` was called on."""
        return cls(**{**record, "draws": None if record["draws"] is None else np.array(record["draws"])})


@dataclass(frozen=True)
class STSResult:
    """Scores of several tasks."""

    split: str
    tasks: tuple[TaskScore, ...]
    aggregation: str = "all"
    """A key of `AGGREGATIONS`, which the average is taken of."""

    @property
    def truncated(self) -> int:
        """Sentences longer than the model's maximum length, each counted once for each task that has it."""
        return sum(task.truncated for task in self.tasks)

    @property
    def zero_vectors(self) -> int:
        """Sentences whose vector is zero."""
        return sum(task.zero_vectors for task in self.tasks)

    @property
    def average(self) -> float:
        """Mean of the tasks' scores, each rounded to two decimals first, as the papers print it."""
        return round(float(np.mean([round(self.score(task), 2) for task in self.tasks])), 2)

    @property
    def average_pearson(self) -> float:
        """Mean of the tasks' Pearson correlations, each rounded first; IS-BERT prints it for AFS."""
        return round(float(np.mean([round(task.pearson, 2) for task in self.tasks])), 2)

    def score(self, task: TaskScore) -> float:
        """Return the aggregated score of a task."""
        found: float = getattr(task, AGGREGATIONS[self.aggregation].score)
        return found

    @property
    def average_draws(self) -> npt.NDArray[np.float64] | None:
        """The mean over the tasks of their draws ``[draws]``; None if there are none."""
        draws = [task.draws for task in self.tasks if task.draws is not None]
        return np.mean(draws, axis=0) if draws else None


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
        return [_read_subset(folder, name, task) for name in SUBSETS[task]]
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
    chosen = dict.fromkeys(tasks) if tasks else (TASKS if split == "test" else tuple(SPLITS))
    return {task: load_task(data, task, split) for task in chosen}


def _read_subset(folder: Path, name: str, task: str) -> Pairs:
    inputs, golds = folder / f"STS.input.{name}.txt", folder / f"STS.gs.{name}.txt"
    sentences, scores = read_lines(inputs, task), read_lines(golds, task)
    if len(sentences) != len(scores):
        raise DataError(
            inputs, f"{len(sentences)} lines of sentences, but {len(scores)} of gold scores in {golds.name}"
        )
    first, second, gold = [], [], []
    for line, (pair, score) in enumerate(zip(sentences, scores, strict=True), 1):
        if not score.strip():  # not judged (STS15 and STS16 publish more pairs than they score)
            continue
        one, two, *_ = fields(pair, 2, inputs, line)
        first.append(detokenised(one))
        second.append(detokenised(two))
        gold.append(number(score, golds, line))
    return _pairs(golds, name, first, second, gold)


def read_stsb(path: Path) -> Pairs:
    """Read one of STS-B's files (sts-train.csv, sts-dev.csv, sts-test.csv).

    Raises:
        DataError: for a line that does not parse; InputError if the file is missing.
    """
    return _read_columns(path, "STSBenchmark", gold=4, first=5, second=6, header=False)


def read_pairs(file: str) -> dict[str, list[Pairs]]:
    """Read tasks of one's own from tables with the columns ``sentence1``, ``sentence2`` and ``score``.

    Args:
        file: csv, tsv, jsonl or parquet, also gzipped, or a folder of such; a task has the name of its file.

    Raises:
        DataError: for a row that lacks a column or a score; InputError if there is no such file.
    """
    found: dict[str, list[Pairs]] = {}
    for each in pair_files(file):
        name = task_name(each)
        if name == "average":
            raise InputError(f"{each}: a task cannot be called average; rename the file")
        if name in found:
            raise InputError(f"{each}: there is a task {name} already; rename the file")
        found[name] = [scored(each, list(scored_pairs(open_source(each))))]
    return found


def scored(place: str, rows: Sequence[tuple[str, str, float]]) -> Pairs:
    """Return pairs of their own, called after the file or whatever they are of.

    Raises:
        DataError: if they have no two different scores.
    """
    first, second, gold = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    return _pairs(Path(place), task_name(place), first, second, gold)


def _read_columns(path: Path, name: str, *, gold: int, first: int, second: int, header: bool) -> Pairs:
    one, two, scores = [], [], []
    for line, text in enumerate(read_lines(path, name), 1):
        if line == 1 and header:
            continue
        columns = fields(text, 1 + max(gold, first, second), path, line)
        one.append(detokenised(columns[first]))
        two.append(detokenised(columns[second]))
        scores.append(number(columns[gold], path, line))
    return _pairs(path, name, one, two, scores)


def _pairs(path: Path, name: str, first: list[str], second: list[str], gold: list[float]) -> Pairs:
    if len(set(gold)) < 2:
        raise DataError(path, f"{len(gold)} pairs, and no two different scores: nothing to correlate with")
    return Pairs(name, first, second, np.array(gold))


def cosine(first: Floats, second: Floats) -> npt.NDArray[np.float64]:
    """Return row-wise cosine similarity ``[n]`` in float64; 0 where a vector is zero, as SentEval does."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    similarity: npt.NDArray[np.float64] = np.divide(
        np.einsum("nd,nd->n", a, b), norms, out=np.zeros(len(a)), where=norms > 0
    )
    return similarity


def aggregate(
    task: str, subsets: Sequence[tuple[str, Floats, Floats]], draws: int = 0, aggregation: str = "all"
) -> TaskScore:
    """Score one task.

    Args:
        task: its name.
        subsets: name, predicted similarity ``[n]`` and gold score ``[n]`` of each subset.
        draws: samples of the pairs to score as well.
        aggregation: a key of `AGGREGATIONS`, for the samples.

    Raises:
        SentcliError: if a correlation is undefined, because all predictions or all gold scores are equal.
    """
    from scipy.stats import pearsonr, spearmanr

    names = [name for name, _, _ in subsets]
    for name, predicted, gold in subsets:
        for what, values in (("similarities", predicted), ("gold scores", gold)):
            if len(values) < 2 or not np.isfinite(values).all() or np.ptp(values) <= ROUNDING * np.abs(values).max():
                raise SentcliError(f"{task} {name}: no correlation, the {what} are all equal or not finite")
    by_subset = [100 * float(spearmanr(predicted, gold).statistic) for _, predicted, gold in subsets]
    predicted = np.concatenate([values for _, values, _ in subsets])
    gold = np.concatenate([values for _, _, values in subsets])
    sizes = [len(values) for _, _, values in subsets]
    parts = [(predicted, gold)] if aggregation == "all" else [(values, scores) for _, values, scores in subsets]
    return TaskScore(
        task=task,
        spearman=100 * float(spearmanr(predicted, gold).statistic),
        pearson=100 * float(pearsonr(predicted, gold).statistic),
        pairs=len(gold),
        spearman_mean=float(np.mean(by_subset)),
        spearman_wmean=float(np.average(by_subset, weights=sizes)),
        subsets=dict(zip(names, by_subset, strict=True)),
        draws=_draws(parts, draws, sizes if aggregation == "wmean" else None) if draws else None,
    )


def _draws(parts: Sequence[tuple[Floats, Floats]], draws: int, weights: Sequence[int] | None) -> Floats:
    """Return the mean over some parts of their samples' correlations ``[draws]``."""
    found = [significance.spearman_draws(predicted, gold, draws, stream=i) for i, (predicted, gold) in enumerate(parts)]
    mean: Floats = np.average(found, axis=0, weights=weights)
    return mean


def evaluate(
    encoder: SentenceEncoder,
    tasks: dict[str, list[Pairs]],
    split: str = "test",
    progress: Progress | None = None,
    *,
    draws: int = 0,
    aggregation: str = "all",
) -> STSResult:
    """Score an encoder; every distinct sentence of all tasks is encoded once.

    Args:
        encoder: the model.
        tasks: from `load_tasks`.
        split: named in the result.
        progress: as in `SentenceEncoder.encode`.
        draws: samples of the pairs to score as well, for intervals and comparisons.
        aggregation: a key of `AGGREGATIONS`, for samples and average.
    """
    found = vectors.encode(encoder, sentences(tasks), progress)
    scores = tuple(score(task, subsets, found, draws, aggregation) for task, subsets in tasks.items())
    return STSResult(split, scores, aggregation)


def measurement(task: str, subsets: Sequence[Pairs], draws: int, aggregation: str) -> Measurement[TaskScore]:
    """Return what scores a model on a task; the arguments are those of `score`."""
    return Measurement(
        task,
        sentences({task: list(subsets)}),
        ["cosine", draws, aggregation, task, digest(content(subsets))],
        lambda found: score(task, subsets, found, draws, aggregation),
        TaskScore.from_record,
    )


def score(
    task: str, subsets: Sequence[Pairs], found: TextVectors, draws: int = 0, aggregation: str = "all"
) -> TaskScore:
    """Score one task.

    Args:
        task: its name.
        subsets: of the task.
        found: the vectors of its sentences.
        draws: samples of the pairs to score as well.
        aggregation: a key of `AGGREGATIONS`, for the samples.

    Raises:
        SentcliError: as `aggregate`.
    """
    predicted, texts, zero = [], [], 0
    for subset in subsets:
        first, second = found.of(subset.first), found.of(subset.second)
        zero += sum(int((~side.any(axis=1)).sum()) for side in (first, second))
        predicted.append((subset.name, cosine(first, second), subset.gold))
        texts += [*subset.first, *subset.second]
    return replace(aggregate(task, predicted, draws, aggregation), truncated=found.truncated(texts), zero_vectors=zero)


def compare(result: STSResult, other: STSResult) -> dict[str, significance.Difference]:
    """Return what sets a model apart from another one, by task and for the ``average``, on the same samples of pairs.

    Args:
        result: of the model.
        other: of the other one, for the same tasks and draws.
    """
    found = {
        one.task: significance.compare_draws(result.score(one), other.score(two), one.draws, two.draws)
        for one, two in zip(result.tasks, other.tasks, strict=True)
        if one.draws is not None and two.draws is not None
    }
    if result.average_draws is not None and other.average_draws is not None:
        averages = result.average, other.average
        found["average"] = significance.compare_draws(*averages, result.average_draws, other.average_draws)
    return found


def sentences(tasks: dict[str, list[Pairs]]) -> list[str]:
    """Return the distinct sentences of some tasks."""
    return list(dict.fromkeys(text for subsets in tasks.values() for s in subsets for text in (*s.first, *s.second)))


def content(subsets: Sequence[Pairs]) -> list[Any]:
    """Return what a task consists of, for a hash of it."""
    return [[pairs.name, pairs.first, pairs.second, pairs.gold.tolist()] for pairs in subsets]
