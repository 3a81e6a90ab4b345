"""The development sets of a run: scored at step 0, every `eval_every` steps and at the end; the first one decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sentcli.errors import InputError
from sentcli.evaluation import sts
from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask, Task, for_model
from sentcli.evaluation.labelled_data import LEAST_TEXTS_OF_A_CLASS, load_tasks
from sentcli.evaluation.labelled_tasks import TableTask
from sentcli.evaluation.pair_geometry import pair_geometry
from sentcli.evaluation.retrieval_tasks import RetrievalTask, SetSearch, sampled
from sentcli.evaluation.stores import digest
from sentcli.io.labelled_kinds import head
from sentcli.io.labelled_records import columns_of
from sentcli.io.places import is_remote
from sentcli.io.sources import open_source
from sentcli.model.tokenizing import pad
from sentcli.objectives.masked_lm import IGNORED, WordPrediction, masked_loss
from sentcli.training.observer import STSB_DEV, dev_title, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.model.tokenizing import TextTokenizer
    from sentcli.model.torch_model import TorchEncoder
    from sentcli.training.request import TrainRequest
    from sentcli.training.training_model import TrainingModel

SAMPLE_SEED = 1


@dataclass(frozen=True)
class DevSet:
    """A set with a metric by which weights are compared."""

    name: str
    metric: str
    key: str
    """The name of the score in ``metrics.jsonl``."""
    task: Task
    texts: Sequence[str] = ()
    """The texts that should not be trained on: those of tables, and the queries of retrieval sets."""

    def shown(self, score: float) -> str:
        """Return a score with its name, for messages."""
        return f"{dev_title(self.name, self.metric)} {shown(self.metric, score)}"


def read_dev(request: TrainRequest) -> tuple[DevSet, ...]:
    """Read the dev sets of a run: its own ones, and then STS-B dev of ``--eval-data``.

    Raises:
        InputError: if two of them have the same name, or as `labelled_data.load_tasks`.
    """
    sets: list[DevSet] = []
    evaluation = request.evaluation
    for file in evaluation.dev or []:
        fields = _fields(request.data.pair_fields, file)
        for task in load_tasks([file], kind=evaluation.kind, fields=fields, draws=0):
            metric = task.kind.main
            sets.append(DevSet(task.name, metric, f"{task.name if sets else 'dev'}_{metric}", task, tested_texts(task)))
    if evaluation.eval_data is not None:
        name, metric = STSB_DEV
        stsb = sts.SimilarityTask(name, sts.load_tasks(evaluation.eval_data, [name], "dev")[name])
        sets.append(DevSet(name, metric, f"{name if sets else 'dev'}_{metric}", stsb, stsb.texts))
    names = [dev.name for dev in sets]
    if twin := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"--dev: two sets are called {twin}: rename one")
    return tuple(sets)


def _fields(fields: str | None, file: str) -> str | None:
    """Return the columns of ``--pair-fields`` if a file has them; it may be of another kind than the training data."""
    if fields is None or not (is_remote(file) or Path(file).is_file()):
        return None
    source = open_source(file)
    present = [] if source.format == "txt" else columns_of(source, fields)
    return fields if set(map(head, fields.split(","))) <= set(map(head, present)) else None


def tested_texts(task: OwnTask) -> Sequence[str]:
    """Return the texts that a model should not have been trained on: those of a table, or the queries of a set."""
    return list(task.data.queries.values()) if isinstance(task, RetrievalTask) else task.all_texts


def limited(sets: Sequence[DevSet], limit: int, start: str) -> tuple[DevSet, ...]:
    """Return the dev sets with a fixed sample of their items; STS-B dev of ``--eval-data`` stays whole.

    Args:
        sets: the dev sets.
        limit: the largest number of rows, or of queries.
        start: the start model, whose best hits are in the sample of a retrieval set.
    """
    return tuple(replace(dev, task=_sample(dev.task, limit, start)) for dev in sets)


def _sample(task: Task, limit: int, start: str) -> Task:
    if isinstance(task, RetrievalTask) and len(task.data.queries) > limit:
        sample = sampled(task.data, _rows(len(task.data.queries), limit), start)
        return replace(task, search=SetSearch(sample, task.search.options))
    if isinstance(task, TableTask) and len(task) > limit:
        return task.of_rows(_rows(len(task), limit, task.table.values))
    if isinstance(task, sts.SimilarityTask) and task.ends is not None and len(task) > limit:
        return task.of_rows(_rows(len(task), limit))
    return task


def _rows(total: int, limit: int, classes: Sequence[Any] | None = None) -> list[int]:
    """Return the rows of the sample, which is the same in every run.

    Args:
        total: the number of all rows.
        limit: the size of the sample; with `classes` it may be a little larger.
        classes: the label of each row: each has its share of the sample, and enough rows to be scored.
    """
    rows = np.random.default_rng(SAMPLE_SEED).permutation(total)
    if classes is None:
        return sorted(rows[:limit].tolist())
    labels = np.array(classes)[rows]
    of_class = [rows[labels == label] for label in np.unique(labels)]
    return sorted(
        row for own in of_class for row in own[: max(LEAST_TEXTS_OF_A_CLASS, round(limit * len(own) / total))].tolist()
    )


def identity(sets: Sequence[DevSet]) -> str | None:
    """Return a hash of the dev sets; of STS-B dev alone it is that of its pairs."""
    if not sets:
        return None
    (first, *others), task = sets, sets[0].task
    if not others and first.name == STSB_DEV[0] and isinstance(task, sts.SimilarityTask) and task.ends is None:
        return digest(sts.content(task.subsets))
    return digest([dev.task.identity for dev in sets])


def dev_values(encoder: SentenceEncoder, sets: Sequence[DevSet], *, geometry: bool = False) -> dict[str, float]:
    """Return the scores of an encoder by their keys; with `geometry` also alignment and uniformity of STS-B dev.

    Raises:
        InputError: if a set needs vectors and the model is a cross-encoder.
    """
    model = EvaluatedModel.of(encoder)
    tasks = {dev.key: for_model(dev.task, encoder.spec) for dev in sets}
    vectors = model.encode([text for task in tasks.values() for text in task.texts])
    values = {key: task.score(model, vectors).value for key, task in tasks.items()}
    if geometry:
        stsb = next(dev.task for dev in sets if isinstance(dev.task, sts.SimilarityTask) and dev.task.ends is None)
        measured = pair_geometry(vectors, stsb.subsets)
        values |= {"alignment": measured.alignment, "uniformity": measured.uniformity}
    return values


MASK_SEED = 0
"""The seed of the masks: the same words are predicted at every evaluation, on every device."""
HELD_OUT_ROWS = 32
"""How many sentences are scored at a time."""


class HeldOutText:
    """Sentences whose words are masked once, as in training, and predicted at every evaluation."""

    def __init__(self, sentences: Sequence[str], tokenizer: TextTokenizer, model: TrainingModel) -> None:
        predicting = [part for part in model.stateful.values() if isinstance(part, WordPrediction)]
        if not predicting:
            raise InputError("--eval-text measures how well masked words are predicted: it goes with mlm")
        self.prediction: WordPrediction = predicting[0]
        tokens = tokenizer(sentences)
        rows = tokens.lengths.argsort(kind="stable")
        self.batches = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(MASK_SEED)
            for first in range(0, len(rows), HELD_OUT_ROWS):
                arrays = pad(tokens, rows[first : first + HELD_OUT_ROWS], tokenizer.pad_id)
                inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
                masked, labels = self.prediction.masked(inputs["input_ids"])
                self.batches.append(({**inputs, "input_ids": masked}, labels))
        self.count = sum(int((labels != IGNORED).sum()) for _, labels in self.batches)
        if not self.count:
            raise InputError("--eval-text: too little text, not one word of it was masked")

    @torch.no_grad()
    def loss(self, encoder: TorchEncoder) -> float:
        """Return the mean cross-entropy in nats over all masked words, in float32, of the encoder's last layer."""
        device = next(encoder.parameters()).device
        total = torch.zeros((), dtype=torch.float64, device=device)
        for inputs, labels in self.batches:
            hidden: Tensor = encoder.backbone(**{n: v.to(device) for n, v in inputs.items()}).last_hidden_state
            mean = masked_loss(self.prediction.head, hidden, labels.to(device), encoder.backbone)
            total += mean * (labels != IGNORED).sum().to(device)
        return float(total) / self.count

    def values(self, encoder: TorchEncoder) -> dict[str, float]:
        """Return the loss and the perplexity, by their names in the log."""
        loss = self.loss(encoder)
        return {"held_out_loss": loss, "held_out_perplexity": math.exp(min(loss, 700))}
