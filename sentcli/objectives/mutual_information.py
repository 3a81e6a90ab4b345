"""Attention mutual information: miCSE (Klein and Nabi, ACL 2023, eq. 4, 5 and algorithm 1).

The attention of two views of a sentence is compared slice by slice. Under a joint normal distribution of the
logarithms, the mutual information of two slices is ``-ln(1 - rho^2) / 2`` with rho their correlation (eq. 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from sentcli.bounds import WholeNumber, one_of
from sentcli.errors import InputError
from sentcli.model.surgery import layer_count
from sentcli.objectives.base import Objective, StatefulObjective, Views
from sentcli.precision import widened

if TYPE_CHECKING:
    from torch import Tensor

    from sentcli.objectives.base import Loss, ObjectiveContext

Slicing = Literal["layer-pairs", "head-pairs"]
Discriminator: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Scores tokens ``[N, d]`` and sentences ``[B, d]``, as ``[N, B]``."""
SMALLEST = 1e-30
"""Attention weights below this count as zero, because the gradient of their logarithm would overflow."""
SMALLEST_UNEXPLAINED = 1e-6
"""The least value of ``1 - rho^2``, so that equal slices have a finite value (6.9 nats), and of the norms in rho."""


def attention_mutual_information(
    first: Tensor,
    second: Tensor,
    lengths: Tensor,
    slicing: str = "layer-pairs",
    samples: int | None = 150,
    scale_by_share: bool = True,
    generator: torch.Generator | None = None,
    *,
    log: bool = True,
    real_queries: bool = False,
    replacement: bool = False,
) -> Tensor:
    """Mean mutual information between the attention of two views, over all slices of all sentences.

    Args:
        first: ``[L, B, H, T, T]`` weights after softmax and dropout: chosen layers, sentences, heads, queries, keys.
        second: the weights of the other view, of the same shape.
        lengths: the number of real tokens of each sentence ``[B]``.
        slicing: ``layer-pairs`` is the authors' code: a slice is one head in every second layer (layers l and l + 2
            of four), T x T positions each. ``head-pairs`` is the paper: a slice is one layer and two adjacent heads,
            over the real tokens alone.
        samples: how many positions are drawn without replacement from those where both views have weight. Slices with
            fewer positions are left out; if all have fewer, the smallest count is drawn from each. None takes all.
        scale_by_share: multiply by the squared share of positions where both views have weight, plus 1e-6 (the code).
            It is a share of the positions that count: with layer pairs all of them, as in the code, where padding makes
            it smaller; with head pairs or `real_queries` those of real tokens.
        generator: the random generator of the draw.
        log: False takes ``(rho^2 - 1) / 2``, the form of eq. 9, eq. 11 and algorithm 1.
        real_queries: leave out the rows of padded queries also in layer pairs.
        replacement: draw the positions with replacement, a multinomial sample as eq. 3 has it.

    Returns:
        A scalar in nats.

    Raises:
        ValueError: if the shapes do not fit the slicing.
    """
    first, second, inside = slices(first, second, lengths, slicing, real_queries)
    joint = (first > SMALLEST) & (second > SMALLEST) & inside
    if samples is not None:
        draw_positions = draw_with_replacement if replacement else draw
        numbers, positions = draw_positions(joint, samples, generator)
        joint = joint[numbers]
        inside = inside[numbers]
    share = joint.sum().to(first.dtype) / inside.sum()
    if samples is not None:
        first = first[numbers].gather(1, positions)
        second = second[numbers].gather(1, positions)
        joint = joint.gather(1, positions)
    information = mutual_information(first, second, joint, log=log).mean()
    if not scale_by_share:
        return information
    return information * (share.square() + 1e-6)


def slices(
    first: Tensor, second: Tensor, lengths: Tensor, slicing: str, real_queries: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the attention of both views as slices ``[S, P]``, and which of their positions count ``[S, P]``."""
    one_of("slicing", slicing, get_args(Slicing))
    layers, batch, heads, width, _ = first.shape
    if first.shape != second.shape or first.ndim != 5 or len(lengths) != batch:
        raise ValueError(f"attentions {tuple(first.shape)} and {tuple(second.shape)} must both be [L, B, H, T, T]")
    device = first.device
    real = torch.arange(width, device=device) < lengths.to(device)[:, None]
    inside = real[:, :, None] & real[:, None, :]
    if slicing == "layer-pairs":
        if layers % 2:
            raise ValueError(f"layer pairs need an even number of layers, not {layers}")
        cut = _layer_pairs
        if not real_queries:
            inside = torch.ones_like(inside)
    else:
        if heads % 2:
            raise ValueError(f"head pairs need an even number of heads, not {heads}")
        cut = _head_pairs
    first = cut(first)
    second = cut(second)
    inside = inside[:, None, None, None].expand(first.shape)
    return _flat(first), _flat(second), _flat(inside)


def _layer_pairs(attention: Tensor) -> Tensor:
    """Cut ``[L, B, H, T, T]`` into one head in every second layer: ``[B, H, 2, L / 2, T, T]``."""
    layers = len(attention)
    return attention.view(layers // 2, 2, *attention.shape[1:]).permute(2, 3, 1, 0, 4, 5)


def _head_pairs(attention: Tensor) -> Tensor:
    """Cut ``[L, B, H, T, T]`` into two adjacent heads of one layer: ``[B, L, H / 2, 2, T, T]``."""
    layers, batch, heads, *width = attention.shape
    return attention.view(layers, batch, heads // 2, 2, *width).transpose(0, 1)


def _flat(parts: Tensor) -> Tensor:
    """Return ``[A, B, C, D, T, T]`` as slices ``[A * B * C, D * T * T]``."""
    return parts.flatten(0, 2).flatten(1)


def draw(joint: Tensor, samples: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Draw positions without replacement from the True positions of each slice.

    Args:
        joint: which positions can be drawn ``[S, P]``.
        samples: how many are drawn; slices with fewer positions are left out, unless all have fewer.
        generator: the random generator of the draw.

    Returns:
        The numbers of the slices that are not left out ``[K]``, and the drawn positions of each ``[K, n]``.
    """
    numbers, samples = _with_enough(joint, samples)
    keys = torch.rand(len(numbers), joint.shape[1], device=joint.device, generator=generator)
    keys.masked_fill_(~joint[numbers], -1.0)
    return numbers, keys.topk(samples, sorted=False).indices


def draw_with_replacement(
    joint: Tensor, samples: int, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Draw as `draw` does, but each position from all True ones."""
    numbers, samples = _with_enough(joint, samples)
    return numbers, torch.multinomial(joint[numbers].float(), samples, replacement=True, generator=generator)


def _with_enough(joint: Tensor, samples: int) -> tuple[Tensor, int]:
    """Return the numbers of the slices with enough positions, and how many positions are drawn from each."""
    counts = joint.sum(dim=1)
    numbers = (counts >= samples).nonzero().squeeze(1)
    if len(numbers):
        return numbers, samples
    return torch.arange(len(joint), device=joint.device), max(1, int(counts.min()))


def mutual_information(first: Tensor, second: Tensor, mask: Tensor, *, log: bool = True) -> Tensor:
    """Return the mutual information ``[S]`` of the logarithms of two sets of slices ``[S, P]`` where `mask` is True."""
    rho = correlation(first.where(mask, 1).log(), second.where(mask, 1).log(), mask)
    unexplained = (1 - rho.square()).clamp(min=SMALLEST_UNEXPLAINED)
    if log:
        unexplained = unexplained.log()
    return -0.5 * unexplained


def correlation(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """Return Pearson's correlation ``[S]`` of the rows of ``[S, P]`` over the positions where `mask` is True."""
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)

    def centred(rows: Tensor) -> Tensor:
        mean = rows.where(mask, 0).sum(dim=1, keepdim=True) / count
        return (rows - mean).where(mask, 0)

    return functional.cosine_similarity(centred(first), centred(second), dim=1, eps=SMALLEST_UNEXPLAINED)


def chosen_layers(text: str, depth: int) -> tuple[int, ...]:
    """Return the layers of a range: ``7:11`` and ``-5:-1`` are numbers, ``0.58:0.92`` are shares of the depth.

    ``auto`` is the four layers before the last, as in the paper's recipes. A model with fewer than five layers has two
    before the last, and one with two layers has these.
    """
    if text == "auto":
        text = "0:2"
        if depth > 4:
            text = "-5:-1"
        elif depth > 2:
            text = "-3:-1"
    try:
        start, stop = (_boundary(part, depth) for part in text.split(":"))
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"layers {text!r}: expected FIRST:END from 0, such as 7:11, -5:-1 or 0.58:0.92, or auto"
        ) from error
    if not 0 <= start < stop <= depth:
        raise InputError(f"layers {text} are not inside the {depth} layers of this model, 0:{depth}")
    return tuple(range(start, stop))


def _boundary(text: str, depth: int) -> int:
    if "." in text:
        return round(float(text) * depth)
    number = int(text)
    return number + depth if number < 0 else number


@dataclass(frozen=True, kw_only=True)
class AttentionMI(Objective, name="ami"):
    """`attention_mutual_information` of the first two views, to be maximised: the term is its negative."""

    weight: float = 2.5e-3
    layers: str = "auto"
    """The range of layers; ``auto`` is the four before the last, 8 to 11 of 12 counted from 1 and 2 to 5 of 6. A model
    with fewer than five layers has two: 2 and 3 of 4."""
    slicing: Slicing = "layer-pairs"
    samples: WholeNumber = 150
    """The number of positions that are drawn from each slice; 0 takes all."""
    scale_by_share: bool = True
    log: bool = True
    real_queries: bool = False
    """Whether the rows of padded queries are left out."""
    replacement: bool = False
    """Whether a position may be drawn several times, a multinomial sample as eq. 3 has it; the code draws each once."""

    requires: ClassVar[str] = "attention"
    one_sentence: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse one or two positions, whose correlation says nothing."""
        if 0 < self.samples < 3:
            raise InputError(f"samples must be 0 or at least 3, not {self.samples}: two points always correlate")

    def attention_layers(self, depth: int) -> tuple[int, ...]:
        """Return the layers in the range `layers`."""
        return chosen_layers(self.layers, depth)

    def build(self, context: ObjectiveContext) -> Loss:
        """Check that the attention of this model can be cut into slices, and return this objective."""
        layers = len(self.attention_layers(layer_count(context.backbone)))
        heads = context.backbone.config.num_attention_heads
        if self.slicing == "layer-pairs" and layers % 2:
            raise InputError(f"ami: layers {self.layers} are {layers}; layer-pairs needs an even number of them")
        if self.slicing == "head-pairs" and heads % 2:
            raise InputError(f"ami: {heads} heads; head-pairs needs an even number of them")
        return self

    def __call__(self, views: Views) -> Tensor:
        """Return the negative mutual information of views 1 and 2."""
        layers = self.attention_layers(layer_count(views.encoder.backbone))
        weights = widened(torch.stack([views.attentions[layer] for layer in layers]))
        return -attention_mutual_information(
            weights[:, 0],
            weights[:, 1],
            views.mask[0].sum(dim=1),
            self.slicing,
            self.samples or None,
            self.scale_by_share,
            log=self.log,
            real_queries=self.real_queries,
            replacement=self.replacement,
        )


def dot_products(tokens: Tensor, sentences: Tensor) -> Tensor:
    """Return the dot products of tokens ``[N, d]`` and sentences ``[B, d]``, as ``[N, B]``."""
    with torch.autocast(tokens.device.type, enabled=False):
        return widened(tokens) @ widened(sentences).T


def jensen_shannon_terms(
    tokens: Tensor, sentences: Tensor, mask: Tensor, discriminator: Discriminator = dot_products
) -> tuple[Tensor, Tensor]:
    """Return E_pos and E_neg, whose difference is `jensen_shannon_mi_loss`."""
    owner, place = mask.nonzero(as_tuple=True)
    scores = discriminator(tokens[owner, place], sentences)
    # columns by number, because on a GPU each selection by a mask waits for their number
    own_column = owner[:, None]
    others = torch.arange(len(sentences) - 1, device=own_column.device).expand(len(own_column), -1)
    others = others + (others >= own_column)
    own_scores = scores.gather(1, own_column)
    other_scores = scores.gather(1, others)
    positive = math.log(2) - functional.softplus(-own_scores)
    negative = functional.softplus(other_scores) - math.log(2)
    return positive.mean(), negative.mean()


def jensen_shannon_mi_loss(
    tokens: Tensor, sentences: Tensor, mask: Tensor, discriminator: Discriminator = dot_products
) -> Tensor:
    """Tell each token's own sentence from the others of the batch, by the score of both.

    Args:
        tokens: local vectors ``[B, T, d]``.
        sentences: global vectors ``[B, d]``; gradients flow into both.
        mask: 1 for real tokens ``[B, T]``.
        discriminator: returns the scores ``[N, B]`` of the N real tokens and the sentences.

    Returns:
        ``E_neg - E_pos``: the mean of ``softplus(s) - ln 2`` over all pairs of a token with another sentence, minus
        the mean of ``ln 2 - softplus(-s)`` over all pairs of a token with its own. 0 where all scores are 0.
    """
    positive, negative = jensen_shannon_terms(tokens, sentences, mask, discriminator)
    return negative - positive


@dataclass(frozen=True, kw_only=True)
class JensenShannon(Objective, name="jsd"):
    """`jensen_shannon_mi_loss` of the tokens and the vector of the first view; with two encoders, the mean of both."""

    discriminator: Literal["dot", "bilinear", "mlp"] = "dot"
    """What scores a token and a sentence: the ``dot`` product as in the authors' code, ``bilinear`` with a trained
    matrix between the two vectors, or ``mlp``, a network with a hidden layer on both vectors."""
    over_tokens: Literal["mean", "sum"] = "mean"
    """The mean over all tokens of the batch, as in the authors' code, or the mean over sentences of the ``sum`` over
    their tokens, as eq. 3 prints it."""

    views: ClassVar[int] = 1
    negatives_in_batch: ClassVar[bool] = True
    requires: ClassVar[str] = "tokens"

    def build(self, context: ObjectiveContext) -> Loss:
        """Return the loss module with its discriminator."""
        if context.token_width != context.dimension:
            raise InputError(
                f"jsd compares tokens ({context.token_width}) with sentences ({context.dimension}): no fit"
            )
        return JensenShannonLoss(self, context.dimension)


class JensenShannonLoss(StatefulObjective):
    """The loss of `JensenShannon`, with its discriminator."""

    def __init__(self, settings: JensenShannon, dimension: int) -> None:
        super().__init__()
        self.sums = settings.over_tokens == "sum"
        self.discriminator: Discriminator = dot_products
        if settings.discriminator == "bilinear":
            self.discriminator = Bilinear(dimension)
        elif settings.discriminator == "mlp":
            self.discriminator = Perceptron(dimension)

    def forward(self, views: Views) -> Tensor:
        """Return the loss of view 1."""
        losses = []
        for tokens, sentences, mask, _ in zip(views.tokens, views.pooled, views.mask, views.encoders, strict=False):
            loss = jensen_shannon_mi_loss(tokens, sentences, mask, self.discriminator)
            if self.sums:
                loss = loss * (mask.sum() / len(mask))
            losses.append(loss)
        return torch.stack(losses).mean()


class Bilinear(nn.Module):
    """The score ``t^T W g``; W starts as the identity, where it equals the dot product."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.bilinear = nn.Linear(dimension, dimension, bias=False)
        nn.init.eye_(self.bilinear.weight)

    def forward(self, tokens: Tensor, sentences: Tensor) -> Tensor:
        """Return scores ``[N, B]``."""
        return dot_products(self.bilinear(tokens), sentences)


class Perceptron(nn.Module):
    """The score ``v^T relu(W [t; g] + b) + c`` of a network with as many hidden units as a vector has dimensions."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.of_token = nn.Linear(dimension, dimension)
        self.of_sentence = nn.Linear(dimension, dimension, bias=False)
        self.score = nn.Linear(dimension, 1)

    def forward(self, tokens: Tensor, sentences: Tensor) -> Tensor:
        """Return scores ``[N, B]``, of one sentence after the other, since all hidden units would take N x B x d."""
        hidden = self.of_token(tokens)
        of_sentences = self.of_sentence(sentences)
        scores = [self.score(functional.relu(hidden + of_sentence)) for of_sentence in of_sentences]
        return widened(torch.cat(scores, dim=1))
