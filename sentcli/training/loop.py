"""The training loop, for every method.

    one process    sentcli train --method simcse --model minilm --data text.txt -o out

A step: the texts of m views of B sentences, tokenised; one encoder pass over all m*B rows (dropout makes the views
differ where the texts do not); the head; each objective on the views; the weighted sum backward, clip, optimiser step.
"""

from __future__ import annotations

import math
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
from sentcli.training.data import Batch, Corpus, batch_order, tokenised_batches
from sentcli.training.model import TrainingModel
from sentcli.training.run_folder import RunFolder

if TYPE_CHECKING:
    from sentcli.encoder.torch_model import TorchEncoder
    from sentcli.methods import Method

    Score = Callable[[TorchEncoder], float]


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
    method: Method,
    corpus: Corpus,
    folder: RunFolder,
    *,
    score: Score | None = None,
    observer: Observer | None = None,
) -> TrainResult:
    """Train `model` in place and leave it with the best weights by `score`, else with the last.

    Args:
        model: encoder, head and objectives, on the device to train on.
        tokenizer: cuts to the training length.
        method: its settings and its views.
        corpus: the training text.
        folder: takes the metrics and the best weights so far.
        score: scores an encoder on the dev set; called at step 0, every `eval_every` steps and at the end.
        observer: told of steps and scores.

    Raises:
        SentcliError: if the loss is not a number.
    """
    settings, count = method.settings, len(corpus.sentences)
    set_seed(settings.seed)
    device = next(model.parameters()).device
    # the model is on its device already; accelerate brings gradient scaling and, later, more processes
    accelerator = Accelerator(cpu=device.type == "cpu", device_placement=False)
    steps = settings.total_steps(count, model.least_rows)
    optimizer, schedule = make_optimizer(model, settings, steps)
    order = batch_order(count, settings.batch_size, settings.seed, model.least_rows)
    batches = tokenised_batches(corpus, tokenizer, order, steps, method.views, settings.seed)
    keeper = BestKeeper(model, folder, score, observer)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    keeper.evaluate(0)
    started, trained, truncated = time.perf_counter(), 0, 0
    model.train()
    for step, batch in enumerate(batches, 1):
        loss, terms = model(to_tensors(batch, tokenizer.pad_id, method.views.count, device))
        accelerator.backward(loss)
        norm = accelerator.clip_grad_norm_(model.parameters(), settings.clip_norm or math.inf)
        record = {"loss": loss.item(), **{name: value.item() for name, value in terms.items()}}
        if not np.isfinite(record["loss"]):
            raise SentcliError(f"step {step}: the loss is {record['loss']}; try a lower --learning-rate")
        used = {"learning_rate": schedule.get_last_lr()[0], "grad_norm": float(norm)}
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        trained += len(batch.views[0].ids)
        truncated += sum(tokens.truncated for tokens in batch.views)
        speed = trained / (time.perf_counter() - started - keeper.seconds)
        folder.log({"step": step, **record, **used, "sentences_per_second": speed})
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


def to_tensors(batch: Batch, pad_id: int, views: int, device: torch.device) -> dict[str, Tensor]:
    """Pad one batch and move it to the device: model inputs ``[views * B, T]``, view by view, and what labels it."""
    tokens = batch.views[0]
    if len(batch.views) > 1:
        ids, types = (
            [row for view in batch.views for row in (getattr(view, name) or [])] for name in ("ids", "type_ids")
        )
        tokens = Tokens(ids, types or None, 0, 0)
    arrays = pad(tokens, range(len(tokens.ids)), pad_id)
    repeats = views // len(batch.views)
    tensors = {name: torch.from_numpy(array).to(device).repeat(repeats, 1) for name, array in arrays.items()}
    for name in ("labels", "matched"):
        if (array := getattr(batch.texts, name)) is not None:
            tensors[name] = torch.from_numpy(array).to(device)
    return tensors


def make_optimizer(model: nn.Module, settings: Settings, steps: int) -> tuple[torch.optim.Optimizer, LambdaLR]:
    """Return the optimiser and its schedule.

    AdamW has betas 0.9 and 0.999; RMSprop has TensorFlow's constants (alpha 0.9, eps 1e-7), which Contrastive Tension
    was trained with.
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    plain = [] if settings.decay_all else [p for p in trainable if p.ndim < 2]
    decayed = [p for p in trainable if settings.decay_all or p.ndim >= 2]
    groups = [
        {"params": some, "weight_decay": decay}
        for some, decay in ((decayed, settings.weight_decay), (plain, 0.0))
        if some
    ]
    optimizer: torch.optim.Optimizer
    if settings.optimizer == "rmsprop":
        optimizer = torch.optim.RMSprop(groups, lr=settings.learning_rate, alpha=0.9, eps=1e-7)
    else:
        kind = torch.optim.AdamW if settings.bias_correction else UncorrectedAdamW
        optimizer = kind(groups, lr=settings.learning_rate, eps=settings.adam_epsilon, fused=True)
    return optimizer, LambdaLR(optimizer, lambda step: settings.rate(step, steps))


class UncorrectedAdamW(torch.optim.AdamW):
    """AdamW without the correction of its averages' bias toward zero, as in the first BERT code.

    A step is torch's with another rate, and with the decay that the plain rate would give; only epsilon, which starts
    up to 32 times smaller, differs.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make one step."""
        for group in self.param_groups:
            state: dict[str, Any] = next((self.state[p] for p in group["params"] if self.state[p]), {})
            count = float(state.get("step", 0)) + 1
            first, second = group["betas"]
            group["factor"] = (1 - first**count) / math.sqrt(1 - second**count)
            group["lr"] *= group["factor"]
            group["weight_decay"] /= group["factor"]
        super().step(closure)
        for group in self.param_groups:
            group["lr"] /= group["factor"]
            group["weight_decay"] *= group["factor"]


class BestKeeper:
    """Scores the encoder now and then and keeps its best weights on disk; of two encoders, those of the better."""

    def __init__(
        self,
        model: TrainingModel,
        folder: RunFolder,
        score: Score | None,
        observer: Observer | None,
    ) -> None:
        self.model, self.folder, self.score, self.observer = model, folder, score, observer
        self.start: float | None = None
        self.best: float | None = None
        self.last: float | None = None
        self.best_step = self.last_step = self.best_candidate = 0
        self.seconds = 0.0
        """Time spent on evaluations since step 0's."""

    def evaluate(self, step: int) -> None:
        """Score the encoder and keep its weights if they are the best so far."""
        if self.score is None:
            return
        began = time.perf_counter()
        self.model.eval()
        scores = {number: self.score(encoder) for number, encoder in self.model.candidates().items()}
        self.model.train()
        number = max(scores, key=lambda n: scores[n])
        self.last, self.last_step = scores[number], step
        better = self.best is None or self.last > self.best
        if better:
            self.best, self.best_step, self.best_candidate = self.last, step, number
            self.folder.keep_best(self.model.products(number))
        if step == 0:
            self.start = self.last
        self.folder.log({"step": step, "dev_spearman": self.last, "best": better})
        if self.observer is not None:
            self.observer.scored(step, self.last, better)
        if step > 0:
            self.seconds += time.perf_counter() - began

    def restore_best(self) -> None:
        """Put the best weights, or those of the encoder that is to be kept, into the first encoder."""
        if self.best is None:
            self.model.keep_candidate()
        elif self.last_step != self.best_step or self.best_candidate != 0:
            self.folder.load_best(self.model.products(0))
