"""The development sets of a run: scored at step 0, every `eval_every` steps and at the end; the first one decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sentcli.errors import DegenerateVectorsError, InputError
from sentcli.evaluation import sts, sts_pairs
from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask, Task, for_model
from sentcli.evaluation.labelled_data import LEAST_TEXTS_OF_A_CLASS, load_tasks
from sentcli.evaluation.labelled_tasks import TableTask
from sentcli.evaluation.pair_geometry import pair_geometry
from sentcli.evaluation.retrieval_tasks import RetrievalTask, sampled
from sentcli.evaluation.set_search import SetSearch
from sentcli.io.digests import json_digest
from sentcli.io.labelled_kinds import column_name
from sentcli.io.labelled_records import columns_of
from sentcli.io.places import is_remote
from sentcli.io.sources import open_source
from sentcli.model.tokenizing import pad
from sentcli.objectives.masked_lm import IGNORED, WordPrediction, masked_loss
from sentcli.training.observer import STSB_DEV, dev_title, score_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.model.tokenizing import TextTokenizer
    from sentcli.model.torch_model import TorchEncoder
    from sentcli.training.request import TrainRequest
    from sentcli.training.training_model import TrainingModel

SAMPLE_SEED = 1
"""Draws the items of ``--dev-limit``: the same ones in every run."""


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

    def score_text(self, score: float | None) -> str:
        """Return a score with its name, for messages."""
        title = dev_title(self.name, self.metric)
        return f"{title} {score_text(self.metric, score)}"


def read_dev(request: TrainRequest) -> tuple[DevSet, ...]:
    """Read the dev sets of a run: its own ones, and then STS-B dev of ``--eval-data``.

    Raises:
        InputError: if two of them have the same name, or as `labelled_data.load_tasks`.
    """
    evaluation = request.evaluation
    tasks: list[OwnTask] = []
    for file in evaluation.dev or []:
        fields = _fields(request.data.pair_fields, file)
        tasks += load_tasks([file], kind=evaluation.kind, fields=fields, resamples=0)
    if evaluation.eval_data is not None:
        name, _ = STSB_DEV
        tasks += sts.load_similarity_tasks(evaluation.eval_data, [name], "dev")
    sets: dict[str, DevSet] = {}
    for task in tasks:
        if task.name in sets:
            raise InputError(f"--dev: two sets are called {task.name}: rename one")
        metric = task.kind.main
        key = f"{task.name}_{metric}" if sets else f"dev_{metric}"
        sets[task.name] = DevSet(task.name, metric, key, task, tested_texts(task))
    return tuple(sets.values())


def _fields(fields: str | None, file: str) -> str | None:
    """Return the columns of ``--pair-fields`` if a file has them; it may be of another kind than the training data."""
    if fields is None or not (is_remote(file) or Path(file).is_file()):
        return None
    source = open_source(file)
    if source.format == "txt":
        return None
    present = set(map(column_name, columns_of(source, fields)))
    if present.issuperset(map(column_name, fields.split(","))):
        return fields
    return None


def tested_texts(task: OwnTask) -> Sequence[str]:
    """Return the texts that a model should not have been trained on: those of a table, or the queries of a set."""
    if isinstance(task, RetrievalTask):
        return list(task.data.queries.values())
    return task.all_texts


def limited(sets: Sequence[DevSet], limit: int, start: str) -> tuple[DevSet, ...]:
    """Return the dev sets with a fixed sample of their items; STS-B dev of ``--eval-data`` stays whole.

    Args:
        sets: the dev sets.
        limit: the largest number of rows, or of queries.
        start: the start model, whose best hits are in the sample of a retrieval set.
    """
    return tuple(replace(dev, task=_sample(dev.task, limit, start)) for dev in sets)


def _sample(task: Task, limit: int, start: str) -> Task:
    if isinstance(task, RetrievalTask):
        queries = len(task.data.queries)
        if queries > limit:
            sample = sampled(task.data, _rows(queries, limit), EvaluatedModel(start))
            return replace(task, search=SetSearch(sample, task.search.options))
    elif isinstance(task, TableTask):
        if len(task) > limit:
            return task.of_rows(_rows(len(task), limit, task.table.values))
    elif isinstance(task, sts.SimilarityTask) and task.ends is not None and len(task) > limit:
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
    sample: list[int] = []
    for label in np.unique(labels):
        rows_of_class = rows[labels == label]
        share = round(limit * len(rows_of_class) / total)
        sample += rows_of_class[: max(LEAST_TEXTS_OF_A_CLASS, share)].tolist()
    return sorted(sample)


def identity(sets: Sequence[DevSet]) -> str | None:
    """Return a hash of the dev sets; of STS-B dev alone it is that of its pairs."""
    if not sets:
        return None
    if len(sets) == 1 and sets[0].name == STSB_DEV[0]:
        task = sets[0].task
        if isinstance(task, sts.SimilarityTask) and task.ends is None:
            return json_digest(sts_pairs.content(task.subsets))
    return json_digest([dev.task.identity for dev in sets])


def dev_values(encoder: SentenceEncoder, sets: Sequence[DevSet], *, geometry: bool = False) -> dict[str, float | None]:
    """Return the scores of an encoder by their keys; with `geometry` also alignment and uniformity of STS-B dev.

    A score is None where there is none, because the vectors are all equal or not finite.

    Raises:
        InputError: if a set needs vectors and the model is a cross-encoder.
    """
    model = EvaluatedModel.of(encoder)
    tasks = {}
    texts: list[str] = []
    for dev in sets:
        tasks[dev.key] = for_model(dev.task, encoder.spec)
        texts += tasks[dev.key].texts
    values: dict[str, float | None] = dict.fromkeys(tasks)
    try:
        vectors = model.encode(texts)
    except DegenerateVectorsError:
        return values
    for key, task in tasks.items():
        with suppress(DegenerateVectorsError):
            values[key] = task.score(model, vectors).value
    if geometry:
        measured = pair_geometry(vectors, _stsb(sets).subsets)
        values["alignment"] = measured.alignment
        values["uniformity"] = measured.uniformity
    return values


def _stsb(sets: Sequence[DevSet]) -> sts.SimilarityTask:
    """Return STS-B dev of ``--eval-data``, the similarity task that is no table."""
    for dev in sets:
        if isinstance(dev.task, sts.SimilarityTask) and dev.task.ends is None:
            return dev.task
    raise ValueError("there is no STS-B dev")


MASK_SEED = 0
"""The seed of the masks: the same words are predicted at every evaluation, on every device."""
HELD_OUT_ROWS = 32
"""How many sentences are scored at a time."""


class HeldOutText:
    """Sentences whose words are masked once, as in training, and predicted at every evaluation."""

    def __init__(self, sentences: Sequence[str], tokenizer: TextTokenizer, model: TrainingModel) -> None:
        predictions = [part for part in model.stateful.values() if isinstance(part, WordPrediction)]
        if not predictions:
            raise InputError("--eval-text measures how well masked words are predicted: it goes with mlm")
        self.prediction = predictions[0]
        tokens = tokenizer(sentences)
        rows = tokens.lengths.argsort(kind="stable")
        self.batches = []
        self.count = 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(MASK_SEED)
            for first in range(0, len(rows), HELD_OUT_ROWS):
                batch = rows[first : first + HELD_OUT_ROWS]
                arrays = pad(tokens, batch, tokenizer.pad_id)
                inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
                inputs["input_ids"], labels = self.prediction.masked(inputs["input_ids"])
                self.batches.append((inputs, labels))
                self.count += _masked_words(labels)
        if not self.count:
            raise InputError("--eval-text: too little text, not one word of it was masked")

    @torch.no_grad()
    def loss(self, encoder: TorchEncoder) -> float:
        """Return the mean cross-entropy in nats over all masked words, in float32, of the encoder's last layer."""
        device = next(encoder.parameters()).device
        total = torch.zeros((), dtype=torch.float64, device=device)
        for inputs, labels in self.batches:
            on_device = {name: tensor.to(device) for name, tensor in inputs.items()}
            hidden: Tensor = encoder.backbone(**on_device).last_hidden_state
            mean = masked_loss(self.prediction.head, hidden, labels.to(device), encoder.backbone)
            total += mean * _masked_words(labels)
        return float(total) / self.count

    def values(self, encoder: TorchEncoder) -> dict[str, float]:
        """Return the loss and the perplexity, by their names in the log."""
        loss = self.loss(encoder)
        return {"held_out_loss": loss, "held_out_perplexity": math.exp(min(loss, 700))}


def _masked_words(labels: Tensor) -> int:
    return int((labels != IGNORED).sum())
