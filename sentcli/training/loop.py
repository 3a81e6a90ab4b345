"""The training loop, for every method.

    one process    sentcli train --method simcse --model minilm --data text.txt -o out

A step: tokenise B sentences, repeat them m times, one encoder pass over all m*B rows (dropout makes the views
differ), the head, each objective on the views, the weighted sum backward, clip, AdamW, linear decay.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from sentcli.encoder.tokenizing import TextTokenizer, Tokens, pad
from sentcli.errors import SentcliError
from sentcli.methods.settings import Settings
from sentcli.objectives import Objective, Views
from sentcli.training.data import batch_order, tokenised_batches
from sentcli.training.run_folder import RunFolder

if TYPE_CHECKING:
    from sentcli.methods import Method


class Observer(Protocol):
    """Told what happens; the command line shows it."""

    def step(self, step: int, total: int, terms: dict[str, float], sentences_per_second: float) -> None:
        """After each optimiser step."""

    def scored(self, step: int, score: float, best: bool) -> None:
        """After each evaluation on the dev set."""


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

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dict(vars(self))


def train(
    model: TrainingModel,
    tokenizer: TextTokenizer,
    settings: Settings,
    sentences: list[str],
    folder: RunFolder,
    *,
    score: Callable[[], float] | None = None,
    observer: Observer | None = None,
) -> TrainResult:
    """Train `model` in place and leave it with the best weights by `score`, else with the last.

    Args:
        model: encoder, head and objectives, on the device to train on.
        tokenizer: cuts to the training length.
        settings: of the run.
        sentences: the training text.
        folder: takes the metrics and the best weights so far.
        score: scores the encoder on the dev set; called at step 0, every `eval_every` steps and at the end.
        observer: told of steps and scores.

    Raises:
        SentcliError: if the loss is not a number.
    """
    set_seed(settings.seed)
    device, views = next(model.parameters()).device, model.views
    # the model is on its device already; accelerate brings gradient scaling and, later, more processes
    accelerator = Accelerator(cpu=device.type == "cpu", device_placement=False)
    steps = settings.total_steps(len(sentences))
    optimizer, schedule = make_optimizer(model, settings, steps)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    batches = tokenised_batches(
        sentences, tokenizer, batch_order(len(sentences), settings.batch_size, settings.seed), steps
    )
    keeper = BestKeeper(model, folder, score, observer)
    keeper.evaluate(0)
    started, trained, truncated = time.perf_counter(), 0, 0
    model.train()
    for step, tokens in enumerate(batches, 1):
        loss, terms = model(to_tensors(tokens, tokenizer.pad_id, views, device))
        accelerator.backward(loss)
        norm = accelerator.clip_grad_norm_(model.parameters(), settings.clip_norm)
        record = {"loss": loss.item(), **{name: value.item() for name, value in terms.items()}}
        if not np.isfinite(record["loss"]):
            raise SentcliError(f"step {step}: the loss is {record['loss']}; try a lower --learning-rate")
        rate = schedule.get_last_lr()[0]
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        trained += len(tokens.ids)
        truncated += tokens.truncated
        speed = trained / (time.perf_counter() - started - keeper.seconds)
        folder.log(
            {
                "step": step,
                **record,
                "learning_rate": rate,
                "grad_norm": float(norm),
                "sentences_per_second": speed,
            }
        )
        if observer is not None:
            observer.step(step, steps, record, speed)
        if step % settings.eval_every == 0 or step == steps:
            keeper.evaluate(step)
    seconds = time.perf_counter() - started - keeper.seconds
    keeper.restore_best()
    model.eval()
    return TrainResult(
        start_dev_spearman=keeper.start,
        best_dev_spearman=keeper.best,
        best_step=keeper.best_step if keeper.best is not None else steps,
        final_dev_spearman=keeper.last,
        steps=steps,
        sentences_per_second=trained / seconds,
        truncated=truncated,
    )


class TrainingModel(nn.Module):
    """Encoder, head and objectives: the rows of all views in, the loss and its terms out."""

    def __init__(self, encoder: nn.Module, method: Method, dimension: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = method.head_module(dimension)
        self.views = method.views
        self.objectives: list[Objective] = method.objectives()
        # an objective with parameters or memory of its own is a module: trained, moved and saved with the rest
        self.stateful = nn.ModuleList(o for o in self.objectives if isinstance(o, nn.Module))

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted sum of the objectives and each unweighted term.

        Args:
            batch: token ids ``[m * B, T]``, view by view.
        """
        pooled = self.encoder(batch, normalize=False)
        projected = self.head(pooled)
        views = Views(_split(projected, self.views), _split(pooled, self.views))
        terms = {objective.name: objective(views) for objective in self.objectives}
        total = sum((o.weight * terms[o.name] for o in self.objectives), torch.zeros((), device=pooled.device))
        return total, terms


def _split(vectors: Tensor, views: int) -> Tensor:
    """Cut ``[m * B, d]``, view by view, into ``[m, B, d]``."""
    return vectors.view(views, -1, vectors.shape[-1])


def to_tensors(tokens: Tokens, pad_id: int, views: int, device: torch.device) -> dict[str, Tensor]:
    """Pad one batch of token ids, repeat it for each view and move it to the device: ``[views * B, T]``."""
    arrays = pad(tokens, range(len(tokens.ids)), pad_id)
    return {name: torch.from_numpy(array).to(device).repeat(views, 1) for name, array in arrays.items()}


def make_optimizer(model: nn.Module, settings: Settings, steps: int) -> tuple[torch.optim.Optimizer, LambdaLR]:
    """Return AdamW (betas 0.9, 0.999, eps 1e-8) and a linear warm-up and decay to zero."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
    warmup = settings.warmup_steps

    def factor(step: int) -> float:
        return step / warmup if step < warmup else max(0.0, (steps - step) / max(1, steps - warmup))

    return optimizer, LambdaLR(optimizer, factor)


class BestKeeper:
    """Scores the encoder now and then and keeps its best weights on disk."""

    def __init__(
        self,
        model: nn.Module,
        folder: RunFolder,
        score: Callable[[], float] | None,
        observer: Observer | None,
    ) -> None:
        self.model, self.folder, self.score, self.observer = model, folder, score, observer
        self.start: float | None = None
        self.best: float | None = None
        self.last: float | None = None
        self.best_step = self.last_step = 0
        self.seconds = 0.0
        """Time spent on evaluations since step 0's."""

    def evaluate(self, step: int) -> None:
        """Score the encoder and keep its weights if they are the best so far."""
        if self.score is None:
            return
        began = time.perf_counter()
        self.model.eval()
        self.last, self.last_step = self.score(), step
        self.model.train()
        better = self.best is None or self.last > self.best
        if better:
            self.best, self.best_step = self.last, step
            self.folder.keep_best(self.model)
        if step == 0:
            self.start = self.last
        self.folder.log({"step": step, "dev_spearman": self.last, "best": better})
        if self.observer is not None:
            self.observer.scored(step, self.last, better)
        if step > 0:
            self.seconds += time.perf_counter() - began

    def restore_best(self) -> None:
        """Load the best weights, unless the last ones are those."""
        if self.best is not None and self.last_step != self.best_step:
            self.folder.load_best(self.model)
