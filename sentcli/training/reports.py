"""The numbers of a step: checked, logged and shown, on a GPU while the next step is computed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sentcli.errors import DivergenceError
from sentcli.training.observer import StepInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentcli.training.batches import TrainingBatch
    from sentcli.training.checkpoints import RunProgress
    from sentcli.training.gradients import Gradients, StepNumbers
    from sentcli.training.observer import Observer
    from sentcli.training.run_folder import RunFolder


@dataclass(frozen=True)
class Step:
    """One step whose gradient has been queued."""

    number: int
    """The number of the step, from 1."""
    rate: float
    """The learning rate."""
    batches: Sequence[TrainingBatch]
    numbers: StepNumbers


@dataclass
class StepReports:
    """Checks the steps of a run in their order, and reports them to the folder and the observer.

    The numbers of a step are looked at when `Gradients.behind` further steps have been queued, at the latest by
    `finish`. Weights never become NaN: without steps in between, `add` comes before the optimiser's step, and with
    them the optimiser has looked itself.
    """

    folder: RunFolder
    """Receives a line for each step, and the batch of a step that failed."""
    observer: Observer | None
    progress: RunProgress
    """Counts the steps that were reported."""
    gradients: Gradients
    total: int
    """The number of steps of the run."""
    waiting: list[Step] = field(default_factory=list)
    """Steps that have been queued and not been checked."""
    checked: list[tuple[Step, dict[str, float], float, float | None]] = field(default_factory=list)
    """Steps that have not been reported, with what their `StepNumbers.read` returned."""

    def add(self, step: Step) -> None:
        """Take a step, and check the one that is due.

        Raises:
            DivergenceError: if its loss or its gradient is not finite.
        """
        self.waiting.append(step)
        self._check(self.gradients.behind)

    def log(self) -> None:
        """Report the steps that have been checked."""
        for step, values, norm, spread in self.checked:
            shares = step.numbers.shares
            self.progress.add(step.batches, shares, norm)
            info = StepInfo(step.number, self.total, values, shares, step.rate, norm, self.progress.speed, spread)
            if spread is not None:
                self.progress.look(step.number, collapsed=info.has_collapsed)
            self.folder.log(info.line())
            if self.observer is not None:
                self.observer.step(info)
        self.checked = []

    def finish(self) -> None:
        """Wait for the steps that are not checked yet, and report them.

        Raises:
            DivergenceError: if a loss or a gradient is not finite.
        """
        began = time.perf_counter()
        self._check(0)
        self.progress.seconds += time.perf_counter() - began
        self.log()

    def _check(self, behind: int) -> None:
        while len(self.waiting) > behind:
            step = self.waiting.pop(0)
            values, norm, spread = step.numbers.read()
            stop_if_not_finite(step, values, norm, self.folder, overflow=self.gradients.scaler.is_enabled())
            self.checked.append((step, values, norm, spread))


def stop_if_not_finite(step: Step, values: dict[str, float], norm: float, folder: RunFolder, *, overflow: bool) -> None:
    """Stop before weights become NaN or infinite, and keep the sentences of the step in ``failed-batch.json``.

    Args:
        step: with the batches of the step.
        values: the loss and its terms.
        norm: the norm of the gradient.
        folder: the folder of the run.
        overflow: accept an infinite gradient, as in fp16, where the scaler skips such a step and lowers its scale.

    Raises:
        DivergenceError: if the loss, or without `overflow` the gradient, is not finite.
    """
    if not math.isfinite(values["loss"]):
        problem = f"the loss is {values['loss']}"
    elif not overflow and not norm < math.inf:
        problem = f"the norm of the gradient is {norm}"
    else:
        return
    rows = [list(batch.rows) for batch in step.batches]
    views = [batch.texts.views for batch in step.batches]
    path = folder.keep_failed({"step": step.number, **values, "grad_norm": norm, "rows": rows, "views": views})
    raise DivergenceError(f"step {step.number}: {problem}; the sentences are in {path}; try a lower --learning-rate")
