"""A cross-encoder that says which candidates answer a query about as well as its positive does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sentcli.arrays import Float32Array
from sentcli.evaluation.reranking import EvaluatedReranker
from sentcli.model.modules.classifier import ClassifierSpec

UNSCALED = "Identity"
"""The activation of a cross-encoder whose scores are logits."""


@dataclass(frozen=True)
class Judge:
    """Scores pairs of query and document."""

    score: Callable[[Sequence[tuple[str, str]]], Float32Array]
    """Returns the score of each pair ``[n]``."""
    logits: bool = False
    """Whether the scores are logits, whose sigmoid is the probability that is compared."""

    @classmethod
    def of(cls, reranker: EvaluatedReranker) -> Judge:
        """Return the judge that a cross-encoder is."""
        classifier = reranker.spec.modules[-1]
        assert isinstance(classifier, ClassifierSpec)
        _, _, activation = classifier.activation.rpartition(".")
        return cls(reranker.scores, logits=activation == UNSCALED)

    def probability(self, score: float) -> float:
        """Return what is compared: the score, or its sigmoid if it is a logit."""
        if not self.logits:
            return score
        return float(1 / (1 + np.exp(-np.float64(score))))
