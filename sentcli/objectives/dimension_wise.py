"""Contrast between the dimensions of a vector, and contrast with negatives that no dropout has changed.

SimCSE++ (Xu et al., EMNLP 2023): dropout is noise in the vectors of negatives, and a batch has fewer rows than
dimensions, so that a contrast of rows cannot keep the dimensions apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from sentcli.bounds import Positive
from sentcli.objectives.base import Objective, StatefulObjective, Views
from sentcli.objectives.contrastive import cosines
from sentcli.precision import widened
from sentcli.processes import gather, rank

if TYPE_CHECKING:
    from sentcli.objectives.base import Loss, ObjectiveContext

VARIANCE_FLOOR = 1e-5
"""What batch normalisation adds to a variance, as torch does."""


def dimension_wise_loss(first: Tensor, second: Tensor, temperature: float = 5.0) -> Tensor:
    """Cross-entropy of picking each dimension of the other view by its correlation over the batch.

    ``C = bn(first)^T bn(second) / N``, and the logits of row i are ``C_i / temperature`` with target i. Each dimension
    of a view has mean 0 and variance 1 over the batch.

    Args:
        first: ``[N, d]``.
        second: ``[N, d]``; row i shows the sentence of row i of `first`.
        temperature: tau of the dimensions.

    Returns:
        A scalar in nats, the mean over the dimensions.
    """
    correlations = _standardized(first).T @ _standardized(second) / len(first)
    targets = torch.arange(correlations.shape[0], device=correlations.device)
    return functional.cross_entropy(correlations / temperature, targets)


def _standardized(vectors: Tensor) -> Tensor:
    """Return vectors whose dimensions have mean 0 and variance 1 over the batch ``[N, d]``."""
    variance, mean = torch.var_mean(vectors, dim=0, correction=0)
    return (vectors - mean) * (variance + VARIANCE_FLOOR).rsqrt()


def off_dropout_info_nce(
    first: Tensor, second: Tensor, plain: Tensor, temperature: float = 0.05, *, cross_device: bool = False
) -> Tensor:
    """InfoNCE whose positive pair has dropout and whose negatives have none, on either side.

    Row i has the logits ``cos(first_i, second_i) / temperature``, the target, and ``cos(plain_i, plain_j) /
    temperature`` for all j other than i.

    Args:
        first: ``[B, d]``.
        second: ``[B, d]``.
        plain: the vectors of the same sentences without dropout ``[B, d]``.
        temperature: tau.
        cross_device: take the sentences of all processes as negatives.

    Returns:
        A scalar in nats, the mean over the rows.
    """
    positive = functional.cosine_similarity(widened(first), widened(second), dim=-1)[:, None]
    candidates = plain
    itself = torch.arange(len(plain), device=plain.device)
    if cross_device:
        candidates = gather(plain)
        itself = itself + len(plain) * rank()
    others = cosines(plain, candidates).scatter(1, itself[:, None], -torch.inf)
    logits = torch.cat([positive, others], dim=1) / temperature
    return functional.cross_entropy(logits, torch.zeros_like(itself))


@dataclass(frozen=True, kw_only=True)
class DimensionWise(Objective, name="dimensions"):
    """`dimension_wise_loss` of the first two views."""

    weight: float = 0.1
    temperature: Positive = 5.0

    def __call__(self, views: Views) -> Tensor:
        """Return the term of views 1 and 2, over the rows of all processes."""
        first, second = views.projected[:2]
        return dimension_wise_loss(gather(first), gather(second), self.temperature)


@dataclass(frozen=True, kw_only=True)
class OffDropout(Objective, name="off-dropout"):
    """`off_dropout_info_nce` of the first two views, with a third encoding of each sentence without dropout."""

    temperature: Positive = 0.05
    cross_device: bool = True

    one_sentence: ClassVar[bool] = True
    negatives_in_batch: ClassVar[bool] = True
    requires: ClassVar[str] = "text"

    def build(self, context: ObjectiveContext) -> Loss:
        """Return the module that encodes without dropout."""
        return OffDropoutLoss(self)


class OffDropoutLoss(StatefulObjective):
    """The loss of `OffDropout`; the encoding without dropout is trained, too, as in the authors' code."""

    def __init__(self, settings: OffDropout) -> None:
        super().__init__()
        self.settings = settings

    def forward(self, views: Views) -> Tensor:
        """Return the loss."""
        first, second = views.projected[:2]
        plain = views.head(self.without_dropout(views)[None])[0]
        return off_dropout_info_nce(
            first, second, plain, self.settings.temperature, cross_device=self.settings.cross_device
        )

    def without_dropout(self, views: Views) -> Tensor:
        """Return the sentence vectors ``[B, d]`` of the first view without dropout."""
        sentences = views.pooled.shape[1]
        rows = {name: values[:sentences] for name, values in views.inputs.items()}
        encoder = views.encoder
        mode = encoder.training
        encoder.eval()
        try:
            vectors = encoder.features(rows, normalize=False, sentence_only=True).sentence
        finally:
            encoder.train(mode)
        return widened(vectors)
