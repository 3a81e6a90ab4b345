"""Training on a CPU against sentence-transformers' trainer: SimCSE on sentences, MultipleNegativesRanking on triplets.

    SENTCLI_DATA=... python benchmarks/train_speed.py [--runs 5] [--steps 16] [--triplets] [--precision bf16]

The peer is the recipe of its documentation on its newest interface: SentenceTransformerTrainer, pairs of a sentence
with itself, MultipleNegativesRankingLoss, AdamW, no tracking, no evaluation. Ours is the training loop of
`sentcli train` with its metrics file. Both train the same weights on the same sentences, batch 64, length 32, [CLS]
pooling, and each run is a process of its own, so that neither changes the memory allocator or the threads of the other;
loading is left out.

With --triplets the rows are duplicate questions of Quora with another question as the negative, the length is the
model's own, 256, and the pooling its own, the mean; the loss of both is MultipleNegativesRanking without a head.

Claims: >= 1.25 x the peer's sentences/s, >= 1.15 x its triplets/s.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from common import data_folder, machine, report_pairs

BATCH, LENGTH = 64, 32
Columns: TypeAlias = list[list[str]]
"""The sentences alone, or anchors, positives and negatives."""


@dataclass(frozen=True)
class Setup:
    """What both sides train, and on what."""

    model: str = "minilm"
    device: str = "cpu"
    batch: int = BATCH
    precision: str = "fp32"
    method: str = "simcse"
    """Of our side."""
    own_pooling: bool = False
    """Whether the model's own pooling is taken, and not that of [CLS]; so it is for triplets."""
    dropout: float | None = None
    """Of our side; None takes that of the model."""
    peer_bf16: bool = False
    """Whether the peer, too, computes in bf16."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--triplets", action="store_true")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of our side")
    parser.add_argument("--side", choices=("ours", "peer"))
    options = parser.parse_args()
    rows = BATCH * options.steps
    if options.side:
        columns = quora(rows) if options.triplets else [wiki(rows)]
        side = Ours if options.side == "ours" else Peer
        print(side(columns, Setup(precision=options.precision))())
        return
    print(machine())
    choices = {"steps": options.steps, "triplets": options.triplets, "precision": options.precision}
    pairs = [tuple(child(side, **choices) for side in ("ours", "peer")) for _ in range(options.runs)]
    what, unit = ("MultipleNegativesRanking", "triplets") if options.triplets else ("SimCSE", "sentences")
    report_pairs(f"{what}, {options.steps} steps of {BATCH}", pairs, rows, unit)


def child(side, *, steps, triplets=False, precision="fp32"):
    """Return the seconds that a process of its own trained."""
    command = [sys.executable, __file__, "--side", side, "--steps", str(steps), "--precision", precision]
    command += ["--triplets"] * triplets
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def wiki(count):
    with (data_folder() / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
        return [next(handle).rstrip("\n") for _ in range(count)]


def quora(count):
    """Return questions, their duplicates, and other questions."""
    with (data_folder() / "pairs" / "quora_pairs.tsv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))
    first, second = ([row[name] for row in rows] for name in ("question1", "question2"))
    return [first[:count], second[:count], second[count : 2 * count]]


def ours(method, sentences):
    """Return a function that trains on all sentences once, in batches of BATCH in their order."""
    import torch

    from sentcli.model.torch_backend import text_tokenizer
    from sentcli.training.batches import TrainingBatch, to_tensors
    from sentcli.training.data import TrainingSentences
    from sentcli.training.gradients import Gradients, keep_freed_memory
    from sentcli.training.prepare import load_start, make_model

    keep_freed_memory()
    encoder, _ = load_start(method, "minilm", device="cpu")
    model = make_model(method, encoder).train()
    gradients = Gradients(model, method.settings)
    tokenizer = text_tokenizer(encoder.hf_tokenizer, encoder.spec, LENGTH)
    corpus = TrainingSentences((sentences,), (), 0)

    def run():
        import numpy as np

        for start in range(0, len(sentences), BATCH):
            texts = method.views.texts(list(range(start, start + BATCH)), corpus, np.random.default_rng(start))
            batch = TrainingBatch([tokenizer(view) for view in texts.views], texts)
            gradients.collect([to_tensors(batch, tokenizer.pad_id, method.views.count, torch.device("cpu"))])
            gradients.apply(method.settings.learning_rate)

    return run


class Ours:
    """The loop of `sentcli train` on the columns; each call trains on them once and returns the seconds."""

    def __init__(self, columns: Columns, setup: Setup) -> None:
        from sentcli.training.prepare import prepare
        from sentcli.training.request import TrainRequest

        self.folder = tempfile.TemporaryDirectory()
        names = ("anchor", "positive", "negative")
        data = Path(self.folder.name) / ("data.csv" if len(columns) > 1 else "text.txt")
        with data.open("w", encoding="utf-8", newline="") as handle:
            if len(columns) > 1:
                csv.writer(handle).writerows([names, *zip(*columns, strict=True)])
            else:
                handle.write("\n".join(columns[0]))
        pooling = "own" if setup.own_pooling or len(columns) > 1 else "cls"
        request = TrainRequest(
            setup.method, setup.model, [str(data)], Path(self.folder.name) / "m", pooling=pooling, device=setup.device
        )
        length = {} if len(columns) > 1 else {"max_length": LENGTH}
        wanted = {"batch_size": setup.batch, "precision": setup.precision, "epochs": 1, **length}
        if setup.dropout is not None:
            wanted["dropout"] = setup.dropout
        settings = [(f"settings.{name}", value) for name, value in wanted.items()]
        self.run = prepare(replace(request, assignments=settings))

    def __call__(self) -> float:
        """Return the seconds of the training."""
        from sentcli.training import loop
        from sentcli.training.run_folder import RunFolder

        run = self.run
        folder = RunFolder(Path(tempfile.mkdtemp(dir=self.folder.name)), run.identity())
        began = time.perf_counter()
        second = run.second_tokenizer
        loop.train_model(
            run.model, run.tokenizer, run.method, run.corpus, folder, prompts=run.prompts, second_tokenizer=second
        )
        wait_for_gpu()
        taken = time.perf_counter() - began
        folder.close()
        return taken


class Peer:
    """The trainer of sentence-transformers, as its documentation has it, on the columns."""

    def __init__(self, columns: Columns, setup: Setup) -> None:
        from datasets import Dataset
        from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

        from sentcli.zoo import resolve

        folder = str(resolve(setup.model)[0])
        if setup.own_pooling or len(columns) > 1:
            self.model = SentenceTransformer(folder, device=setup.device)
        else:
            transformer = Transformer(folder, max_seq_length=LENGTH)
            pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="cls")
            self.model = SentenceTransformer(modules=[transformer, pooling], device=setup.device)
        if len(columns) == 1:
            self.model.max_seq_length = LENGTH
        names = ("anchor", "positive", "negative")
        self.data = Dataset.from_dict(dict(zip(names, columns if len(columns) > 1 else columns * 2, strict=False)))
        self.output = tempfile.TemporaryDirectory()
        self.arguments = SentenceTransformerTrainingArguments(
            output_dir=self.output.name, num_train_epochs=1, per_device_train_batch_size=setup.batch,
            learning_rate=3e-5, report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
            use_cpu=setup.device == "cpu", bf16=setup.peer_bf16,
        )  # fmt: skip

    def __call__(self) -> float:
        """Return the seconds of the training as the trainer counts them, without what it does once for its card."""
        from sentence_transformers import SentenceTransformerTrainer
        from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
        from transformers import PrinterCallback

        loss = MultipleNegativesRankingLoss(self.model)
        trainer = SentenceTransformerTrainer(model=self.model, args=self.arguments, train_dataset=self.data, loss=loss)
        trainer.remove_callback(PrinterCallback)
        return trainer.train().metrics["train_runtime"]


def wait_for_gpu() -> None:
    """Wait until a GPU, if there is one, has done what is queued."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
