"""Checkpoints: everything that the rest of a run depends on, in two files that appear whole or not at all.

``checkpoint-00000500.safetensors`` holds weights, optimiser and random numbers, ``checkpoint-00000500.json`` the rest
and the SHA-256 of both. The last two are kept: if one is damaged, the one before serves.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from sentcli.bounds import whole_number
from sentcli.errors import SentcliError, interruption
from sentcli.io.atomic import DISK_FULL, NoRoomError
from sentcli.io.digests import file_digest, json_digest
from sentcli.io.forms import contents, decode, write_json
from sentcli.io.weights import distinct_tensors, save_weights, write_tensors
from sentcli.processes import gathered, is_first, process_count, rank
from sentcli.training.gradients import Gradients, random_states, set_random_states

if TYPE_CHECKING:
    from sentcli.training.batches import TrainingBatch

KEPT_CHECKPOINTS = 2
"""How many checkpoints stay in the folder."""
OPTIMIZER_STATES = {"adamw": 2, "rmsprop": 1}
"""How many numbers an optimiser keeps for each weight."""


@dataclass
class Scores:
    """The scores of a run so far, as a checkpoint keeps them."""

    start: float | None = None
    best: float | None = None
    last: float | None = None
    best_step: int = 0
    last_step: int = 0
    best_candidate: int = 0
    """The number of the encoder that had the best score, where a method trains two."""
    since_best: int = 0
    """The number of scores since the best one."""
    seconds: float = 0.0
    """The time that the evaluations took."""
    ended: bool = False
    """Whether the observer has ended the run."""


@dataclass
class RunProgress:
    """How far a run has come, as a checkpoint keeps it."""

    step: int = 0
    sentences: int = 0
    truncated: int = 0
    seconds: float = 0.0
    """The time that training took, with the wait for sentences, without evaluations and checkpoints."""
    shares: dict[str, float] = field(default_factory=dict)
    """The sum of each term's measured shares of the gradient."""
    measured: int = 0
    """How often the shares were measured."""
    without_gradient: int = 0
    """The number of steps whose gradient was 0."""
    collapsed_step: int | None = None
    """The step since which the vectors have been equal or not finite wherever they were looked at; None if they are
    not."""

    def look(self, step: int, *, collapsed: bool) -> None:
        """Note whether the vectors are equal or not finite at a step."""
        if not collapsed:
            self.collapsed_step = None
        elif self.collapsed_step is None:
            self.collapsed_step = step

    def add(self, batches: Sequence[TrainingBatch], shares: Mapping[str, float], norm: float) -> None:
        """Count one step, given the norm of its gradient; its time is counted apart from it."""
        processes = process_count()
        self.step += 1
        self.without_gradient += norm == 0
        for batch in batches:
            self.sentences += processes * len(batch)
            self.truncated += processes * batch.truncated
        if shares:
            self.measured += 1
        for name, share in shares.items():
            self.shares[name] = self.shares.get(name, 0.0) + share

    @property
    def speed(self) -> float:
        """Sentences per second."""
        if not self.seconds:
            return 0.0
        return self.sentences / self.seconds


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after one step: its tensors, and its other facts as JSON."""

    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def snapshot(gradients: Gradients, progress: RunProgress, scores: Scores) -> Checkpoint | None:
    """Return everything that the rest of the run depends on; every process calls it, and the first alone gets it."""
    optimizer = gradients.optimizer.state_dict()
    states = gathered(random_states(gradients.device))
    if not is_first():
        return None
    tensors = {f"model.{name}": tensor for name, tensor in distinct_tensors(gradients.model).items()}
    scalars: dict[str, dict[str, Any]] = {}
    for number, state in optimizer["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{number}.{name}"] = value
            else:
                scalars.setdefault(str(number), {})[name] = value
    for process, process_states in enumerate(states):
        for number, state in enumerate(process_states):
            tensors[f"random.{process}.{number}"] = state
    facts = {
        "progress": asdict(progress),
        "scores": asdict(scores),
        "optimizer": {"state": scalars, "param_groups": optimizer["param_groups"]},
        "scaler": gradients.scaler.state_dict(),
    }
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return Checkpoint(progress.step, on_cpu, facts)


def weights_bytes(module: nn.Module, *, trained: bool = False) -> int:
    """Return the size of the weights of a module, or of those alone that are trained, in bytes."""
    size = 0
    for weight in module.parameters():
        if weight.requires_grad or not trained:
            size += weight.nbytes
    return size


def checkpoint_bytes(gradients: Gradients) -> int:
    """Return about what a checkpoint takes: the weights, and what the optimiser keeps of each that is trained."""
    states = OPTIMIZER_STATES[gradients.settings.optimizer]
    return weights_bytes(gradients.model) + states * weights_bytes(gradients.model, trained=True)


def run_bytes(gradients: Gradients, saves: int, *, keeps_best: bool) -> int:
    """Return about what a run has on the disk at its end, when nothing of it may be deleted yet.

    Args:
        gradients: of the run.
        saves: how many checkpoints it writes, of which the last `KEPT_CHECKPOINTS` stay.
        keeps_best: whether its best weights so far are kept beside them.
    """
    products = weights_bytes(gradients.model.products(0))
    checkpoints = min(saves, KEPT_CHECKPOINTS) * checkpoint_bytes(gradients)
    return products * (1 + keeps_best) + checkpoints


def restore(checkpoint: Checkpoint, gradients: Gradients) -> tuple[RunProgress, Scores]:
    """Load weights, optimiser and random numbers, and return how far the run had come, and its scores."""
    facts = checkpoint.facts
    optimizer = facts["optimizer"]
    states = {int(number): dict(values) for number, values in optimizer["state"].items()}
    weights = {}
    random_numbers = []
    for name, tensor in sorted(checkpoint.tensors.items()):
        kind, _, entry = name.partition(".")
        number, _, key = entry.partition(".")
        if kind == "model":
            weights[entry] = tensor
        elif kind == "optimizer":
            states.setdefault(int(number), {})[key] = tensor
        elif kind == "random" and number == str(rank()):
            random_numbers.append(tensor)
    gradients.model.load_state_dict(weights, strict=False)  # tied tensors stand in it once
    gradients.optimizer.load_state_dict({"state": states, "param_groups": optimizer["param_groups"]})
    gradients.scaler.load_state_dict(facts["scaler"])
    set_random_states(random_numbers, gradients.device)
    return RunProgress(**facts["progress"]), Scores(**facts["scores"])


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run folder, and the best weights that they refer to."""

    folder: Path
    best_digests: dict[int, str]
    """The SHA-256 of the best weights by step, as far as it has been computed; it is filled."""

    def keep_best(self, model: nn.Module, step: int) -> None:
        """Write the current weights as the best so far; older best weights stay while a checkpoint refers to them."""
        save_weights(model, self._best(step))
        self.best_digests.pop(step, None)
        self._prune(step)

    def load_best(self, model: nn.Module, step: int) -> None:
        """Load the weights that `keep_best` wrote at a step."""
        model.load_state_dict(load_file(self._best(step)), strict=False)  # tied tensors stand in it once

    def _prune(self, best: int) -> None:
        """Delete best weights that are neither those of step `best` nor those of a checkpoint."""
        needed = {self._best(best)}
        for step in self.steps():
            scores = self.facts(step).get("scores", {})
            needed.add(self._best(int(scores.get("best_step", 0))))
        for path in self.folder.glob("best-*.safetensors"):
            if path not in needed:
                path.unlink()

    def _best_digest(self, step: int) -> str | None:
        """Return the SHA-256 of the best weights of a step; None if there are none."""
        path = self._best(step)
        if step not in self.best_digests and path.exists():
            self.best_digests[step] = file_digest(path)
        return self.best_digests.get(step)

    def _best(self, step: int) -> Path:
        return self.folder / f"best-{step:08d}.safetensors"

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints in the folder, in rising order."""
        steps = []
        for path in self.folder.glob("checkpoint-*.json"):
            step = whole_number(path.stem.rpartition("-")[2])
            if step is not None:
                steps.append(step)
        return sorted(steps)

    def facts(self, step: int) -> dict[str, Any]:
        """Return the facts of the checkpoint of a step, or an empty dict if they cannot be read or were changed."""
        try:
            facts = decode(contents(self._path(step, "json")))
        except (OSError, ValueError):
            return {}
        if not isinstance(facts, dict):
            return {}
        written = facts.pop("facts_sha256", None)
        if written is None or written == json_digest(facts):  # earlier versions wrote none
            return facts
        return {}

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, and delete all but the last `KEPT_CHECKPOINTS`.

        Raises:
            SentcliError: if the disk has no room for it.
        """
        older = self._other_steps(checkpoint.step)
        for step in older[: len(older) - KEPT_CHECKPOINTS + 1]:
            self.remove(step)
        weights = self._path(checkpoint.step, "safetensors")
        best_step = checkpoint.facts["scores"]["best_step"]
        facts = {**checkpoint.facts, "best_sha256": self._best_digest(best_step), "step": checkpoint.step}
        try:
            write_tensors(checkpoint.tensors, weights)
            facts["sha256"] = file_digest(weights)
            write_json(self._path(checkpoint.step, "json"), {**facts, "facts_sha256": json_digest(facts)})
        except (OSError, SafetensorError, NoRoomError) as error:
            if isinstance(error, OSError) and error.errno not in DISK_FULL:
                raise
            raise SentcliError(self._no_room(checkpoint, error)) from error
        self._prune(best_step)

    def _other_steps(self, step: int) -> list[int]:
        """Return the steps of all checkpoints but one."""
        return [other for other in self.steps() if other != step]

    def _no_room(self, checkpoint: Checkpoint, error: Exception) -> str:
        """Return the message for a checkpoint that the disk has no room for."""
        needed = sum(tensor.nbytes for tensor in checkpoint.tensors.values())
        free = shutil.disk_usage(self.folder).free
        reason = getattr(error, "strerror", None) or str(error)
        earlier = self._other_steps(checkpoint.step)
        what_is_left = "there is none yet"
        if earlier:
            what_is_left = f"the one of step {earlier[-1]} stays"
        return (
            f"{self.folder}: the checkpoint of step {checkpoint.step} could not be written ({reason}): it "
            f"needs {decimal(needed)}, {decimal(free)} are free; {what_is_left}. Make room and go on with --resume"
        )

    def load(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest checkpoint that is whole, with its best weights, and why newer ones are not used."""
        problems: list[str] = []
        for step in reversed(self.steps()):
            problem = f"the checkpoint of step {step} is damaged and is not used"
            try:
                facts = self.facts(step)
                weights = self._path(step, "safetensors")
                if facts and file_digest(weights) == facts.get("sha256"):
                    best_step = facts["scores"]["best_step"]
                    if facts.get("best_sha256") in (None, self._best_digest(best_step)):
                        return Checkpoint(step, load_file(weights), facts), problems
                    best = f"the best weights so far, of step {best_step}, are damaged"
                    problem = f"{best}: the checkpoint of step {step} is not used"
            except Exception as error:  # whatever a damaged file makes the library raise
                signalled = interruption(error)
                if signalled is not None:
                    raise signalled from None
            problems.append(problem)
        return None, problems

    def remove(self, step: int) -> None:
        """Delete the checkpoint of a step, its JSON file first, so that a half-deleted one is never loaded."""
        self._path(step, "json").unlink(missing_ok=True)
        self._path(step, "safetensors").unlink(missing_ok=True)

    def clear(self) -> None:
        """Delete all checkpoints and best weights."""
        for pattern in ("checkpoint-*", "best-*.safetensors"):
            for path in self.folder.glob(pattern):
                path.unlink()

    def _path(self, step: int, kind: str) -> Path:
        return self.folder / f"checkpoint-{step:08d}.{kind}"
