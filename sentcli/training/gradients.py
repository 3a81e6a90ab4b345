"""From the batches of a step to the gradient: whole or through a cache, in any precision and number of processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sentcli.processes import average_gradients, gathered, process_count
from sentcli.training.model import TrainingModel, in_order, unpacked

if TYPE_CHECKING:
    from sentcli.methods.settings import Settings
    from sentcli.training.model import Batch


@dataclass
class Step:
    """What one optimiser step came to."""

    values: dict[str, float]
    """The loss and its unweighted terms, the mean over batches and processes."""
    norm: float
    """Of the gradient, before clipping."""
    shares: dict[str, float] = field(default_factory=dict)
    """Of each term in the gradient on the encoder, if it was measured: its norm over the sum of the norms."""

    @property
    def finite(self) -> bool:
        """Whether the loss is a number."""
        return math.isfinite(self.values["loss"])


class Gradients:
    """Makes the gradient of a step and hands it to the optimiser."""

    def __init__(self, model: TrainingModel, optimizer: torch.optim.Optimizer, settings: Settings) -> None:
        self.model, self.optimizer, self.settings = model, optimizer, settings
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.encoders = [p for p in model.encoder.parameters() if p.requires_grad]
        self.device = self.trained[0].device
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=settings.precision == "fp16")

    def collect(self, batches: list[Batch], *, measure: bool = False) -> Step:
        """Average the gradient over batches and processes, clip it, and leave it on the parameters.

        Args:
            batches: model inputs as `TrainingModel.forward` takes them.
            measure: also measure the share of each term, on the first batch.
        """
        sums: Tensor | None = None
        shares: dict[str, float] = {}
        names: list[str] = []
        for number, batch in enumerate(batches):
            backward = self._cached if self.settings.mini_batch_size else self._whole
            loss, terms, found = backward(batch, 1 / len(batches), measure and number == 0)
            shares, names = shares or found, list(terms)
            values = torch.stack([loss, *terms.values()]).detach()
            sums = values if sums is None else sums + values
        average_gradients(self.trained)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.trained, self.settings.clip_norm or math.inf)
        assert sums is not None
        numbers = torch.stack([*(sums / len(batches)), norm.to(sums.dtype)]).tolist()  # one wait for the device
        if process_count() > 1:
            numbers = [sum(values) / process_count() for values in zip(*gathered(numbers), strict=True)]
        return Step(dict(zip(["loss", *names], numbers[:-1], strict=True)), numbers[-1], shares)

    def apply(self) -> None:
        """Make the optimiser's step, unless half precision has overflowed."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def _backward(self, loss: Tensor, share: float) -> None:
        self.scaler.scale(loss * share if share != 1 else loss).backward()  # type: ignore[no-untyped-call]

    def _whole(self, batch: Batch, share: float, measure: bool) -> tuple[Tensor, dict[str, Tensor], dict[str, float]]:
        loss, terms = self.model(batch)
        shares = self._shares(terms, self.encoders) if measure else {}
        self._backward(loss, share)
        return loss, terms, shares

    def _cached(self, batch: Batch, share: float, measure: bool) -> tuple[Tensor, dict[str, Tensor], dict[str, float]]:
        """Encode without a graph, take the gradient at the vectors, and encode again a few rows at a time (Gao et al.).

        Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup (RepL4NLP 2021), sec. 3.2. The random
        numbers of each part are drawn again, so that dropout is the same in both passes.
        """
        inputs, labels, matched = unpacked(batch)
        parts = self.model.parts(inputs, self.settings.mini_batch_size)
        states: list[list[Tensor]] = []
        found: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            for encoder, rows, numbers in parts:
                states.append(random_states(self.device))
                found.append((self.model.vectors(encoder, rows), numbers))
        vectors = in_order(found).requires_grad_()
        loss, terms = self.model.losses(self.model.views_of(inputs, vectors, labels, matched))
        shares = self._shares(terms, [vectors]) if measure else {}
        self._backward(loss, share)
        after, gradient = random_states(self.device), vectors.grad
        assert gradient is not None
        for (encoder, rows, numbers), state in zip(parts, states, strict=True):
            set_random_states(state, self.device)
            again = self.model.vectors(encoder, rows)
            again.backward(gradient[numbers])  # type: ignore[no-untyped-call]
        set_random_states(after, self.device)
        return loss, terms, shares

    def _shares(self, terms: dict[str, Tensor], at: Sequence[Tensor]) -> dict[str, float]:
        """Return each weighted term's share of the gradient at some tensors, by norm."""
        if len(terms) == 1:
            return dict.fromkeys(terms, 1.0)
        norms = {}
        for name, term in terms.items():
            weighted = self.scaler.scale(self.model.weights[name] * term)
            found = (
                torch.autograd.grad(weighted, at, retain_graph=True, allow_unused=True) if term.requires_grad else ()
            )
            norms[name] = float(torch.stack([g.norm() for g in found if g is not None] or [torch.zeros(1)]).norm())
        total = sum(norms.values())
        return {name: norm / total for name, norm in norms.items()} if total > 0 else {}


def random_states(device: torch.device) -> list[Tensor]:
    """Return the states of the random numbers that training draws from: the CPU's, and the GPU's if it is one."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def set_random_states(states: list[Tensor], device: torch.device) -> None:
    """Go back to what `random_states` returned."""
    torch.set_rng_state(states[0].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1].cpu(), device)
