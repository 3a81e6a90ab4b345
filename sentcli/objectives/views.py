"""What a training step hands to an objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Views:
    """One batch of B sentences, each encoded m times in one pass."""

    projected: Tensor
    """After the head that exists in training only: ``[m, B, d]``."""
    pooled: Tensor
    """The sentence vectors themselves, as the encoder will be used: ``[m, B, d]``."""


class Objective(Protocol):
    """One term of a loss."""

    name: str
    """Its name in ``metrics.jsonl``."""
    weight: float

    def __call__(self, views: Views) -> Tensor:
        """Return the unweighted term, a scalar to be minimised."""
