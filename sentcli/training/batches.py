"""The order of the sentences, and the batches of a step as texts and as tensors.

Everything here follows from the seed and the number of the step, so that a resumed run sees the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sentcli.arrays import Float32Array, Int64Array
from sentcli.methods.views import BatchTexts
from sentcli.model.ahead import queued_to
from sentcli.model.encoding import one_ahead
from sentcli.model.tokenizing import Tokens, pad

if TYPE_CHECKING:
    from sentcli.methods.views import ViewMaker
    from sentcli.model.tokenizing import TextTokenizer
    from sentcli.training.data import TrainingSentences
    from sentcli.training.targets import Targets
    from sentcli.training.training_model import BatchTensors

VIEW_STREAM = 2**31
"""Sets the random numbers of the views apart from those of the order, whose second key is the epoch."""


@dataclass(frozen=True)
class Order:
    """The rows of every batch: each epoch is a new permutation that depends on the seed alone.

    With several processes, a batch holds `batch_size` rows for each of them.
    """

    sentences: int
    batch_size: int
    seed: int = 0
    least_rows: int = 2
    """The last batch of an epoch is left out if it has fewer rows than this for each process."""
    processes: int = 1

    @property
    def per_epoch(self) -> int:
        """The number of batches in an epoch; the last may be smaller than the others."""
        full, left_over = divmod(self.sentences, self.batch_size * self.processes)
        has_last_batch = left_over // self.processes >= self.least_rows
        return full + has_last_batch

    def batch(self, number: int) -> list[int]:
        """Return the rows of a batch, counted from 0 over all epochs."""
        epoch, place = divmod(number, self.per_epoch)
        size = self.batch_size * self.processes
        begin = place * size
        permutation = _permutation(self.seed, epoch, self.sentences)
        rows: list[int] = permutation[begin : begin + size].tolist()
        rows_each = len(rows) // self.processes
        return rows[: rows_each * self.processes]


@lru_cache(maxsize=1)
def _permutation(seed: int, epoch: int, count: int) -> Int64Array:
    return np.random.default_rng([seed, epoch]).permutation(count)


@dataclass(frozen=True)
class TrainingBatch:
    """One batch of B rows, tokenised; with several processes, this process's part of it."""

    views: list[Tokens]
    """The tokens of B texts for each view; a single entry stands for all views."""
    texts: BatchTexts
    rows: tuple[int, ...] = ()
    """The numbers of the rows in the data."""
    targets: Mapping[str, Float32Array] = field(default_factory=dict)
    """What the teachers say of the rows, as `Targets.of_rows` returns it."""

    @property
    def truncated(self) -> int:
        """The number of texts that were cut to the training length."""
        return sum(tokens.truncated for tokens in self.views)

    def __len__(self) -> int:
        return len(self.views[0].ids)


@dataclass(frozen=True)
class BatchMaker:
    """Makes the batches of any step."""

    corpus: TrainingSentences
    tokenizer: TextTokenizer
    order: Order
    views: ViewMaker
    accumulate: int = 1
    """The number of batches in an optimiser step."""
    group_by_length: bool = False
    rank: int = 0
    prompts: tuple[str, ...] = ()
    """The prompt in front of the texts of each view, as in encoding; none if it is empty."""
    second_tokenizer: TextTokenizer | None = None
    """Tokenises the views after the first, where they have another template."""
    targets: Targets | None = None
    """What the teachers say of the data."""

    def step(self, number: int) -> list[TrainingBatch]:
        """Return the batches of an optimiser step, counted from 0."""
        first = number * self.accumulate
        numbers = range(first, first + self.accumulate)
        batches = list(map(self.order.batch, numbers))
        if self.group_by_length:
            batches = self._grouped_by_length(batches)
        return list(map(self._make, numbers, batches))

    def _grouped_by_length(self, batches: list[list[int]]) -> list[list[int]]:
        """Redistribute the rows of some batches by the length of their texts in characters, the shortest first."""
        rows = chain.from_iterable(batches)
        ordered = iter(sorted(rows, key=lambda row: len(self.corpus.sentences[row])))
        return [list(islice(ordered, len(batch))) for batch in batches]

    def _make(self, number: int, rows: list[int]) -> TrainingBatch:
        """Return this process's part of a batch, given the rows of all processes."""
        rng = np.random.default_rng([self.order.seed, VIEW_STREAM, number])
        processes = self.order.processes
        count = len(rows) // processes
        # the texts of the processes before this one are made too, so that its random numbers begin where theirs end
        for process in range(self.rank + 1):
            own_rows = rows[process * count : (process + 1) * count]
            texts = self.views.texts(own_rows, self.corpus, rng)
        # each process has random numbers of its own for tokens, because it does not know how many the others draw
        token_rng = rng.spawn(processes)[self.rank]
        tokens = self.views.tokens(self._tokenized(texts.views), token_rng)
        targets = {} if self.targets is None else self.targets.of_rows(own_rows)
        return TrainingBatch(tokens, texts, tuple(own_rows), targets)

    def _tokenized(self, views: list[list[str]]) -> list[Tokens]:
        """Tokenise the texts of each view behind its prompt; a single list stands for all views."""
        if self.prompts:
            views = list(map(_with_prompt, self.prompts, views))
        if self.second_tokenizer is None:
            return list(map(self.tokenizer, views))
        if len(views) == 1:
            views = views * self.views.count
        return [self.tokenizer(views[0]), *map(self.second_tokenizer, views[1:])]

    def rows_of(self, first: int, end: int) -> list[int]:
        """Return the rows that the steps `first` to `end` - 1 may see, each once and in the order of the data.

        Over several epochs these are all rows: each epoch leaves out other ones at its end.
        """
        first_batch, end_batch = first * self.accumulate, end * self.accumulate
        if end_batch - first_batch >= self.order.per_epoch:
            return list(range(self.order.sentences))
        rows: set[int] = set()
        for number in range(first_batch, end_batch):
            rows.update(self.order.batch(number))
        return sorted(rows)

    def steps(
        self, first: int, end: int, device: torch.device
    ) -> Iterator[tuple[list[TrainingBatch], list[BatchTensors]]]:
        """Yield the batches of steps `first` to `end` - 1, as texts and as tensors on a device.

        A step's sentences are tokenised, and their copy to a GPU is queued, while the step before is trained on.
        """

        def ready(number: int) -> tuple[list[TrainingBatch], list[BatchTensors]]:
            batches = self.step(number)
            inputs = [to_tensors(batch, self.tokenizer.pad_id, self.views.count, device) for batch in batches]
            return batches, inputs

        return one_ahead(ready, range(first, end))


def _with_prompt(prompt: str, texts: list[str]) -> list[str]:
    return [prompt + text for text in texts]


def to_tensors(batch: TrainingBatch, pad_id: int, views: int, device: torch.device) -> dict[str, Tensor]:
    """Pad a batch and move it to the device: model inputs ``[views * B, T]``, view by view, and the batch's labels."""
    tokens = batch.views[0]
    if len(batch.views) > 1:
        ids: list[list[int]] = []
        types: list[list[int]] = []
        for view in batch.views:
            ids += view.ids
            types += view.type_ids or []
        tokens = Tokens(ids, types or None, np.zeros(len(ids), np.int64))
    repeats = views // len(batch.views)
    tensors = {}
    for name, array in pad(tokens, range(len(tokens.ids)), pad_id).items():
        tensors[name] = queued_to(torch.from_numpy(array), device).repeat(repeats, 1)
    if batch.texts.labels is not None:
        tensors["labels"] = queued_to(torch.from_numpy(batch.texts.labels), device)
    if batch.texts.matched is not None:
        tensors["matched"] = queued_to(torch.from_numpy(batch.texts.matched), device)
    for name, values in batch.targets.items():
        tensors[name] = queued_to(torch.from_numpy(values), device)
    return tensors
