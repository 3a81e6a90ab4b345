"""Run by the tests in several processes: one step of a method on given rows; writes loss, gradients and state."""

import json
import sys

import numpy as np
import torch

from sentcli.methods import METHODS, configure
from sentcli.model.torch_backend import text_tokenizer
from sentcli.processes import is_first, joined_processes, process_count, rank
from sentcli.training.batches import BatchMaker, Order
from sentcli.training.data import read_corpus
from sentcli.training.gradients import Gradients
from sentcli.training.prepare import load_start, make_model, seed_everything
from sentcli.training.targets import Targets

WIDTH = 24
"""The dimension of a teacher's vectors, which are random."""


def main(cases, model_folder, text, out, batch, steps, device):
    """Train a few steps of each case without dropout and keep everything that could differ."""
    torch.set_default_dtype(torch.float64)
    with joined_processes(device) as own:
        settings = model_folder, text, batch, steps
        found = {name: train(method, *settings, given, own) for name, (method, given) in cases.items()}
        if is_first():
            torch.save(found, out)


def train(method, model_folder, text, batch, steps, settings, device):
    """Return losses, norms and the last gradients of some steps, and the state after them."""
    chosen = configure(METHODS[method], [*settings.items(), ("batch_size", batch), ("dropout", 0.0)])
    seed_everything(1)
    encoder, _ = load_start(chosen, model_folder, device=device)
    widths = (WIDTH,) if any(term.teacher for term in chosen.objectives.values()) else ()
    model = make_model(chosen, encoder, widths).double().train()
    gradients = Gradients(model, chosen.settings)
    tokenizer = text_tokenizer(encoder.hf_tokenizer, encoder.spec, 20)
    corpus = read_corpus([text])
    order = Order(len(corpus.sentences), batch, 0, model.least_rows, process_count())
    targets = None
    if widths:
        rows = len(corpus.sentences)
        vectors = np.random.default_rng(0).standard_normal((rows, WIDTH))
        targets = Targets((vectors,), np.arange(rows)[None])
    maker = BatchMaker(corpus, tokenizer, order, chosen.views, rank=rank(), targets=targets)
    torch.manual_seed(5)  # a shuffle of columns is the only draw
    losses, norms = [], []
    for _, tensors in maker.steps(0, steps, gradients.device):
        values, norm, _ = gradients.collect(tensors)
        losses.append(values["loss"])
        norms.append(norm)
        kept = {name: p.grad.clone().cpu() for name, p in model.named_parameters() if p.grad is not None}
        gradients.apply(chosen.settings.learning_rate)
    return {"losses": losses, "norms": norms, "gradients": kept, "state": model.cpu().state_dict()}


if __name__ == "__main__":
    cases, model_folder, text, out, batch, steps, device = sys.argv[1:]
    main(json.loads(cases), model_folder, text, out, int(batch), int(steps), device)
