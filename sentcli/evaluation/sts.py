"""The seven semantic textual similarity tasks, by SimCSE's protocol.

The score of a task is Spearman's correlation of the cosines of the sentence vectors with the gold scores, over the
concatenation of all its subsets ("all"). The mean over the subsets, plain and weighted by their sizes, is reported
as well, because other papers print it (princeton-nlp/SimCSE#4, #150).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sentcli.arrays import AnyArray, Float64Array
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import DegenerateVectorsError, SentcliError
from sentcli.evaluation import significance, sts_pairs
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.score_kinds import AGGREGATIONS, SIMILARITY, ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.sts_pairs import Pairs, content
from sentcli.io.digests import json_digest
from sentcli.model.spec import ModelSpec, Similarity
from sentcli.model.tokenizing import pair_text
from sentcli.search.neighbours import require_finite
from sentcli.stores.text_vectors import TextVectors

SIMILARITY_ROUNDING = 1e-6
"""Similarities count as equal if their relative difference is smaller, since single precision does not resolve it."""


def cosine(first: AnyArray, second: AnyArray) -> Float64Array:
    """Return row-wise cosine similarity ``[n]`` in float64; 0 where a vector is zero, as SentEval does.

    Raises:
        SentcliError: if a number is not finite.
    """
    require_finite(first)
    require_finite(second)
    first = first.astype(np.float64)
    second = second.astype(np.float64)
    products = np.einsum("nd,nd->n", first, second)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.divide(products, norms, out=np.zeros(len(first)), where=norms > 0)


def similarities(first: AnyArray, second: AnyArray, similarity: Similarity) -> Float64Array:
    """Return the row-wise similarity ``[n]`` in float64: cosine or inner product.

    Raises:
        SentcliError: if a number is not finite.
    """
    if similarity == "cosine":
        return cosine(first, second)
    require_finite(first)
    require_finite(second)
    return np.einsum("nd,nd->n", first.astype(np.float64), second.astype(np.float64))


def resolved(values: AnyArray, scale: float) -> Float64Array:
    """Return values of which those are equal that rounding cannot tell apart, so that ranks do not depend on it.

    From the lowest value on, each value and those that lie above it by at most `SIMILARITY_ROUNDING` of the scale
    become their mean. Rounded to a grid, values would be torn apart where one of its lines runs between them.

    Args:
        values: ``[n]``.
        scale: the size of the numbers that they were computed from, 1 for cosines.

    Raises:
        DegenerateVectorsError: if a value is not finite.
    """
    require_finite(values)
    order = np.argsort(values, kind="stable")
    ascending = values[order].astype(np.float64)
    width = SIMILARITY_ROUNDING * scale
    starts = np.append(True, np.diff(ascending) > width)
    firsts = np.flatnonzero(starts)
    ends = np.append(firsts[1:], len(ascending))
    is_long = ascending[ends - 1] - ascending[firsts] > width
    for start, end in zip(firsts[is_long], ends[is_long], strict=True):  # neighbours are near, first and last are not
        while start < end:
            starts[start] = True
            start += np.searchsorted(ascending[start:end], ascending[start] + width, side="right")
    group = np.cumsum(starts) - 1
    means = np.bincount(group, weights=ascending) / np.bincount(group)
    found = np.empty(len(values))
    found[order] = means[group]
    return found


def pair_similarities(
    first: Sequence[str], second: Sequence[str], vectors: TextVectors, similarity: Similarity, *, joint: bool = False
) -> Float64Array:
    """Return how similar a model calls the texts of pairs ``[n]``, as `resolved` so that they can be ranked.

    Args:
        first: texts ``[n]``.
        second: texts ``[n]``.
        vectors: of these texts, or of pairs that are one text for a cross-encoder.
        similarity: how vectors are compared.
        joint: whether a cross-encoder has read the pairs, whose scores these are.

    Raises:
        DegenerateVectorsError: if a number is not finite.
    """
    if joint:
        scores = vectors.vectors_of(list(map(pair_text, first, second)))[:, 0].astype(np.float64)
        return resolved(scores, float(np.abs(scores).max()))
    first_vectors = vectors.vectors_of(first)
    second_vectors = vectors.vectors_of(second)
    scale = 1.0
    if similarity != "cosine":
        lengths = np.linalg.norm(first_vectors, axis=1) * np.linalg.norm(second_vectors, axis=1)
        scale = float(lengths.mean())
    return resolved(similarities(first_vectors, second_vectors, similarity), scale)


def correlations(
    task: str, subsets: Sequence[tuple[str, AnyArray, AnyArray]], resamples: int = 0, aggregation: str = "all"
) -> TaskScore:
    """Correlate predicted with gold scores.

    Args:
        task: its name.
        subsets: name, predicted similarity ``[n]`` and gold score ``[n]`` of each subset.
        resamples: samples of the pairs, for intervals and comparisons.
        aggregation: a key of `AGGREGATIONS`, for the shown metric.

    Raises:
        SentcliError: if a correlation is undefined, because all gold scores are equal; DegenerateVectorsError if the
            shown metric is, because predictions are. A subset whose predictions are equal has None.
    """
    from scipy.stats import pearsonr, spearmanr

    by_subset: dict[str, float | None] = {}
    undefined = []
    replicates = []
    for stream, (name, predicted, gold) in enumerate(subsets):
        _check_gold(gold, " ".join(dict.fromkeys([task, name])))
        by_subset[name] = None
        if not _varies(predicted):
            undefined.append(name)
            continue
        by_subset[name] = 100 * float(spearmanr(predicted, gold).statistic)
        if resamples and aggregation != "all":
            replicates.append(significance.spearman_replicates(predicted, gold, resamples, stream=stream))
    all_predicted = np.concatenate([predicted for _, predicted, _ in subsets])
    all_gold = np.concatenate([gold for _, _, gold in subsets])
    sizes = [len(gold) for _, _, gold in subsets]
    metrics = {}
    if _varies(all_predicted):
        metrics["spearman"] = 100 * float(spearmanr(all_predicted, all_gold).statistic)
        metrics["pearson"] = 100 * float(pearsonr(all_predicted, all_gold).statistic)
    if not undefined:
        of_subsets = np.array(list(by_subset.values()), np.float64)
        metrics["spearman_mean"] = float(np.mean(of_subsets))
        metrics["spearman_wmean"] = float(np.average(of_subsets, weights=sizes))
    main = AGGREGATIONS[aggregation].metric
    if main not in metrics:
        parts = ""
        if len(undefined) < len(subsets):
            parts = f" of {', '.join(undefined)}"
        raise DegenerateVectorsError(f"{task}: no correlation, the similarities{parts} are all equal or not finite")
    details = {"pairs": len(all_gold), "subsets": by_subset}
    score = TaskScore(task, SIMILARITY.name, metrics, (main,), details)
    if not resamples:
        return score
    if aggregation == "all":
        return score.with_replicates(significance.spearman_replicates(all_predicted, all_gold, resamples))
    weights = sizes if aggregation == "wmean" else None
    return score.with_replicates(np.average(replicates, axis=0, weights=weights))


def _check_gold(gold: AnyArray, title: str) -> None:
    if not _varies(gold):
        raise SentcliError(f"{title}: no correlation, the gold scores are all equal or not finite")


def _varies(values: AnyArray) -> bool:
    """Tell whether values are finite, and at least two of them differ by more than rounding."""
    if len(values) < 2 or not np.isfinite(values).all():
        return False
    return bool(np.ptp(values) > SIMILARITY_ROUNDING * np.abs(values).max())


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
    def pairs(self) -> Pairs:
        """The pairs of all subsets."""
        first = list(chain.from_iterable(subset.first for subset in self.subsets))
        second = list(chain.from_iterable(subset.second for subset in self.subsets))
        gold = np.concatenate([subset.gold for subset in self.subsets])
        return Pairs(self.name, first, second, gold)

    @property
    def main_metric(self) -> str:
        """The metric that averages and comparisons are of."""
        return AGGREGATIONS[self.aggregation].metric

    @property
    def texts(self) -> list[str]:
        """The distinct sentences, or pairs as one text."""
        return list(dict.fromkeys(self.all_texts))

    @property
    def all_texts(self) -> list[str]:
        """Every sentence, or every pair as one text."""
        texts: list[str] = []
        for pairs in self.subsets:
            if self.joint:
                texts += map(pair_text, pairs.first, pairs.second)
            else:
                texts += pairs.texts
        return texts

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
            json_digest(content(self.subsets)),
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

    def predicted(self, vectors: TextVectors) -> Float64Array:
        """Return the cosine of each pair ``[n]``, or the score of a cross-encoder.

        Those of all subsets are resolved together, since they are ranked together, too.
        """
        pairs = self.pairs
        return pair_similarities(pairs.first, pairs.second, vectors, self.similarity, joint=self.joint)

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Correlate what is predicted with the gold scores."""
        ends = np.cumsum(list(map(len, self.subsets)))
        of_subsets = np.split(self.predicted(vectors), ends[:-1])
        predicted = []
        for subset, values in zip(self.subsets, of_subsets, strict=True):
            predicted.append((subset.name, values, subset.gold))
        score = correlations(self.name, predicted, self.resamples, self.aggregation)
        details = score.details | {"truncated": vectors.truncated(self.texts)}
        if not self.joint:
            details["zero_vectors"] = vectors.zero(self.all_texts)
        if self.ends is None:
            return replace(score, details=details)
        del details["subsets"]
        score = replace(
            score,
            metrics={metric: score.metrics[metric] for metric in ("spearman", "pearson")},
            details={"range": list(self.ends), **details},
        )
        return score.of_own_data(len(self))


def load_similarity_tasks(
    data: Path, names: str | Sequence[str] | None = None, split: str = "test", **options: Any
) -> list[SimilarityTask]:
    """Read tasks of a SentEval ``downstream`` folder.

    Args:
        data: the folder.
        names: of the tasks; None is every task that has the split.
        split: ``test``, or ``dev`` or ``train`` of two tasks.
        options: other fields of the tasks.

    Raises:
        InputError: as `sts_pairs.load_pairs`.
    """
    subsets_by_task = sts_pairs.load_pairs(data, names, split)
    return [SimilarityTask(name, subsets, **options) for name, subsets in subsets_by_task.items()]


def similarity_protocol(
    aggregation: str, split: str | None, resamples: int, head: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return every choice that moves the scores of benchmarks of similarity, except those of the model.

    Args:
        aggregation: a key of `AGGREGATIONS`.
        split: of the benchmarks; None for tables of one's own.
        resamples: samples of the pairs.
        head: the choices of a head that takes the place of the cosine.
    """
    choices: dict[str, Any] = {"correlation": "spearman", "aggregation": AGGREGATIONS[aggregation].title}
    choices["similarity"] = "cosine"
    if head is not None:
        choices |= {"similarity": "regression", "regression": head}
    return choices | {"split": split, "interval_draws": resamples}


def evaluate_similarity(encoder: SentenceEncoder, tasks: Iterable[SimilarityTask]) -> dict[str, TaskScore]:
    """Score an encoder on tasks, encoding every distinct sentence once, without the cache."""
    adapted = [task.for_model(encoder.spec) for task in tasks]
    texts = chain.from_iterable(task.texts for task in adapted)
    vectors = EvaluatedModel.of(encoder).encode(texts)
    return {task.name: task.score(None, vectors) for task in adapted}
