"""A model that is served: texts go to an OpenAI-compatible address, and vectors come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field, StrictInt, ValidationError

from sentcli.arrays import Vectors
from sentcli.errors import SentcliError
from sentcli.io.forms import problem_of
from sentcli.io.served import RefusedError, Served
from sentcli.model.encoding import Encoded, EncodeStats, OnLong, Progress, RefusedTextError
from sentcli.model.options import LoadOptions
from sentcli.model.spec import ModelSpec

BATCH_TEXTS, BATCH_CHARACTERS = 32, 64_000
"""The most texts and characters of one request, which common servers take; a longer text is a request by itself."""
TOO_LARGE = 413
"""The status with which a host says that a request has more texts, or longer ones, than it takes."""
OF_TEXTS = (400, TOO_LARGE, 422)
"""The statuses with which hosts refuse a text."""


class Embedding(BaseModel, defer_build=True):
    """The vector of one text."""

    index: StrictInt
    embedding: Annotated[list[Annotated[float, Field(strict=True, allow_inf_nan=False)]], Field(min_length=1)]


class Usage(BaseModel, defer_build=True):
    """What the host has counted."""

    total_tokens: StrictInt | None = None


class Embeddings(BaseModel, defer_build=True):
    """The answer of ``/embeddings``."""

    data: list[Embedding]
    usage: Usage | None = None


@dataclass
class RequestCounts:
    """Counts of what a host was sent and has answered."""

    requests: int = 0
    texts: int = 0
    characters: int = 0
    tokens: int = 0
    """The number of tokens by the host's count; 0 if it gives none."""
    batch_texts: int = BATCH_TEXTS
    """The most texts of a request; fewer where the host has refused more with status 413."""

    def __str__(self) -> str:
        size = f"{self.tokens:,} tokens" if self.tokens else f"{self.characters:,} characters"
        return f"{self.requests:,} requests with {self.texts:,} texts ({size})"


@dataclass(frozen=True)
class ServedBackend:
    """What runs a model elsewhere, with the facts of a `Backend`."""

    dimension: int
    name: str = "served"
    device: str = "cpu"
    """The device on which its vectors are compared."""
    precision: str = "unknown"
    default_batch_tokens: int = 0
    """Requests are not measured in tokens."""


@dataclass(frozen=True)
class ServedModel:
    """A model behind an address, in the place of a `LoadedModel`."""

    name: str
    served: Served
    backend: ServedBackend
    sent: RequestCounts
    spec: ModelSpec = field(default_factory=ModelSpec)

    @classmethod
    def open(cls, name: str, served: Served, options: LoadOptions) -> ServedModel:
        """Ask a host for one vector, to learn the dimension.

        Raises:
            InputError: for an option that a served model does not have.
            SentcliError: if the host does not answer with a vector.
        """
        chosen = []
        for option in fields(options):
            value = getattr(options, option.name)
            if value != option.default:
                chosen.append(f"{option.name.replace('_', ' ')} {value}")
        if chosen:
            raise served.lacks(", ".join(chosen))
        sent = RequestCounts()
        (first,) = _embeddings(served, ["dimension"], sent)
        return cls(name, served, ServedBackend(first.shape[1]), sent)

    def encode(
        self,
        texts: Sequence[str],
        prompt: str = "",
        *,
        batch_tokens: int | None = None,
        on_long: OnLong = "truncate",
        progress: Progress | None = None,
    ) -> Encoded:
        """Encode every text, also repeated ones; see `SentenceEncoder.encode_distinct`.

        How long the texts are in tokens, and whether the host has cut them, is not known.

        Raises:
            InputError: for options that need the tokenizer.
            RefusedTextError: if the host refuses an empty text, or a single one for its size.
            SentcliError: if the host does not answer with a finite vector of this dimension for each text.
        """
        if batch_tokens is not None:
            raise self.served.lacks("--batch-tokens")
        if on_long != "truncate":
            raise self.served.lacks(f"--on-long {on_long}")
        vectors = np.empty((len(texts), self.backend.dimension), np.float32)
        start = 0
        tokens_before = self.sent.tokens
        for batch in _embeddings(self.served, [prompt + text for text in texts], self.sent):
            if batch.shape[1] != self.backend.dimension:
                both = f"{batch.shape[1]} dimensions, after some of {self.backend.dimension}"
                raise SentcliError(f"{self.served} answers with vectors of {both}: another model under its name?")
            vectors[start : start + len(batch)] = batch
            start += len(batch)
            if progress is not None:
                progress(EncodeStats(texts=len(batch)))
        return Encoded(vectors, np.zeros(len(texts), np.int64), self.sent.tokens - tokens_before)


def _batches(texts: Sequence[str], sent: RequestCounts) -> Iterator[list[str]]:
    """Cut texts into those of each request."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        is_full = len(batch) >= sent.batch_texts or characters + len(text) > BATCH_CHARACTERS
        if batch and is_full:
            yield batch
            batch = []
            characters = 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch


def _embeddings(served: Served, texts: Sequence[str], sent: RequestCounts, first: int = 0) -> Iterator[Vectors]:
    """Yield the vectors of texts in batches ``[B, dim]``, and count what was sent.

    Args:
        served: the model.
        texts: in the order in which they are sent.
        sent: is counted up, and learns how many texts the host takes at a time.
        first: the number of the first text among all that are encoded.

    Raises:
        RefusedTextError: if the host refuses an empty text, or a single one for its size.
        SentcliError: if an answer has not one finite vector a text, all of the same dimension, none of them zero.
    """
    underway: deque[list[str]] = deque()

    def requests() -> Iterator[dict[str, Any]]:
        for batch in _batches(texts, sent):
            underway.append(batch)
            yield {"input": batch, "encoding_format": "float"}

    for answer in served.answers("embeddings", requests(), refusals=True):
        batch = underway.popleft()
        if isinstance(answer, RefusedError):
            _check_refusal(answer, batch, first)
            sent.batch_texts = min(sent.batch_texts, (len(batch) + 1) // 2)
            yield from _embeddings(served, batch, sent, first)
            first += len(batch)
            continue
        first += len(batch)
        try:
            embeddings = Embeddings.model_validate(answer)
        except ValidationError as error:
            problem = problem_of(Embeddings, error)
            raise SentcliError(f"{served}: its answer is no list of embeddings ({problem})") from error
        vectors = _vectors_of(embeddings, batch, served)
        sent.requests += 1
        sent.texts += len(batch)
        sent.characters += sum(map(len, batch))
        if embeddings.usage is not None:
            sent.tokens += embeddings.usage.total_tokens or 0
        yield vectors


def _vectors_of(embeddings: Embeddings, batch: Sequence[str], served: Served) -> Vectors:
    """Return the vectors of the texts of a request ``[B, dim]``.

    Raises:
        SentcliError: if there is not one finite vector a text, all of the same dimension, none of them zero.
    """
    rows = sorted(embeddings.data, key=lambda row: row.index)
    if [row.index for row in rows] != list(range(len(batch))):
        raise SentcliError(f"{served} has answered with {len(rows)} vectors, not with one for each of {len(batch)}")
    widths = sorted({len(row.embedding) for row in rows})
    if len(widths) > 1:
        raise SentcliError(f"{served} has answered with vectors of {widths[0]} and of {widths[-1]} dimensions")
    with np.errstate(over="ignore"):
        vectors = np.array([row.embedding for row in rows], np.float32)
    if not np.isfinite(vectors).all():
        raise SentcliError(f"{served} has answered with numbers beyond float32")
    if any(text.strip() and not vector.any() for text, vector in zip(batch, vectors, strict=True)):
        raise SentcliError(f"{served} has answered with a vector of zeros, which says nothing about its text")
    return vectors


def _check_refusal(refusal: RefusedError, batch: Sequence[str], first: int) -> None:
    """Raise the error of a request that was refused, unless a smaller one may be taken.

    Raises:
        RefusedTextError: if the request has an empty text, which many hosts refuse, or a single one that is too large.
        RefusedError: for any other reason.
    """
    if refusal.status == TOO_LARGE and len(batch) > 1:
        return
    empty = [number for number, text in enumerate(batch) if not text.strip()]
    if refusal.status in OF_TEXTS and empty:
        raise RefusedTextError(first + empty[0], f"{refusal}; its text is empty: leave it out") from refusal
    if refusal.status == TOO_LARGE:
        raise RefusedTextError(first, f"{refusal}; its text has {len(batch[0]):,} characters") from refusal
    raise refusal
