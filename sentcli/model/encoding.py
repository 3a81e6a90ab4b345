"""A loaded model and its way from texts to vectors: tokenised ahead, packed by length, several batches at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError, SentcliError
from sentcli.model import batching
from sentcli.model.spec import EncoderSpec
from sentcli.model.tokenizing import TextTokenizer, Tokens, pad

if TYPE_CHECKING:
    from sentcli.model.torch_model import TorchEncoder

Vectors = npt.NDArray[np.float32]
OnLong = Literal["truncate", "error", "chunk-mean"]
CHUNK = 2048
"""Texts that are tokenised together, while the model runs the chunk before."""


class Backend(Protocol):
    """What runs the model: a padded batch of token ids in, vectors out."""

    name: str
    device: str
    precision: str
    dimension: int
    default_batch_tokens: int
    streams: int
    """Batches that are run at the same time."""

    def run(self, batch: dict[str, npt.NDArray[np.int64]], prompt_length: int) -> Vectors:
        """Return ``[B, dim]`` for ``input_ids`` and ``attention_mask`` ``[B, T]``."""


@dataclass(frozen=True)
class EncodeStats:
    """What was encoded. Texts are counted as given, tokens as the model saw them (each distinct text once)."""

    texts: int = 0
    distinct: int = 0
    tokens: int = 0
    truncated: int = 0
    """Distinct texts longer than the maximum length."""
    tokens_lost: int = 0
    """Tokens cut off from them."""

    def __add__(self, other: EncodeStats) -> EncodeStats:
        return EncodeStats(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Encoded:
    """Vectors of distinct texts, with what became of each."""

    vectors: Vectors
    """``[n, dim]``."""
    beyond: npt.NDArray[np.int64]
    """Tokens of each text beyond the maximum length ``[n]``."""
    tokens: int
    """That the model saw."""


class LongTextError(InputError):
    """A text is longer than the model reads, and that is an error (``on_long="error"``)."""

    def __init__(self, number: int, tokens: int, limit: int) -> None:
        self.number, self.tokens, self.limit = number, tokens, limit
        super().__init__(f"text {number} has {tokens} tokens, more than {limit} (--on-long, --max-length)")

    def __reduce__(self) -> tuple[type[LongTextError], tuple[int, int, int]]:
        """Go from process to process."""
        return LongTextError, (self.number, self.tokens, self.limit)


Progress = Callable[[EncodeStats], None]
"""Called after every batch with what that batch added (`texts` counts the distinct ones)."""


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, on some backend."""

    name: str
    """The name or path that was given."""
    spec: EncoderSpec
    """What the model's folder says, with the user's choices applied."""
    tokenizer: TextTokenizer
    backend: Backend
    hf_tokenizer: Any = None
    """The tokenizer of transformers, if the model runs on torch."""

    @property
    def torch_module(self) -> TorchEncoder:
        """The torch module behind the vectors; only a model on torch has one."""
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
        """Encode texts, each of them, and say what became of each; see `SentenceEncoder.encode_distinct`."""
        if prompt and on_long == "chunk-mean":
            raise InputError("chunk-mean and a prompt do not go together: the pieces after the first would lack it")
        prompt_length = self.tokenizer.prompt_length(prompt) if prompt else 0
        budget = batch_tokens or self.backend.default_batch_tokens
        vectors = np.empty((len(texts), self.backend.dimension), np.float32)
        beyond = np.zeros(len(texts), np.int64)
        total = 0
        order = batching.longest_first(np.fromiter(map(len, texts), np.int64, len(texts)))
        for rows, tokens in self._tokenized([texts[i] for i in order], prompt, pieces=on_long == "chunk-mean"):
            beyond[order[rows]] = tokens.lost_each
            if on_long == "error" and tokens.truncated:
                number = int(order[rows][np.flatnonzero(tokens.lost_each)].min())
                raise LongTextError(number, self.tokenizer.max_length + int(beyond[number]), self.tokenizer.max_length)
            lengths = tokens.lengths
            total += int(lengths.sum())
            pieces = np.empty((len(lengths), self.backend.dimension), np.float32)
            for batch, of_batch in self._run(tokens, batching.pack(lengths, budget), prompt_length):
                pieces[batch] = of_batch
                if progress is not None:
                    progress(EncodeStats(texts=len(batch), tokens=int(lengths[batch].sum())))
            vectors[order[rows]] = pieces if tokens.owners is None else self._joined(pieces, tokens)
        broken = int((~np.isfinite(vectors).all(axis=1)).sum())
        if broken:
            raise SentcliError(
                f"{broken} of {len(texts)} vectors are not finite: broken weights, or an overflow in "
                f"{self.backend.precision}"
            )
        return Encoded(vectors, beyond, total)

    def _tokenized(self, texts: list[str], prefix: str, *, pieces: bool) -> Iterator[tuple[slice, Tokens]]:
        """Tokenise chunk by chunk, one chunk ahead of the caller."""
        slices = [slice(start, start + CHUNK) for start in range(0, len(texts), CHUNK)]
        with ThreadPoolExecutor(1, thread_name_prefix="tokenise") as pool:
            ahead = [pool.submit(self.tokenizer, texts[rows], prefix, pieces=pieces) for rows in slices[:1]]
            for i, rows in enumerate(slices):
                tokens = ahead.pop().result()
                if i + 1 < len(slices):
                    ahead.append(pool.submit(self.tokenizer, texts[slices[i + 1]], prefix, pieces=pieces))
                yield rows, tokens

    def _joined(self, pieces: Vectors, tokens: Tokens) -> Vectors:
        """Return the mean of each text's pieces, weighted by their tokens without the special ones."""
        assert tokens.owners is not None
        weights = np.maximum(tokens.lengths - self.tokenizer.special_tokens, 1).astype(np.float32)
        starts = np.flatnonzero(np.diff(tokens.owners, prepend=-1))
        total = np.add.reduceat(pieces * weights[:, None], starts)
        mean: Vectors = (total / np.add.reduceat(weights, starts)[:, None]).astype(np.float32)
        if self.spec.normalizes:
            mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
        return mean

    def _run(
        self, tokens: Tokens, batches: Iterator[batching.Index], prompt_length: int
    ) -> Iterator[tuple[batching.Index, Vectors]]:
        """Run batches, as many at a time as the backend likes, and yield them in order with their vectors."""

        def run(batch: batching.Index) -> Vectors:
            return self.backend.run(pad(tokens, batch, self.tokenizer.pad_id), prompt_length)

        if self.backend.streams == 1:
            yield from ((batch, run(batch)) for batch in batches)
            return
        with ThreadPoolExecutor(self.backend.streams, thread_name_prefix="encode") as pool:
            ahead = [(batch, pool.submit(run, batch)) for batch in batches]
            try:
                for batch, future in ahead:
                    yield batch, future.result()
            finally:  # stopped in between: what has not begun need not be done
                for _, future in ahead:
                    future.cancel()
