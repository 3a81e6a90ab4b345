"""The optimisers of the papers."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from sentcli.methods.method import Settings


def make_optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """Return the optimiser that the settings name.

    AdamW has betas 0.9 and 0.999; RMSprop has TensorFlow's constants (alpha 0.9, eps 1e-7), which Contrastive Tension
    was trained with. Biases and normalisations have no weight decay, unless the settings decay all parameters.
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = [p for p in trainable if settings.decay_all or p.ndim >= 2]
    undecayed = [] if settings.decay_all else [p for p in trainable if p.ndim < 2]
    groups = [
        {"params": parameters, "weight_decay": decay}
        for parameters, decay in ((decayed, settings.weight_decay), (undecayed, 0.0))
        if parameters
    ]
    if settings.optimizer == "rmsprop":
        return torch.optim.RMSprop(groups, lr=settings.learning_rate, alpha=0.9, eps=1e-7)
    kind = torch.optim.AdamW if settings.bias_correction else UncorrectedAdamW
    return kind(groups, lr=settings.learning_rate, eps=settings.adam_epsilon, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate


class UncorrectedAdamW(torch.optim.AdamW):
    """AdamW without the correction of its averages' bias toward zero, as in the first BERT code.

    It makes torch's step with a learning rate that undoes the correction, and a weight decay that undoes the change of
    the rate. The one difference is epsilon, which acts as if it were up to 32 times smaller in the first steps.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make one optimiser step."""
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


def keep_freed_memory() -> None:
    """Let glibc keep freed memory, because a step frees and allocates the same blocks again and again.

    Without this, every large tensor is mapped anew and the kernel fills it with zeros page by page, which is a third of
    a step's time on a CPU. MALLOC_TRIM_THRESHOLD_ in the environment takes precedence.
    """
    library = _glibc()
    if library is None or "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return
    mmap_threshold, trim_threshold, largest = -3, -1, 2**28
    library.mallopt(mmap_threshold, largest)
    library.mallopt(trim_threshold, 2**31 - 1)


@contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Keep freed memory inside the block, and give it back to the system at its end."""
    keep_freed_memory()
    try:
        yield
    finally:
        if (library := _glibc()) is not None:
            library.malloc_trim(0)


def _glibc() -> Any:
    """Return glibc, or None if this system has another C library."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL("libc.so.6")
        return library if library.mallopt and library.malloc_trim else None
    except (OSError, AttributeError):
        return None
