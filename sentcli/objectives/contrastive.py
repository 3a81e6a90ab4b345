"""InfoNCE: van den Oord et al. 2018, as SimCSE (Gao et al., EMNLP 2021, eq. 1) uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

    from sentcli.objectives.views import Views


def info_nce(anchors: Tensor, positives: Tensor, temperature: float = 0.05, negatives: Tensor | None = None) -> Tensor:
    """Cross-entropy of picking each anchor's positive among all positives of the batch and some extra negatives.

    Row i of the logits is ``cos(anchor_i, [positive_1 ... positive_B, negative_1 ... negative_Q]) / temperature``
    with target i; the mean over the rows. One direction only: positives are not anchors in turn, as in SimCSE's code.

    Args:
        anchors: ``[B, d]``.
        positives: ``[B, d]``; row i belongs to anchor i.
        temperature: tau.
        negatives: ``[Q, d]`` further negatives for every anchor, for example a queue.

    Returns:
        A scalar in nats.

    Raises:
        ValueError: if the shapes do not fit.
    """
    if anchors.shape != positives.shape or anchors.ndim != 2:
        raise ValueError(f"anchors {tuple(anchors.shape)} and positives {tuple(positives.shape)} must both be [B, d]")
    candidates = positives if negatives is None else torch.cat([positives, negatives])
    logits = functional.normalize(anchors, dim=-1) @ functional.normalize(candidates, dim=-1).T / temperature
    return functional.cross_entropy(logits, torch.arange(len(anchors), device=logits.device))


@dataclass
class Contrastive:
    """`info_nce` between the first two views of each sentence."""

    temperature: float = 0.05
    weight: float = 1.0
    name: str = "contrastive"

    def __call__(self, views: Views) -> Tensor:
        """Return the loss of views 1 and 2."""
        return info_nce(views.projected[0], views.projected[1], self.temperature)
