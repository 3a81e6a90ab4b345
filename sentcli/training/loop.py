r"""The training loop, for every method. One step, from top to bottom, is `train`; what it calls stands below it.

    one process    sentcli train --method simcse --model minilm --data text.txt -o out
    one GPU        sentcli train ... --device cuda --set precision=bf16
    one node       torchrun --nproc-per-node 8 -m sentcli train ...
    two nodes      torchrun --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr HOST --master-port 29500 \
                       -m sentcli train ...           and the same with --node-rank 1 on the second
    accelerate     accelerate launch --multi-gpu --num-processes 8 -m sentcli train ...

A step: the texts of m views of B sentences, tokenised; one encoder pass over all m*B rows (dropout makes the views
differ where the texts do not); the head; each objective on the views; the weighted sum backward, clip, optimiser step.

N processes of batch b make the step of one process of batch N * b: the vectors of all are gathered where a loss, a
queue or a statistic wants them, and the gradients are averaged. The first process alone writes.

After any interruption ``--resume`` continues from the last checkpoint. The rest of a run is a function of it: batches
and views follow from (seed, step), all other random numbers from the states that it holds.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sentcli.errors import SentcliError
from sentcli.io.weights import distinct_tensors
from sentcli.processes import agree, average_gradients, gathered, is_first, process_count, rank
from sentcli.training.batches import BatchMaker, Order, to_tensors
from sentcli.training.checkpoints import Checkpoint
from sentcli.training.gradients import keeping_freed_memory, make_optimizer, set_rate
from sentcli.training.observer import DevScores, StepInfo, TrainResult
from sentcli.training.training_model import TrainingModel, in_order, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sentcli.methods import Method
    from sentcli.methods.method import Settings
    from sentcli.model.tokenizing import TextTokenizer
    from sentcli.model.torch_model import TorchEncoder
    from sentcli.training.batches import Batch
    from sentcli.training.data import TrainingSentences
    from sentcli.training.dev import DevSet
    from sentcli.training.observer import Observer
    from sentcli.training.run_folder import RunFolder
    from sentcli.training.training_model import Inputs

    Score = Callable[[TorchEncoder], Mapping[str, float]]


def train(
    model: TrainingModel,
    tokenizer: TextTokenizer,
    method: Method,
    corpus: TrainingSentences,
    folder: RunFolder,
    *,
    score: Score | None = None,
    observer: Observer | None = None,
    save_every: int = 0,
    prompts: tuple[str, ...] = (),
    dev: DevSet | None = None,
) -> TrainResult:
    """Train `model` in place; afterwards it has the weights with the best `score`, or the last ones without `score`.

    Args:
        model: encoder, head and objectives, on the device to train on.
        tokenizer: cuts to the training length.
        method: gives the settings and makes the views.
        corpus: the training text.
        folder: receives the metrics, the checkpoints and the best weights so far; a checkpoint in it is continued.
        score: scores an encoder on the dev sets; called at step 0, every `eval_every` steps and at the end.
        observer: is told of every step and score.
        save_every: the number of steps between two checkpoints; 0 writes none.
        prompts: the prompt in front of the texts of each view; none if it is empty.
        dev: the dev set that decides which weights are best; None keeps the last ones.

    Raises:
        SentcliError: if the loss is not a number, or a checkpoint cannot be written.
    """
    settings = method.settings
    torch.manual_seed(settings.seed + rank())
    order = run_order(model, settings, len(corpus.sentences))
    total = settings.total_steps(order.per_epoch)
    maker = BatchMaker(
        corpus, tokenizer, order, method.views, settings.accumulate, settings.group_by_length, rank(), prompts
    )
    gradients = Gradients(model, make_optimizer(model, settings), settings)
    keeper = BestKeeper(model, folder, score, observer, settings, dev)
    progress = restore_checkpoint(folder, gradients, keeper)
    if folder.resumed and observer is not None:
        observer.resumed(progress.step, folder.notes)
    if progress.step == 0:
        keeper.evaluate(0)
    model.train()
    with keeping_freed_memory():
        # a step's sentences are tokenised while the step before is trained on
        for batches in maker.steps(progress.step, total):
            inputs = [to_tensors(b, tokenizer.pad_id, method.views.count, gradients.device) for b in batches]
            began, step = time.perf_counter(), progress.step + 1
            rate = settings.learning_rate * settings.rate(progress.step, total)
            measured = bool(settings.share_every) and (step == 1 or step % settings.share_every == 0)

            # forward, backward, mean over batches and processes, clip
            values, norm, shares = gradients.collect(inputs, measure=measured)
            stop_if_not_finite(step, values, norm, batches, folder, overflow=settings.precision == "fp16")

            set_rate(gradients.optimizer, rate)
            gradients.apply()

            progress.add(batches, time.perf_counter() - began, shares)
            info = StepInfo(step, total, values, shares, rate, norm, progress.speed)
            folder.log(info.line())
            if observer is not None:
                observer.step(info)

            if step % settings.eval_every == 0 or step == total:
                keeper.evaluate(step)
            if keeper.stopped:
                break
            if save_every and step % save_every == 0 and step < total:
                save_checkpoint(folder, gradients, keeper, progress)
    keeper.restore_best()
    model.eval()
    return result_of(keeper, progress, total)


def run_order(model: TrainingModel, settings: Settings, sentences: int) -> Order:
    """Return the order in which a run with these settings sees its sentences, over all processes."""
    return Order(sentences, settings.batch_size, settings.seed, model.least_rows, process_count())


class Gradients:
    """Computes the gradient of a step, at once or with gradient caching, in any precision and number of processes.

    `collect` leaves the gradient on the parameters, and `apply` makes the optimiser's step with it.
    """

    def __init__(self, model: TrainingModel, optimizer: torch.optim.Optimizer, settings: Settings) -> None:
        self.model, self.optimizer, self.settings = model, optimizer, settings
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.encoder = [parameter for parameter in model.encoder.parameters() if parameter.requires_grad]
        self.device = self.trained[0].device
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=settings.precision == "fp16")

    def collect(
        self, batches: Sequence[Inputs], *, measure: bool = False
    ) -> tuple[dict[str, float], float, dict[str, float]]:
        """Average the gradient over batches and processes, clip it, and leave it on the parameters.

        Args:
            batches: model inputs as `TrainingModel.forward` takes them.
            measure: also measure the share of each term in the gradient, on the first batch.

        Returns:
            The loss and its unweighted terms, as the mean over batches and processes; the norm of the gradient before
            clipping; and each term's share of the gradient on the encoder, if it was measured.
        """
        backward = self.backward_cached if self.settings.mini_batch_size else self.backward_whole
        sums: Tensor | None = None
        shares: dict[str, float] = {}
        names: list[str] = []
        for number, batch in enumerate(batches):
            loss, terms, measured = backward(batch, 1 / len(batches), measure and number == 0)
            shares, names = shares or measured, list(terms)
            values = torch.stack([loss, *terms.values()]).detach()
            sums = values if sums is None else sums + values
        average_gradients(self.trained)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.trained, self.settings.clip_norm or math.inf)
        assert sums is not None
        numbers = torch.stack([*(sums / len(batches)), norm.to(sums.dtype)]).tolist()  # one wait for the device
        if process_count() > 1:
            numbers = [sum(values) / process_count() for values in zip(*gathered(numbers), strict=True)]
        return dict(zip(["loss", *names], numbers[:-1], strict=True)), numbers[-1], shares

    def apply(self) -> None:
        """Make the optimiser's step, unless half precision has overflowed."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def backward_whole(
        self, batch: Inputs, scale: float, measure: bool
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, float]]:
        """Encode all views, compute the losses, and backpropagate through everything at once."""
        loss, terms = self.model.losses(self.model.encode_views(*unpacked(batch)))
        shares = self._shares(terms, self.encoder) if measure else {}
        self._backward(loss, scale)
        return loss, terms, shares

    def backward_cached(
        self, batch: Inputs, scale: float, measure: bool
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, float]]:
        """Backpropagate with gradient caching, as `Settings.mini_batch_size` asks for.

        The rows are encoded without a graph, the gradient of the loss is taken at the vectors, and the rows are then
        encoded again a few at a time (Gao et al., Scaling Deep Contrastive Learning Batch Size under Memory Limited
        Setup, RepL4NLP 2021, sec. 3.2). The random state of each part is restored, so that dropout is the same in both
        passes.
        """
        inputs, labels, matched = unpacked(batch)
        parts = self.model.parts(inputs, self.settings.mini_batch_size)
        states: list[list[Tensor]] = []
        encoded: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            for encoder, rows, numbers in parts:
                states.append(random_states(self.device))
                encoded.append((self.model.vectors(encoder, rows), numbers))
        vectors = in_order(encoded).requires_grad_()
        loss, terms = self.model.losses(self.model.views_of(inputs, vectors, labels, matched))
        shares = self._shares(terms, [vectors]) if measure else {}
        self._backward(loss, scale)
        after, gradient = random_states(self.device), vectors.grad
        assert gradient is not None
        for (encoder, rows, numbers), state in zip(parts, states, strict=True):
            set_random_states(state, self.device)
            self.model.vectors(encoder, rows).backward(gradient[numbers])  # type: ignore[no-untyped-call]
        set_random_states(after, self.device)
        return loss, terms, shares

    def _backward(self, loss: Tensor, scale: float) -> None:
        self.scaler.scale(loss * scale if scale != 1 else loss).backward()  # type: ignore[no-untyped-call]

    def _shares(self, terms: dict[str, Tensor], at: Sequence[Tensor]) -> dict[str, float]:
        """Return the norm of each weighted term's gradient at some tensors, divided by the sum of these norms."""
        if len(terms) == 1:
            return dict.fromkeys(terms, 1.0)
        norms = {}
        for name, term in terms.items():
            weighted = self.scaler.scale(self.model.weights[name] * term)
            trained = term.requires_grad
            parts = torch.autograd.grad(weighted, at, retain_graph=True, allow_unused=True) if trained else ()
            norms[name] = float(torch.stack([g.norm() for g in parts if g is not None] or [torch.zeros(1)]).norm())
        total = sum(norms.values())
        return {name: norm / total for name, norm in norms.items()} if total > 0 else {}


def stop_if_not_finite(
    step: int, values: dict[str, float], norm: float, batches: Sequence[Batch], folder: RunFolder, *, overflow: bool
) -> None:
    """Stop before weights become NaN or infinite, and keep the sentences of the step in ``failed-batch.json``.

    Args:
        step: the number of the step, from 1.
        values: the loss and its terms.
        norm: the norm of the gradient.
        batches: the batches of the step.
        folder: the folder of the run.
        overflow: accept an infinite gradient, as in fp16, where the scaler skips such a step and lowers its scale.

    Raises:
        SentcliError: if the loss, or without `overflow` the gradient, is not finite.
    """
    finite = math.isfinite(values["loss"])
    if finite and (overflow or norm < math.inf):
        return
    rows, views = [list(batch.rows) for batch in batches], [batch.texts.views for batch in batches]
    path = folder.keep_failed({"step": step, **values, "grad_norm": norm, "rows": rows, "views": views})
    problem = f"the norm of the gradient is {norm}" if finite else f"the loss is {values['loss']}"
    raise SentcliError(f"step {step}: {problem}; the sentences are in {path}; try a lower --learning-rate")


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


class BestKeeper:
    """Scores the encoder during training and keeps the best weights on disk, those of the better one of two encoders.

    With several processes, the first one scores and the others wait.
    """

    def __init__(
        self,
        model: TrainingModel,
        folder: RunFolder,
        score: Score | None,
        observer: Observer | None,
        settings: Settings,
        dev: DevSet | None,
    ) -> None:
        self.model, self.folder, self.score, self.observer = model, folder, score, observer
        self.patience, self.keep_start, self.dev = settings.patience, settings.keep_start, dev
        self.scores = Scores()

    def evaluate(self, step: int) -> None:
        """Score the encoder and keep its weights if they are the best so far."""
        if self.score is None:
            return
        began = time.perf_counter()
        if is_first():
            self._evaluate(step)
        self.scores = Scores(**agree(asdict(self.scores)))
        self.scores.seconds += time.perf_counter() - began

    def _evaluate(self, step: int) -> None:
        assert self.score is not None
        self.model.eval()
        by_encoder = {number: self.score(encoder) for number, encoder in self.model.candidates().items()}
        self.model.train()
        key = "" if self.dev is None else self.dev.key
        number = max(by_encoder, key=lambda n: by_encoder[n].get(key, n))
        values, scores = by_encoder[number], self.scores
        score, better = values.get(key), False
        if score is not None:
            scores.last, scores.last_step = score, step
            if step == 0:
                scores.start = score
            counts = step > 0 or self.keep_start
            better = counts and (scores.best is None or score > scores.best)
            scores.since_best = 0 if better or not counts else scores.since_best + 1
            if better:
                scores.best, scores.best_step, scores.best_candidate = score, step, number
                self.folder.keep_best(self.model.products(number), step)
        self.folder.log({"step": step, **values, **({} if score is None else {"best": better})})
        if self.observer is not None and self.observer.scored(step, values, better):
            scores.ended = True

    @property
    def stopped(self) -> bool:
        """Whether the run ends: as many scores as the patience allows were no new best one, or the observer says so."""
        return self.scores.ended or (bool(self.patience) and self.scores.since_best >= self.patience)

    def restore_best(self) -> None:
        """Load the best weights into the first encoder; without scores, those of the encoder that the method keeps."""
        scores = self.scores
        if scores.best is None:
            self.model.keep_candidate()
        elif is_first() and (scores.last_step != scores.best_step or scores.best_candidate != 0):
            self.folder.load_best(self.model.products(0), scores.best_step)


@dataclass
class Progress:
    """How far a run has come, as a checkpoint keeps it."""

    step: int = 0
    sentences: int = 0
    truncated: int = 0
    seconds: float = 0.0
    """The time that training took, without evaluations and checkpoints."""
    shares: dict[str, float] = field(default_factory=dict)
    """The sum of each term's measured shares of the gradient."""
    measured: int = 0
    """How often the shares were measured."""

    def add(self, batches: Sequence[Batch], seconds: float, shares: Mapping[str, float]) -> None:
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
        """Sentences per second."""
        return self.sentences / self.seconds if self.seconds else 0.0


def save_checkpoint(folder: RunFolder, gradients: Gradients, keeper: BestKeeper, progress: Progress) -> None:
    """Write everything that the rest of the run depends on: weights, optimiser, random numbers, scores."""
    optimizer = gradients.optimizer.state_dict()
    states = gathered(random_states(gradients.device))
    if not is_first():
        return
    tensors = {f"model.{name}": tensor for name, tensor in distinct_tensors(gradients.model).items()}
    scalars: dict[str, dict[str, Any]] = {}
    for number, state in optimizer["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{number}.{name}"] = value
            else:
                scalars.setdefault(str(number), {})[name] = value
    for process, own in enumerate(states):
        tensors.update({f"random.{process}.{i}": state for i, state in enumerate(own)})
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    facts = {
        "progress": asdict(progress),
        "scores": asdict(keeper.scores),
        "optimizer": {"state": scalars, "param_groups": optimizer["param_groups"]},
        "scaler": gradients.scaler.state_dict(),
    }
    folder.save_checkpoint(Checkpoint(progress.step, tensors, facts))


def restore_checkpoint(folder: RunFolder, gradients: Gradients, keeper: BestKeeper) -> Progress:
    """Load the checkpoint of the folder, if there is one, and return how far the run had come."""
    checkpoint = folder.checkpoint
    if checkpoint is None:
        return Progress()
    facts, tensors = checkpoint.facts, checkpoint.tensors
    states = {int(number): dict(values) for number, values in facts["optimizer"]["state"].items()}
    weights = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        if kind == "model":
            weights[rest] = tensor
        elif kind == "optimizer":
            number, _, entry = rest.partition(".")
            states.setdefault(int(number), {})[entry] = tensor
    gradients.model.load_state_dict(weights, strict=False)  # tied tensors stand in it once
    gradients.optimizer.load_state_dict({"state": states, "param_groups": facts["optimizer"]["param_groups"]})
    gradients.scaler.load_state_dict(facts["scaler"])
    keeper.scores = Scores(**facts["scores"])
    own = sorted(name for name in tensors if name.startswith(f"random.{rank()}."))
    set_random_states([tensors[name] for name in own], gradients.device)
    return Progress(**facts["progress"])


def random_states(device: torch.device) -> list[Tensor]:
    """Return the states of the random numbers that training draws from: the CPU's, and the GPU's if it is one."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def set_random_states(states: list[Tensor], device: torch.device) -> None:
    """Restore the states that `random_states` returned."""
    torch.set_rng_state(states[0].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1].cpu(), device)


def result_of(keeper: BestKeeper, progress: Progress, total: int) -> TrainResult:
    """Return the results of a run that was to have `total` steps."""
    scores, dev = keeper.scores, None
    if keeper.dev is not None and scores.best is not None:
        of_set = keeper.dev.name, keeper.dev.metric
        dev = DevScores(*of_set, scores.start, scores.best, scores.best_step, scores.last)
    return TrainResult(
        dev,
        best_step=progress.step if dev is None else dev.best_step,
        steps=progress.step,
        sentences_per_second=progress.speed,
        truncated=progress.truncated,
        train_seconds=progress.seconds,
        eval_seconds=scores.seconds,
        gradient_shares={name: share / progress.measured for name, share in progress.shares.items()} or None,
        ended_early=scores.ended and progress.step < total,
    )
