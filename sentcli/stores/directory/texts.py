"""The texts of a finished directory, whose stored vectors are found by what was encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import AnyArray, BoolArray, Digests, Int64Array, UInt64Array, Vectors, looked_up
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.blocks import Block, Counts
from sentcli.io.dataset import Manifest, Shard, holds_manifest, read_manifest
from sentcli.io.dataset_check import mapped_shard
from sentcli.io.digests import text_digests
from sentcli.io.folder import local_place, open_folder
from sentcli.model.encoding import Encoded, EncodeStats, LongTextError, OnLong, Progress, RefusedTextError
from sentcli.model.passages import Context, context_columns, stored_contexts, with_contexts

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.model.tokenizing import TextTokenizer, Tokens
    from sentcli.stores.engine import Pending

_ROWS_AT_A_TIME = 8192
"""Rows of the old directory that are hashed together."""


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

    def find(self, digests: Digests) -> Int64Array:
        """Return the row of the directory that was made of each text, by its digest, or -1 ``[n]``."""
        keys, checks, rows = self._index
        if not len(keys):
            return np.full(len(digests), -1, np.int64)
        wanted = halves(digests)
        place = np.searchsorted(keys, wanted[:, 0])
        place[place == len(keys)] = 0
        is_same = (keys[place] == wanted[:, 0]) & (checks[place] == wanted[:, 1])
        return np.where(is_same, rows[place], -1)

    def put_back(self, block: Block, vectors: AnyArray) -> None:
        """Put the stored vectors of a block's texts in the place of its vectors ``[n, dim]``, which are written."""
        found = self.find(block.digests)
        known = np.flatnonzero(found >= 0)
        if not len(known):
            return
        shards = self._shards_of(found[known])
        for shard in np.unique(shards).tolist():
            rows = known[shards == shard]
            manifest = self.manifest
            stored = mapped_shard(self.folder, manifest.shards[shard], manifest.dimension, manifest.dtype)
            vectors[rows] = stored[found[rows] - self._first_rows[shard]]

    def encode(
        self, submit: Callable[[Sequence[str]], Pending], texts: Sequence[str], digests: Digests, progress: Progress
    ) -> Pending:
        """Let those texts be encoded that the directory does not have; the vectors of the others are any.

        Args:
            submit: lets texts be encoded.
            texts: new and known texts ``[n]``.
            digests: their digests ``[n]``.
            progress: called with the number of known ones.

        Returns:
            The texts, encoded; `completed` counts the tokens of the known ones.
        """
        found = self.find(digests)
        is_new = found < 0
        pending = submit([texts[row] for row in np.flatnonzero(is_new).tolist()])
        progress(EncodeStats(texts=int((~is_new).sum())))
        excess_tokens = np.zeros(len(texts), np.int64)
        was_cut = np.append(self._cut_texts > 0, False)  # the last one is that of texts that are new
        in_question = np.flatnonzero(was_cut[self._shards_of(found)] & ~is_new)
        if len(in_question):
            excess_tokens[in_question] = self._tokens([texts[row] for row in in_question.tolist()]).excess_tokens
        return _WithKnown(pending, is_new, excess_tokens[~is_new])

    def completed(self, encoded: Iterable[tuple[Any, Vectors, Counts]]) -> Iterator[tuple[Any, Vectors, Counts]]:
        """Yield blocks with the tokens of the texts that the directory has, in the counts of the last of each shard."""
        if self.tokenizer is None:
            yield from encoded
            return
        for number, of_shard in groupby(encoded, lambda one: one[0].shard):
            counting = _ShardTokens(self, number)
            last: tuple[Block, Vectors, Counts] | None = None
            for following in of_shard:
                if last is not None:
                    yield last
                counting.add(following[0])
                last = following
            assert last is not None  # a group has an element
            block, vectors, counts = last
            yield block, vectors, replace(counts, tokens=counts.tokens + counting.total())

    def _tokens(self, texts: Sequence[str]) -> Tokens:
        """Return the tokens of texts, as the model would run them."""
        assert self.tokenizer is not None
        return self.tokenizer(texts, self.prompt, pieces=self.on_long == "chunk-mean")

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Return how many tokens the model would run for texts."""
        if not texts:
            return 0
        return int(self._tokens(texts).lengths.sum())

    def _shards_of(self, rows: Int64Array) -> Int64Array:
        """Return the number of the shard of each row; -1 for the row -1 ``[n]``."""
        return np.searchsorted(self._first_rows, rows, "right") - 1

    @cached_property
    def _cut_texts(self) -> Int64Array:
        """How many rows of each shard are longer than the maximum length ``[shards]``."""
        return np.array([shard.truncated for shard in self.manifest.shards], np.int64)

    @cached_property
    def _first_rows(self) -> Int64Array:
        """The first row of each shard ``[shards]``."""
        return np.array([shard.first_row for shard in self.manifest.shards], np.int64)

    @cached_property
    def _index(self) -> tuple[UInt64Array, UInt64Array, Int64Array]:
        """The first halves of the digests of all texts in order, their other halves, and the rows of the texts."""
        digests = self.digests
        order = np.argsort(digests[:, 0], kind="stable")
        return digests[order, 0], digests[order, 1], order.astype(np.int64)

    @cached_property
    def digests(self) -> UInt64Array:
        """The digests of what was encoded of each row, in two halves ``[rows, 2]``."""
        return np.concatenate([np.empty((0, 2), np.uint64), *map(digests_of, self.texts(self.manifest.shards))])

    def texts(self, shards: Sequence[Shard]) -> Iterator[list[str]]:
        """Yield what was encoded of each row of some shards, in order, some rows at a time."""
        for table in self.tables(["text", *self.context_columns], shards):
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

    def tables(self, columns: list[str] | None = None, shards: Sequence[Shard] | None = None) -> Iterator[Any]:
        """Yield the rows of some shards or all of them, with some of their columns or all, as tables of Arrow."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if shards is None:
            shards = self.manifest.shards
        for shard in shards:
            with pq.ParquetFile(self.folder / shard.rows) as file:
                for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=columns):
                    yield pa.Table.from_batches([batch])


@dataclass(frozen=True)
class _WithKnown:
    """Vectors of new texts that are being made, among those of known ones."""

    pending: Pending
    is_new: BoolArray
    excess_tokens: Int64Array

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
        return Encoded(vectors, excess_tokens, encoded.tokens)


class _ShardTokens:
    """Counts the tokens of those texts of a shard that the directory has.

    Most of them are the texts of the same shard of the directory, whose tokens its manifest says: then only those are
    cut into tokens that are gone from it or have come to it.

    Args:
        stored: the directory.
        number: of the shard.
    """

    def __init__(self, stored: StoredTexts, number: int) -> None:
        self.stored = stored
        self.there: UInt64Array = np.empty(0, np.uint64)
        """The digests of the texts of the same shard of the directory, rising."""
        self.rows = np.empty(0, np.int64)
        """A row of the shard with each of them."""
        self.shard: Shard | None = None
        if number < len(stored.manifest.shards):
            self.shard = stored.manifest.shards[number]
            first = self.shard.first_row
            of_shard = stored.digests[first : first + self.shard.count, 0]
            self.there, self.rows = np.unique(of_shard, return_index=True)
        self.is_kept = np.zeros(len(self.there), np.bool_)
        self.come: set[int] = set()
        self.tokens = 0

    def add(self, block: Block) -> None:
        """Take the texts of a block, which may repeat."""
        known = np.flatnonzero(self.stored.find(block.digests) >= 0)
        keys = halves(block.digests)[known, 0]
        place = looked_up(keys, self.there)
        is_there = place >= 0
        self.is_kept[place[is_there]] = True
        texts = block.encoded_texts
        come = {}
        for row, key in zip(known[~is_there].tolist(), keys[~is_there].tolist(), strict=True):
            if key not in self.come:
                come[key] = texts[row]
        self.come |= come.keys()
        self.tokens += self.stored.count_tokens(list(come.values()))

    def total(self) -> int:
        """Return how many tokens all known texts of the blocks have, of which each counts once."""
        if self.shard is None:
            return self.tokens
        most_are_gone = self.is_kept.sum() * 2 < len(self.is_kept)
        if most_are_gone:
            return self.tokens + self._count(self.shard, self.rows[self.is_kept])
        return self.tokens + self.shard.tokens - self._count(self.shard, self.rows[~self.is_kept])

    def _count(self, shard: Shard, rows: Int64Array) -> int:
        """Return how many tokens the texts of rows of a shard of the directory have."""
        if not len(rows):
            return 0
        texts = list(chain.from_iterable(self.stored.texts([shard])))
        return self.stored.count_tokens([texts[row] for row in rows.tolist()])


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


def digests_of(texts: Sequence[str]) -> UInt64Array:
    """Return the digests of texts, in two halves ``[n, 2]``."""
    return halves(text_digests(texts))


def halves(digests: Digests) -> UInt64Array:
    """Return digests in two halves ``[n, 2]``."""
    return np.ascontiguousarray(digests).view(np.uint64).reshape(-1, 2)
