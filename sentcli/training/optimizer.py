"""The optimisers of the papers and their schedule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from sentcli.methods.settings import Settings


def make_optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """Return the optimiser.

    AdamW has betas 0.9 and 0.999; RMSprop has TensorFlow's constants (alpha 0.9, eps 1e-7), which Contrastive Tension
    was trained with.
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    plain = [] if settings.decay_all else [p for p in trainable if p.ndim < 2]
    decayed = [p for p in trainable if settings.decay_all or p.ndim >= 2]
    groups = [
        {"params": some, "weight_decay": decay}
        for some, decay in ((decayed, settings.weight_decay), (plain, 0.0))
        if some
    ]
    if settings.optimizer == "rmsprop":
        return torch.optim.RMSprop(groups, lr=settings.learning_rate, alpha=0.9, eps=1e-7)
    kind = torch.optim.AdamW if settings.bias_correction else UncorrectedAdamW
    return kind(groups, lr=settings.learning_rate, eps=settings.adam_epsilon, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Let the next step be made with this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate


class UncorrectedAdamW(torch.optim.AdamW):
    """AdamW without the correction of its averages' bias toward zero, as in the first BERT code.

    A step is torch's with another rate, and with the decay that the plain rate would give; only epsilon, which starts
    up to 32 times smaller, differs.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make one step."""
        for group in self.param_groups:
            state: dict[str, Any] = next((self.state[p] for p in group["params"] if self.state[p]), {})
            count = float(state.get("step", 0)) + 1
            first, second = group["betas"]
            group["factor"] = (1 - first**count) / math.sqrt(1 - second**count)
            group["lr"] *= group["factor"]
            group["weight_decay"] /= group["factor"]
        super().step(closure)
        for group in self.param_groups:
            group["lr"] /= group["factor"]
            group["weight_decay"] *= group["factor"]
