r"""The training loop, for every method.

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

After any interruption ``--resume`` goes on from the last checkpoint. The rest of a run is a function of the checkpoint:
batches and views follow from (seed, step), all other random numbers from the states that it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sentcli.processes import process_count, rank
from sentcli.training.batches import BatchMaker, Order, to_tensors
from sentcli.training.keeper import BestKeeper
from sentcli.training.memory import keeping_freed_memory
from sentcli.training.state import Observer, RunState, TrainResult

if TYPE_CHECKING:
    from sentcli.methods import Method
    from sentcli.model.tokenizing import TextTokenizer
    from sentcli.training.data import Corpus
    from sentcli.training.keeper import Score
    from sentcli.training.model import TrainingModel
    from sentcli.training.run_folder import RunFolder


def train(
    model: TrainingModel,
    tokenizer: TextTokenizer,
    method: Method,
    corpus: Corpus,
    folder: RunFolder,
    *,
    score: Score | None = None,
    observer: Observer | None = None,
    save_every: int = 0,
) -> TrainResult:
    """Train `model` in place and leave it with the best weights by `score`, else with the last.

    Args:
        model: encoder, head and objectives, on the device to train on.
        tokenizer: cuts to the training length.
        method: its settings and its views.
        corpus: the training text.
        folder: takes the metrics, the checkpoints and the best weights so far; a checkpoint in it is gone on from.
        score: scores an encoder on the dev set; called at step 0, every `eval_every` steps and at the end.
        observer: told of steps and scores.
        save_every: steps between two checkpoints; 0 for none.

    Raises:
        SentcliError: if the loss is not a number, or a checkpoint cannot be written.
    """
    settings = method.settings
    torch.manual_seed(settings.seed + rank())
    order = run_order(model, method, len(corpus.sentences))
    steps = settings.total_steps(order.per_epoch)
    keeper = BestKeeper(model, folder, score, observer, patience=settings.patience, keep_start=settings.keep_start)
    run = RunState(model, method, folder, keeper)
    batches = BatchMaker.of(corpus, tokenizer, method.views, settings, order, rank())
    run.restore()
    if folder.goes_on and observer is not None:
        observer.resumed(run.progress.step, folder.notes)
    if run.progress.step == 0:
        run.keeper.evaluate(0)
    model.train()
    with keeping_freed_memory():
        for made in batches.steps(run.progress.step, steps):
            rate = settings.learning_rate * settings.rate(run.progress.step, steps)
            step = run.step(made, [to_tensors(b, tokenizer.pad_id, method.views.count, run.device) for b in made], rate)
            run.report(step, rate, steps, observer)
            if run.progress.step % settings.eval_every == 0 or run.progress.step == steps:
                run.keeper.evaluate(run.progress.step)
            if run.keeper.stopped:
                break
            if save_every and run.progress.step % save_every == 0 and run.progress.step < steps:
                run.save()
    run.keeper.restore_best()
    model.eval()
    return run.result()


def run_order(model: TrainingModel, method: Method, sentences: int) -> Order:
    """Return which sentences are in which batch of a run, in all its processes."""
    settings = method.settings
    return Order(sentences, settings.batch_size, settings.seed, model.least_rows, process_count())
