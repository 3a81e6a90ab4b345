"""The seven semantic textual similarity tasks, by SimCSE's protocol.

The score of a task is Spearman's correlation of the cosines of the sentence vectors with the gold scores, over the
concatenation of all its subsets ("all"). The mean over the subsets, plain and weighted by their sizes, is reported
as well, because other papers print it (princeton-nlp/SimCSE#4, #150).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import DegenerateVectorsError, SentcliError
from sentcli.evaluation import significance
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.score_kinds import AGGREGATIONS, SIMILARITY, ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.sts_pairs import Pairs, content
from sentcli.evaluation.text_vectors import TextVectors
from sentcli.io.digests import json_digest
from sentcli.model.spec import ModelSpec, Similarity
from sentcli.model.tokenizing import pair_text

Floats = npt.NDArray[Any]

ROUNDING = 1e-6
"""Similarities count as equal if their relative difference is smaller, since single precision does not resolve it."""


def cosine(first: Floats, second: Floats) -> npt.NDArray[np.float64]:
    """Return row-wise cosine similarity ``[n]`` in float64; 0 where a vector is zero, as SentEval does.

    Raises:
        SentcliError: if a number is not finite.
    """
    significance.require_finite(first)
    significance.require_finite(second)
    first = first.astype(np.float64)
    second = second.astype(np.float64)
    products = np.einsum("nd,nd->n", first, second)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.divide(products, norms, out=np.zeros(len(first)), where=norms > 0)


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


def _check_gold(gold: Floats, title: str) -> None:
    if not _varies(gold):
        raise SentcliError(f"{title}: no correlation, the gold scores are all equal or not finite")


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

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Correlate the cosines of the vectors, or the scores of a cross-encoder, with the gold scores."""
        predicted = []
        for subset in self.subsets:
            if self.joint:
                values = scores_of_pairs(subset.first, subset.second, vectors)
            else:
                values = similarities(
                    vectors.vectors_of(subset.first), vectors.vectors_of(subset.second), self.similarity
                )
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


def evaluate(encoder: SentenceEncoder, tasks: Mapping[str, Sequence[Pairs]]) -> dict[str, TaskScore]:
    """Score an encoder on tasks of `load_tasks`, encoding every distinct sentence once, without the cache."""
    similarity_tasks = {}
    texts: list[str] = []
    for name, subsets in tasks.items():
        task = SimilarityTask(name, subsets).for_model(encoder.spec)
        similarity_tasks[name] = task
        texts += task.texts
    vectors = EvaluatedModel.of(encoder).encode(texts)
    return {name: task.score(None, vectors) for name, task in similarity_tasks.items()}


def scores_of_pairs(first: Sequence[str], second: Sequence[str], vectors: TextVectors) -> npt.NDArray[np.float64]:
    """Return the scores ``[n]`` of a cross-encoder for pairs, of which each is one text that it has read."""
    return vectors.vectors_of(list(map(pair_text, first, second)))[:, 0].astype(np.float64)
