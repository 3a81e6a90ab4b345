r"""The training loop, for every method. One step, from top to bottom, is `train_model`; what it calls stands below it.

    one process    sentcli train --method simcse --model minilm --data text.txt -o out
    one GPU        sentcli train ... --device cuda --set precision=bf16
    one node       torchrun --nproc-per-node 8 -m sentcli train ...
    two nodes      torchrun --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr HOST --master-port 29500 \
                       -m sentcli train ...           and the same with --node-rank 1 on the second
    accelerate     accelerate launch --multi-gpu --num-processes 8 -m sentcli train ...

A step: the texts of m views of B sentences, tokenised; one encoder pass over all m*B rows (dropout makes the views
differ where the texts do not); the head; each objective on the views; the weighted sum backward, clip, optimiser step.
A GPU is never left without work: the next step is queued before the numbers of this one are looked at.

N processes of batch b make the step of one process of batch N * b: the vectors of all are gathered where a loss, a
queue or a statistic wants them, and the gradients are averaged. The first process alone writes.

After any interruption ``--resume`` continues from the last checkpoint. The rest of a run is a function of it: batches
and views follow from (seed, step), all other random numbers from the states that it holds.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from sentcli import console
from sentcli.processes import agree, is_first, process_count, rank
from sentcli.training.batches import BatchMaker, Order
from sentcli.training.checkpoints import RunProgress, Scores, restore, run_bytes, snapshot
from sentcli.training.gradients import Gradients, keeping_freed_memory
from sentcli.training.observer import DevScores, TrainResult, collapse
from sentcli.training.reports import Step, StepReports
from sentcli.training.targets import Targets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sentcli.methods import Method
    from sentcli.methods.method import Settings
    from sentcli.model.tokenizing import TextTokenizer
    from sentcli.model.torch_model import TorchEncoder
    from sentcli.training.data import TrainingSentences
    from sentcli.training.dev import DevSet
    from sentcli.training.observer import Observer
    from sentcli.training.run_folder import RunFolder
    from sentcli.training.teachers import Teacher
    from sentcli.training.training_model import TrainingModel

    Score = Callable[[TorchEncoder, bool], Mapping[str, float | None]]

LOOK_EVERY = 25
"""Steps between two looks at how far vectors are apart; a look takes less than a tenth of a step."""


def train_model(
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
    second_tokenizer: TextTokenizer | None = None,
    dev: DevSet | None = None,
    teachers: Sequence[Teacher] = (),
) -> TrainResult:
    """Train `model` in place; afterwards it has the weights with the best `score`, or the last ones without `score`.

    Args:
        model: encoder, head and objectives, on the device to train on.
        tokenizer: cuts to the training length.
        method: gives the settings and makes the views.
        corpus: the training text.
        folder: receives the metrics, the checkpoints and the best weights so far; a checkpoint in it is continued.
        score: scores an encoder on the dev sets, given whether it is the start; called at step 0, every `eval_every`
            steps and at the end.
        observer: is told of every step and score.
        save_every: the number of steps between two checkpoints; 0 writes none.
        prompts: the prompt in front of the texts of each view; none if it is empty.
        second_tokenizer: cuts the texts of the views after the first, where they have another template.
        dev: the dev set that decides which weights are best; None keeps the last ones.
        teachers: give the targets of objectives that learn from one.

    Raises:
        SentcliError: if the loss is not a number, or a checkpoint cannot be written.
    """
    settings = method.settings
    torch.manual_seed(settings.seed + rank())
    order = run_order(model, settings, len(corpus.sentences))
    total = settings.total_steps(order.per_epoch)
    maker = _batch_maker(method, corpus, order, tokenizer, second_tokenizer, prompts)
    gradients = Gradients(model, settings)
    progress = RunProgress()
    scores = Scores()
    if folder.checkpoint is not None:
        progress, scores = restore(folder.checkpoint, gradients)
    else:
        saves = (total - 1) // (save_every or total)
        folder.require_room(run_bytes(gradients, saves, keeps_best=dev is not None))
    keeper = BestKeeper(model, folder, score, observer, settings, dev, scores, progress)
    if folder.resumed and observer is not None:
        observer.resumed(progress.step, folder.notes)
    if progress.step == 0:
        keeper.evaluate(0)
    if teachers:
        rows = maker.rows_of(progress.step, total)
        maker = replace(maker, targets=Targets.of(teachers, method, corpus, rows))
    reports = StepReports(folder, observer, progress, gradients, total)
    steps = maker.steps(progress.step, total, gradients.device)
    model.train()
    with keeping_freed_memory():
        began = time.perf_counter()
        for step, (batches, inputs) in enumerate(steps, progress.step + 1):
            rate = settings.learning_rate * settings.rate(step - 1, total)
            measure = settings.share_every > 0 and (step == 1 or step % settings.share_every == 0)
            look = step in (1, total) or step % LOOK_EVERY == 0

            # forward, backward, mean over batches and processes, clip
            numbers = gradients.queue(inputs, measure=measure, look=look)
            reports.add(Step(step, rate, batches, numbers))  # stops if a loss or gradient is not finite

            gradients.apply(rate)
            progress.seconds += time.perf_counter() - began
            reports.log()

            is_scored = step == total or step % settings.eval_every == 0
            is_saved = step < total and save_every > 0 and step % save_every == 0
            if is_scored or is_saved:
                reports.finish()
            if is_scored:
                keeper.evaluate(step)
            if keeper.stopped:
                break
            if is_saved:
                folder.save_checkpoint(snapshot(gradients, progress, keeper.scores))
            began = time.perf_counter()
    keeper.restore_best()
    model.eval()
    return result_of(keeper, progress, total)


def _batch_maker(
    method: Method,
    corpus: TrainingSentences,
    order: Order,
    tokenizer: TextTokenizer,
    second_tokenizer: TextTokenizer | None,
    prompts: tuple[str, ...],
) -> BatchMaker:
    """Return what makes the batches of any step, of this process's rows."""
    return BatchMaker(
        corpus=corpus,
        tokenizer=tokenizer,
        order=order,
        views=method.views,
        accumulate=method.settings.accumulate,
        group_by_length=method.settings.group_by_length,
        rank=rank(),
        prompts=prompts,
        second_tokenizer=second_tokenizer,
    )


def run_order(model: TrainingModel, settings: Settings, sentences: int) -> Order:
    """Return the order in which a run with these settings sees its sentences, over all processes."""
    return Order(sentences, settings.batch_size, settings.seed, model.least_rows, process_count())


@dataclass
class BestKeeper:
    """Scores the encoder during training and keeps the best weights on disk, those of the better one of two encoders.

    With several processes, the first one scores and the others wait.
    """

    model: TrainingModel
    folder: RunFolder
    score: Score | None
    """Scores an encoder, given whether it is the start; None keeps the last weights."""
    observer: Observer | None
    settings: Settings
    dev: DevSet | None
    """The dev set that decides which weights are best."""
    scores: Scores = field(default_factory=Scores)
    progress: RunProgress = field(default_factory=RunProgress)
    """Learns where there is no score, because the vectors are equal or not finite."""

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
        by_encoder = {}
        for number, encoder in self.model.candidates().items():
            by_encoder[number] = self.score(encoder, step == 0)
        self.model.train()
        if self.dev is None:
            values = by_encoder[max(by_encoder)]
            best = None
        else:
            key = self.dev.key
            number = max(by_encoder, key=lambda n: _comparable(by_encoder[n][key]))
            values = by_encoder[number]
            has_collapsed = values[key] is None
            if has_collapsed or not self.model.has_spread:
                self.progress.look(step, collapsed=has_collapsed)
            best = self._compare(step, values[key], number)
        line = {"step": step, **values}
        if best is not None:
            line["best"] = best
        self.folder.log(line)
        if self.observer is not None and self.observer.scored(step, values, bool(best)):
            self.scores.ended = True

    def _compare(self, step: int, score: float | None, encoder: int) -> bool:
        """Take the score of an encoder, given by its number; if it is the best so far, keep the weights.

        The score of the start counts only if its weights may be kept, and no score is less than any.
        """
        scores = self.scores
        scores.last = score
        scores.last_step = step
        if step == 0:
            scores.start = score
            if not self.settings.keep_start:
                return False
        if score is not None and score > _comparable(scores.best):
            scores.since_best = 0
            scores.best = score
            scores.best_step = step
            scores.best_candidate = encoder
            self.folder.checkpoints.keep_best(self.model.products(encoder), step)
            return True
        scores.since_best += 1
        return False

    @property
    def stopped(self) -> bool:
        """Whether the run ends: as many scores as the patience allows were no new best one, or the observer says so."""
        patience = self.settings.patience
        is_out_of_patience = patience > 0 and self.scores.since_best >= patience
        return self.scores.ended or is_out_of_patience

    def restore_best(self) -> None:
        """Load the best weights into the first encoder; without scores, those of the encoder that the method keeps."""
        scores = self.scores
        if scores.best is None:
            self.model.keep_candidate()
            return
        has_best = scores.last_step == scores.best_step and scores.best_candidate == 0
        if is_first() and not has_best:
            self.folder.checkpoints.load_best(self.model.products(0), scores.best_step)


def _comparable(score: float | None) -> float:
    """Return a score, or where there is none what is less than any."""
    if score is None:
        return -math.inf
    return score


def result_of(keeper: BestKeeper, progress: RunProgress, total: int) -> TrainResult:
    """Return the results of a run that was to have `total` steps."""
    scores = keeper.scores
    dev = None
    best_step = progress.step
    if scores.best is not None:
        best_step = scores.best_step
    if keeper.dev is not None:
        dev = DevScores(
            name=keeper.dev.name,
            metric=keeper.dev.metric,
            start=scores.start,
            best=scores.best,
            best_step=best_step,
            final=scores.last,
        )
    if progress.collapsed_step is not None:
        kept = "the model has these vectors"
        if best_step < progress.collapsed_step:
            kept = f"the model has the weights of step {best_step}"
        console.warn(f"the training {collapse(progress.collapsed_step)}; {kept}. Try a lower --learning-rate")
    elif progress.without_gradient > progress.step / 2:
        console.warn(
            f"the gradient was 0 in {progress.without_gradient:,} of {progress.step:,} steps, in which nothing was "
            "learned: all pairs of the data may have one score or label"
        )
    shares = {name: share / progress.measured for name, share in progress.shares.items()}
    return TrainResult(
        dev,
        best_step=best_step,
        steps=progress.step,
        sentences_per_second=progress.speed,
        truncated=progress.truncated,
        train_seconds=progress.seconds,
        eval_seconds=scores.seconds,
        gradient_shares=shares or None,
        ended_early=scores.ended and progress.step < total,
        without_gradient=progress.without_gradient,
        collapsed_step=progress.collapsed_step,
    )
