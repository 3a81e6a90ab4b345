"""A loaded model, and how it encodes texts: tokenised ahead, packed by length, several batches at a time."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union
from weakref import WeakKeyDictionary

import numpy as np

from sentcli.errors import DegenerateVectorsError, DeviceMemoryError, InputError, SentcliError
from sentcli.model.spec import EncoderSpec
from sentcli.model.tokenizing import TextTokenizer, Tokens, pad
from sentcli.waiting import drop_lost_threads

if TYPE_CHECKING:
    from sentcli.arrays import Int64Array, Vectors
    from sentcli.model.flat import Flat
    from sentcli.model.torch_model import TorchEncoder

Item = TypeVar("Item")
Result = TypeVar("Result")


def distinct(texts: Sequence[str]) -> tuple[list[str], Int64Array]:
    """Return the distinct texts in order of first appearance, and the position of every text among them."""
    positions: dict[str, int] = {}
    index = np.fromiter((positions.setdefault(text, len(positions)) for text in texts), np.intp, len(texts))
    return list(positions), index


def one_ahead(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield `work(item)` of each item in order; a second thread computes the next one while the caller uses one."""
    with ThreadPoolExecutor(1, thread_name_prefix="tokenise") as pool:
        submitted = (pool.submit(work, item) for item in items)  # one at a time, as they are asked for
        ahead = next(submitted, None)
        while ahead is not None:
            result = ahead.result()
            ahead = next(submitted, None)
            yield result


def longest_first(lengths: Int64Array) -> Int64Array:
    """Return the order by falling length; equal lengths stay in their given order."""
    return np.argsort(-lengths, kind="stable")


def pack(lengths: Int64Array, budget: int, batches: Batches = "padded") -> Iterator[Int64Array]:
    """Cut the texts, longest first, into batches of at most `budget` tokens, padding included.

    Args:
        lengths: the number of tokens of each text ``[n]``.
        budget: the most tokens of a batch; a longer text is a batch by itself.
        batches: what a batch may hold.

    Yields:
        Positions into `lengths`; every position is in exactly one batch.
    """
    order = longest_first(lengths)
    if batches == "flat":
        yield from _pack_flat(lengths, order, budget)
        return
    if batches == "one text":
        budget = 1
    start = 0
    while start < len(order):
        longest = int(lengths[order[start]])
        end = start + max(budget // max(longest, 1), 1)
        if batches == "one length":
            shorter = np.flatnonzero(lengths[order[start:end]] < longest)
            if len(shorter):
                end = start + int(shorter[0])
        yield order[start:end]
        start = end


def _pack_flat(lengths: Int64Array, order: Int64Array, budget: int) -> Iterator[Int64Array]:
    """Cut texts, longest first in an order, into batches of at most `budget` tokens without padding."""
    ends = np.cumsum(lengths[order])
    start = 0
    while start < len(order):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + budget, side="right"))
        # a long text among many short ones would make their vectors of tokens large, which are padded after the layers
        longest = max(int(lengths[order[start]]), 1)
        most_padded = start + MOST_PADDED * budget // longest
        end = max(min(end, most_padded), start + 1)
        yield order[start:end]
        start = end


OnLong = Literal["truncate", "error", "chunk-mean"]
Batches = Literal["flat", "padded", "one length", "one text"]
"""What a batch may hold: texts without padding, padded to one length, only texts of one length, or a single text."""
CHUNK = 2048
"""How many texts are tokenised together, while the model runs the previous chunk."""
GPU_CHUNK = 8192
"""`CHUNK` for an accelerator, which runs several large batches in the time that all cores take to tokenise them."""
MOST_PADDED = 4
"""How many times the budget the vectors of the tokens of a flat batch may take when they are padded."""
BUDGET_DIVISOR = 4
"""The budget of a batch is divided by this number where the device has too little memory for it."""


Batch = Union[dict[str, "Int64Array"], "Flat"]
"""Padded ``input_ids`` and ``attention_mask`` ``[texts, tokens]``, perhaps ``token_type_ids``; or a flat batch."""
PendingVectors = Callable[[], "Vectors"]
"""Waits for a batch that was begun, and returns its vectors."""
Notice = Callable[[str], None]
"""Is called with a sentence for the user while a model is loaded."""


def size_of(batch: Batch) -> tuple[int, int]:
    """Return the number of texts of a batch, and that of its tokens with padding."""
    if isinstance(batch, dict):
        return len(batch["input_ids"]), batch["input_ids"].size
    return batch.texts, len(batch.ids)


class Backend(ABC):
    """Runs a model: takes batches of token ids and returns vectors."""

    name: str
    device: str
    precision: str
    dimension: int
    default_batch_tokens: int
    streams: int
    """How many batches are run at the same time."""
    batches: Batches
    """Which texts may be run together, so that a vector does not depend on the others of its batch."""

    @abstractmethod
    def run(self, batch: Any, prompt_length: int) -> Vectors:
        """Return ``[B, dim]`` for a padded batch, or for one of the kind that `batches` names."""

    def start(self, batch: Batch, prompt_length: int) -> PendingVectors:
        """Begin a batch of the kind that `batches` names, and return what waits for its vectors.

        A backend of one stream computes it at once, the others in a thread each.
        """
        if self.streams == 1:
            vectors = self.run(batch, prompt_length)
            return lambda: vectors
        pool = _pools.get(self)
        if pool is None:  # its threads live as long as the backend
            pool = _pools[self] = ThreadPoolExecutor(self.streams, thread_name_prefix="encode")
        return pool.submit(self.run, batch, prompt_length).result


_pools: WeakKeyDictionary[Backend, ThreadPoolExecutor] = WeakKeyDictionary()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # a child has none of the threads


@dataclass(frozen=True)
class EncodeStats:
    """Counts of an encoding. Every given text counts, but tokens count once for each distinct text."""

    texts: int = 0
    distinct: int = 0
    tokens: int = 0
    truncated: int = 0
    """The number of distinct texts that are longer than the maximum length."""
    tokens_lost: int = 0
    """The number of tokens that were cut off from these texts."""


@dataclass(frozen=True)
class Encoded:
    """The vectors of some texts, and how many tokens they had."""

    vectors: Vectors
    """``[n, dim]``."""
    excess_tokens: Int64Array
    """The number of tokens of each text beyond the maximum length ``[n]``."""
    tokens: int
    """The number of tokens that the model ran, of all texts together."""


class LongTextError(InputError):
    """A text is longer than the maximum length, which ``on_long="error"`` makes an error."""

    def __init__(self, number: int, tokens: int, limit: int) -> None:
        self.number = number
        self.tokens = tokens
        self.limit = limit
        super().__init__(f"text {number} has {tokens} tokens, more than {limit} (--on-long, --max-length)")

    def __reduce__(self) -> tuple[type[LongTextError], tuple[int, int, int]]:
        """Support pickling: the error is sent from worker processes."""
        return LongTextError, (self.number, self.tokens, self.limit)


class RefusedTextError(SentcliError):
    """A model that is served has refused a text."""

    def __init__(self, number: int, problem: str) -> None:
        self.number, self.problem = number, problem
        super().__init__(f"text {number + 1}: {problem}")

    def __reduce__(self) -> tuple[type[RefusedTextError], tuple[int, str]]:
        """Support pickling: the error is sent from worker processes."""
        return RefusedTextError, (self.number, self.problem)


Progress = Callable[[EncodeStats], None]
"""Is called after every batch with the counts of that batch, in which `texts` counts distinct texts."""


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, on some backend."""

    name: str
    """The name or path that the user gave."""
    spec: EncoderSpec
    """The description of the model, with the user's choices applied."""
    tokenizer: TextTokenizer
    backend: Backend
    hf_tokenizer: Any = None
    """The tokenizer of transformers, if the model runs on torch."""

    @property
    def torch_module(self) -> TorchEncoder:
        """The torch module that computes the vectors; only a model on torch has one."""
        return self.backend.module  # type: ignore[attr-defined]

    def encode(
        self,
        texts: Sequence[str],
        prompt: str = "",
        *,
        batch_tokens: int | None = None,
        on_long: OnLong = "truncate",
        progress: Progress | None = None,
    ) -> Encoded:
        """Encode every text, also repeated ones; see `SentenceEncoder.encode_distinct`."""
        if prompt and on_long == "chunk-mean":
            raise InputError("chunk-mean and a prompt do not go together: the pieces after the first would lack it")
        drop_lost_threads()
        prompt_length = self.tokenizer.prompt_length(prompt) if prompt else 0
        vectors = np.empty((len(texts), self.backend.dimension), np.float32)
        excess_tokens = np.zeros(len(texts), np.int64)
        total = 0
        work = _Work(self, prompt_length, batch_tokens or self.backend.default_batch_tokens)
        for chunk in work.finished(self._chunks(texts, prompt, on_long), progress):
            tokens = chunk.tokens
            total += int(tokens.lengths.sum())
            excess_tokens[chunk.positions] = tokens.excess_tokens
            if tokens.owners is None:
                vectors[chunk.positions] = chunk.vectors
            else:
                vectors[chunk.positions] = self._joined(chunk.vectors, tokens)
        not_finite = int((~np.isfinite(vectors).all(axis=1)).sum())
        if not_finite:
            raise DegenerateVectorsError(
                f"{not_finite} of {len(texts)} vectors are not finite: broken weights, or an overflow in "
                f"{self.backend.precision}"
            )
        return Encoded(vectors, excess_tokens, total)

    def _chunks(self, texts: Sequence[str], prompt: str, on_long: OnLong) -> Iterator[_Chunk]:
        """Yield the texts in chunks, longest first, each tokenised while the one before it is encoded."""
        order = longest_first(np.fromiter(map(len, texts), np.int64, len(texts)))
        ordered = [texts[i] for i in order]
        size = CHUNK if self.backend.device == "cpu" else GPU_CHUNK
        chunks = [slice(start, start + size) for start in range(0, len(texts), size)]
        pieced = on_long == "chunk-mean"
        ahead = one_ahead(lambda rows: self.tokenizer(ordered[rows], prompt, pieces=pieced), chunks)
        for rows, tokens in zip(chunks, ahead, strict=True):
            positions = order[rows]
            if on_long == "error" and tokens.truncated:
                long = np.flatnonzero(tokens.excess_tokens)
                first = long[positions[long].argmin()]
                limit = self.tokenizer.max_length
                raise LongTextError(int(positions[first]), limit + int(tokens.excess_tokens[first]), limit)
            vectors = np.empty((len(tokens.ids), self.backend.dimension), np.float32)
            yield _Chunk(positions, tokens, vectors)

    def _joined(self, pieces: Vectors, tokens: Tokens) -> Vectors:
        """Return the mean of each text's pieces, weighted by their numbers of tokens without special tokens."""
        assert tokens.owners is not None
        weights = np.maximum(tokens.lengths - self.tokenizer.special_tokens, 1).astype(np.float32)
        starts = np.flatnonzero(np.diff(tokens.owners, prepend=-1))
        total = np.add.reduceat(pieces * weights[:, None], starts)
        total_weights = np.add.reduceat(weights, starts)
        mean: Vectors = (total / total_weights[:, None]).astype(np.float32)
        if self.spec.normalizes:
            mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
        return mean


@dataclass(frozen=True)
class _Chunk:
    """Texts that were tokenised together."""

    positions: Int64Array
    """The positions of the texts among all ``[texts]``."""
    tokens: Tokens
    vectors: Vectors
    """The vectors of the texts, or of their pieces, which come batch by batch ``[pieces, dim]``."""


class _Work:
    """One encoding: batches that follow each other through a backend.

    Args:
        model: the model.
        prompt_length: the number of prompt tokens in front of each text.
        budget: the most tokens of a batch; a share of it where the device turns out to have too little memory.
    """

    def __init__(self, model: LoadedModel, prompt_length: int, budget: int) -> None:
        self.model = model
        self.prompt_length = prompt_length
        self.budget = budget
        self.smaller = max(budget // BUDGET_DIVISOR, 1)

    def finished(self, chunks: Iterator[_Chunk], progress: Progress | None) -> Iterator[_Chunk]:
        """Yield each chunk when all its vectors are there, in order, while batches of the next ones are computed.

        Args:
            chunks: texts with room for their vectors.
            progress: called after every batch.
        """
        streams = self.model.backend.streams
        most = 2 * streams if streams > 1 else 0
        under_way: deque[tuple[_Chunk, Int64Array, bool, PendingVectors]] = deque()

        def received() -> Iterator[_Chunk]:
            chunk, rows, is_last, waiting = under_way.popleft()
            chunk.vectors[rows] = self._checked(waiting(), len(rows))
            if progress is not None:
                progress(EncodeStats(texts=len(rows), tokens=int(chunk.tokens.lengths[rows].sum())))
            if is_last:
                yield chunk

        for chunk in chunks:
            budget = self.budget
            packed = list(pack(chunk.tokens.lengths, budget, self.model.backend.batches))
            for number, rows in enumerate(packed, 1):
                waiting = self._begin(chunk.tokens, rows, budget)
                under_way.append((chunk, rows, number == len(packed), waiting))
                if len(under_way) > most:
                    yield from received()
        while under_way:
            yield from received()

    def _begin(self, tokens: Tokens, rows: Int64Array, budget: int) -> PendingVectors:
        """Begin a batch of at most `budget` tokens, which is computed in parts if the device has too little memory."""
        begun: PendingVectors | None = None
        if budget == self.budget:
            begun = self._where_it_fits(lambda: self._start(tokens, rows))

        def wait() -> Vectors:
            vectors = None if begun is None else self._where_it_fits(begun)
            if vectors is None:
                return self._in_parts(tokens, rows)
            return vectors

        return wait

    def _where_it_fits(self, work: Callable[[], Result]) -> Result | None:
        """Return what some work gives.

        It is None where the device has too little memory; batches are smaller from then on.
        """
        try:
            return work()
        except DeviceMemoryError:
            self.budget = self.smaller
            return None

    def _start(self, tokens: Tokens, rows: Int64Array) -> PendingVectors:
        backend = self.model.backend
        # a text without any token has no place in a flat batch
        if backend.batches == "flat" and tokens.lengths[rows].all():
            from sentcli.model.flat import flatten

            return backend.start(flatten(tokens, rows), self.prompt_length)
        return backend.start(pad(tokens, rows, self.model.tokenizer.pad_id), self.prompt_length)

    def _in_parts(self, tokens: Tokens, rows: Int64Array) -> Vectors:
        """Compute a batch in parts of the smaller budget, one after the other.

        Raises:
            SentcliError: if the device has too little memory for a part, too.
        """
        parts = []
        for part in pack(tokens.lengths[rows], self.budget, self.model.backend.batches):
            try:
                parts.append((part, self._start(tokens, rows[part])()))
            except DeviceMemoryError as error:
                raise SentcliError(
                    f"{error}; batches of at most {self.budget:,} tokens were tried after larger ones: "
                    "give fewer with --batch-tokens, cut texts with --max-length, or take --device cpu"
                ) from error
        vectors = np.empty((len(rows), self.model.backend.dimension), np.float32)
        for part, of_part in parts:
            vectors[part] = of_part
        return vectors

    def _checked(self, vectors: Vectors, texts: int) -> Vectors:
        """Refuse vectors of another shape than the model is known to give."""
        expected = (texts, self.model.backend.dimension)
        if vectors.shape != expected:
            shapes = f"{list(vectors.shape)}, not {list(expected)}"
            raise SentcliError(f"{self.model.name}: the model gave vectors {shapes}; export it again")
        return vectors
