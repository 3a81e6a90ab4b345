"""Evaluations' share of a training with a retrieval set for development, with and without ``--dev-limit``.

    SENTCLI_DATA=... python benchmarks/dev_share.py [--model sentcli-bert-mini] [--set scifact] [--limit 50]

Titles and bodies of the set's corpus, 90 steps of 32; three evaluations: before the first step, in the middle and at
the end.
"""

import argparse
import tempfile
from pathlib import Path

from common import data_folder, machine

import sentcli


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="sentcli-bert-mini")
    parser.add_argument("--set", default="scifact")
    parser.add_argument("--limit", type=int, default=50)
    options = parser.parse_args()
    print(machine())
    folder = data_folder() / "retrieval" / options.set
    for limit in (None, options.limit):
        with tempfile.TemporaryDirectory() as output:
            result = sentcli.train(
                output=Path(output) / "model", method="simcse", model=options.model, pooling="mean", dev=[folder],
                data=[folder / "corpus.jsonl"], pair_fields="title,text", batch_size=32, max_steps=90, eval_every=45,
                learning_rate=1e-4, save_every=0, dev_limit=limit,
            )  # fmt: skip
        taken = result.to_dict()["results"]
        dev, training, evaluations = taken["dev"], taken["train_seconds"], taken["eval_seconds"]
        share = evaluations / (evaluations + training)
        said = f"--dev-limit {limit}" if limit else "all queries and documents"
        print(
            f"{said}: training {training:.0f} s, evaluations {evaluations:.0f} s ({share:.0%}); "
            f"nDCG@10 {dev['start']:.4f} -> {dev['best']:.4f} at step {dev['best_step']}"
        )


if __name__ == "__main__":
    main()
