"""A loaded model, and how it encodes texts: tokenised ahead, packed by length, several batches at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError, SentcliError
from sentcli.model import encoding
from sentcli.model.forking import heal
from sentcli.model.spec import EncoderSpec
from sentcli.model.tokenizing import TextTokenizer, Tokens, pad

if TYPE_CHECKING:
    from sentcli.model.torch_model import TorchEncoder

Index = npt.NDArray[np.intp]
Item = TypeVar("Item")
Result = TypeVar("Result")


def distinct(texts: Sequence[str]) -> tuple[list[str], Index]:
    """Return the distinct texts in order of first appearance, and the position of every text among them."""
    positions: dict[str, int] = {}
    index = np.fromiter((positions.setdefault(text, len(positions)) for text in texts), np.intp, len(texts))
    return list(positions), index


def one_ahead(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield `work(item)` of each item in order; a second thread computes the next one while the caller uses one."""
    with ThreadPoolExecutor(1, thread_name_prefix="tokenise") as pool:
        ahead = [pool.submit(work, item) for item in items[:1]]
        for i in range(len(items)):
            result = ahead.pop().result()
            ahead += [pool.submit(work, item) for item in items[i + 1 : i + 2]]
            yield result


def longest_first(lengths: npt.NDArray[np.int64]) -> Index:
    """Return the order by falling length; equal lengths stay in their given order."""
    return np.argsort(-lengths, kind="stable")


def pack(lengths: npt.NDArray[np.int64], budget: int, *, one_length: bool = False) -> Iterator[Index]:
    """Cut the texts, longest first, into batches of at most `budget` tokens with padding.

    Args:
        lengths: the number of tokens of each text ``[n]``.
        budget: the most tokens of a batch, padding included; a longer text is a batch by itself.
        one_length: whether all texts of a batch have the same length, so that there is no padding.

    Yields:
        Positions into `lengths`; every position is in exactly one batch.
    """
    order = longest_first(lengths)
    start = 0
    while start < len(order):
        width = max(int(lengths[order[start]]), 1)
        end = start + max(budget // width, 1)
        if one_length:
            shorter = np.flatnonzero(lengths[order[start:end]] < lengths[order[start]])
            end = start + int(shorter[0]) if len(shorter) else end
        yield order[start:end]
        start = end


Vectors = npt.NDArray[np.float32]
OnLong = Literal["truncate", "error", "chunk-mean"]
Batches = Literal["padded", "one length", "one text"]
"""What a batch may hold: texts padded to one length, only texts of one length, or a single text."""
CHUNK = 2048
"""How many texts are tokenised together, while the model runs the previous chunk."""


class Backend(Protocol):
    """Runs a model: takes padded batches of token ids and returns vectors."""

    name: str
    device: str
    precision: str
    dimension: int
    default_batch_tokens: int
    streams: int
    """How many batches are run at the same time."""
    batches: Batches
    """Which texts may be run together, so that a vector does not depend on the others of its batch."""

    def run(self, batch: dict[str, npt.NDArray[np.int64]], prompt_length: int) -> Vectors:
        """Return ``[B, dim]`` for ``input_ids`` and ``attention_mask`` ``[B, T]``."""


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
    beyond: npt.NDArray[np.int64]
    """The number of tokens of each text beyond the maximum length ``[n]``."""
    tokens: int
    """The number of tokens that the model ran, of all texts together."""


class LongTextError(InputError):
    """A text is longer than the maximum length, which ``on_long="error"`` makes an error."""

    def __init__(self, number: int, tokens: int, limit: int) -> None:
        self.number, self.tokens, self.limit = number, tokens, limit
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
        heal()
        prompt_length = self.tokenizer.prompt_length(prompt) if prompt else 0
        budget = batch_tokens or self.backend.default_batch_tokens
        vectors = np.empty((len(texts), self.backend.dimension), np.float32)
        beyond = np.zeros(len(texts), np.int64)
        total = 0
        order = encoding.longest_first(np.fromiter(map(len, texts), np.int64, len(texts)))
        ordered = [texts[i] for i in order]
        chunks = [slice(start, start + CHUNK) for start in range(0, len(texts), CHUNK)]
        pieced = on_long == "chunk-mean"
        ahead = encoding.one_ahead(lambda rows: self.tokenizer(ordered[rows], prompt, pieces=pieced), chunks)
        for rows, tokens in zip(chunks, ahead, strict=True):
            beyond[order[rows]] = tokens.beyond
            if on_long == "error" and tokens.truncated:
                number = int(order[rows][np.flatnonzero(tokens.beyond)].min())
                raise LongTextError(number, self.tokenizer.max_length + int(beyond[number]), self.tokenizer.max_length)
            lengths = tokens.lengths
            total += int(lengths.sum())
            pieces = np.empty((len(lengths), self.backend.dimension), np.float32)
            batches = self.backend.batches
            allowed = 1 if batches == "one text" else budget
            packed = encoding.pack(lengths, allowed, one_length=batches == "one length")
            for batch, batch_vectors in self._run(tokens, packed, prompt_length):
                pieces[batch] = batch_vectors
                if progress is not None:
                    progress(EncodeStats(texts=len(batch), tokens=int(lengths[batch].sum())))
            vectors[order[rows]] = pieces if tokens.owners is None else self._joined(pieces, tokens)
        not_finite = int((~np.isfinite(vectors).all(axis=1)).sum())
        if not_finite:
            raise SentcliError(
                f"{not_finite} of {len(texts)} vectors are not finite: broken weights, or an overflow in "
                f"{self.backend.precision}"
            )
        return Encoded(vectors, beyond, total)

    def _joined(self, pieces: Vectors, tokens: Tokens) -> Vectors:
        """Return the mean of each text's pieces, weighted by their numbers of tokens without special tokens."""
        assert tokens.owners is not None
        weights = np.maximum(tokens.lengths - self.tokenizer.special_tokens, 1).astype(np.float32)
        starts = np.flatnonzero(np.diff(tokens.owners, prepend=-1))
        total = np.add.reduceat(pieces * weights[:, None], starts)
        mean: Vectors = (total / np.add.reduceat(weights, starts)[:, None]).astype(np.float32)
        if self.spec.normalizes:
            mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
        return mean

    def _run(
        self, tokens: Tokens, batches: Iterator[encoding.Index], prompt_length: int
    ) -> Iterator[tuple[encoding.Index, Vectors]]:
        """Run as many batches at a time as the backend can, and yield them in order with their vectors."""

        def run(batch: encoding.Index) -> Vectors:
            vectors = self.backend.run(pad(tokens, batch, self.tokenizer.pad_id), prompt_length)
            if vectors.shape != (len(batch), self.backend.dimension):
                made, said = list(vectors.shape), [len(batch), self.backend.dimension]
                raise SentcliError(f"{self.name}: the model gave vectors {made}, not {said}; export it again")
            return vectors

        if self.backend.streams == 1:
            yield from ((batch, run(batch)) for batch in batches)
            return
        # the threads live as long as the backend
        pool = _pools.setdefault(self.backend, ThreadPoolExecutor(self.backend.streams, thread_name_prefix="encode"))
        ahead = [(batch, pool.submit(run, batch)) for batch in batches]
        try:
            for batch, future in ahead:
                yield batch, future.result()
        finally:  # after an error, batches that have not begun are not run
            for _, future in ahead:
                future.cancel()


_pools: WeakKeyDictionary[Backend, ThreadPoolExecutor] = WeakKeyDictionary()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # a child has none of the threads
