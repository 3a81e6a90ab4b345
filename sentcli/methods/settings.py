"""Settings of a training run that every method shares."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sentcli.errors import InputError


@dataclass(frozen=True)
class Settings:
    """Defaults are SimCSE's: transformers' Trainer with its own defaults, linear decay to zero, no warm-up."""

    batch_size: int = 64
    """Sentences in a step."""
    learning_rate: float = 3e-5
    epochs: int = 1
    max_steps: int = 0
    """Optimiser steps; 0 takes what the epochs give. More than one epoch's worth goes on into further epochs."""
    max_length: int = 32
    """Tokens a sentence in training, special ones included; encoding afterwards keeps the start model's length."""
    weight_decay: float = 0.0
    warmup_steps: int = 0
    clip_norm: float = 1.0
    eval_every: int = 125
    """Steps between two scores on the dev set."""
    seed: int = 42

    def check(self, sentences: int) -> None:
        """Refuse settings that cannot train on this many sentences.

        Raises:
            InputError: naming the setting.
        """
        least = {"epochs": 1, "max_length": 3, "eval_every": 1, "max_steps": 0, "warmup_steps": 0, "weight_decay": 0}
        for name, limit in {**least, "seed": 0}.items():
            if not getattr(self, name) >= limit:
                raise InputError(f"{name} must be at least {limit}, not {getattr(self, name)}")
        for name in ("learning_rate", "clip_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.batch_size < 2:
            raise InputError("batch_size must be at least 2: the other sentences of a batch are the negatives")
        if sentences < self.batch_size:
            raise InputError(f"batch size {self.batch_size} is more than the {sentences} sentences of the data")

    def total_steps(self, sentences: int) -> int:
        """Return the number of optimiser steps."""
        return self.max_steps or self.epochs * steps_per_epoch(sentences, self.batch_size)


def steps_per_epoch(sentences: int, batch_size: int) -> int:
    """Count the batches of an epoch: the last may be smaller, but one sentence alone has no negatives."""
    full, rest = divmod(sentences, batch_size)
    return full + (rest > 1)
