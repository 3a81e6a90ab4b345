"""InfoNCE with several positives of an anchor, and with an anchor in every view.

WhitenedCSE (Zhuo et al., ACL 2023, eq. 7) for several positives; Mirror-BERT (Liu et al., EMNLP 2021) for the form in
which every view is an anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from sentcli.bounds import Positive
from sentcli.errors import InputError
from sentcli.objectives.base import Views
from sentcli.objectives.contrastive import InBatchNegatives, cosines, gathered_texts, info_nce
from sentcli.processes import gather, rank


def multi_positive_info_nce(
    views: Tensor, temperature: float = 0.05, lambdas: Sequence[float] = (), **options: Any
) -> Tensor:
    """Sum of InfoNCE between the first view and each of the others (WhitenedCSE eq. 7).

    Args:
        views: ``[m, N, d]``; row i of every view is the same sentence, or a positive of the first view's.
        temperature: tau.
        lambdas: lambda_m, the weight of each view after the first; 1 for all if it is empty.
        **options: as for `info_nce`.

    Returns:
        A scalar in nats, the mean over the N anchors.

    Raises:
        ValueError: if there are fewer than two views, or another number of lambdas than of views after the first.
    """
    if views.ndim != 3 or len(views) < 2:
        raise ValueError(f"views {tuple(views.shape)} must be [m, N, d] with m >= 2")
    weights = lambdas or (1.0,) * (len(views) - 1)
    terms = []
    for weight, view in zip(weights, views[1:], strict=True):
        terms.append(weight * info_nce(views[0], view, temperature, **options))
    return torch.stack(terms).sum()


def nt_xent(
    first: Tensor, second: Tensor, temperature: float = 0.04, *, texts: Tensor | None = None, cross_device: bool = False
) -> Tensor:
    """InfoNCE in which every row of both views is an anchor: 1 positive, 2B - 2 negatives from both views.

    Args:
        first: ``[B, d]``.
        second: ``[B, d]``; row i shows the sentence of row i of `first`, or a positive of it.
        temperature: tau; 0.04 in Mirror-BERT.
        texts: ``[2, B]`` as for `info_nce`.
        cross_device: as for `info_nce`.

    Returns:
        A scalar in nats, the mean over the 2B anchors.
    """
    anchors = torch.cat([first, second])
    rows = torch.arange(len(first), device=anchors.device)
    if cross_device:
        rows = rows + len(rows) * rank()
        first = gather(first)
        second = gather(second)
        texts = gathered_texts(texts)
    everyone = len(first)
    itself = torch.cat([rows, rows + everyone])[:, None]
    target = torch.cat([rows + everyone, rows])
    logits = cosines(anchors, torch.cat([first, second])) / temperature
    if texts is not None:
        own = texts.flatten()
        partner = texts.flip(0).flatten()
        anchor = own[itself]
        twins = (own == anchor) | (own == partner[itself]) | (partner == anchor)
        twins = twins.scatter(1, target[:, None], False)
        logits = logits.masked_fill(twins, -torch.inf)
    logits = logits.scatter(1, itself, -torch.inf)
    return functional.cross_entropy(logits, target)


@dataclass(frozen=True, kw_only=True)
class MultiPositive(InBatchNegatives, name="multi-positive"):
    """`multi_positive_info_nce` of all views (WhitenedCSE)."""

    lambdas: tuple[float, ...] = ()
    """lambda_m, the weight of each view after the first; 1 for all if it is empty, as in the authors' code."""

    every_view: ClassVar[bool] = True
    takes_hard_negatives: ClassVar[bool] = True
    truncates: ClassVar[bool] = True

    def check_views(self, positives: int, hard_negatives: int) -> None:
        """Refuse another number of lambdas than of positives."""
        if self.lambdas and len(self.lambdas) != positives:
            raise InputError(f"lambdas {self.lambdas}: expected {positives}, one for each view after the first")

    def __call__(self, views: Views) -> Tensor:
        """Return the sum over the positives."""
        return multi_positive_info_nce(
            views.projected[:2] if views.paired else views.projected,
            self.temperature,
            self.lambdas,
            texts=self.texts(views),
            hard_negatives=views.hard_negatives,
            cross_device=self.cross_device,
        )


@dataclass(frozen=True, kw_only=True)
class NTXent(InBatchNegatives, name="nt-xent"):
    """`nt_xent` of the first two views (Mirror-BERT)."""

    temperature: Positive = 0.04

    truncates: ClassVar[bool] = True

    def __call__(self, views: Views) -> Tensor:
        """Return the loss of views 1 and 2."""
        texts = self.texts(views)
        first, second = views.projected[:2]
        return nt_xent(first, second, self.temperature, texts=texts, cross_device=self.cross_device)
