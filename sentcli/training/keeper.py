"""Scores of the encoder while it trains, and its best weights."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sentcli.processes import agree, is_first

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sentcli.model.torch_model import TorchEncoder
    from sentcli.training.model import TrainingModel
    from sentcli.training.run_folder import RunFolder
    from sentcli.training.state import Observer

    Score = Callable[[TorchEncoder], Mapping[str, float]]


SCORE = "dev_spearman"
"""Which of the numbers of an evaluation says what is better; the others are logged beside it. Without it, the last
weights are kept."""


@dataclass
class Scores:
    """The scores so far; a checkpoint keeps them."""

    start: float | None = None
    best: float | None = None
    last: float | None = None
    best_step: int = 0
    last_step: int = 0
    best_candidate: int = 0
    since_best: int = 0
    """Scores in a row that were not the best."""


class BestKeeper:
    """Scores the encoder now and then and keeps its best weights on disk; of two encoders, those of the better.

    With several processes the first one scores and the others wait.
    """

    def __init__(
        self,
        model: TrainingModel,
        folder: RunFolder,
        score: Score | None,
        observer: Observer | None,
        *,
        patience: int = 0,
        keep_start: bool = True,
    ) -> None:
        self.model, self.folder, self.score, self.observer = model, folder, score, observer
        self.patience, self.keep_start = patience, keep_start
        self.scores = Scores()
        self.seconds = 0.0
        """Time spent on evaluations."""

    def evaluate(self, step: int) -> None:
        """Score the encoder and keep its weights if they are the best so far."""
        if self.score is None:
            return
        began = time.perf_counter()
        if is_first():
            self._evaluate(step)
        self.scores = Scores(**agree(asdict(self.scores)))
        self.seconds += time.perf_counter() - began

    def _evaluate(self, step: int) -> None:
        assert self.score is not None
        self.model.eval()
        found = {number: self.score(encoder) for number, encoder in self.model.candidates().items()}
        self.model.train()
        number = max(found, key=lambda n: found[n].get(SCORE, n))
        if SCORE not in found[number]:
            self._tell(step, found[number])
            return
        scores, score = self.scores, found[number][SCORE]
        scores.last, scores.last_step = score, step
        counts = step > 0 or self.keep_start
        better = counts and (scores.best is None or score > scores.best)
        scores.since_best = 0 if better or not counts else scores.since_best + 1
        if better:
            scores.best, scores.best_step, scores.best_candidate = score, step, number
            self.folder.keep_best(self.model.products(number), step)
        if step == 0:
            scores.start = score
        self._tell(step, found[number], best=better)

    def _tell(self, step: int, values: Mapping[str, float], *, best: bool = False) -> None:
        self.folder.log({"step": step, **values, **({"best": best} if SCORE in values else {})})
        if self.observer is not None:
            self.observer.scored(step, values, best)

    @property
    def stopped(self) -> bool:
        """Whether the last scores have been no better for too long."""
        return bool(self.patience) and self.scores.since_best >= self.patience

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {**asdict(self.scores), "seconds": self.seconds}

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to what `state` returned."""
        self.seconds = float(state["seconds"])
        self.scores = Scores(**{name: value for name, value in state.items() if name != "seconds"})

    def restore_best(self) -> None:
        """Put the best weights, or those of the encoder that is to be kept, into the first encoder."""
        scores = self.scores
        if scores.best is None:
            self.model.keep_candidate()
        elif is_first() and (scores.last_step != scores.best_step or scores.best_candidate != 0):
            self.folder.load_best(self.model.products(0), scores.best_step)
