"""The gradient of a step, the optimisers of the papers, and the memory that a step frees for the next one."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sentcli.devices import device_errors
from sentcli.model.ahead import PendingCopy, runs_ahead
from sentcli.processes import average_gradients, gather
from sentcli.training.training_model import TrainingModel, in_order, model_inputs

if TYPE_CHECKING:
    from sentcli.methods.method import Settings
    from sentcli.training.training_model import BatchTensors


SPREAD = "spread"
"""The name of the spread of the vectors among the numbers of a step."""
SMALLER_STEP = "; lower --batch-size or --max-length, or keep both with --set mini_batch_size=64"
"""What makes a step fit into the memory of a GPU."""


@dataclass(frozen=True)
class StepNumbers:
    """The loss, its terms and the norm of the gradient of one step, which may still be on their way from a GPU."""

    names: tuple[str, ...]
    """The names of the loss and its terms, and of the spread if it was measured, in the order of the numbers."""
    numbers: PendingCopy
    """These and the norm, a row for each process."""
    shares: dict[str, float]
    """Each term's share of the gradient on the encoder, if it was measured."""

    def read(self) -> tuple[dict[str, float], float, float | None]:
        """Wait for the numbers, as means over the processes.

        Returns:
            The loss and its terms; the norm of the gradient; and the spread of the vectors if it was measured.
        """
        processes = self.numbers.read().tolist()
        *means, norm = [sum(column) / len(processes) for column in zip(*processes, strict=True)]
        values = dict(zip(self.names, means, strict=True))
        spread = values.pop(SPREAD, None)
        if spread is not None and spread < 0:
            spread = None
        return values, norm, spread


class Gradients:
    """Computes the gradient of a step, at once or with gradient caching, in any precision and number of processes.

    `queue` leaves the gradient on the parameters, and `apply` makes the optimiser's step with it.

    Attributes:
        behind: how many steps later the numbers of a step are looked at, so that a GPU has work meanwhile. It is 1
            where the optimiser looks at the numbers on the GPU itself, and leaves the weights as they are if they are
            not finite; 0 where the program has to look before it calls `apply`.
    """

    def __init__(self, model: TrainingModel, settings: Settings) -> None:
        self.model = model
        self.settings = settings
        self.optimizer = make_optimizer(model, settings)
        self.trained = trained_parameters(model)
        self.encoder = trained_parameters(model.encoder)
        self.device = self.trained[0].device
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=settings.precision == "fp16")
        can_skip = getattr(self.optimizer, "_step_supports_amp_scaling", False)
        self.behind = int(runs_ahead(self.device) and can_skip)

    def collect(
        self, batches: Sequence[BatchTensors], *, measure: bool = False
    ) -> tuple[dict[str, float], float, dict[str, float]]:
        """Do as `queue` does and wait for the numbers.

        Returns:
            The loss and its unweighted terms, as the mean over batches and processes; the norm of the gradient before
            clipping; and each term's share of the gradient on the encoder, if it was measured.
        """
        step = self.queue(batches, measure=measure)
        values, norm, _ = step.read()
        return values, norm, step.shares

    def queue(self, batches: Sequence[BatchTensors], *, measure: bool = False, look: bool = False) -> StepNumbers:
        """Average the gradient over batches and processes, clip it, and leave it on the parameters.

        Args:
            batches: model inputs as `TrainingModel.forward` takes them.
            measure: also measure the share of each term in the gradient, on the first batch.
            look: also measure the spread of the vectors, on the first batch.

        Raises:
            SentcliError: if a GPU has too little memory, or fails.
        """
        if not runs_ahead(self.device):
            return self._queued(batches, measure=measure, look=look)
        rows, tokens = batches[0]["input_ids"].shape
        with device_errors(self.device, f"a step of {rows:,} texts of {tokens:,} tokens", advice=SMALLER_STEP):
            return self._queued(batches, measure=measure, look=look)

    def _queued(self, batches: Sequence[BatchTensors], *, measure: bool, look: bool) -> StepNumbers:
        backward = self.backward_cached if self.settings.mini_batch_size else self.backward_whole
        sums: Tensor | None = None
        shares: dict[str, float] = {}
        names: list[str] = []
        for number, batch in enumerate(batches):
            is_first = number == 0
            loss, terms, batch_shares = backward(batch, 1 / len(batches), measure and is_first)
            if is_first:
                shares = batch_shares
                names = ["loss", *terms]
            values = torch.stack([loss, *terms.values()]).detach()
            sums = values if sums is None else sums + values
        average_gradients(self.trained)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.trained, self.settings.clip_norm or math.inf)
        assert sums is not None
        numbers = sums / len(batches)
        spread = None
        if look:
            spread = self.model.spread(batches[0])
        if spread is not None:
            names.append(SPREAD)
            numbers = torch.stack([*numbers, spread.to(numbers.dtype)])
        numbers = torch.stack([*numbers, norm.to(numbers.dtype)])
        numbers = gather(numbers[None])
        if self.behind and not self.scaler.is_enabled():
            # a fused optimiser leaves out its step where this is 1, as it does for a scaler of half precision
            self.optimizer.found_inf = 1 - numbers.isfinite().all().float()  # type: ignore[attr-defined]
        return StepNumbers(tuple(names), PendingCopy(numbers), shares)

    def apply(self, rate: float) -> None:
        """Make the optimiser's step at a learning rate, unless half precision has overflowed.

        Where the numbers are looked at later, it also leaves the weights as they are if the loss or the norm is not
        finite.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def backward_whole(
        self, batch: BatchTensors, scale: float, measure: bool
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, float]]:
        """Encode all views, compute the losses, and backpropagate through everything at once."""
        loss, terms = self.model(batch)
        shares = self._shares(terms, self.encoder) if measure else {}
        self._backward(loss, scale)
        return loss, terms, shares

    def backward_cached(
        self, batch: BatchTensors, scale: float, measure: bool
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, float]]:
        """Backpropagate with gradient caching, as `Settings.mini_batch_size` asks for.

        The rows are encoded without a graph, the gradient of the loss is taken at the vectors, and the rows are then
        encoded again a few at a time (Gao et al., Scaling Deep Contrastive Learning Batch Size under Memory Limited
        Setup, RepL4NLP 2021, sec. 3.2). The random state of each part is restored, so that dropout is the same in both
        passes.
        """
        parts = self.model.parts(model_inputs(batch), self.settings.mini_batch_size)
        states: list[list[Tensor]] = []
        encoded: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            for encoder, rows, numbers in parts:
                states.append(random_states(self.device))
                encoded.append((self.model.vectors(encoder, rows), numbers))
        vectors = in_order(encoded).requires_grad_()
        views = self.model.views_of(batch, vectors)
        loss, terms = self.model.losses(views)
        shares = self._shares(terms, [vectors]) if measure else {}
        self._backward(loss, scale)
        after = random_states(self.device)
        gradient = vectors.grad
        assert gradient is not None
        for (encoder, rows, numbers), state in zip(parts, states, strict=True):
            set_random_states(state, self.device)
            self.model.vectors(encoder, rows).backward(gradient[numbers])  # type: ignore[no-untyped-call]
        set_random_states(after, self.device)
        return loss, terms, shares

    def _backward(self, loss: Tensor, scale: float) -> None:
        if scale != 1:
            loss = loss * scale
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def _shares(self, terms: dict[str, Tensor], at: Sequence[Tensor]) -> dict[str, float]:
        """Return the norm of each weighted term's gradient at some tensors, divided by the sum of these norms.

        The shares are empty if all norms are 0, or one is not a number.
        """
        if len(terms) == 1:
            return dict.fromkeys(terms, 1.0)
        norms = dict.fromkeys(terms, 0.0)
        for name, term in terms.items():
            if not term.requires_grad:
                continue
            weighted = self.scaler.scale(self.model.weights[name] * term)
            gradients = torch.autograd.grad(weighted, at, retain_graph=True, allow_unused=True)
            parts = [gradient.norm() for gradient in gradients if gradient is not None]
            if parts:
                norms[name] = float(torch.stack(parts).norm())
        total = sum(norms.values())
        if not total > 0:
            return {}
        return {name: norm / total for name, norm in norms.items()}


def trained_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a module that are trained."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def random_states(device: torch.device) -> list[Tensor]:
    """Return the states of the random numbers that training draws from: the CPU's, and the GPU's if it is one."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


def set_random_states(states: list[Tensor], device: torch.device) -> None:
    """Restore the states that `random_states` returned."""
    torch.set_rng_state(states[0].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1].cpu(), device)


def make_optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """Return the optimiser that the settings name.

    AdamW has betas 0.9 and 0.999; RMSprop has TensorFlow's constants (alpha 0.9, eps 1e-7), which Contrastive Tension
    was trained with. Biases and normalisations have no weight decay, unless the settings decay all parameters.
    """
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    for parameter in trained_parameters(model):
        if settings.decay_all or parameter.ndim >= 2:
            decayed.append(parameter)
        else:
            undecayed.append(parameter)
    groups: list[dict[str, Any]] = []
    if decayed:
        groups.append({"params": decayed, "weight_decay": settings.weight_decay})
    if undecayed:
        groups.append({"params": undecayed, "weight_decay": 0.0})
    if settings.optimizer == "rmsprop":
        return torch.optim.RMSprop(groups, lr=settings.learning_rate, alpha=0.9, eps=1e-7)
    kind = torch.optim.AdamW if settings.bias_correction else UncorrectedAdamW
    return kind(groups, lr=settings.learning_rate, eps=settings.adam_epsilon, fused=True)


class UncorrectedAdamW(torch.optim.AdamW):
    """AdamW without the correction of its averages' bias toward zero, as in the first BERT code.

    It makes torch's step with a learning rate that undoes the correction, and a weight decay that undoes the change of
    the rate. The one difference is epsilon, which acts as if it were up to 32 times smaller in the first steps.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make one optimiser step."""
        for group in self.param_groups:
            count = group["steps"] = self._steps(group) + 1
            first, second = group["betas"]
            group["factor"] = (1 - first**count) / math.sqrt(1 - second**count)
            group["lr"] *= group["factor"]
            group["weight_decay"] /= group["factor"]
        super().step(closure)
        for group in self.param_groups:
            group["lr"] /= group["factor"]
            group["weight_decay"] *= group["factor"]

    def _steps(self, group: dict[str, Any]) -> float:
        """Return the number of steps so far.

        torch counts them on the GPU, where reading is a wait. The count of the group serves, unless there is none yet,
        or a scaler of half precision may have left out a step.
        """
        if "steps" in group and not hasattr(self, "grad_scale"):
            return float(group["steps"])
        for parameter in group["params"]:
            if self.state[parameter]:
                return float(self.state[parameter].get("step", 0))
        return 0.0


def keep_freed_memory() -> None:
    """Let glibc keep freed memory, because a step frees and allocates the same blocks again and again.

    Without this, every large tensor is mapped anew and the kernel fills it with zeros page by page, which is a third of
    a step's time on a CPU. MALLOC_TRIM_THRESHOLD_ in the environment takes precedence.
    """
    library = _glibc()
    if library is None or "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return
    mmap_threshold = -3
    trim_threshold = -1
    library.mallopt(mmap_threshold, 2**28)
    library.mallopt(trim_threshold, 2**31 - 1)


@contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Keep freed memory inside the block, and give it back to the system at its end."""
    keep_freed_memory()
    try:
        yield
    finally:
        library = _glibc()
        if library is not None:
            library.malloc_trim(0)


def _glibc() -> Any:
    """Return glibc, or None if this system has another C library."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL("libc.so.6")
        has_both = library.mallopt and library.malloc_trim
    except (OSError, AttributeError):
        return None
    if has_both:
        return library
    return None
