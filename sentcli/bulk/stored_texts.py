"""The texts of a finished directory, whose stored vectors are found by what was encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.blocks import Block
from sentcli.io.dataset import Manifest, holds_manifest, read_manifest
from sentcli.io.dataset_check import mapped_shard
from sentcli.io.digests import text_digests
from sentcli.io.folder import local_place, open_folder
from sentcli.model.encoding import Encoded, EncodeStats, LongTextError, OnLong, Progress, RefusedTextError
from sentcli.model.passages import Context, context_columns, stored_contexts, with_contexts

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.model.tokenizing import TextTokenizer

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
ROWS_AT_A_TIME = 8192
"""Rows of the old directory that are hashed together."""


class Pending(Protocol):
    """Vectors that are being made."""

    def result(self) -> Encoded:
        """Wait for them."""


@dataclass(frozen=True)
class StoredTexts:
    """The texts of a finished directory with their vectors, which are found by the text that was encoded.

    Args:
        name: of the directory, as every process that writes can read it.
        manifest: of it.
        tokenizer: counts the tokens of texts that are not encoded; None for a model that is served.
        prompt: the text in front of each.
        on_long: what happened to texts that are too long.
    """

    name: str
    manifest: Manifest
    tokenizer: TextTokenizer | None = None
    prompt: str = ""
    on_long: OnLong = "truncate"

    @cached_property
    def folder(self) -> Path:
        """The directory, or a copy of it on this machine."""
        return local_place(self.name).path

    def find(self, texts: Sequence[str]) -> Integers:
        """Return the row of the directory that was made of each text, or -1 ``[n]``."""
        keys, checks, rows = self._index
        if not len(keys):
            return np.full(len(texts), -1, np.int64)
        wanted = digests_of(texts)
        place = np.searchsorted(keys, wanted[:, 0])
        place[place == len(keys)] = 0
        is_same = (keys[place] == wanted[:, 0]) & (checks[place] == wanted[:, 1])
        return np.where(is_same, rows[place], -1)

    def put_back(self, block: Block, vectors: npt.NDArray[Any]) -> None:
        """Put the stored vectors of a block's texts in the place of its vectors ``[n, dim]``, which are written."""
        found = self.find(block.encoded_texts)
        known = np.flatnonzero(found >= 0)
        if not len(known):
            return
        shards = np.searchsorted(self._first_rows, found[known], "right") - 1
        for shard in np.unique(shards).tolist():
            rows = known[shards == shard]
            manifest = self.manifest
            stored = mapped_shard(self.folder, manifest.shards[shard], manifest.dimension, manifest.dtype)
            vectors[rows] = stored[found[rows] - self._first_rows[shard]]

    def encode(self, submit: Callable[[Sequence[str]], Pending], texts: Sequence[str], progress: Progress) -> Pending:
        """Let those texts be encoded that the directory does not have; the vectors of the others are any.

        Args:
            submit: lets texts be encoded.
            texts: new and known texts.
            progress: called with the number of known ones.
        """
        is_new = self.find(texts) < 0
        new: list[str] = []
        known: list[str] = []
        for text, is_new_text in zip(texts, is_new.tolist(), strict=True):
            if is_new_text:
                new.append(text)
            else:
                known.append(text)
        pending = submit(new)
        progress(EncodeStats(texts=len(known)))
        return _WithKnown(pending, is_new, *self._counted(known))

    def _counted(self, texts: Sequence[str]) -> tuple[Integers, int]:
        """Return the excess tokens of each text ``[n]``, and the tokens that the model would run."""
        if self.tokenizer is None or not texts:
            return np.zeros(len(texts), np.int64), 0
        tokens = self.tokenizer(texts, self.prompt, pieces=self.on_long == "chunk-mean")
        return tokens.excess_tokens, int(tokens.lengths.sum())

    @cached_property
    def _first_rows(self) -> Integers:
        """The first row of each shard ``[shards]``."""
        return np.array([shard.first_row for shard in self.manifest.shards], np.int64)

    @cached_property
    def _index(self) -> tuple[Hashes, Hashes, Integers]:
        """The first halves of the digests of all texts in order, their other halves, and the rows of the texts."""
        digests = np.concatenate([np.empty((0, 2), np.uint64), *map(digests_of, self._texts())])
        order = np.argsort(digests[:, 0], kind="stable")
        return digests[order, 0], digests[order, 1], order.astype(np.int64)

    def _texts(self) -> Iterator[list[str]]:
        """Yield what was encoded of each row, in order."""
        for table in self.tables(["text", *self.context_columns]):
            yield with_contexts(self.context, table.to_pydict())

    @cached_property
    def context(self) -> Context:
        """What stands in front of each text."""
        return VectorFacts.read(self.name, self.manifest.settings).context

    @cached_property
    def context_columns(self) -> list[str]:
        """The columns of which the contexts of passages are made; none if there are no contexts."""
        return context_columns(self.context, self.manifest.columns)

    def contexts(self, columns: Mapping[str, Sequence[Any]]) -> list[str]:
        """Return what was put in front of the text of each row, given its `context_columns`; empty if nothing was."""
        return stored_contexts(self.context, columns)

    def tables(self, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield the rows with some of their columns, or all, as tables of Arrow, in order."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for shard in self.manifest.shards:
            with pq.ParquetFile(self.folder / shard.rows) as file:
                for batch in file.iter_batches(ROWS_AT_A_TIME, columns=columns):
                    yield pa.Table.from_batches([batch])


@dataclass(frozen=True)
class _WithKnown:
    """Vectors of new texts that are being made, among those of known ones."""

    pending: Pending
    is_new: npt.NDArray[np.bool_]
    excess_tokens: Integers
    tokens: int

    def result(self) -> Encoded:
        """Wait for the new texts, and return all; the vector of a known text is of ones."""
        try:
            encoded = self.pending.result()
        except (LongTextError, RefusedTextError) as error:
            error.number = int(np.flatnonzero(self.is_new)[error.number])
            raise
        vectors = np.ones((len(self.is_new), encoded.vectors.shape[1]), np.float32)
        vectors[self.is_new] = encoded.vectors
        excess_tokens = np.empty(len(self.is_new), np.int64)
        excess_tokens[self.is_new] = encoded.excess_tokens
        excess_tokens[~self.is_new] = self.excess_tokens
        return Encoded(vectors, excess_tokens, encoded.tokens + self.tokens)


def open_stored_texts(
    output: str, encoder: SentenceEncoder | None = None, prompt: str = "", on_long: OnLong = "truncate"
) -> StoredTexts | None:
    """Return the texts of a finished directory, which is updated or encoded anew, or None where there is none yet.

    Args:
        output: the directory.
        encoder: of the new texts; None if the vectors that are there are of no use.
        prompt: the text in front of each.
        on_long: what happens to texts that are too long.

    Raises:
        InputError: if it is unfinished or damaged.
    """
    place = open_folder(output)
    if not holds_manifest(place.names()):
        return None
    manifest = read_manifest(place)
    if manifest.rows_done < manifest.rows_total:
        done = f"{manifest.rows_done:,} of {manifest.rows_total:,} rows"
        raise InputError(f"{output} is unfinished ({done}): finish it with encode --resume first")
    for shard in manifest.shards:
        problem = place.damage(shard, manifest)
        if problem is not None:
            raise InputError(f"{output}: {problem}; --overwrite encodes all anew")
    stored = StoredTexts(place.full_name, manifest, None, prompt, on_long)
    if encoder is None or encoder.sent is not None:
        return stored
    return replace(stored, tokenizer=encoder.tokenizer)


def digests_of(texts: Sequence[str]) -> Hashes:
    """Return the digests of texts, in two halves ``[n, 2]``."""
    return text_digests(texts).view(np.uint64).reshape(-1, 2)
