"""What changes from step to step of a run, how it is saved, and what it came to."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from sentcli.errors import SentcliError
from sentcli.io.weights import distinct_tensors
from sentcli.processes import gathered, is_first, process_count, rank
from sentcli.training.checkpoints import Checkpoint
from sentcli.training.gradients import Gradients, Step, random_states, set_random_states
from sentcli.training.optimizer import make_optimizer, set_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sentcli.methods import Method
    from sentcli.training.batches import Batch
    from sentcli.training.keeper import BestKeeper
    from sentcli.training.model import TrainingModel
    from sentcli.training.run_folder import RunFolder


@dataclass(frozen=True)
class Moment:
    """What an observer is told after a step."""

    step: int
    total: int
    values: dict[str, float]
    """The loss and its terms."""
    shares: dict[str, float]
    """Of each term in the gradient, where it was measured at this step."""
    learning_rate: float
    norm: float
    sentences_per_second: float


class Observer(Protocol):
    """Told what happens; the command line shows it."""

    def resumed(self, step: int, notes: list[str]) -> None:
        """Before the first step, if a folder is gone on with: the step of the checkpoint, 0 without one."""

    def step(self, moment: Moment) -> None:
        """After each optimiser step."""

    def scored(self, step: int, values: Mapping[str, float], best: bool) -> None:
        """After each evaluation: `keeper.SCORE`, if there is a dev set, and what else was measured."""


@dataclass(frozen=True)
class TrainResult:
    """Outcome of a run; scores are Spearman on STS-B dev times 100, None without a dev set."""

    start_dev_spearman: float | None
    best_dev_spearman: float | None
    best_step: int
    final_dev_spearman: float | None
    steps: int
    sentences_per_second: float
    """Training alone, evaluations left out."""
    truncated: int
    """Sentences cut to the training length, counted once per visit."""
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    """Time of the evaluations on the dev set."""
    gradient_shares: dict[str, float] | None = None
    """Of each term in the gradient on the encoder, the mean of all measurements."""
    sts: dict[str, float] | None = None
    """Spearman times 100 of the kept weights on the seven STS tasks, if they were asked for."""
    sts_average: float | None = None
    held_out_spearman: float | None = None
    """Of the kept weights on the pairs that were held out, times 100."""
    held_out_pearson: float | None = None
    held_out_perplexity: float | None = None
    """Of the kept weights, on the masked words of --eval-text."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dict(vars(self))


@dataclass
class Progress:
    """How far a run is; a checkpoint keeps it."""

    step: int = 0
    sentences: int = 0
    truncated: int = 0
    seconds: float = 0.0
    """Of training, without evaluations and checkpoints."""
    shares: dict[str, float] = field(default_factory=dict)
    """Sums of what was measured."""
    measured: int = 0

    def add(self, batches: list[Batch], seconds: float, shares: dict[str, float]) -> None:
        """Count one step."""
        self.step += 1
        self.measured += bool(shares)
        for name, share in shares.items():
            self.shares[name] = self.shares.get(name, 0.0) + share
        self.sentences += sum(len(batch) for batch in batches) * process_count()
        self.truncated += sum(batch.truncated for batch in batches) * process_count()
        self.seconds += seconds

    @property
    def speed(self) -> float:
        """Sentences a second."""
        return self.sentences / self.seconds if self.seconds else 0.0


class RunState:
    """What changes from step to step, and how it is saved."""

    def __init__(self, model: TrainingModel, method: Method, folder: RunFolder, keeper: BestKeeper) -> None:
        self.model, self.settings, self.folder, self.keeper = model, method.settings, folder, keeper
        self.optimizer = make_optimizer(model, method.settings)
        self.gradients = Gradients(model, self.optimizer, method.settings)
        self.device, self.progress = self.gradients.device, Progress()

    def step(self, made: list[Batch], batches: list[dict[str, Tensor]], rate: float) -> Step:
        """Make one optimiser step.

        Raises:
            SentcliError: if the loss or the gradient is not a number; the sentences are in ``failed-batch.json``.
        """
        began = time.perf_counter()
        number, every = self.progress.step + 1, self.settings.share_every
        set_rate(self.optimizer, rate)
        step = self.gradients.collect(batches, measure=bool(every) and (number == 1 or number % every == 0))
        overflow = self.settings.precision == "fp16"  # the scaler skips such a step and goes on with a smaller scale
        if not step.finite or not (overflow or step.norm < float("inf")):
            self._fail(number, step, made)
        self.gradients.apply()
        self.progress.add(made, time.perf_counter() - began, step.shares)
        return step

    def _fail(self, number: int, step: Step, made: list[Batch]) -> None:
        path = self.folder.keep_failed(
            {
                "step": number,
                **step.values,
                "grad_norm": step.norm,
                "rows": [list(batch.rows) for batch in made],
                "views": [batch.texts.views for batch in made],
            }
        )
        what = "the loss is" if not step.finite else "the norm of the gradient is"
        value = step.values["loss"] if not step.finite else step.norm
        raise SentcliError(f"step {number}: {what} {value}; the sentences are in {path}; try a lower --learning-rate")

    def report(self, step: Step, rate: float, steps: int, observer: Observer | None) -> None:
        """Write a line of the metrics and tell the observer."""
        progress = self.progress
        shares = {f"share_{name}": share for name, share in step.shares.items()}
        used = {"learning_rate": rate, "grad_norm": step.norm, "sentences_per_second": progress.speed}
        self.folder.log({"step": progress.step, **step.values, **shares, **used})
        if observer is not None:
            observer.step(Moment(progress.step, steps, step.values, step.shares, rate, step.norm, progress.speed))

    def save(self) -> None:
        """Write a checkpoint."""
        optimizer = self.optimizer.state_dict()
        states = gathered(random_states(self.device))
        if not is_first():
            return
        tensors = {f"model.{name}": tensor for name, tensor in distinct_tensors(self.model).items()}
        scalars: dict[str, dict[str, Any]] = {}
        for number, state in optimizer["state"].items():
            for name, value in state.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{number}.{name}"] = value
                else:
                    scalars.setdefault(str(number), {})[name] = value
        for process, found in enumerate(states):
            tensors.update({f"random.{process}.{i}": state for i, state in enumerate(found)})
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        facts = {
            "progress": asdict(self.progress),
            "scores": self.keeper.state(),
            "optimizer": {"state": scalars, "param_groups": optimizer["param_groups"]},
            "scaler": self.gradients.scaler.state_dict(),
        }
        self.folder.save_checkpoint(Checkpoint(self.progress.step, tensors, facts))

    def restore(self) -> None:
        """Go back to the checkpoint in the folder, if there is one."""
        found = self.folder.checkpoint
        if found is None:
            return
        state: dict[int, dict[str, Any]] = {}
        for key, values in found.facts["optimizer"]["state"].items():
            state.setdefault(int(key), {}).update(values)
        weights = {}
        for name, tensor in found.tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "model":
                weights[rest] = tensor
            elif kind == "optimizer":
                number, _, entry = rest.partition(".")
                state.setdefault(int(number), {})[entry] = tensor
        self.model.load_state_dict(weights, strict=False)  # tied tensors stand in it once
        self.optimizer.load_state_dict({"state": state, "param_groups": found.facts["optimizer"]["param_groups"]})
        self.gradients.scaler.load_state_dict(found.facts["scaler"])
        self.progress = Progress(**found.facts["progress"])
        self.keeper.restore(found.facts["scores"])
        own = sorted(name for name in found.tensors if name.startswith(f"random.{rank()}."))
        set_random_states([found.tensors[name] for name in own], self.device)

    def result(self) -> TrainResult:
        """Return the outcome."""
        scores, progress = self.keeper.scores, self.progress
        return TrainResult(
            start_dev_spearman=scores.start,
            best_dev_spearman=scores.best,
            best_step=scores.best_step if scores.best is not None else progress.step,
            final_dev_spearman=scores.last,
            steps=progress.step,
            sentences_per_second=progress.speed,
            truncated=progress.truncated,
            train_seconds=progress.seconds,
            eval_seconds=self.keeper.seconds,
            gradient_shares={name: total / progress.measured for name, total in progress.shares.items()} or None,
        )
