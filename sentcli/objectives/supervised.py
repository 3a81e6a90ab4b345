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
    count, start = len(labels), rank() * len(labels) if cross_device else 0
    anchors, own = views.flatten(0, 1), labels.repeat(len(views))
    columns = [gather(view) for view in views] if cross_device else list(views)
    everyone = (gather(labels[:, None])[:, 0] if cross_device else labels).repeat(len(views))
    rows = torch.arange(start, start + count, device=views.device)
    itself = torch.cat([rows + i * len(columns[0]) for i in range(len(views))])[:, None]
    logits = (cosines(anchors, torch.cat(columns)) / temperature).scatter(1, itself, -torch.inf)
    positives = (own[:, None] == everyone).scatter(1, itself, False)
    likelihoods = functional.log_softmax(logits, dim=1).masked_fill(~positives, 0.0)
    return -(likelihoods.sum(dim=1) / positives.sum(dim=1)).mean()


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
        assert views.labels is not None
        return supervised_contrastive_loss(
            views.projected, views.labels, self.temperature, cross_device=self.cross_device
        )
