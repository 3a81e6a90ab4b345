"""SimCSE steps on a CPU, against a plain loop around sentence-transformers' model with the same batches.

    SENTCLI_DATA=... python benchmarks/train_speed.py [--runs 5] [--steps 8]

The peer: SentenceTransformer forward on two copies of each batch, tanh head, InfoNCE, AdamW, clipping. Both sides run
the same 64 sentences at length 32 in the same order from the same weights.

Claim: >= 1.0 x the peer's step rate.
"""

import argparse

import torch
from accelerate import Accelerator
from common import compare, data_folder, machine
from sentence_transformers import SentenceTransformer
from torch.nn import functional

from sentcli import SentenceEncoder
from sentcli.encoder.torch_backend import text_tokenizer
from sentcli.methods import METHODS, Method
from sentcli.training.data import Corpus, tokenised_batches
from sentcli.training.loop import make_optimizer, to_tensors
from sentcli.training.run import load_encoder, make_model

BATCH, LENGTH = 64, 32


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    sentences = wiki(BATCH * options.steps)
    print(machine())
    compare(
        f"SimCSE, {options.steps} steps of {BATCH}", ours(METHODS["simcse"], sentences), peer(sentences, options.steps),
        len(sentences), "sentences", options.runs,
    )  # fmt: skip


def wiki(count):
    with (data_folder() / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
        return [next(handle).rstrip("\n") for _ in range(count)]


def ours(method: Method, sentences):
    """Return a function that trains on all sentences once, in batches of BATCH in their order."""
    encoder, _ = load_encoder(method, "minilm", device="cpu")
    model = make_model(method, encoder).train()
    optimizer, schedule = make_optimizer(model, method.settings, 10**6)
    accelerator = Accelerator(cpu=True)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    tokenizer, _ = text_tokenizer(encoder.hf_tokenizer, encoder.spec, LENGTH)
    corpus, steps = Corpus(sentences, (), 0), len(sentences) // BATCH

    def run():
        batches = iter(list(range(i * BATCH, (i + 1) * BATCH)) for i in range(steps))
        for batch in tokenised_batches(corpus, tokenizer, batches, steps, method.views):
            loss, _ = model(to_tensors(batch, tokenizer.pad_id, method.views.count, torch.device("cpu")))
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            loss.item()

    return run


def peer(sentences, steps):
    folder = SentenceEncoder.load("minilm", device="cpu").spec.folder
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = LENGTH
    model.train()
    transformer = model[0]
    head = torch.nn.Sequential(torch.nn.Linear(384, 384), torch.nn.Tanh())
    parameters = [*transformer.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-5, weight_decay=0.0)

    def run():
        for i in range(steps):
            batch = sentences[i * BATCH : (i + 1) * BATCH]
            features = model.preprocess(batch)
            views = [head(transformer(dict(features))["token_embeddings"][:, 0]) for _ in range(2)]
            first, second = (functional.normalize(view, dim=-1) for view in views)
            loss = functional.cross_entropy(first @ second.T / 0.05, torch.arange(BATCH))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            loss.item()

    return run


if __name__ == "__main__":
    main()
