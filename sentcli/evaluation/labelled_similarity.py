"""Pairs with scores or with labels 0 and 1 as tasks: whether the cosine of two texts agrees with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.evaluation import average_precision as precision
from sentcli.evaluation import significance
from sentcli.evaluation.evaluated import EvaluatedModel, TextVectors
from sentcli.evaluation.labelled_tasks import TableTask, told
from sentcli.evaluation.score_kinds import BINARY
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.sts import SimilarityTask, cosine, scored_table

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScoredTask(TableTask):
    """Pairs with scores: Spearman's correlation with the cosines."""

    ends: tuple[float, float] = (0, 1)
    """The range of the scores."""

    @property
    def described(self) -> str:
        """The number of pairs and the range of their scores."""
        low, high = self.ends
        return f"{len(self.table):,} scored pairs, scores from {low:g} to {high:g}"

    texts = TableTask.all_texts
    """Every sentence."""

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        return {"similarity": "cosine", "correlation": "spearman"}

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""
        return ["evaluate", self.ends, *self._similarity.identity]

    @property
    def _similarity(self) -> SimilarityTask:
        return SimilarityTask(self.name, [scored_table(self.table, self.name)], self.draws)

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Correlate the cosines with the scores."""
        score = self._similarity.score(model, vectors)
        facts = {key: score.facts[key] for key in ("pairs", "truncated", "zero_vectors")}
        metrics = {metric: score.metrics[metric] for metric in ("spearman", "pearson")}
        score = replace(score, metrics=metrics, facts={"range": list(self.ends), **facts})
        return told(score, self.kind, len(self.table))


@dataclass(frozen=True)
class BinaryTask(TableTask):
    """Pairs with labels 0 and 1: how well the cosine tells one from the other."""

    @property
    def described(self) -> str:
        """The number of pairs."""
        return f"{len(self.table):,} 0/1 pairs, {int(self._positive.sum()):,} of them 1"

    texts = TableTask.all_texts
    """Every sentence."""

    @property
    def _positive(self) -> npt.NDArray[np.bool_]:
        return np.array(self.table.values) == 1

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Return average precision, the area under the ROC curve, and the best F1 of all thresholds."""
        from sklearn.metrics import average_precision_score, roc_auc_score

        first, second = self.table.texts
        predicted, positive = cosine(vectors.of(first), vectors.of(second)), self._positive
        f1, threshold = best_f1(predicted, positive)
        metrics = {
            "average_precision": float(average_precision_score(positive, predicted)),
            "auc": float(roc_auc_score(positive, predicted)),
            "f1": f1,
            "threshold": threshold,
        }
        facts: dict[str, Any] = {
            "positive": int(positive.sum()),
            "truncated": vectors.truncated(self.texts),
            "zero_vectors": vectors.zero(self.texts),
        }
        sampled: dict[str, Any] = {}
        if self.draws:
            draws = precision.average_precision_draws(predicted, positive, self.draws, stream=self.stream)
            ends = precision.average_precision_interval(predicted, positive, draws)
            if ends is not None:
                sampled = {"draws": {"average_precision": draws}, "intervals": {"average_precision": ends}}
            else:  # nothing is to be compared
                facts["interval"], least = None, precision.LEAST_OF_A_CLASS
                console.note(f"{self.name}: fewer than {least} pairs with a label, so its score has no interval")
        score = TaskScore(self.name, BINARY.name, metrics, ("average_precision",), facts, **sampled)
        return told(score, self.kind, len(predicted))


def best_f1(predicted: Floats, positive: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return the best F1 of all thresholds, and its threshold: pairs at least as similar are taken for positive.

    Args:
        predicted: similarities ``[n]``.
        positive: whether each pair is positive ``[n]``.

    Returns:
        F1 from 0 to 1, and the threshold, which lies midway between the last similarity above it and the next one.

    Raises:
        SentcliError: if a similarity is not finite.
    """
    significance.require_finite(predicted)
    negated, group = np.unique(-predicted, return_inverse=True)
    taken = np.cumsum(np.bincount(group))
    right = np.cumsum(np.bincount(group, weights=positive))
    f1 = 2 * right / (taken + positive.sum())
    best = int(np.argmax(f1))
    last, following = -negated[best], -negated[min(best + 1, len(negated) - 1)]
    midway = (last + following) / 2
    return float(f1[best]), float(midway if midway > following else last)
