"""Learning from a teacher: its vectors, its similarities within a batch, and its margins between two documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from sentcli.bounds import Positive
from sentcli.errors import InputError
from sentcli.model.surgery import reset
from sentcli.objectives.base import Objective, StatefulObjective, Views
from sentcli.objectives.contrastive import cosines

if TYPE_CHECKING:
    from sentcli.objectives.base import Loss, ObjectiveContext


def vector_distance(student: Tensor, teacher: Tensor, form: str = "cosine") -> Tensor:
    """Mean distance of the student's vectors from the teacher's.

    Args:
        student: ``[N, d]``.
        teacher: ``[N, d]``.
        form: ``cosine`` is 1 minus the cosine; ``mse`` is the mean over all N * d entries of the squared difference
            (Reimers and Gurevych, EMNLP 2020, eq. 1).

    Returns:
        A scalar.
    """
    if form == "mse":
        return functional.mse_loss(student, teacher)
    return (1 - functional.cosine_similarity(student, teacher, dim=1)).mean()


def similarity_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared difference of the cosines of all pairs of different texts of a batch.

    Args:
        student: ``[N, d]``.
        teacher: ``[N, d_t]``.

    Returns:
        A scalar.
    """
    difference = cosines(student, student) - cosines(teacher, teacher)
    others = len(student) * (len(student) - 1)
    return difference.fill_diagonal_(0).square().sum() / others


def margin_mse(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared difference of the margins between a positive and each negative (Hofstätter et al., 2020, eq. 3).

    Args:
        student: similarities of an anchor with its positive and its negatives ``[B, 1 + k]``.
        teacher: the teacher's similarities or scores of the same pairs ``[B, 1 + k]``.

    Returns:
        A scalar.
    """
    student_margins = student[:, :1] - student[:, 1:]
    teacher_margins = teacher[:, :1] - teacher[:, 1:]
    return functional.mse_loss(student_margins, teacher_margins)


@dataclass(frozen=True, kw_only=True)
class VectorDistillation(Objective, name="vectors"):
    """`vector_distance` from the teacher's vectors, through a projection if the dimensions differ.

    The projection is new, is trained, and is dropped afterwards.
    """

    form: Literal["cosine", "mse"] = "cosine"
    projection: Literal["auto", "always"] = "auto"
    """Whether there is a projection only where the dimensions differ, or always."""

    views: ClassVar[int] = 1
    teacher: ClassVar[Literal["", "vectors", "scores"]] = "vectors"
    truncates: ClassVar[bool] = True

    def build(self, context: ObjectiveContext) -> Loss:
        """Return this objective, or the module with the projection."""
        (width,) = context.teacher_widths
        if width == context.dimension and self.projection == "auto":
            return self
        return ProjectedDistillation(self, context.dimension, width)

    def __call__(self, views: Views) -> Tensor:
        """Return the mean over all views."""
        student = views.pooled
        (teacher,) = views.teachers
        teacher = teacher[..., : student.shape[-1]]
        return self.distance(student, teacher)

    def distance(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Return the mean distance of ``[m, B, d]`` from ``[m, B, d]``, or from ``[1, B, d]`` for all views."""
        targets = teacher.expand(len(student), -1, -1)
        return vector_distance(student.flatten(0, 1), targets.flatten(0, 1), self.form)


class ProjectedDistillation(StatefulObjective):
    """The loss of `VectorDistillation` with a projection ``[d, d_t]``."""

    def __init__(self, settings: VectorDistillation, dimension: int, width: int) -> None:
        super().__init__()
        self.settings = settings
        self.projection = nn.Linear(dimension, width)
        reset(self.projection, dimension**-0.5)

    def forward(self, views: Views) -> Tensor:
        """Return the loss; of vectors that are cut to their first dimensions, the projection has those rows alone."""
        student = views.pooled
        weight = self.projection.weight[:, : student.shape[-1]]
        projected = functional.linear(student, weight, self.projection.bias)
        (teacher,) = views.teachers
        return self.settings.distance(projected, teacher)


@dataclass(frozen=True, kw_only=True)
class SimilarityDistillation(Objective, name="similarities"):
    """`similarity_distance` from the teacher's similarities within the batch, which needs no equal dimensions."""

    views: ClassVar[int] = 1
    teacher: ClassVar[Literal["", "vectors", "scores"]] = "vectors"
    truncates: ClassVar[bool] = True

    def __call__(self, views: Views) -> Tensor:
        """Return the mean over the views."""
        (teacher,) = views.teachers
        targets = teacher.expand(len(views.pooled), -1, -1)
        distances = []
        for student, target in zip(views.pooled, targets, strict=True):
            distances.append(similarity_distance(student, target))
        return torch.stack(distances).mean()


@dataclass(frozen=True, kw_only=True)
class MarginMSE(Objective, name="margin-mse"):
    """`margin_mse` of the cosines of anchors with their positives and hard negatives."""

    scale: Positive = 1.0
    """The factor of the student's cosines, for a teacher whose scores have another range."""

    teacher: ClassVar[Literal["", "vectors", "scores"]] = "scores"
    takes_hard_negatives: ClassVar[bool] = True
    truncates: ClassVar[bool] = True

    def check_views(self, positives: int, hard_negatives: int) -> None:
        """Refuse data without hard negatives."""
        if not hard_negatives:
            raise InputError(
                "margin-mse compares a positive with hard negatives, which the data lacks: sentcli data mine finds some"
            )

    def __call__(self, views: Views) -> Tensor:
        """Return the loss."""
        anchor, *others = views.projected
        similarities = []
        for other in others:
            similarities.append(functional.cosine_similarity(anchor, other, dim=1))
        student = torch.stack(similarities, dim=1) * self.scale
        assert views.teacher_scores is not None
        return margin_mse(student, views.teacher_scores)
