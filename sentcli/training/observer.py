"""What a run reports: after each step, after each evaluation, and at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

SCORE = "dev_spearman"
"""The value of an evaluation that decides which weights are best; the others are only logged. An evaluation without it
keeps the last weights."""


@dataclass(frozen=True)
class StepInfo:
    """The numbers of one step, for the log and for observers."""

    step: int
    total: int
    values: dict[str, float]
    """The loss and its unweighted terms by name."""
    shares: dict[str, float]
    """Each term's share of the gradient on the encoder, empty unless it was measured at this step."""
    learning_rate: float
    norm: float
    """The norm of the gradient before clipping."""
    sentences_per_second: float

    def line(self) -> dict[str, float]:
        """Return the line of ``metrics.jsonl``."""
        shares = {f"share_{name}": share for name, share in self.shares.items()}
        used = {"learning_rate": self.learning_rate, "grad_norm": self.norm}
        return {"step": self.step, **self.values, **shares, **used, "sentences_per_second": self.sentences_per_second}


class Observer(Protocol):
    """Is told what happens during a run, for example to show it on the command line."""

    def resumed(self, step: int, notes: list[str]) -> None:
        """Is called before the first step of a resumed run, with the step of its checkpoint, or 0 if it has none."""

    def step(self, info: StepInfo) -> None:
        """Is called after each optimiser step."""

    def scored(self, step: int, values: Mapping[str, float], best: bool) -> None:
        """Is called after each evaluation, with `SCORE` if there is a dev set, and whatever else was measured."""


@dataclass(frozen=True)
class TrainResult:
    """The results of a run; scores are Spearman's correlation on STS-B dev times 100, or None without a dev set."""

    start_dev_spearman: float | None
    best_dev_spearman: float | None
    best_step: int
    final_dev_spearman: float | None
    steps: int
    sentences_per_second: float
    """The speed of the training, without the evaluations."""
    truncated: int
    """How often a sentence was cut to the training length."""
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    gradient_shares: dict[str, float] | None = None
    """Each term's share of the gradient on the encoder, averaged over all measurements."""
    sts: dict[str, float] | None = None
    """Spearman times 100 of the kept weights on the seven STS tasks, if they are scored."""
    sts_average: float | None = None
    held_out_spearman: float | None = None
    """Spearman times 100 of the kept weights on the pairs that were held out."""
    held_out_pearson: float | None = None
    held_out_perplexity: float | None = None
    """Perplexity of the kept weights on the masked words of --eval-text."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dict(vars(self))
