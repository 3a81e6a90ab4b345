"""Objectives on pairs of sentences: Contrastive Tension, and the losses of scored and of 0/1 pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import torch
from torch import nn
from torch.nn import functional

from sentcli.bounds import AtLeastOne, Positive, WholeNumber
from sentcli.objectives.base import Objective, StatefulObjective, Views
from sentcli.precision import widened

if TYPE_CHECKING:
    from torch import Tensor

    from sentcli.objectives.base import ObjectiveContext


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
    negatives_in_batch: ClassVar[bool] = True

    def __call__(self, views: Views) -> Tensor:
        """Return the loss."""
        first, second = views.pooled[:2]
        matched = views.matched
        if matched is None:
            count = len(first)
            shifts = range(min(self.negatives + 1, count))
            copies = len(shifts)
            matched = torch.arange(copies * count, device=first.device) < count
            first = first.repeat(copies, 1)
            second = torch.cat([second.roll(shift, 0) for shift in shifts])
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

    needs: ClassVar[str] = "scores"
    truncates: ClassVar[bool] = True

    def __call__(self, views: Views) -> Tensor:
        """Return the loss."""
        return cosine_regression_loss(views.pooled[0], views.pooled[1], views.required_labels)


@dataclass(frozen=True, kw_only=True)
class PairScore(Objective, name="pair-score"):
    """Binary cross-entropy of a cross-encoder's output with the score of the pair, in nats.

    The score, between 0 and 1, is the probability, as in SBERT's training of a cross-encoder on STS-B.
    """

    views: ClassVar[int] = 1
    needs: ClassVar[str] = "scores"
    joint: ClassVar[bool] = True

    def __call__(self, views: Views) -> Tensor:
        """Return the loss."""
        logits = views.pooled[0, :, 0]
        return functional.binary_cross_entropy_with_logits(logits, views.required_labels.to(logits.dtype))


@dataclass(frozen=True, kw_only=True)
class PairClasses(Objective, name="softmax"):
    """Cross-entropy of the class of a pair, by a linear layer on (u, v, |u - v|) that is new and not kept.

    SBERT's objective on natural language inference (Reimers and Gurevych, EMNLP 2019, sec. 3).
    """

    classes: WholeNumber = 0
    """The number of classes; 0 takes as many as the data has."""

    needs: ClassVar[str] = "classed-pairs"

    def build(self, context: ObjectiveContext) -> SoftmaxLoss:
        """Return the loss with a new layer."""
        return SoftmaxLoss(context.dimension, self.classes)


class SoftmaxLoss(StatefulObjective):
    """The loss of `PairClasses`.

    Attributes:
        layer: from ``[B, 3 d]`` to the logits of the classes.
    """

    def __init__(self, dimension: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * dimension, classes)

    def forward(self, views: Views) -> Tensor:
        """Return the loss in nats."""
        first, second = views.pooled[:2]
        difference = (first - second).abs()
        logits = self.layer(torch.cat([first, second, difference], dim=1))
        return functional.cross_entropy(widened(logits), views.required_labels.long())


def ranking_loss(similarities: Tensor, scores: Tensor, scale: float = 20.0) -> Tensor:
    """Loss of pairs whose similarities are not in the order of their scores (CoSENT: Huang et al., TASLP 2024).

    ``log(1 + sum exp(scale * (s_k - s_i)))`` over all pairs i and k of the batch with ``score_i > score_k``; the scores
    give an order and no distances.

    Args:
        similarities: ``[B]``.
        scores: ``[B]``.
        scale: the inverse of the temperature.

    Returns:
        A scalar.
    """
    scaled = similarities * scale
    differences = (scaled[:, None] - scaled)[scores[:, None] < scores]
    return torch.cat([differences.new_zeros(1), differences]).logsumexp(0)


def angle_similarity(first: Tensor, second: Tensor) -> Tensor:
    """Return ``|cosine + sine|`` of vectors as complex numbers ``[B]``, the similarity of AnglE (Li and Li, ACL 2024).

    The halves of a vector are its real and imaginary parts; a vector of odd dimension gets a 0. As in the authors' code
    the angle itself is not taken.

    Args:
        first: ``[B, d]``.
        second: ``[B, d]``.
    """
    odd = first.shape[1] % 2
    first = functional.pad(first, (0, odd))
    second = functional.pad(second, (0, odd))
    first = functional.normalize(first, dim=1)
    second = functional.normalize(second, dim=1)
    real, imaginary = first.chunk(2, dim=1)
    other_real, other_imaginary = second.chunk(2, dim=1)
    cosine = (first * second).sum(dim=1)
    sine = (imaginary * other_real - real * other_imaginary).sum(dim=1)
    return (cosine + sine).abs()


@dataclass(frozen=True, kw_only=True)
class CoSENT(Objective, name="cosent"):
    """`ranking_loss` of the cosines of pairs."""

    scale: Positive = 20.0

    needs: ClassVar[str] = "scores"
    truncates: ClassVar[bool] = True

    def __call__(self, views: Views) -> Tensor:
        """Return the loss."""
        first, second = views.pooled[:2]
        similarities = self.similarities(first, second)
        return ranking_loss(similarities, views.required_labels, self.scale)

    def similarities(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the similarity of each pair ``[B]``, given their vectors ``[B, d]``."""
        return functional.cosine_similarity(first, second, dim=-1)


@dataclass(frozen=True, kw_only=True)
class AnglE(CoSENT, name="angle"):
    """`ranking_loss` of the `angle_similarity` of pairs."""

    def similarities(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the similarity of each pair ``[B]``, given their vectors ``[B, d]``."""
        return angle_similarity(first, second)


def online_contrastive_loss(first: Tensor, second: Tensor, labels: Tensor, margin: float = 0.5) -> Tensor:
    """Sum over the hard pairs of a batch of squared distances, or of what a distance lacks to the margin.

    Distances are ``1 - cosine``. Hard are matching pairs that are farther apart than the closest pair that does not
    match, and pairs that do not match and are closer than the farthest matching one (Hadsell et al., CVPR 2006, with
    sentence-transformers' choice of pairs).

    Args:
        first: ``[B, d]``.
        second: ``[B, d]``.
        labels: 1 for matching pairs, 0 for others ``[B]``.
        margin: the distance from which pairs that do not match have no loss.

    Returns:
        A scalar.
    """
    distances = 1 - functional.cosine_similarity(first, second, dim=-1)
    matching = distances[labels == 1]
    others = distances[labels == 0]
    farthest_match = matching.max() if len(matching) else others.mean()
    closest_other = others.min() if len(others) else matching.mean()
    near = others[others < farthest_match]
    far = matching[matching > closest_other]
    lacking = functional.relu(margin - near)
    return far.square().sum() + lacking.square().sum()


@dataclass(frozen=True, kw_only=True)
class OnlineContrastive(Objective, name="online-contrastive"):
    """`online_contrastive_loss` of the two texts of each pair."""

    margin: Positive = 0.5

    needs: ClassVar[str] = "scores"
    needs_labels: ClassVar[bool] = True

    def __call__(self, views: Views) -> Tensor:
        """Return the loss."""
        return online_contrastive_loss(views.pooled[0], views.pooled[1], views.required_labels, self.margin)


Form = Literal["mse-normalized", "l2-normalized", "l2-raw"]


def reconstruction_loss(first: Tensor, second: Tensor, form: str = "mse-normalized") -> Tensor:
    """Squared distance between two views of each sentence.

    Args:
        first: ``[B, d]``.
        second: ``[B, d]``.
        form: ``mse-normalized`` is the authors' code: both directions of the mean over all B * d entries of unit
            vectors, 2 / d times the mean squared distance. ``l2-normalized`` and ``l2-raw`` read eq. 8 literally: the
            mean over sentences of the squared distance, summed over d, of unit vectors or of the vectors themselves.

    Returns:
        A scalar. At d = 768 the first form is 384 times smaller than the second.

    Raises:
        ValueError: for an unknown form.
    """
    if form not in get_args(Form):
        raise ValueError(f"form {form!r} is unknown; one of: {', '.join(get_args(Form))}")
    if form != "l2-raw":
        first = functional.normalize(first, dim=-1)
        second = functional.normalize(second, dim=-1)
    distance = (first - second).square().sum(dim=-1).mean()
    if form == "mse-normalized":
        return distance * 2 / first.shape[-1]
    return distance


@dataclass(frozen=True, kw_only=True)
class Reconstruction(Objective, name="reconstruction"):
    """`reconstruction_loss` of the first two views, after the head, like the vectors that enter InfoNCE."""

    weight: float = 0.4
    form: Form = "mse-normalized"

    def __call__(self, views: Views) -> Tensor:
        """Return the term of views 1 and 2."""
        return reconstruction_loss(views.projected[0], views.projected[1], self.form)
