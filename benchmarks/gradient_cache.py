"""Memory and gradients of gradient caching: a batch of 4,096 against a batch of 64 at once.

    SENTCLI_DATA=... python benchmarks/gradient_cache.py [--batch 4096] [--mini 64]

Each side makes two optimiser steps of SimCSE from minilm, length 32, in a process of its own, and reports its peak
resident set and the time of the second. The gradient of a cached batch is then compared with that of the same batch at
once, without dropout, in float64, on a batch that fits.

Claim: batch 4,096 in the memory of batch 64 plus 20 %; gradients equal to 1e-6.
"""

import argparse
import subprocess
import sys
import time

from common import machine

from sentcli.methods import METHODS, configure


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--mini", type=int, default=64)
    parser.add_argument("--side", nargs=2, type=int)
    options = parser.parse_args()
    if options.side:
        print(*peak(*options.side))
        return
    print(machine())
    whole, cached = child(options.mini, 0), child(options.batch, options.mini)
    for name, (megabytes, seconds) in {
        f"batch {options.mini} at once": whole,
        f"batch {options.batch} cached": cached,
    }.items():
        print(f"{name}: peak {megabytes:,.0f} MB, {seconds:.1f} s a step")
    print(f"  ratio {cached[0] / whole[0]:.2f} of the memory")
    print(f"largest difference of a gradient, relative to the largest gradient: {difference(256, 32):.1e}", flush=True)


def child(batch, mini):
    command = [sys.executable, __file__, "--side", str(batch), str(mini)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return tuple(float(value) for value in done.stdout.split()[-2:])


def made(batch, mini, *, steps=1, **settings):
    """Return a `Gradients` and the model inputs of some steps."""
    import torch
    from train_speed import LENGTH, wiki

    from sentcli.model.torch_backend import text_tokenizer
    from sentcli.training.batches import TrainingBatch, to_tensors
    from sentcli.training.data import TrainingSentences
    from sentcli.training.gradients import Gradients, keep_freed_memory
    from sentcli.training.prepare import load_start, make_model, seed_everything

    keep_freed_memory()
    method = configure(METHODS["simcse"], [("batch_size", batch), ("mini_batch_size", mini), *settings.items()])
    seed_everything(1)
    encoder, _ = load_start(method, "minilm", device="cpu")
    model = make_model(method, encoder).train()
    tokenizer = text_tokenizer(encoder.hf_tokenizer, encoder.spec, LENGTH)
    corpus = TrainingSentences((wiki(batch * steps),), (), 0)
    inputs = []
    for step in range(steps):
        texts = method.views.texts(list(range(step * batch, (step + 1) * batch)), corpus, None)
        tokens = TrainingBatch([tokenizer(view) for view in texts.views], texts)
        inputs.append(to_tensors(tokens, tokenizer.pad_id, 2, torch.device("cpu")))
    return Gradients(model, method.settings), inputs


def peak(batch, mini):
    """Return the peak resident set in megabytes and the seconds of a step; two steps, so that Adam has its state."""
    import resource

    gradients, inputs = made(batch, mini, steps=2)
    for number, one in enumerate(inputs):
        if number == 1:
            began = time.perf_counter()
        gradients.collect([one])
        gradients.apply(gradients.settings.learning_rate)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.perf_counter() - began


def difference(batch, mini):
    """Return the largest difference between the gradients of a batch at once and cached."""
    found = []
    for size in (0, mini):
        gradients, inputs = made(batch, size, dropout=0.0, clip_norm=0)
        gradients.model.double()
        gradients.collect(inputs)
        found.append({name: p.grad for name, p in gradients.model.named_parameters() if p.grad is not None})
    largest = max(float(gradient.abs().max()) for gradient in found[0].values())  # some are 0 by nature: keys' biases
    return max(float((found[1][name] - gradient).abs().max()) for name, gradient in found[0].items()) / largest


if __name__ == "__main__":
    main()
