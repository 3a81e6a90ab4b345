"""The Jensen-Shannon bound on local-global mutual information: IS-BERT (Zhang et al., EMNLP 2020, eq. 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional

from sentcli.errors import InputError
from sentcli.objectives.base import Objective, StatefulObjective, Views
from sentcli.precision import widened

if TYPE_CHECKING:
    from torch import Tensor

    from sentcli.objectives.base import Loss, Parts


def jensen_shannon_terms(tokens: Tensor, sentences: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return E_pos and E_neg, whose difference is `jensen_shannon_mi_loss`."""
    with torch.autocast(tokens.device.type, enabled=False):
        scores = widened(tokens)[mask.bool()] @ widened(sentences).T
    owner = mask.bool().nonzero()[:, 0]
    own = functional.one_hot(owner, len(sentences)).bool()
    positive = (math.log(2) - functional.softplus(-scores[own])).mean()
    negative = (functional.softplus(scores[~own]) - math.log(2)).mean()
    return positive, negative


def jensen_shannon_mi_loss(tokens: Tensor, sentences: Tensor, mask: Tensor) -> Tensor:
    """Tell each token's own sentence from the others of the batch, by the plain dot product of their vectors.

    Args:
        tokens: local vectors ``[B, T, d]``.
        sentences: global vectors ``[B, d]``; gradients flow into both.
        mask: 1 for real tokens ``[B, T]``.

    Returns:
        ``E_neg - E_pos``: the mean of ``softplus(s) - ln 2`` over all pairs of a token with another sentence, minus
        the mean of ``ln 2 - softplus(-s)`` over all pairs of a token with its own. 0 where all scores are 0.
    """
    positive, negative = jensen_shannon_terms(tokens, sentences, mask)
    return negative - positive


@dataclass(frozen=True, kw_only=True)
class JensenShannon(Objective, name="jsd"):
    """`jensen_shannon_mi_loss` of the tokens and the vector of the first view; with two encoders, the mean of both."""

    discriminator: Literal["dot", "bilinear"] = "dot"
    """``dot`` as in the authors' code, or ``bilinear`` with a trained matrix between the two vectors."""

    views: ClassVar[int] = 1
    requires: ClassVar[str] = "tokens"

    def build(self, parts: Parts) -> Loss:
        """Return this objective, or the module with the bilinear discriminator."""
        if parts.token_width != parts.dimension:
            raise InputError(f"jsd compares tokens ({parts.token_width}) with sentences ({parts.dimension}): no fit")
        return BilinearJensenShannon(parts.dimension) if self.discriminator == "bilinear" else self

    def __call__(self, views: Views) -> Tensor:
        """Return the loss of view 1."""
        return _mean_over_encoders(views, views.tokens)


def _mean_over_encoders(views: Views, tokens: Tensor) -> Tensor:
    losses = [jensen_shannon_mi_loss(tokens[i], views.pooled[i], views.mask[i]) for i in range(len(views.encoders))]
    return torch.stack(losses).mean()


class BilinearJensenShannon(StatefulObjective):
    """The bound with the score ``t^T W g``; W starts as the identity, where it equals the dot product."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.bilinear = nn.Linear(dimension, dimension, bias=False)
        nn.init.eye_(self.bilinear.weight)

    def forward(self, views: Views) -> Tensor:
        """Return the loss of view 1."""
        return _mean_over_encoders(views, self.bilinear(views.tokens))
