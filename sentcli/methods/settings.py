"""The settings that all methods share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from sentcli.bounds import AtLeastOne, Bounded, Count, NotNegative, Positive, Share
from sentcli.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Settings(Bounded):
    """The settings of a training run.

    The defaults are SimCSE's, those of transformers' Trainer: linear decay to zero without warm-up.
    """

    batch_size: Annotated[int, Ge(2)] = 64
    """The sentences of a batch in each process; the other sentences of the batch are the negatives."""
    learning_rate: Positive = 3e-5
    epochs: AtLeastOne = 1
    max_steps: Count = 0
    """The number of optimiser steps, over as many epochs as they need; 0 takes as many steps as `epochs` have."""
    max_length: Annotated[int, Ge(3)] = 32
    """The maximum length of a sentence in training, in tokens with special tokens; it does not limit encoding."""
    accumulate: Annotated[int, Ge(1), Le(100_000)] = 1
    """The number of batches whose gradients are averaged in one step; each batch has its own negatives."""
    group_by_length: bool = False
    """Distribute the sentences of a step to its batches by length: less padding, but the negatives are not random."""
    mini_batch_size: Count = 0
    """How many sentences are encoded at a time with gradient caching, which computes the gradient of the whole batch in
    the memory of a small one, for one more forward pass (Gao et al. 2021); 0 encodes the batch at once."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """The precision of matrix products; weights and losses stay in fp32."""
    compile: bool = False
    """Whether the encoder is compiled with torch.compile."""
    optimizer: Literal["adamw", "rmsprop"] = "adamw"
    schedule: Literal["linear", "constant", "staircase"] = "linear"
    """The learning rate after the warm-up: ``linear`` to zero, ``constant``, or the ``staircase`` of Contrastive
    Tension, which is 100, 80, 60, 40 and then 20 % of the rate, for 500 steps each."""
    warmup_steps: Count = 0
    warmup_share: Share = 0.0
    """The warm-up as a share of all steps, where `warmup_steps` is 0."""
    weight_decay: NotNegative = 0.0
    decay_all: bool = False
    """Whether biases and layer normalisations have weight decay, too."""
    adam_epsilon: Positive = 1e-8
    bias_correction: bool = True
    """Whether the bias of Adam's averages toward zero is corrected, as the first BERT code did not."""
    clip_norm: NotNegative = 1.0
    """The largest norm of the gradient; 0 does not clip."""
    dropout: Share | None = None
    """The dropout rate everywhere in the encoder; none keeps the rates of the start model."""
    drop_heads: Share = 0.0
    """The rate at which whole attention heads are dropped (the drophead of Mirror-BERT's scripts)."""
    eval_every: AtLeastOne = 125
    """The number of steps between two scores on the dev set."""
    patience: Count = 0
    """The training stops after this many scores in a row that are not the best so far; 0 never stops it."""
    keep_start: bool = True
    """Whether the weights of the start model are kept if no later score is better. If not, the best trained weights are
    kept, as in the papers' code, whose first score comes after `eval_every` steps."""
    share_every: Count = 50
    """The number of steps between two measurements of each term's share of the gradient, which cost a backward pass for
    each term; 0 never measures."""
    deterministic: bool = False
    """Whether a GPU uses only deterministic kernels, which are slower; a CPU is always deterministic."""
    seed: Annotated[int, Ge(0), Le(2**32 - 1)] = 42

    def check(self, sentences: int, processes: int = 1) -> None:
        """Refuse a batch size that this many sentences cannot fill in this many processes."""
        if sentences < self.batch_size * processes:
            times = f" in each of {processes} processes" if processes > 1 else ""
            raise InputError(f"batch size {self.batch_size}{times} is more than the {sentences} sentences of the data")

    def total_steps(self, batches: int) -> int:
        """Return the number of optimiser steps, given the batches of an epoch."""
        return self.max_steps or max(1, self.epochs * batches // self.accumulate)

    def rate(self, step: int, steps: int) -> float:
        """Return the factor of the learning rate at step number `step`, from 0, of `steps`."""
        warmup = self.warmup_steps or round(self.warmup_share * steps)
        if step < warmup:
            return step / warmup
        if self.schedule == "linear":
            return max(0.0, (steps - step) / max(1, steps - warmup))
        return max(5 - step // 500, 1) / 5 if self.schedule == "staircase" else 1.0
