"""Bring a directory up to date with a corpus that has changed.

The new directory is written beside the old one as a fresh `encode` would write it, but a text that the old one has
keeps its stored vector, so that only new texts are encoded. Then it takes the place of the old one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from sentcli.encoder.vector_facts import Passages, VectorFacts
from sentcli.errors import InputError
from sentcli.io.blocks import Block, Survey
from sentcli.io.content_digests import text_digests
from sentcli.io.dataset import Manifest, holds_manifest, read_manifest
from sentcli.io.folder import local_place, open_folder
from sentcli.io.writers import arrow_column
from sentcli.model.encoding import Encoded, EncodeStats, LongTextError, OnLong, Progress, RefusedTextError
from sentcli.model.passages import context_of, title_columns, title_of

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.model.identity import EncoderIdentity
    from sentcli.model.tokenizing import TextTokenizer

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
ROWS_AT_A_TIME = 8192
"""Rows of the old directory that are hashed together."""
SAME_VECTORS = ("precision", "output_dtype", "on_long")
"""The settings of a directory besides its `VectorFacts` in which it has to be like what is written now."""


class Pending(Protocol):
    """Vectors that are being made."""

    def result(self) -> Encoded:
        """Wait for them."""


@dataclass(frozen=True)
class Changes:
    """What the rows of a corpus are to those of a directory, by their ids."""

    kept: int
    """The rows that are there with the same text and columns."""
    changed: int
    new: int
    gone: int
    """The rows of the directory that the corpus does not have."""
    texts: int
    """The distinct texts that the directory does not have, which are encoded."""
    characters: int
    """The characters of these texts."""
    sample: tuple[str, ...]
    """Some of them, to measure the time that they take."""

    def __str__(self) -> str:
        rows = self.kept + self.changed + self.new
        return (
            f"{rows:,} rows: {self.kept:,} as before, {self.changed:,} changed, {self.new:,} new, {self.gone:,} gone; "
            f"{self.texts:,} texts encoded"
        )

    def seconds(self, encoder: SentenceEncoder, prompt: str) -> float:
        """Return how long the new texts will take, measured on the sample, in seconds."""
        if not self.sample:
            return 0.0
        characters = sum(map(len, self.sample))
        began = time.perf_counter()
        encoder.encode_distinct(self.sample, prompt)
        return (time.perf_counter() - began) * self.characters / max(characters, 1)

    def to_dict(self) -> dict[str, int]:
        """Return the JSON form."""
        return {
            "kept": self.kept,
            "changed": self.changed,
            "new": self.new,
            "gone": self.gone,
            "encoded": self.texts,
        }


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
        wanted = _digests(texts)
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
            stored = np.load(self.folder / self.manifest.shards[shard].vectors, mmap_mode="r", allow_pickle=False)
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
        digests = np.concatenate([np.empty((0, 2), np.uint64), *map(_digests, self._texts())])
        order = np.argsort(digests[:, 0], kind="stable")
        return digests[order, 0], digests[order, 1], order.astype(np.int64)

    def _texts(self) -> Iterator[list[str]]:
        """Yield what was encoded of each row, in order."""
        for table in self.tables(["text", *self.context_columns]):
            texts = table["text"].to_pylist()
            contexts = self.contexts(table.to_pydict())
            if contexts:
                texts = [context + text for context, text in zip(contexts, texts, strict=True)]
            yield texts

    @cached_property
    def passages(self) -> Passages | None:
        """How documents were cut into the rows; None if each row is a document."""
        return VectorFacts.read(self.name, self.manifest.settings).passages

    @cached_property
    def context_columns(self) -> list[str]:
        """The columns of which the contexts of passages are made; none if there are no contexts."""
        return context_columns(self.passages, self.manifest.columns)

    def contexts(self, columns: Mapping[str, Sequence[Any]]) -> list[str]:
        """Return what was put in front of the text of each row, given its `context_columns`; empty if nothing was."""
        return stored_contexts(self.passages, columns)

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


@dataclass
class RowChanges:
    """Counts what the rows of a corpus are to those of a directory, block by block."""

    stored: StoredTexts
    column_types: dict[str, Any]
    """The Arrow types of the columns, as they are written."""
    sample_texts: int = 256
    counts: dict[str, int] = field(default_factory=lambda: {"kept": 0, "changed": 0, "new": 0})
    _new_texts: set[bytes] = field(default_factory=set)
    _characters: int = 0
    _sample: list[str] = field(default_factory=list)

    def add(self, block: Block) -> None:
        """Count the rows of a block."""
        ids = _digests(block.ids)[:, 0]
        contents = _contents(block.texts, self._as_written(block))
        place = np.searchsorted(self._ids, ids)
        place[place == len(self._ids)] = 0
        is_there = np.zeros(len(ids), bool)
        is_same = is_there.copy()
        if len(self._ids):
            is_there = self._ids[place] == ids
            is_same = is_there & (self._contents[place] == contents)
            self._seen[place[is_there]] = True
        self.counts["kept"] += int(is_same.sum())
        self.counts["changed"] += int((is_there & ~is_same).sum())
        self.counts["new"] += int((~is_there).sum())
        texts = block.encoded_texts
        for row in np.flatnonzero(self.stored.find(texts) < 0).tolist():
            self._add_new(texts[row])

    def _as_written(self, block: Block) -> dict[str, list[Any]]:
        """Return the columns of a block as they are read from a directory."""
        columns = {}
        for name, values in block.columns.items():
            columns[name] = arrow_column(values, self.column_types[name]).to_pylist()
        return columns

    def _add_new(self, text: str) -> None:
        key = _digests([text]).tobytes()
        if key in self._new_texts:
            return
        self._new_texts.add(key)
        self._characters += len(text)
        if len(self._sample) < self.sample_texts:
            self._sample.append(text)

    def total(self) -> Changes:
        """Return what was counted over all blocks."""
        gone = len(self._seen) - int(self._seen.sum())
        counts = self.counts
        return Changes(
            counts["kept"],
            counts["changed"],
            counts["new"],
            gone,
            len(self._new_texts),
            self._characters,
            tuple(self._sample),
        )

    @cached_property
    def _rows(self) -> tuple[Hashes, Hashes]:
        """The hashes of the ids of the directory in order, and of the contents of their rows."""
        ids, contents = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for table in self.stored.tables():
            columns = table.to_pydict()
            ids.append(_digests(columns.pop("id"))[:, 0])
            contents.append(_contents(columns.pop("text"), columns))
        all_ids, all_contents = np.concatenate(ids), np.concatenate(contents)
        order = np.argsort(all_ids, kind="stable")
        return all_ids[order], all_contents[order]

    @property
    def were_numbers(self) -> bool:
        """Whether the ids of the directory are the numbers of its rows."""
        numbers = _digests(list(map(str, range(len(self._ids)))))[:, 0]
        return bool(np.array_equal(np.sort(numbers), self._ids))

    @property
    def _ids(self) -> Hashes:
        return self._rows[0]

    @property
    def _contents(self) -> Hashes:
        return self._rows[1]

    @cached_property
    def _seen(self) -> npt.NDArray[np.bool_]:
        return np.zeros(len(self._ids), bool)


def context_columns(passages: Passages | None, names: Iterable[str]) -> list[str]:
    """Return those of some columns of which the contexts of passages are made; none if there are no contexts."""
    if passages is None or passages.context == "none":
        return []
    return ["heading", *title_columns(names)]


def stored_contexts(passages: Passages | None, columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return what stands in front of each of some rows when it is encoded; empty if nothing does.

    Args:
        passages: how documents were cut into the rows; None if each row is a document.
        columns: the cells of `context_columns`, and any others.
    """
    needed = context_columns(passages, columns)
    if passages is None or not needed:
        return []
    headings, *titles = [columns[name] for name in needed]
    contexts = []
    for row, heading in enumerate(headings):
        title = title_of([column[row] for column in titles])
        contexts.append(context_of(title, heading or "", passages.context))
    return contexts


def stored_texts(
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


def changes(stored: StoredTexts, surveyed: Survey, reader: Iterable[Block]) -> Changes:
    """Return what the rows of a corpus are to those of a directory; nothing is encoded.

    Args:
        stored: the directory.
        surveyed: what is known of the rows.
        reader: the rows with all their columns.

    Raises:
        InputError: if ids are there twice, or rows that had ids have none.
    """
    if surveyed.repeated_ids:
        raise InputError(
            f"{surveyed.repeated_ids:,} rows have the id of an earlier row, so it cannot be said which of them has "
            f"changed: {surveyed.repeated}"
        )
    counted = RowChanges(stored, surveyed.column_types)
    for block in reader:
        counted.add(block)
    total = counted.total()
    if surveyed.rows and not len(surveyed.id_hashes) and not counted.were_numbers:
        raise InputError(f"the rows of {stored.name} have ids, and these have none: name their column with --id-field")
    return total


def require_same_vectors(name: str, before: dict[str, Any], now: dict[str, Any], identity: EncoderIdentity) -> None:
    """Refuse to update a directory whose vectors were made otherwise.

    Args:
        name: of the directory.
        before: its settings.
        now: those of what would be written.
        identity: of the model that encodes what is new.

    Raises:
        InputError: which names what differs.
    """
    differences = vector_differences(name, before, now, identity)
    if differences:
        how = "; ".join(differences)
        raise InputError(
            f"{name} was made otherwise: {how}. Give what is there; sentcli migrate moves it to another model, and "
            "--overwrite encodes all anew"
        )


def vector_differences(name: str, before: dict[str, Any], now: dict[str, Any], identity: EncoderIdentity) -> list[str]:
    """Return in what the settings of a directory differ from those of the vectors that would be written.

    Args:
        name: of the directory.
        before: its settings.
        now: those of what would be written.
        identity: of the model that would write it.
    """
    if identity.is_named(str(before.get("model_fingerprint"))):
        before = {**before, "model_fingerprint": now["model_fingerprint"]}
    differences = VectorFacts.read(name, before).differences(VectorFacts.read(name, now))
    for key in SAME_VECTORS:
        if before.get(key) != now.get(key):
            differences.append(f"{key} {before.get(key)!r} there, {now.get(key)!r} here")
    return differences


def _digests(texts: Sequence[str]) -> Hashes:
    """Return the digests of texts, in two halves ``[n, 2]``."""
    return text_digests(texts).view(np.uint64).reshape(-1, 2)


def _contents(texts: Sequence[str], columns: dict[str, list[Any]]) -> Hashes:
    """Return a hash of the text and the other columns of each row ``[n]``."""
    names = sorted(columns)
    contents = []
    for row in zip(texts, *map(columns.__getitem__, names), strict=True):
        contents.append(repr((names, row)))
    return _digests(contents)[:, 0]
