"""InfoNCE in the forms of the papers, optionally with a queue of past vectors that a momentum encoder fills.

van den Oord et al. 2018; SimCSE (Gao et al., EMNLP 2021, eq. 1 and 4); MoCo (He et al., CVPR 2020) for the queue, as
miCSE (Klein and Nabi, ACL 2023, eq. 2) and ESimCSE (Wu et al., COLING 2022) use it.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from sentcli.bounds import Fraction, Positive
from sentcli.errors import InputError
from sentcli.model.surgery import ema_update, freeze, reset, set_dropout
from sentcli.objectives.base import Objective, StatefulObjective, Views
from sentcli.precision import widened
from sentcli.processes import gather, rank, widest

if TYPE_CHECKING:
    from sentcli.objectives.base import Loss, ObjectiveContext

InBatch = Literal["own-view", "other-view"]
"""The view whose vectors of the other sentences are negatives."""


def info_nce(
    anchors: Tensor,
    positives: Tensor,
    temperature: float = 0.05,
    negatives: Tensor | None = None,
    *,
    hard_negatives: Tensor | None = None,
    hard_negative_weight: float = 1.0,
    positives_only: bool = False,
    texts: Tensor | None = None,
    cross_device: bool = False,
) -> Tensor:
    """Cross-entropy of picking each anchor's positive among all positives of the batch and some negatives.

    Row i of the logits is ``cos(anchor_i, [positive_1 ... positive_B, negative_1 ... negative_Q]) / temperature`` with
    target i, and the loss is the mean over the rows. As in SimCSE's code, positives are not anchors in turn. With hard
    negatives it is supervised SimCSE's loss (eq. 5), which sentence-transformers calls MultipleNegativesRanking.

    Args:
        anchors: ``[B, d]``.
        positives: ``[B, d]``; row i belongs to anchor i.
        temperature: tau.
        negatives: ``[Q, d]`` further negatives for every anchor, for example a queue.
        hard_negatives: ``[k, B, d]`` negatives that were chosen for anchor i, and are negatives of all others, too.
        hard_negative_weight: alpha, the weight of an anchor's own hard negatives in the denominator.
        positives_only: set the logits of all negatives to 0 (miCSE's fig. 9 and table 4, "without negatives").
        texts: ``[2 + k, B]`` numbers of the texts of anchors, positives and hard negatives; texts with the same number
            are no negatives of each other.
        cross_device: take the positives and hard negatives of all processes as candidates; gradients flow back to their
            processes.

    Returns:
        A scalar in nats.

    Raises:
        ValueError: if the shapes do not fit.
    """
    if anchors.shape != positives.shape or anchors.ndim != 2:
        raise ValueError(f"anchors {tuple(anchors.shape)} and positives {tuple(positives.shape)} must both be [B, d]")
    numbers = torch.arange(len(anchors), device=anchors.device)
    targets = numbers
    columns = [positives]
    if hard_negatives is not None:
        columns += list(hard_negatives)
    if cross_device:
        targets = targets + len(targets) * rank()
        columns = [gather(column) for column in columns]
        texts = gathered_texts(texts)
    everyone = len(columns[0])
    candidates = torch.cat(columns if negatives is None else [*columns, negatives])

    def loss(rows: Tensor) -> Tensor:
        target = targets[rows][:, None]
        logits = cosines(anchors[rows], candidates) / temperature
        if texts is not None:
            twins = equal_texts(texts, target).scatter(1, target, False)
            twins = functional.pad(twins, (0, len(candidates) - twins.shape[1]))
            logits = logits.masked_fill(twins, -torch.inf)
        if hard_negative_weight != 1.0:
            own_columns = target + everyone * torch.arange(1, len(columns), device=target.device)
            addend = torch.full_like(logits[:, : own_columns.shape[1]], math.log(hard_negative_weight))
            logits = logits.scatter_add(1, own_columns, addend)
        if positives_only:
            own_logits = logits.gather(1, target)
            logits = torch.zeros_like(logits).scatter(1, target, own_logits)
        return functional.cross_entropy(logits, target[:, 0], reduction="sum")

    parts = torch.split(numbers, max(1, LARGEST_TABLE // len(candidates)))
    if len(parts) == 1:
        return loss(parts[0]) / len(anchors)
    # keeping all cosines for the gradient would take more memory than the encoder, so parts of them are recomputed
    losses = [checkpoint(loss, part, use_reentrant=False) for part in parts]
    return torch.stack(losses).sum() / len(anchors)


def gathered_texts(texts: Tensor | None) -> Tensor | None:
    """Return the numbers ``[m, B]`` of the texts of all processes, if there are any."""
    return None if texts is None else gather(texts.T).T


def printed_info_nce(
    anchors: Tensor,
    positives: Tensor,
    temperature: float = 0.05,
    negatives: Tensor | None = None,
    *,
    of_view: InBatch = "other-view",
    cross_device: bool = False,
) -> Tensor:
    """InfoNCE as miCSE's eq. 2 prints it: a sum over the anchors, whose denominators have no positive.

    It is unbounded below: the positive gains without end from being near, and nothing is normalised. Eq. 2 does not
    say of which view the other sentences of the batch are.

    Args:
        anchors: ``[B, d]``.
        positives: ``[B, d]``; row i belongs to anchor i.
        temperature: tau.
        negatives: ``[Q, d]`` further negatives for every anchor, for example a queue.
        of_view: the vectors of the other sentences, those of ``own-view`` (anchors) or ``other-view`` (positives).
        cross_device: take the sentences of all processes as negatives.

    Returns:
        A scalar in nats.
    """
    others = anchors if of_view == "own-view" else positives
    first = 0
    if cross_device:
        others = gather(others)
        first = len(anchors) * rank()
    itself = torch.arange(first, first + len(anchors), device=anchors.device)[:, None]
    candidates = others if negatives is None else torch.cat([others, negatives])
    logits = cosines(anchors, candidates) / temperature
    logits = logits.scatter(1, itself, -torch.inf)
    positive = functional.cosine_similarity(widened(anchors), widened(positives), dim=-1) / temperature
    return (logits.logsumexp(dim=1) - positive).sum()


def equal_texts(texts: Tensor, rows: Tensor) -> Tensor:
    """Return which candidates are no negatives of some anchors: they equal the anchor, its positive, or share them.

    Args:
        texts: ``[2 + k, N]`` numbers of the texts of anchors, positives and hard negatives.
        rows: the rows of the anchors ``[A, 1]``.

    Returns:
        ``[A, (1 + k) * N]``, for the positives and then the hard negatives.
    """
    anchor_texts = texts[0]
    anchor = anchor_texts[rows]
    positive = texts[1][rows]
    candidates = texts[1:].flatten()
    twins: Tensor = (candidates == anchor) | (candidates == positive)
    twins[:, : texts.shape[1]] |= anchor_texts == anchor
    return twins


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosines ``[A, B]`` of the rows of ``[A, d]`` and ``[B, d]``, in full precision also under autocast."""
    with torch.autocast(first.device.type, enabled=False):
        first = functional.normalize(widened(first), dim=-1)
        second = functional.normalize(widened(second), dim=-1)
        return first @ second.T


LARGEST_QUEUE = 10_000_000
LARGEST_TABLE = 2**22
"""The largest number of cosines in memory at a time."""
MOMENTUM_ROWS = 512
"""How many rows the momentum encoder encodes at a time."""


@dataclass(frozen=True, kw_only=True)
class InBatchNegatives(Objective):
    """An objective whose negatives are the other sentences of the batch."""

    temperature: Positive = 0.05
    mask_duplicates: bool = False
    """Whether equal texts in a batch are not negatives of each other; so it is by default for labelled pairs."""
    cross_device: bool = True
    """Whether the sentences of the other processes are negatives, too."""

    negatives_in_batch: ClassVar[bool] = True

    def texts(self, views: Views) -> Tensor | None:
        """Return `text_numbers` if duplicates are masked."""
        if not self.mask_duplicates:
            return None
        return text_numbers(views, cross_device=self.cross_device)


@dataclass(frozen=True, kw_only=True)
class Contrastive(InBatchNegatives, name="contrastive"):
    """`info_nce` of the first two views, optionally with a queue of past vectors as further negatives."""

    queue_size: Annotated[int, Ge(0), Le(LARGEST_QUEUE)] = 0
    """The number of past vectors that are negatives; 0 for no queue. All processes share the queue."""
    momentum: Fraction = 0.995
    """The momentum encoder, which fills the queue, moves by m <- momentum * m + (1 - momentum) * online."""
    momentum_dropout: Fraction = 0.3
    """The dropout rate of the momentum encoder."""
    momentum_init: Literal["online", "random"] = "online"
    """The momentum encoder starts as a copy of the ``online`` one, or from ``random`` weights, as in ESimCSE's code by
    mistake."""
    positives_only: bool = False
    hard_negative_weight: Positive = 1.0
    """The weight alpha of an anchor's own hard negatives, for data that has them (supervised SimCSE)."""
    denominator: Literal["all", InBatch] = "all"
    """``all`` candidates, the positive included, or the negatives alone as in `printed_info_nce`."""

    takes_hard_negatives: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse what the printed form does not have."""
        changes_negatives = self.positives_only or self.mask_duplicates or self.hard_negative_weight != 1
        if self.denominator != "all" and changes_negatives:
            raise InputError(
                f"denominator={self.denominator} is the printed form of miCSE's eq. 2, which has no positives_only, "
                "mask_duplicates (on for labelled pairs: --set mask_duplicates=false before it) or hard_negative_weight"
            )

    def can_truncate(self) -> bool:
        """Tell whether there is no queue, which holds whole vectors."""
        return self.queue_size == 0

    def check_views(self, positives: int, hard_negatives: int) -> None:
        """Refuse hard negatives, which the printed form does not have."""
        if hard_negatives and self.denominator != "all":
            raise InputError(f"denominator={self.denominator} takes no hard negatives: name two --pair-fields")

    @property
    def note(self) -> str:
        """A warning for the form that diverges."""
        if self.denominator == "all":
            return ""
        return f"denominator={self.denominator} leaves the positive out of the denominator: the loss has no lower bound"

    def build(self, context: ObjectiveContext) -> Loss:
        """Return this objective, or the module with the queue."""
        return MomentumContrastive(self, context) if self.queue_size else self

    def __call__(self, views: Views, negatives: Tensor | None = None) -> Tensor:
        """Return the loss of views 1 and 2."""
        first, second = views.projected[:2]
        if self.denominator != "all":
            return printed_info_nce(
                first, second, self.temperature, negatives, of_view=self.denominator, cross_device=self.cross_device
            )
        return info_nce(
            first,
            second,
            self.temperature,
            negatives,
            hard_negatives=views.hard_negatives,
            hard_negative_weight=self.hard_negative_weight,
            positives_only=self.positives_only,
            texts=self.texts(views),
            cross_device=self.cross_device,
        )


def text_numbers(views: Views, *, cross_device: bool) -> Tensor:
    """Return a number for the text of each row of each view ``[m, B]``, which equal texts share, over all processes."""
    padding = views.inputs["attention_mask"] == 0
    ids = views.inputs["input_ids"].masked_fill(padding, -1)
    rows = len(ids)
    start = 0
    if cross_device:
        start = rows * rank()
        ids = gather(widest(ids))
    _, numbers = torch.unique(ids, dim=0, return_inverse=True)
    own_rows: Tensor = numbers[start : start + rows]
    return own_rows.view(views.projected.shape[:2])


class MomentumContrastive(StatefulObjective):
    """The loss of `Contrastive` with a queue.

    At each step the momentum encoder moves, the loss is computed with the old queue, and view 1 is enqueued, or the
    positives of labelled pairs. The momentum encoder uses the online head, of which there is no average (miCSE sec.
    3.1).
    """

    rows: Tensor
    filled: Tensor

    def __init__(self, settings: Contrastive, context: ObjectiveContext) -> None:
        super().__init__()
        self.settings = settings
        self.encoder: Any = copy.deepcopy(context.encoder)
        if settings.momentum_init == "random":
            reset(self.encoder, float(getattr(context.backbone.config, "initializer_range", 0.02)))
        set_dropout(self.encoder, settings.momentum_dropout)
        freeze(self.encoder)
        self.register_buffer("rows", torch.zeros(settings.queue_size, context.dimension))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))
        self._count: int | None = 0
        self.register_load_state_dict_post_hook(_forget_count)  # type: ignore[no-untyped-call]

    @property
    def count(self) -> int:
        """The number of past vectors; the buffer, whose look is a wait for a GPU, is read after a checkpoint alone."""
        if self._count is None:
            self._count = int(self.filled)
        return self._count

    @property
    def queue(self) -> Tensor | None:
        """The past vectors ``[filled, d']``, the newest last; None while there are none."""
        return self.rows[-self.count :] if self.count else None

    def forward(self, views: Views) -> Tensor:
        """Return the loss, and update the momentum encoder and the queue."""
        ema_update(self.encoder, views.encoder, self.settings.momentum)
        loss = self.settings(views, self.queue)
        self.enqueue(views)
        return loss

    @torch.no_grad()
    def enqueue(self, views: Views) -> None:
        """Append the momentum encoder's vectors of one view, of all processes, and drop the oldest."""
        count = views.projected.shape[1]
        capacity = self.settings.queue_size
        start = count if views.paired else 0
        stop = start + count
        parts = []
        for first in range(start, stop, MOMENTUM_ROWS):
            end = min(first + MOMENTUM_ROWS, stop)
            rows = {name: ids[first:end] for name, ids in views.inputs.items()}
            parts.append(self.encoder.features(rows, normalize=False, sentence_only=True).sentence)
        vectors = widened(torch.cat(parts))
        projected = views.head(vectors[None])[0]
        new = gather(widened(projected))
        self.rows = torch.cat([self.rows, new])[-capacity:]
        self._count = min(self.count + len(new), capacity)
        self.filled.fill_(self._count)


def _forget_count(module: MomentumContrastive, _: object) -> None:
    """Make a queue, whose buffers have been loaded, count its vectors anew."""
    module._count = None
