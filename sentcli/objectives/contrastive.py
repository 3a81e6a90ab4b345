"""InfoNCE in the forms of the papers, optionally with a queue of past vectors that a momentum encoder fills.

van den Oord et al. 2018; SimCSE (Gao et al., EMNLP 2021, eq. 1 and 4); MoCo (He et al., CVPR 2020) for the queue, as
miCSE (Klein and Nabi, ACL 2023, eq. 2) and ESimCSE (Wu et al., COLING 2022) use it; WhitenedCSE (Zhuo et al., ACL
2023, eq. 7) for several positives; Mirror-BERT (Liu et al., EMNLP 2021) for the form in which every view is an anchor.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from sentcli.bounds import Positive, Share
from sentcli.model.surgery import ema_update, freeze, reset, set_dropout
from sentcli.objectives.base import Objective, StatefulObjective, Views
from sentcli.precision import widened
from sentcli.processes import gather, rank, widest

if TYPE_CHECKING:
    from sentcli.objectives.base import Loss, Parts


def info_nce(
    anchors: Tensor,
    positives: Tensor,
    temperature: float = 0.05,
    negatives: Tensor | None = None,
    *,
    positives_only: bool = False,
    groups: Tensor | None = None,
    cross_device: bool = False,
) -> Tensor:
    """Cross-entropy of picking each anchor's positive among all positives of the batch and some extra negatives.

    Row i of the logits is ``cos(anchor_i, [positive_1 ... positive_B, negative_1 ... negative_Q]) / temperature`` with
    target i, and the loss is the mean over the rows. As in SimCSE's code, positives are not anchors in turn.

    Args:
        anchors: ``[B, d]``.
        positives: ``[B, d]``; row i belongs to anchor i.
        temperature: tau.
        negatives: ``[Q, d]`` further negatives for every anchor, for example a queue.
        positives_only: set the logits of all negatives to 0 (miCSE's fig. 9 and table 4, "without negatives").
        groups: ``[B]`` integers; rows of one group are the same text and not negatives of each other.
        cross_device: take the positives of all processes as candidates; gradients flow back to their processes.

    Returns:
        A scalar in nats.

    Raises:
        ValueError: if the shapes do not fit.
    """
    if anchors.shape != positives.shape or anchors.ndim != 2:
        raise ValueError(f"anchors {tuple(anchors.shape)} and positives {tuple(positives.shape)} must both be [B, d]")
    targets = torch.arange(len(anchors), device=anchors.device)
    own = groups
    if cross_device:
        targets = targets + len(targets) * rank()
        positives, groups = gather(positives), None if groups is None else gather(groups)
    candidates = positives if negatives is None else torch.cat([positives, negatives])

    def loss(rows: Tensor) -> Tensor:
        target = targets[rows]
        logits = cosines(anchors[rows], candidates) / temperature
        if groups is not None and own is not None:
            twins = (own[rows][:, None] == groups).scatter(1, target[:, None], False)
            twins = functional.pad(twins, (0, logits.shape[1] - len(groups)))
            logits = logits.masked_fill(twins, -torch.inf)
        if positives_only:
            logits = torch.zeros_like(logits).scatter(1, target[:, None], logits.gather(1, target[:, None]))
        return functional.cross_entropy(logits, target, reduction="sum")

    parts = torch.split(torch.arange(len(anchors), device=anchors.device), max(1, LARGEST_TABLE // len(candidates)))
    if len(parts) == 1:
        return loss(parts[0]) / len(anchors)
    # keeping all cosines for the gradient would take more memory than the encoder, so parts of them are recomputed
    return torch.stack([checkpoint(loss, part, use_reentrant=False) for part in parts]).sum() / len(anchors)


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosines ``[A, B]`` of the rows of ``[A, d]`` and ``[B, d]``, in full precision also under autocast."""
    with torch.autocast(first.device.type, enabled=False):
        return functional.normalize(widened(first), dim=-1) @ functional.normalize(widened(second), dim=-1).T


def multi_positive_info_nce(views: Tensor, temperature: float = 0.05, *, cross_device: bool = False) -> Tensor:
    """Sum of InfoNCE between the first view and each of the others (WhitenedCSE eq. 7 with every lambda_m = 1).

    Args:
        views: ``[m, N, d]``; row i of every view is the same sentence.
        temperature: tau.
        cross_device: as for `info_nce`.

    Returns:
        A scalar in nats, the mean over the N anchors.

    Raises:
        ValueError: if there are fewer than two views.
    """
    if views.ndim != 3 or len(views) < 2:
        raise ValueError(f"views {tuple(views.shape)} must be [m, N, d] with m >= 2")
    losses = [info_nce(views[0], view, temperature, cross_device=cross_device) for view in views[1:]]
    return torch.stack(losses).sum()


def nt_xent(first: Tensor, second: Tensor, temperature: float = 0.04, *, cross_device: bool = False) -> Tensor:
    """InfoNCE in which every row of both views is an anchor: 1 positive, 2B - 2 negatives from both views.

    Args:
        first: ``[B, d]``.
        second: ``[B, d]``; row i shows the sentence of row i of `first`.
        temperature: tau; 0.04 in Mirror-BERT.
        cross_device: as for `info_nce`.

    Returns:
        A scalar in nats, the mean over the 2B anchors.
    """
    anchors, count = torch.cat([first, second]), len(first)
    start = 0
    if cross_device:
        start, first, second = rank() * count, gather(first), gather(second)
    rows = torch.arange(start, start + count, device=anchors.device)
    itself = torch.cat([rows, rows + len(first)])
    logits = cosines(anchors, torch.cat([first, second])) / temperature
    logits = logits.scatter(1, itself[:, None], -torch.inf)
    return functional.cross_entropy(logits, torch.cat([rows + len(first), rows]))


LARGEST_QUEUE = 10_000_000
LARGEST_TABLE = 2**22
"""The largest number of cosines in memory at a time."""
ROWS = 512
"""How many rows the momentum encoder encodes at a time."""


@dataclass(frozen=True, kw_only=True)
class Contrastive(Objective, name="contrastive"):
    """`info_nce` of the first two views, optionally with a queue of past vectors as further negatives."""

    temperature: Positive = 0.05
    queue_size: Annotated[int, Ge(0), Le(LARGEST_QUEUE)] = 0
    """The number of past vectors that are negatives; 0 for no queue."""
    momentum: Share = 0.995
    """The momentum encoder, which fills the queue, moves by m <- momentum * m + (1 - momentum) * online."""
    momentum_dropout: Share = 0.3
    """The dropout rate of the momentum encoder."""
    momentum_init: Literal["online", "random"] = "online"
    """The momentum encoder starts as a copy of the ``online`` one, or from ``random`` weights, as in ESimCSE's code by
    mistake."""
    positives_only: bool = False
    mask_duplicates: bool = False
    """Whether equal texts in a batch are not negatives of each other."""
    cross_device: bool = True
    """Whether the sentences of the other processes are negatives, too. The queue is always shared by all processes."""

    def build(self, parts: Parts) -> Loss:
        """Return this objective, or the module with the queue."""
        return MomentumContrastive(self, parts) if self.queue_size else self

    def __call__(self, views: Views, negatives: Tensor | None = None) -> Tensor:
        """Return the loss of views 1 and 2."""
        groups = None
        if self.mask_duplicates:
            first = views.inputs["input_ids"][: views.projected.shape[1]]
            groups = equal_rows(first, views.mask[0], cross_device=self.cross_device)
        return info_nce(
            views.projected[0],
            views.projected[1],
            self.temperature,
            negatives,
            positives_only=self.positives_only,
            groups=groups,
            cross_device=self.cross_device,
        )


def equal_rows(ids: Tensor, mask: Tensor, *, cross_device: bool) -> Tensor:
    """Return a number for each row of ids ``[B, T]`` that equal texts share, with `cross_device` over all processes."""
    ids = ids.masked_fill(mask == 0, -1)
    everyone = gather(widest(ids)) if cross_device else ids
    groups: Tensor = torch.unique(everyone, dim=0, return_inverse=True)[1]
    return groups[len(ids) * rank() :][: len(ids)] if cross_device else groups


class MomentumContrastive(StatefulObjective):
    """The loss of `Contrastive` with a queue.

    At each step the momentum encoder moves, the loss is computed with the old queue, and view 1 is enqueued. The
    momentum encoder uses the online head, of which there is no average (miCSE sec. 3.1).
    """

    rows: Tensor
    filled: Tensor

    def __init__(self, settings: Contrastive, parts: Parts) -> None:
        super().__init__()
        self.settings = settings
        self.encoder: Any = copy.deepcopy(parts.encoder)
        if settings.momentum_init == "random":
            reset(self.encoder, float(getattr(parts.backbone.config, "initializer_range", 0.02)))
        set_dropout(self.encoder, settings.momentum_dropout)
        freeze(self.encoder)
        self.register_buffer("rows", torch.zeros(settings.queue_size, parts.dimension))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))

    @property
    def queue(self) -> Tensor | None:
        """The past vectors ``[filled, d']``, the newest last; None while there are none."""
        filled = int(self.filled)
        return self.rows[-filled:] if filled else None

    def forward(self, views: Views) -> Tensor:
        """Return the loss, and update the momentum encoder and the queue."""
        ema_update(self.encoder, views.encoder, self.settings.momentum)
        loss = self.settings(views, self.queue)
        self.enqueue(views)
        return loss

    @torch.no_grad()
    def enqueue(self, views: Views) -> None:
        """Append the momentum encoder's vectors of view 1, of all processes, and drop the oldest."""
        count, capacity = views.projected.shape[1], self.settings.queue_size
        first = {name: ids[:count] for name, ids in views.inputs.items()}
        parts = [
            self.encoder.features(dict(zip(first, part, strict=True)), normalize=False, sentence_only=True).sentence
            for part in zip(*(torch.split(ids, ROWS) for ids in first.values()), strict=True)
        ]
        new = gather(widened(views.head(widened(torch.cat(parts))[None])[0]))
        self.rows = torch.cat([self.rows, new])[-capacity:]
        self.filled += min(len(new), capacity - int(self.filled))


@dataclass(frozen=True, kw_only=True)
class MultiPositive(Objective, name="multi-positive"):
    """`multi_positive_info_nce` of all views (WhitenedCSE)."""

    temperature: Positive = 0.05
    cross_device: bool = True
    """Whether the sentences of the other processes are negatives, too."""

    every_view: ClassVar[bool] = True

    def __call__(self, views: Views) -> Tensor:
        """Return the sum over the positives."""
        return multi_positive_info_nce(views.projected, self.temperature, cross_device=self.cross_device)


@dataclass(frozen=True, kw_only=True)
class NTXent(Objective, name="nt-xent"):
    """`nt_xent` of the first two views (Mirror-BERT)."""

    temperature: Positive = 0.04
    cross_device: bool = True
    """Whether the sentences of the other processes are negatives, too."""

    def __call__(self, views: Views) -> Tensor:
        """Return the loss of views 1 and 2."""
        return nt_xent(views.projected[0], views.projected[1], self.temperature, cross_device=self.cross_device)
