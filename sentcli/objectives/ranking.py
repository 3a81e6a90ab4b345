"""Rankings of the other sentences of a batch: consistent between two views, and learnt from a teacher.

RankCSE (Liu et al., ACL 2023, sec. 3); ListNet (Cao et al., ICML 2007) and ListMLE (Xia et al., ICML 2008) are its two
ways to learn a ranking. A list is the row of a ``[B, B]`` table of similarities: those of one sentence to all others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from sentcli.bounds import Fraction, Positive
from sentcli.errors import InputError
from sentcli.objectives.base import Objective, Views
from sentcli.objectives.contrastive import cosines


def ranking_consistency(first: Tensor, second: Tensor, temperature: float = 0.05) -> Tensor:
    """Jensen-Shannon divergence of the similarity distributions of both directions (RankCSE, eq. 3 and 4).

    Row i of the one distribution is the softmax of ``cos(first_i, second_j) / temperature`` over j, and of the other
    that of ``cos(second_i, first_j) / temperature``.

    Args:
        first: ``[B, d]``.
        second: ``[B, d]``; row i shows the sentence of row i of `first`.
        temperature: tau 1.

    Returns:
        A scalar in nats, the mean over the rows, between 0 and ln 2.
    """
    logits = cosines(first, second) / temperature
    forward = logits.log_softmax(dim=1)
    backward = logits.T.log_softmax(dim=1)
    mixture = torch.logaddexp(forward, backward) - math.log(2)
    to_forward = functional.kl_div(mixture, forward, reduction="batchmean", log_target=True)
    to_backward = functional.kl_div(mixture, backward, reduction="batchmean", log_target=True)
    return (to_forward + to_backward) / 2


def list_net(student: Tensor, teacher: Tensor) -> Tensor:
    """Cross-entropy of the student's top-one probabilities under the teacher's, without each sentence itself.

    Args:
        student: similarities divided by the student's temperature ``[B, B]``, with each sentence on the diagonal.
        teacher: similarities divided by the teacher's temperature ``[B, B]``.

    Returns:
        A scalar in nats, the mean over the lists.
    """
    itself = torch.eye(len(student), dtype=torch.bool, device=student.device)
    log_student = student.masked_fill(itself, -torch.inf).log_softmax(dim=1)
    probabilities = teacher.masked_fill(itself, -torch.inf).softmax(dim=1)
    # the diagonal is 0 times minus infinity
    terms = (probabilities * log_student).masked_fill(itself, 0.0)
    return -terms.sum(dim=1).mean()


def list_mle(student: Tensor, teacher: Tensor) -> Tensor:
    """Negative log-likelihood of the teacher's order under the student's similarities (Plackett-Luce).

    Args:
        student: similarities divided by the temperature ``[B, N]``.
        teacher: similarities ``[B, N]``, whose order alone counts.

    Returns:
        A scalar in nats, the sum over a list, and its mean over the lists.
    """
    order = teacher.argsort(dim=1, descending=True, stable=True)
    in_order = student.gather(1, order)
    # the probability of each place: a softmax over what is left from this place on
    of_the_rest = in_order.flip(1).logcumsumexp(dim=1).flip(1)
    return (of_the_rest - in_order).sum(dim=1).mean()


def mixed_similarities(teachers: Sequence[Tensor], share: float) -> Tensor:
    """Return the cosines ``[B, B]`` of a batch by one teacher, or of two weighted by `share` and ``1 - share``.

    Args:
        teachers: the vectors of each ``[B, d_t]``.
        share: the weight of the first of two.
    """
    first, *others = teachers
    similarities = cosines(first, first)
    if not others:
        return similarities
    (second,) = others
    return share * similarities + (1 - share) * cosines(second, second)


@dataclass(frozen=True, kw_only=True)
class RankingConsistency(Objective, name="consistency"):
    """`ranking_consistency` of the first two views."""

    temperature: Positive = 0.05

    truncates: ClassVar[bool] = True

    def __call__(self, views: Views) -> Tensor:
        """Return the term of views 1 and 2."""
        first, second = views.projected[:2]
        return ranking_consistency(first, second, self.temperature)


@dataclass(frozen=True, kw_only=True)
class RankingDistillation(Objective, name="ranking"):
    """The ranking of the batch that one teacher gives, or two together, learnt by `list_net` or `list_mle`."""

    kind: Literal["listmle", "listnet"] = "listmle"
    temperature: Positive = 0.05
    """The temperature of the student's similarities, tau 2."""
    teacher_temperature: Positive = 0.025
    """The temperature of the teacher's, tau 3, for ListNet; ListMLE takes their order alone."""
    share: Fraction = 1 / 3
    """alpha, the weight of the first of two teachers' similarities."""

    teacher: ClassVar[Literal["", "vectors", "scores"]] = "vectors"
    most_teachers: ClassVar[int] = 2
    truncates: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse a share that leaves out the first teacher."""
        if self.share == 0:
            raise InputError("share=0 leaves out the first teacher: name the second alone")

    def __call__(self, views: Views) -> Tensor:
        """Return the term of views 1 and 2."""
        first, second = views.projected[:2]
        similarities = mixed_similarities([vectors[0] for vectors in views.teachers], self.share)
        student = cosines(first, second) / self.temperature
        if self.kind == "listmle":
            return list_mle(student, similarities)
        return list_net(student, similarities / self.teacher_temperature)
