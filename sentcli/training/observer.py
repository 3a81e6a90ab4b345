"""What a run reports: after each step, after each evaluation, and at its end; and the trackers of ``--log-to``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sentcli.bounds import one_of
from sentcli.errors import DataError, InputError, SentcliError, library_errors, one_line, required
from sentcli.io.forms import checked
from sentcli.processes import is_first

if TYPE_CHECKING:
    Send = Callable[[int, dict[str, float]], None]


COLLAPSED = 2**-11.5
"""The spread of vectors below which a model has collapsed: their cosines are then 1 but for the rounding of float32."""


def collapse(step: int) -> str:
    """Return the words for a collapse that was seen at a step and lasted."""
    return f"has collapsed: since step {step} the vectors of all texts were equal, or not finite"


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
    spread: float | None = None
    """How far the vectors of different texts are apart, as `TrainingModel.spread`; None unless it was measured."""

    @property
    def has_collapsed(self) -> bool:
        """Whether the vectors of different texts were found to be equal."""
        return self.spread is not None and self.spread < COLLAPSED

    def line(self) -> dict[str, float]:
        """Return the line of ``metrics.jsonl``."""
        line = {"step": self.step, **self.values}
        for name, share in self.shares.items():
            line[f"share_{name}"] = share
        if self.spread is not None:
            line["spread"] = self.spread
        line["learning_rate"] = self.learning_rate
        line["grad_norm"] = self.norm
        line["sentences_per_second"] = self.sentences_per_second
        return line


class Observer(Protocol):
    """Is told what happens during a run, for example to show it on the command line."""

    def resumed(self, step: int, notes: list[str]) -> None:
        """Is called before the first step of a resumed run, with the step of its checkpoint, or 0 if it has none."""

    def other_start(self, other: OtherStart) -> None:
        """Is called before the first score, with what the start has with the pooling that was not taken."""

    def step(self, info: StepInfo) -> None:
        """Is called after each optimiser step."""

    def scored(self, step: int, values: Mapping[str, float | None], best: bool) -> bool | None:
        """Is called after each evaluation, with the scores on the dev sets and whatever else was measured.

        A score is None where the vectors are all equal or not finite.

        Returns:
            True if the run is to end here.
        """


@dataclass(frozen=True)
class DevScores:
    """The scores on the dev set that decides which weights are kept."""

    name: str
    metric: str
    start: float | None
    best: float | None
    best_step: int
    final: float | None

    def __str__(self) -> str:
        start = score_text(self.metric, self.start)
        best = score_text(self.metric, self.best)
        return f"{dev_title(self.name, self.metric)} {start} -> {best} at step {self.best_step}"


@dataclass(frozen=True)
class OtherStart:
    """The start model with a pooling that was not taken, on the dev set that decides."""

    pooling: str
    """A value of ``--pooling``."""
    value: float


STSB_DEV = "STSBenchmark", "spearman"
"""Name and metric of the dev set of ``--eval-data``, Spearman times 100."""


def dev_title(name: str, metric: str) -> str:
    """Return what messages call a dev set and its metric."""
    if (name, metric) == STSB_DEV:
        return "STS-B dev"
    return f"{name} {metric}"


def score_text(metric: str, score: float | None) -> str:
    """Return a score with the decimals that its metric needs: correlations are times 100, other scores at most 1."""
    if score is None:
        return "-"
    decimals = 2 if metric == STSB_DEV[1] else 4
    return f"{score:.{decimals}f}"


def dev_scores(results: Mapping[str, Any]) -> DevScores | None:
    """Return the scores on the dev set in the results of a run as JSON, or in means of them; None if it had none."""
    if results.get("dev") is not None:
        return DevScores(**results["dev"])
    best = results.get("best_dev_spearman")
    if best is None:
        return None
    name, metric = STSB_DEV
    return DevScores(
        name=name,
        metric=metric,
        start=results.get("start_dev_spearman"),
        best=best,
        best_step=results.get("best_step", 0),
        final=results.get("final_dev_spearman"),
    )


def with_dev_scores(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return results with ``start``, ``best``, ``best_step`` and ``final``, if the run had a dev set."""
    dev = dev_scores(results)
    if dev is None:
        return dict(results)
    return {**results, **vars(dev)}


ONLY_IF_TRUE = ("ended_early", "without_gradient", "collapsed_step")
"""Results that most runs do not have, and that the JSON form has only where they do."""


@dataclass(frozen=True)
class TrainResult:
    """The results of a run."""

    dev: DevScores | None
    """The scores on the dev set that decides; None without a dev set."""
    best_step: int
    """The step of the weights that are kept."""
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
    senteval: dict[str, dict[str, float]] | None = None
    """The accuracies times 100 of classifiers on the vectors of the kept weights on transfer tasks, if they are scored:
    ``accuracy`` on the test examples, ``dev_accuracy`` that by which the penalty was chosen."""
    senteval_average: float | None = None
    senteval_protocol: str | None = None
    held_out_spearman: float | None = None
    """Spearman times 100 of the kept weights on the pairs that were held out."""
    held_out_pearson: float | None = None
    held_out_perplexity: float | None = None
    """Perplexity of the kept weights on the masked words of --eval-text."""
    other_start: OtherStart | None = None
    """The start with the pooling that was not taken, where there is a dev set and another one could be expected."""
    teacher_dev: float | None = None
    """The score of the first teacher on the dev set that decides; the JSON form has it only where there is one."""
    ended_early: bool = False
    """Whether an observer has ended the run; the JSON form has it only then."""
    without_gradient: int = 0
    """The number of steps whose gradient was 0; the JSON form has it only if there are any."""
    collapsed_step: int | None = None
    """The step since which the vectors of all texts were equal or not finite until the end of the run; the JSON form
    has it only where they were."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; STS-B dev of ``--eval-data`` has keys of its own, another dev set is under ``dev``."""
        dev = self.dev
        results: dict[str, Any] = {
            "start_dev_spearman": None,
            "best_dev_spearman": None,
            "best_step": self.best_step,
            "final_dev_spearman": None,
        }
        for name, value in vars(self).items():
            if name not in ("dev", "other_start", "teacher_dev", *ONLY_IF_TRUE):
                results[name] = value
        if dev is not None and (dev.name, dev.metric) == STSB_DEV:
            results["start_dev_spearman"] = dev.start
            results["best_dev_spearman"] = dev.best
            results["final_dev_spearman"] = dev.final
        elif dev is not None:
            results["dev"] = vars(dev)
        if self.other_start is not None:
            results["other_start"] = vars(self.other_start)
        if self.teacher_dev is not None:
            results["teacher_dev"] = self.teacher_dev
        for name in ONLY_IF_TRUE:
            if getattr(self, name):
                results[name] = getattr(self, name)
        return results

    @classmethod
    def from_dict(cls, results: Mapping[str, Any], file: Path) -> TrainResult:
        """Return the results whose JSON form a file holds.

        Raises:
            InputError: if a result is missing, or has another type.
        """
        values = dict(results)
        for name in results.keys() - {field.name for field in fields(cls)}:
            del values[name]
        remedy = "--resume cannot go on; choose another -o, or --overwrite"
        try:
            values["dev"] = dev_scores(results)
            return checked(cls, values, file)
        except TypeError as error:
            raise InputError(f"{file}: results.dev: {one_line(error)}, so {remedy}") from error
        except DataError as error:
            raise InputError(f"{file}: results.{error.problem}, so {remedy}") from error


TRACKERS = ("tensorboard", "wandb")


@dataclass(frozen=True)
class Tracker:
    """An `Observer` that sends numbers by name."""

    send: Send

    def resumed(self, step: int, notes: list[str]) -> None:
        """Do nothing: the steps after the checkpoint are sent again."""

    def other_start(self, other: OtherStart) -> None:
        """Do nothing: the score is not one of the run."""

    def step(self, info: StepInfo) -> None:
        """Send the terms of the loss, their shares of the gradient, the learning rate, the norm and the speed."""
        values = {f"train/{name}": value for name, value in info.values.items()}
        for name, share in info.shares.items():
            values[f"share/{name}"] = share
        values["train/learning_rate"] = info.learning_rate
        values["train/grad_norm"] = info.norm
        values["train/sentences_per_second"] = info.sentences_per_second
        if info.spread is not None:
            values["train/spread"] = info.spread
        self.send(info.step, values)

    def scored(self, step: int, values: Mapping[str, float | None], best: bool) -> None:
        """Send the numbers of the dev set."""
        sent = {}
        for name, value in values.items():
            if value is not None:
                sent[f"dev/{name.removeprefix('dev_')}"] = value
        self.send(step, sent)


@contextmanager
def track(name: str, output: Path, identity: dict[str, Any]) -> Iterator[Tracker]:
    """Yield an observer that logs to a tracker; with several processes, only the first one logs.

    TensorBoard's files go to ``tensorboard/`` in the run folder, and a resumed run adds to them. Weights & Biases is
    configured by its environment variables (WANDB_PROJECT, WANDB_MODE=offline, ...); a resumed run is a new run of the
    same name there.
    """
    one_of("--log-to", name, TRACKERS)
    if not is_first():
        yield Tracker(lambda step, values: None)
    elif name == "tensorboard":
        yield from _tensorboard(output)
    else:
        yield from _wandb(output, identity)


def _tensorboard(output: Path) -> Iterator[Tracker]:
    tensorboard = required("torch.utils.tensorboard", "tensorboard", "track", "--log-to tensorboard")
    writer: Any = None

    def send(step: int, values: dict[str, float]) -> None:
        nonlocal writer
        if writer is None:  # the file is opened at the first value: until then the run folder may be cleared
            writer = tensorboard.SummaryWriter(str(output / "tensorboard"))
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    try:
        yield Tracker(send)
    finally:
        if writer is not None:
            writer.close()


def _wandb(output: Path, identity: dict[str, Any]) -> Iterator[Tracker]:
    wandb = required("wandb", "wandb", "track", "--log-to wandb")
    with library_errors(lambda why: SentcliError(f"--log-to wandb: {why}")):
        run = wandb.init(name=output.name, config=identity)
    failed = 1
    try:
        yield Tracker(lambda step, values: run.log(values, step=step))
        failed = 0
    finally:
        run.finish(exit_code=failed)
