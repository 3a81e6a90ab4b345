"""The supervised contrastive loss of texts with classes (SupCon: Khosla et al., NeurIPS 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from sentcli.bounds import Positive
from sentcli.objectives.base import Objective, Views
from sentcli.objectives.contrastive import cosines
from sentcli.processes import gather, rank


def supervised_contrastive_loss(
    views: Tensor, labels: Tensor, temperature: float = 0.1, *, cross_device: bool = False
) -> Tensor:
    """InfoNCE in which all vectors of a class are positives of each other (Khosla et al., NeurIPS 2020, eq. 2, L_out).

    Each of the mB vectors is an anchor. Its loss is the mean over its positives of the cross-entropy of picking that
    positive among all other vectors.

    Args:
        views: ``[m, B, d]`` with m >= 2, so that no class is alone.
        labels: the number of the class of each row ``[B]``.
        temperature: tau; 0.1 in the paper.
        cross_device: take the vectors of all processes as candidates.

    Returns:
        A scalar in nats, the mean over the mB anchors.
    """
    anchors = views.flatten(0, 1)
    anchor_labels = labels.repeat(len(views))
    columns = list(views)
    rows = torch.arange(len(labels), device=views.device)
    if cross_device:
        rows = rows + len(rows) * rank()
        columns = [gather(view) for view in views]
        labels = gather(labels[:, None])[:, 0]
    count = len(labels)
    itself = torch.cat([rows + number * count for number in range(len(views))])[:, None]
    candidates = torch.cat(columns)
    logits = cosines(anchors, candidates) / temperature
    logits = logits.scatter(1, itself, -torch.inf)
    positives = anchor_labels[:, None] == labels.repeat(len(views))
    positives = positives.scatter(1, itself, False)
    likelihoods = functional.log_softmax(logits, dim=1)
    likelihoods = likelihoods.masked_fill(~positives, 0.0)
    means = likelihoods.sum(dim=1) / positives.sum(dim=1)
    return -means.mean()


@dataclass(frozen=True, kw_only=True)
class SupervisedContrastive(Objective, name="supcon"):
    """`supervised_contrastive_loss` of all views of texts with classes."""

    temperature: Positive = 0.1
    cross_device: bool = True
    """Whether the texts of the other processes are compared, too."""

    every_view: ClassVar[bool] = True
    needs: ClassVar[str] = "labels"

    def __call__(self, views: Views) -> Tensor:
        """Return the loss."""
        return supervised_contrastive_loss(
            views.projected, views.required_labels, self.temperature, cross_device=self.cross_device
        )
