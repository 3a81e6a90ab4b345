"""Experiment trackers, for those who ask for them: TensorBoard and Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sentcli.errors import InputError, MissingExtraError
from sentcli.processes import is_first

if TYPE_CHECKING:
    from sentcli.training.prepare import Prepared
    from sentcli.training.state import Moment

TRACKERS = ("tensorboard", "wandb")


class _Tracker:
    """An `Observer` that sends numbers by name."""

    def send(self, step: int, values: dict[str, float]) -> None:
        """Take the values of a step."""

    def resumed(self, step: int, notes: list[str]) -> None:
        """The steps after this one come again."""

    def step(self, moment: Moment) -> None:
        """Send the terms of the loss and what the step was made with."""
        terms = {f"train/{name}": value for name, value in moment.values.items()}
        shares = {f"share/{name}": value for name, value in moment.shares.items()}
        used = {"learning_rate": moment.learning_rate, "grad_norm": moment.norm}
        speed = {"sentences_per_second": moment.sentences_per_second}
        self.send(moment.step, {**terms, **shares, **{f"train/{k}": v for k, v in {**used, **speed}.items()}})

    def scored(self, step: int, values: Mapping[str, float], best: bool) -> None:
        """Send the numbers of the dev set."""
        self.send(step, {f"dev/{name.removeprefix('dev_')}": value for name, value in values.items()})


class _TensorBoard(_Tracker):
    """Opens its file at the first value: until then the run folder may be cleared."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.writer: Any = None

    def send(self, step: int, values: dict[str, float]) -> None:
        self.writer = self.writer or self.make()
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class _WandB(_Tracker):
    def __init__(self, run: Any) -> None:
        self.run = run

    def send(self, step: int, values: dict[str, float]) -> None:
        self.run.log(values, step=step)


@contextmanager
def start(name: str, prepared: Prepared) -> Iterator[_Tracker]:
    """Yield an observer that logs to a tracker; with several processes the first one logs.

    TensorBoard's files go to ``tensorboard/`` in the run folder, and a run that goes on adds to them. Weights & Biases
    is set up by its own environment (WANDB_PROJECT, WANDB_MODE=offline, ...); a run that goes on is a new one of the
    same name there.

    Raises:
        InputError: for an unknown tracker; MissingExtraError if its library is not installed.
    """
    if name not in TRACKERS:
        raise InputError(f"--log-to {name}: one of {', '.join(TRACKERS)}")
    if not is_first():
        yield _Tracker()
    elif name == "tensorboard":
        yield from _tensorboard(prepared)
    else:
        yield from _wandb(prepared)


def _tensorboard(prepared: Prepared) -> Iterator[_Tracker]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError("tensorboard", "track", "--log-to tensorboard") from error
    tracker = _TensorBoard(lambda: SummaryWriter(str(prepared.request.output / "tensorboard")))
    try:
        yield tracker
    finally:
        tracker.close()


def _wandb(prepared: Prepared) -> Iterator[_Tracker]:
    try:
        import wandb
    except ImportError as error:
        raise MissingExtraError("wandb", "track", "--log-to wandb") from error
    name = prepared.request.output.name
    run = wandb.init(name=name, config=prepared.identity())
    failed = 1
    try:
        yield _WandB(run)
        failed = 0
    finally:
        run.finish(exit_code=failed)
