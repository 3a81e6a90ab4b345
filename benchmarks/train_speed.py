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
from sentcli.methods.simcse import SimCSE
from sentcli.training.data import tokenised_batches
from sentcli.training.loop import TrainingModel, make_optimizer, to_tensors

BATCH, LENGTH = 64, 32


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    with (data_folder() / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
        sentences = [next(handle).rstrip("\n") for _ in range(BATCH * options.steps)]
    print(machine())
    compare(
        f"SimCSE, {options.steps} steps of {BATCH}", ours(sentences, options.steps), peer(sentences, options.steps),
        len(sentences), "sentences", options.runs,
    )  # fmt: skip


def ours(sentences, steps):
    encoder = SentenceEncoder.load("minilm", device="cpu", pooling="cls")
    method = SimCSE()
    model = TrainingModel(encoder.torch_module, method, encoder.dimension).train()
    optimizer, schedule = make_optimizer(model, method.settings(), 10**6)
    accelerator = Accelerator(cpu=True)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    tokenizer, _ = text_tokenizer(encoder.hf_tokenizer, encoder.spec, LENGTH)

    def run():
        batches = iter(list(range(i * BATCH, (i + 1) * BATCH)) for i in range(steps))
        for tokens in tokenised_batches(sentences, tokenizer, batches, steps):
            loss, _ = model(to_tensors(tokens, tokenizer.pad_id, method.views, torch.device("cpu")))
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
