"""Training: settings, data, the loop, and the folder that it fills.

`training/loop.py` is the loop, for all methods; one reads it from top to bottom. `train_model` is the step as it goes
by; `BestKeeper` (evaluation, the best weights) stands below it, `Gradients` (forward, backward, the gradient cache, the
scaler, clipping, the optimisers) in `gradients.py`, `StepReports` (checks and logs the numbers) in `reports.py`, and
what a checkpoint holds in `checkpoints.py`. A batch goes through four files:

    batches.py          B sentences -> the texts of m views (copies, a masked span, pairs), tokenised, cut, padded;
                          few view makers change the tokens as well
    training_model.py   encode_views: one pass of the encoder over m*B rows; dropout makes equal texts differ;
                          the attention weights of the layers that an objective asked for are recorded on the way
                          -> head (training only), before which the vector of a template alone is subtracted
                          -> vectors [m, B, d], before and after the head
    objectives/*.py     losses: each objective on the views -> one number; total = sum of weight times value
    gradients.py        backward; with accumulate, again for the next batch; mean over the processes
                          -> clip the gradient, optimiser step; reports.py writes one line to metrics.jsonl

An objective that works on masked text makes its own masked copy and runs the encoder again; a method that has no other
kind skips the pass over the views. One with memory moves it inside its call, in the order of the reference code: the
momentum encoder, the loss with the old queue, then the queue.

A GPU computes what the program has queued, and is idle while the program waits for it and then queues anew. So nothing
in a step looks at a value on the GPU (`model/ahead.py`): batches come from pinned memory, and the loss and the norm of
the gradient are read when the next step has been queued. That weights never become NaN is then the optimiser's part:
torch's fused AdamW leaves out a step on the GPU where a tensor says so, as it does for a scaler of half precision.
RMSprop cannot, so its numbers are read before its step, as on a CPU. `tests/training/test_loop.py` counts on a CPU
what would wait in a step of each method.

The next step's batches are tokenised while the current one is trained on. `training/batches.py` makes the batches of
any step: order and views depend only on the seed and the step. `training/data.py` reads what is trained on.
`training/options.py` declares the groups of options; a `TrainRequest` holds them as they are. `training/prepare.py`
prepares a run completely, model included, before `RunFolder` touches the disk; it also tries the encoder once, to find
out before the training that a model gives no attention or has no dropout; what it tells the user about data and
settings is in `training/notes.py`. `training/run.py` takes it from there to the finished folder and its README;
`training/observer.py` is what the command line and the trackers are told.

The rest of a run is a function of its checkpoint: batches and views follow from the seed and the step, all other random
numbers from the generators' states that it holds. So there is no sampler whose position would have to be saved.
`training/checkpoints.py` takes and restores the state of a run, writes two files that appear whole or not at all, and
reads the newest that is whole. `Prepared.identity` is everything that decides the weights; `run.json` keeps it for
`--resume`, and its digest is the key of `results.jsonl`; a test computes the digests of the study's kept lines anew. A
new setting that changes the weights has to be a field of a method's section or of `Settings`: then both know it.

All that processes share goes through `processes.py`, where every function leaves its argument as it is if there is one
process. The first process writes; `everywhere` makes an error of one the error of all, said once. A loss that compares
sentences calls `gather`; gradients flow back through it.

accelerate is no dependency; its launcher works, as `torchrun` does, because both only set environment variables. Its
`Accelerator` was left out for two reasons. It keeps its state for the whole process, and a sweep trains many runs of
different precision in one. And it wraps the model in `DistributedDataParallel`, which averages at every backward pass,
while a step with cached gradients makes many of them and wants one mean at the end. So `precision.py` uses
`torch.autocast`, `gradients.py` torch's `GradScaler`, and `average_gradients` an `all_reduce` of its own after the last
backward pass. The price is that the exchange does not overlap with it.
"""
