"""The seven semantic textual similarity tasks, by SimCSE's protocol.

The score of a task is Spearman's correlation of the cosines of the sentence vectors with the gold scores, over the
concatenation of all its subsets ("all"). The mean over the subsets, plain and weighted by their sizes, is reported
as well, because other papers print it (princeton-nlp/SimCSE#4, #150).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import DataError, InputError, SentcliError, nearest
from sentcli.evaluation import significance
from sentcli.evaluation.cache import digest
from sentcli.evaluation.evaluated import EvaluatedModel, TextVectors, encode
from sentcli.evaluation.files import detokenised, fields, number, read_lines
from sentcli.evaluation.score_kinds import AGGREGATIONS, SIMILARITY, ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.io.labelled import LabelledTable, read_table
from sentcli.io.sources import pair_files, task_name
from sentcli.model.encoding import Progress
from sentcli.model.spec import ModelSpec, Similarity
from sentcli.model.tokenizing import pair_text

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
    "SICKRelatedness": {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"},
}
STSB_TRAIN = Path("STS") / "STSBenchmark" / SPLITS["STSBenchmark"]["train"]
"""The path in a SentEval ``downstream`` folder."""
TASKS = (*SUBSETS, *SPLITS)
ROUNDING = 1e-6
"""Similarities count as equal if their relative difference is smaller, since single precision does not resolve it."""
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
    """Read several tasks; None reads every task that has the split.

    Raises:
        InputError: as `load_task`; also if `data` is no SentEval folder.
    """
    if split not in SPLIT_NAMES:
        raise InputError(
            f"unknown split {split!r}{nearest(split, list(SPLIT_NAMES))}; one of: {', '.join(SPLIT_NAMES)}"
        )
    if not (data / "STS").is_dir() and not (data / "SICK").is_dir():
        raise InputError(f"{data} is not a SentEval 'downstream' folder: it has neither STS/ nor SICK/")
    if not tasks:
        tasks = TASKS if split == "test" else tuple(SPLITS)
    return {task: load_task(data, task, split) for task in dict.fromkeys(tasks)}


def _read_subset(folder: Path, name: str, task: str) -> Pairs:
    inputs = folder / f"STS.input.{name}.txt"
    golds = folder / f"STS.gs.{name}.txt"
    sentences = read_lines(inputs, task)
    scores = read_lines(golds, task)
    if len(sentences) != len(scores):
        raise DataError(
            inputs, f"{len(sentences)} lines of sentences, but {len(scores)} of gold scores in {golds.name}"
        )
    first: list[str] = []
    second: list[str] = []
    gold: list[float] = []
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
    return _pairs(Path(table.name), name, first, second, [float(value) for value in table.values or []])


def pairs_of_rows(source: str, rows: Sequence[tuple[str, str, float]]) -> Pairs:
    """Return rows of two sentences and a score as pairs, which are named after their source, mostly a file.

    Raises:
        DataError: if all scores are equal.
    """
    first = [row[0] for row in rows]
    second = [row[1] for row in rows]
    gold = [row[2] for row in rows]
    return _pairs(Path(source), task_name(source), first, second, gold)


def _read_columns(path: Path, name: str, *, gold: int, first: int, second: int, header: bool) -> Pairs:
    one = []
    two = []
    scores = []
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
    """Return row-wise cosine similarity ``[n]`` in float64; 0 where a vector is zero, as SentEval does.

    Raises:
        SentcliError: if a number is not finite.
    """
    significance.require_finite(first)
    significance.require_finite(second)
    a = first.astype(np.float64)
    b = second.astype(np.float64)
    products = np.einsum("nd,nd->n", a, b)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.divide(products, norms, out=np.zeros(len(a)), where=norms > 0)


def similarities(first: Floats, second: Floats, similarity: Similarity) -> npt.NDArray[np.float64]:
    """Return the row-wise similarity ``[n]`` in float64: cosine or inner product.

    Raises:
        SentcliError: if a number is not finite.
    """
    if similarity == "cosine":
        return cosine(first, second)
    significance.require_finite(first)
    significance.require_finite(second)
    return np.einsum("nd,nd->n", first.astype(np.float64), second.astype(np.float64))


def correlations(
    task: str, subsets: Sequence[tuple[str, Floats, Floats]], resamples: int = 0, aggregation: str = "all"
) -> TaskScore:
    """Correlate predicted with gold scores.

    Args:
        task: its name.
        subsets: name, predicted similarity ``[n]`` and gold score ``[n]`` of each subset.
        resamples: samples of the pairs, for intervals and comparisons.
        aggregation: a key of `AGGREGATIONS`, for the shown metric.

    Raises:
        SentcliError: if a correlation is undefined, because all predictions or all gold scores are equal.
    """
    from scipy.stats import pearsonr, spearmanr

    for name, predicted, gold in subsets:
        for kind, values in (("similarities", predicted), ("gold scores", gold)):
            if not _varies(values):
                raise SentcliError(f"{task} {name}: no correlation, the {kind} are all equal or not finite")
    by_subset = {name: 100 * float(spearmanr(predicted, gold).statistic) for name, predicted, gold in subsets}
    sizes = [len(gold) for _, _, gold in subsets]
    all_predicted = np.concatenate([predicted for _, predicted, _ in subsets])
    all_gold = np.concatenate([gold for _, _, gold in subsets])
    score = TaskScore(
        task=task,
        kind=SIMILARITY.name,
        metrics={
            "spearman": 100 * float(spearmanr(all_predicted, all_gold).statistic),
            "pearson": 100 * float(pearsonr(all_predicted, all_gold).statistic),
            "spearman_mean": float(np.mean(list(by_subset.values()))),
            "spearman_wmean": float(np.average(list(by_subset.values()), weights=sizes)),
        },
        shown_metrics=(AGGREGATIONS[aggregation].metric,),
        details={"pairs": len(all_gold), "subsets": by_subset},
    )
    if not resamples:
        return score
    if aggregation == "all":
        samples = significance.spearman_replicates(all_predicted, all_gold, resamples)
    else:
        of_subsets = []
        for stream, (_, predicted, gold) in enumerate(subsets):
            of_subsets.append(significance.spearman_replicates(predicted, gold, resamples, stream=stream))
        samples = np.average(of_subsets, axis=0, weights=sizes if aggregation == "wmean" else None)
    return score.with_replicates(samples)


def _varies(values: Floats) -> bool:
    """Tell whether values are finite, and at least two of them differ by more than rounding."""
    if len(values) < 2 or not np.isfinite(values).all():
        return False
    return bool(np.ptp(values) > ROUNDING * np.abs(values).max())


@dataclass(frozen=True)
class SimilarityTask:
    """Pairs whose similarities are correlated with their gold scores: a benchmark, or a table of one's own."""

    name: str
    subsets: Sequence[Pairs]
    resamples: int = 0
    """Samples of the pairs, for intervals and comparisons."""
    aggregation: str = "all"
    """A key of `AGGREGATIONS`."""
    ends: tuple[float, float] | None = None
    """The range of the scores of a table of one's own; None for a benchmark."""
    caveats: Mapping[str, Any] = field(default_factory=dict)
    joint: bool = False
    """Whether a cross-encoder reads the pairs, whose scores take the place of the cosines."""
    similarity: Similarity = "cosine"
    """How vectors are compared; benchmarks are scored by the cosine, as papers do."""
    kind: ClassVar[ScoreKind] = SIMILARITY
    takes_pairs: ClassVar[bool] = True
    """Whether a cross-encoder is scored on it."""

    def __len__(self) -> int:
        return sum(map(len, self.subsets))

    @property
    def texts(self) -> list[str]:
        """The distinct sentences, or pairs as one text."""
        return list(dict.fromkeys(self.all_texts))

    @property
    def all_texts(self) -> list[str]:
        """Every sentence, or every pair as one text."""
        texts = [_joint(pairs) if self.joint else pairs.texts for pairs in self.subsets]
        return list(chain.from_iterable(texts))

    @property
    def description(self) -> str:
        """The number of pairs and the range of their scores."""
        low, high = self.ends or (0, 5)
        return f"{len(self):,} scored pairs, scores from {low:g} to {high:g}"

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides data and model."""
        return {"similarity": self.similarity, "correlation": "spearman"}

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""
        identity: list[Any] = [
            self.similarity,
            self.resamples,
            self.aggregation,
            self.name,
            digest(content(self.subsets)),
        ]
        if self.ends is None:
            return identity
        return ["evaluate", self.ends, *identity]

    def for_model(self, spec: ModelSpec) -> SimilarityTask:
        """Return the task as a model takes it: a cross-encoder reads both sentences together.

        The similarity that a model's folder names counts for a table of one's own.
        """
        similarity = self.similarity if self.ends is None else spec.similarity
        return replace(self, joint=spec.scores_pairs, similarity=similarity)

    def of_rows(self, rows: Sequence[int]) -> SimilarityTask:
        """Return the task of some rows of its table."""
        return replace(self, subsets=[self.subsets[0].of_rows(rows)])

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Correlate the cosines of the vectors, or the scores of a cross-encoder, with the gold scores."""
        predicted = []
        for subset in self.subsets:
            if self.joint:
                values = vectors.of(_joint(subset))[:, 0].astype(np.float64)
            else:
                values = similarities(vectors.of(subset.first), vectors.of(subset.second), self.similarity)
            predicted.append((subset.name, values, subset.gold))
        score = correlations(self.name, predicted, self.resamples, self.aggregation)
        details = score.details | {"truncated": vectors.truncated(self.texts)}
        if not self.joint:
            details["zero_vectors"] = vectors.zero(self.all_texts)
        if self.ends is None:
            return replace(score, details=details)
        del details["subsets"]
        metrics = {metric: score.metrics[metric] for metric in ("spearman", "pearson")}
        score = replace(score, metrics=metrics, details={"range": list(self.ends), **details})
        return score.of_own_data(len(self))


def evaluate(
    encoder: SentenceEncoder, tasks: Mapping[str, Sequence[Pairs]], progress: Progress | None = None
) -> dict[str, TaskScore]:
    """Score an encoder on tasks of `load_tasks`, encoding every distinct sentence once, without the cache."""
    similarity_tasks = []
    texts: list[str] = []
    for name, subsets in tasks.items():
        task = SimilarityTask(name, subsets).for_model(encoder.spec)
        similarity_tasks.append(task)
        texts += task.texts
    vectors = encode(encoder, texts, progress)
    return {task.name: task.score(None, vectors) for task in similarity_tasks}


def _joint(pairs: Pairs) -> list[str]:
    """Return each pair as the one text that a cross-encoder takes."""
    return list(map(pair_text, pairs.first, pairs.second))


def sentences(subsets: Sequence[Pairs]) -> list[str]:
    """Return the distinct sentences of some pairs."""
    texts = chain.from_iterable(pairs.texts for pairs in subsets)
    return list(dict.fromkeys(texts))


def content(subsets: Sequence[Pairs]) -> list[Any]:
    """Return the content of a task as JSON, for its hash."""
    return [[pairs.name, pairs.first, pairs.second, pairs.gold.tolist()] for pairs in subsets]
