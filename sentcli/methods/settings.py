"""Settings of a training run that every method shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from sentcli.bounds import AtLeastOne, Bounded, Count, NotNegative, Positive, Share
from sentcli.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Settings(Bounded):
    """Defaults are SimCSE's: transformers' Trainer with its own defaults, linear decay to zero, no warm-up."""

    batch_size: Annotated[int, Ge(2)] = 64
    """Sentences of a batch, in each process; the others of the batch are the negatives."""
    learning_rate: Positive = 3e-5
    epochs: AtLeastOne = 1
    max_steps: Count = 0
    """Optimiser steps; 0 takes what the epochs give. More than one epoch's worth continues into further epochs."""
    max_length: Annotated[int, Ge(3)] = 32
    """Tokens a sentence in training, special ones included; encoding afterwards keeps the start model's length."""
    accumulate: AtLeastOne = 1
    """Batches whose gradients are averaged in one step; each has its own negatives."""
    group_by_length: bool = False
    """Share out the sentences of a step to its batches by length: less padding, but other negatives than at random."""
    mini_batch_size: Count = 0
    """Sentences that are encoded at a time with gradient caching: the gradient of the whole batch in the memory of a
    small one, for one more forward pass (Gao et al. 2021); 0 encodes the batch at once."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """The precision of matrix products: ``fp32``, ``bf16`` or ``fp16``; weights and losses stay in fp32."""
    compile: bool = False
    """Compile the encoder with torch.compile."""
    optimizer: Literal["adamw", "rmsprop"] = "adamw"
    schedule: Literal["linear", "constant", "staircase"] = "linear"
    """After the warm-up: ``linear`` to zero, ``constant``, or the ``staircase`` of Contrastive Tension, 100, 80, 60, 40
    and then 20 % of the rate, 500 steps each."""
    warmup_steps: Count = 0
    warmup_share: Share = 0.0
    """Warm-up as a share of all steps, where `warmup_steps` is 0."""
    weight_decay: NotNegative = 0.0
    decay_all: bool = False
    """Decay biases and layer normalisations, too."""
    adam_epsilon: Positive = 1e-8
    bias_correction: bool = True
    """Correct the bias of Adam's averages toward zero; the optimiser of the first BERT code did not."""
    clip_norm: NotNegative = 1.0
    """Largest norm of the gradient; 0 for no clipping."""
    dropout: Share | None = None
    """Dropout of the encoder everywhere; none keeps the start model's own."""
    drop_heads: Share = 0.0
    """Drop whole attention heads at this rate (the drophead of Mirror-BERT's scripts)."""
    eval_every: AtLeastOne = 125
    """Steps between two scores on the dev set."""
    patience: Count = 0
    """Stop after this many scores in a row that are not the best so far; 0 never does."""
    keep_start: bool = True
    """Whether the start model's own weights are kept if no later score is better; without, the best trained ones are,
    as in the papers' code, whose first score comes after `eval_every` steps."""
    share_every: Count = 50
    """Steps between two measurements of each term's share of the gradient; 0 for none. Costs a backward pass a term."""
    deterministic: bool = False
    """Only deterministic kernels on a GPU, at a loss of speed; a CPU always is."""
    seed: Annotated[int, Ge(0), Le(2**32 - 1)] = 42

    def check(self, sentences: int, processes: int = 1) -> None:
        """Refuse settings that cannot train on this many sentences in this many processes."""
        if sentences < self.batch_size * processes:
            times = f" in each of {processes} processes" if processes > 1 else ""
            raise InputError(f"batch size {self.batch_size}{times} is more than the {sentences} sentences of the data")

    def total_steps(self, batches: int) -> int:
        """Return the number of optimiser steps, given the batches of an epoch."""
        return self.max_steps or max(1, self.epochs * batches // self.accumulate)

    def rate(self, step: int, steps: int) -> float:
        """Return the share of the learning rate that step number `step` of `steps`, from 0, is made with."""
        warmup = self.warmup_steps or round(self.warmup_share * steps)
        if step < warmup:
            return step / warmup
        if self.schedule == "linear":
            return max(0.0, (steps - step) / max(1, steps - warmup))
        return max(5 - step // 500, 1) / 5 if self.schedule == "staircase" else 1.0
