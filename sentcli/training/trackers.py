"""The experiment trackers of ``--log-to``: TensorBoard and Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sentcli.bounds import one_of
from sentcli.errors import MissingExtraError
from sentcli.processes import is_first

if TYPE_CHECKING:
    from sentcli.training.observer import StepInfo
    from sentcli.training.prepare import Prepared

    Send = Callable[[int, dict[str, float]], None]

TRACKERS = ("tensorboard", "wandb")


class Tracker:
    """An `Observer` that sends numbers by name."""

    def __init__(self, send: Send) -> None:
        self.send = send

    def resumed(self, step: int, notes: list[str]) -> None:
        """Do nothing: the steps after the checkpoint are sent again."""

    def step(self, info: StepInfo) -> None:
        """Send the terms of the loss, their shares of the gradient, the learning rate, the norm and the speed."""
        values = {f"train/{name}": value for name, value in info.values.items()}
        values |= {f"share/{name}": value for name, value in info.shares.items()}
        values |= {"train/learning_rate": info.learning_rate, "train/grad_norm": info.norm}
        self.send(info.step, {**values, "train/sentences_per_second": info.sentences_per_second})

    def scored(self, step: int, values: Mapping[str, float], best: bool) -> None:
        """Send the numbers of the dev set."""
        self.send(step, {f"dev/{name.removeprefix('dev_')}": value for name, value in values.items()})


@contextmanager
def start(name: str, prepared: Prepared) -> Iterator[Tracker]:
    """Yield an observer that logs to a tracker; with several processes, only the first one logs.

    TensorBoard's files go to ``tensorboard/`` in the run folder, and a resumed run adds to them. Weights & Biases is
    configured by its environment variables (WANDB_PROJECT, WANDB_MODE=offline, ...); a resumed run is a new run of the
    same name there.
    """
    one_of("--log-to", name, TRACKERS)
    if not is_first():
        yield Tracker(lambda step, values: None)
    elif name == "tensorboard":
        yield from _tensorboard(prepared)
    else:
        yield from _wandb(prepared)


def _tensorboard(prepared: Prepared) -> Iterator[Tracker]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError("tensorboard", "track", "--log-to tensorboard") from error
    writer: Any = None

    def send(step: int, values: dict[str, float]) -> None:
        nonlocal writer
        # the file is opened at the first value: until then the run folder may be cleared
        writer = writer or SummaryWriter(str(prepared.request.output / "tensorboard"))
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    try:
        yield Tracker(send)
    finally:
        if writer is not None:
            writer.close()


def _wandb(prepared: Prepared) -> Iterator[Tracker]:
    try:
        import wandb
    except ImportError as error:
        raise MissingExtraError("wandb", "track", "--log-to wandb") from error
    run = wandb.init(name=prepared.request.output.name, config=prepared.identity())
    failed = 1
    try:
        yield Tracker(lambda step, values: run.log(values, step=step))
        failed = 0
    finally:
        run.finish(exit_code=failed)
