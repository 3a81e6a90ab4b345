"""What a run tells: of each step, of each evaluation, and at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

SCORE = "dev_spearman"
"""Which of the numbers of an evaluation says what is better; the others are logged beside it. Without it, the last
weights are kept."""


@dataclass(frozen=True)
class StepInfo:
    """What is logged of a step, and what an observer is told."""

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
    """Told what happens; the command line shows it."""

    def resumed(self, step: int, notes: list[str]) -> None:
        """Before the first step of a resumed run: the step of the checkpoint, 0 without one."""

    def step(self, info: StepInfo) -> None:
        """After each optimiser step."""

    def scored(self, step: int, values: Mapping[str, float], best: bool) -> None:
        """After each evaluation: `SCORE`, if there is a dev set, and what else was measured."""


@dataclass(frozen=True)
class TrainResult:
    """Outcome of a run; scores are Spearman on STS-B dev times 100, None without a dev set."""

    start_dev_spearman: float | None
    best_dev_spearman: float | None
    best_step: int
    final_dev_spearman: float | None
    steps: int
    sentences_per_second: float
    """The speed of the training alone, evaluations left out."""
    truncated: int
    """Sentences cut to the training length, counted once per visit."""
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    gradient_shares: dict[str, float] | None = None
    """Each term's share of the gradient on the encoder, the mean of all measurements."""
    sts: dict[str, float] | None = None
    """Spearman times 100 of the kept weights on the seven STS tasks, if they were asked for."""
    sts_average: float | None = None
    held_out_spearman: float | None = None
    """Spearman times 100 of the kept weights on the pairs that were held out."""
    held_out_pearson: float | None = None
    held_out_perplexity: float | None = None
    """Perplexity of the kept weights on the masked words of --eval-text."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dict(vars(self))
