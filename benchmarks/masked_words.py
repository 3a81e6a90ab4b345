"""Memory of the word head: the scores of masked words in parts, and those of a whole batch at once.

    python benchmarks/masked_words.py [--rows 64] [--tokens 64] [--steps 40] [--whole]

Runs forward and backward passes of the loss on random states of minilm's width, 15 % of the positions masked, and
prints by how much the peak of the process grows. The number of masked words differs from step to step, and training
keeps freed memory, so the peak grows over the steps, too.
"""

import argparse
import resource
import time

import torch
from common import machine
from transformers import BertConfig, BertModel

from sentcli.objectives import masked_lm
from sentcli.training.gradients import keep_freed_memory

WIDTH, WORDS, RATE = 384, 30522, 0.15


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    print(machine())
    if options.whole:
        masked_lm.WORD_SCORES = 2**60
    torch.manual_seed(0)
    config = BertConfig(hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=12, vocab_size=WORDS)
    backbone = BertModel(config, add_pooling_layer=False)
    head = masked_lm.LMHead(backbone, tied=True)
    keep_freed_memory()
    before, began = peak(), time.perf_counter()
    for step in range(1, options.steps + 1):
        masked = int((torch.rand(options.rows, options.tokens) < RATE).sum())
        states = torch.randn(masked, WIDTH, requires_grad=True)
        masked_lm.masked_loss(head, states, torch.randint(WORDS, (masked,)), backbone).backward()
        if step == 1 or step % 10 == 0:
            print(f"step {step}: {peak() - before:,.0f} MB", flush=True)
    print(f"{(time.perf_counter() - began) / options.steps:.2f} s a step")


def peak() -> float:
    """Return the peak resident set of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
