"""Objectives on pairs of sentences: Contrastive Tension, and regression on scored pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch.nn import functional

from sentcli.bounds import AtLeastOne
from sentcli.objectives.base import Objective, Views

if TYPE_CHECKING:
    from torch import Tensor


def contrastive_tension_loss(first: Tensor, second: Tensor, matched: Tensor, reduction: str = "mean") -> Tensor:
    """Binary cross-entropy of "same sentence" from dot products (Carlsson et al., ICLR 2021).

    Args:
        first: vectors of encoder 1 ``[B, d]``.
        second: vectors of encoder 2 ``[B, d]``.
        matched: True where row i of both is the same sentence ``[B]``.
        reduction: ``mean`` (the authors' code) or ``sum`` (sentence-transformers).

    Returns:
        A scalar in nats.
    """
    scores = (first * second).sum(dim=-1)
    return functional.binary_cross_entropy_with_logits(scores, matched.to(scores.dtype), reduction=reduction)


@dataclass(frozen=True, kw_only=True)
class ContrastiveTension(Objective, name="tension"):
    """`contrastive_tension_loss` of views 1 and 2, on matching and on other rows."""

    reduction: Literal["mean", "sum"] = "mean"
    negatives: AtLeastOne = 7
    """How many other sentences of the batch each sentence is paired with, if all rows match (in other methods)."""

    all_rows: ClassVar[bool] = True

    def __call__(self, views: Views) -> Tensor:
        """Return the loss."""
        first, second, matched = views.pooled[0], views.pooled[1], views.matched
        if matched is None:
            shifts = range(min(self.negatives + 1, len(first)))
            matched = torch.arange(len(shifts) * len(first), device=first.device) < len(first)
            first, second = first.repeat(len(shifts), 1), torch.cat([second.roll(shift, 0) for shift in shifts])
        return contrastive_tension_loss(first, second, matched, self.reduction)


def cosine_regression_loss(first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
    """Mean squared error between cosines and gold scores (Reimers and Gurevych, EMNLP 2019).

    Args:
        first: ``[B, d]``.
        second: ``[B, d]``.
        scores: between 0 and 1 ``[B]``; STS-B's 0 to 5 divided by 5.

    Returns:
        A scalar.
    """
    cosines = functional.cosine_similarity(first, second, dim=-1)
    return functional.mse_loss(cosines, scores.to(cosines.dtype))


@dataclass(frozen=True, kw_only=True)
class CosineRegression(Objective, name="regression"):
    """`cosine_regression_loss` of the two sentences of each pair."""

    needs_scores: ClassVar[bool] = True

    def __call__(self, views: Views) -> Tensor:
        """Return the loss."""
        assert views.labels is not None
        return cosine_regression_loss(views.pooled[0], views.pooled[1], views.labels)
