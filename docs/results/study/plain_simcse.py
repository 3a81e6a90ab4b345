"""SimCSE from sentcli-bert-mini in plain PyTorch, without sentcli's training: does it lose STS score, too?

    SENTCLI_DATA=data python docs/results/study/plain_simcse.py [--positions absent|shuffled] [--masked 0.4]
        [--pooling mean] [--dropout 0.3]

Prints STS-B dev, Spearman times 100, of the gold scores and of four surface features
(sentcli.evaluation.pair_surface), while a fp32 model trains for 120 steps of 64 sentences of Wikipedia.
"""

import argparse
import os
import random
from pathlib import Path

import torch
from torch.nn.functional import cosine_similarity, cross_entropy, normalize
from transformers import AutoTokenizer, BertModel

from sentcli.evaluation import sts_pairs
from sentcli.evaluation.pair_surface import followed, surface

MODEL = Path(__file__).parents[3] / "models" / "sentcli-bert-mini"
STEPS, BATCH, RATE, TEMPERATURE = 120, 64, 1e-4, 0.05


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", choices=("absolute", "absent", "shuffled"), default="absolute")
    parser.add_argument("--masked", type=float, default=0.0, help="share of the words masked, in each view")
    parser.add_argument("--pooling", choices=("cls", "mean"), default="cls")
    parser.add_argument("--dropout", type=float, default=0.1)
    options = parser.parse_args()

    random.seed(0)
    torch.manual_seed(0)
    data = Path(os.environ["SENTCLI_DATA"])
    lines = (data / "corpus" / "wiki.txt").read_text("utf-8").splitlines()
    random.shuffle(lines)
    pairs = sts_pairs.load_task(data / "senteval", "STSBenchmark", "dev")[0]
    features = {"gold": pairs.gold, **surface(pairs.first, pairs.second)}

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    dropout = {"hidden_dropout_prob": options.dropout, "attention_probs_dropout_prob": options.dropout}
    model = BertModel.from_pretrained(MODEL, dtype=torch.float32, add_pooling_layer=False, **dropout)
    if options.positions == "absent":  # one and the same for all
        table = model.embeddings.position_embeddings.weight
        table.data[:] = table.data[:30].mean(0)
        table.requires_grad_(False)
    head = torch.nn.Sequential(torch.nn.Linear(model.config.hidden_size, model.config.hidden_size), torch.nn.Tanh())

    def vectors(texts: list[str], length: int = 32) -> torch.Tensor:
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt")
        mask = inputs["attention_mask"]
        if model.training and options.masked:
            hit = (torch.rand(mask.shape) < options.masked) & ~torch.isin(
                inputs["input_ids"], torch.tensor(tokenizer.all_special_ids)
            )
            inputs["input_ids"] = inputs["input_ids"].masked_fill(hit, tokenizer.mask_token_id)
        if model.training and options.positions == "shuffled":
            positions = torch.arange(mask.shape[1]).repeat(len(texts), 1)
            for row, size in zip(positions, mask.sum(1).tolist(), strict=True):
                row[1 : size - 1] = 1 + torch.randperm(size - 2)
            inputs["position_ids"] = positions
        states = model(**inputs).last_hidden_state
        if options.pooling == "cls":
            return states[:, 0]
        return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    @torch.no_grad()
    def report(step: int, loss: float | None) -> None:
        model.eval()
        sides = [
            torch.cat([vectors(list(t[i : i + 100]), 128) for i in range(0, len(t), 100)])
            for t in (pairs.first, pairs.second)
        ]
        found = followed(cosine_similarity(*sides).double().numpy(), features)
        shown = f"loss {loss:.4f}" if loss is not None else "start"
        values = "  ".join(f"{name} {value:6.2f}" for name, value in found.items())
        print(f"step {step:3d}  {shown:11s}  {values}", flush=True)
        model.train()

    weights = [p for p in [*model.parameters(), *head.parameters()] if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)
    report(0, None)
    for step in range(1, STEPS + 1):
        batch = lines[(step - 1) * BATCH : step * BATCH]
        one, two = (normalize(head(vectors(batch)), dim=-1) for _ in range(2))
        loss = cross_entropy(one @ two.T / TEMPERATURE, torch.arange(BATCH))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        if step % 30 == 0:
            report(step, loss.item())


if __name__ == "__main__":
    main()
