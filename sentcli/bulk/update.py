"""What an update of a directory changes: its rows are compared with those of a corpus.

The new directory is written beside the old one as a fresh `encode` would write it, but a text that the old one has
keeps its stored vector (`stored_texts`), so that only new texts are encoded. Then it takes the place of the old one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sentcli import console
from sentcli.arrays import BoolArray, UInt64Array
from sentcli.bulk.engine import EncodeSettings
from sentcli.bulk.files import Inputs
from sentcli.bulk.stored_texts import StoredTexts, open_stored_texts
from sentcli.bulk.vector_settings import check_same_model, settings_of
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.blocks import BLOCK_ROWS, Block
from sentcli.io.column_hashes import row_hashes, value_hashes
from sentcli.io.writers import DIRECTORY, arrow_column

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.model.identity import EncoderIdentity

SAME_VECTORS = ("precision", "output_dtype", "on_long")
"""The settings of a directory besides its `VectorFacts` in which it has to be like what is written now."""


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


@dataclass
class RowChanges:
    """Counts what the rows of a corpus are to those of a directory, block by block."""

    stored: StoredTexts
    column_types: dict[str, Any]
    """The Arrow types of the columns, as they are written."""
    sample_texts: int = 64
    counts: dict[str, int] = field(default_factory=lambda: {"kept": 0, "changed": 0, "new": 0})
    _new_texts: set[bytes] = field(default_factory=set)
    _characters: int = 0
    _sample: list[str] = field(default_factory=list)

    def counted(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks, and count their rows."""
        for block in blocks:
            self.add(block)
            yield block

    def add(self, block: Block) -> None:
        """Count the rows of a block."""
        ids = value_hashes(arrow_column(block.ids, pa.string()))
        contents = row_hashes(self._as_written(block))
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
        for row in np.flatnonzero(self.stored.find(block.digests) < 0).tolist():
            self._add_new(texts[row], block.digests[row])

    def _as_written(self, block: Block) -> dict[str, pa.Array]:
        """Return the texts and the columns of a block as they are written into a directory."""
        columns = {"text": arrow_column(block.texts, pa.string())}
        for name, values in block.columns.items():
            columns[name] = arrow_column(values, self.column_types[name])
        return columns

    def _add_new(self, text: str, digest: bytes) -> None:
        if digest in self._new_texts:
            return
        self._new_texts.add(digest)
        self._characters += len(text)
        if len(self._sample) < self.sample_texts:
            self._sample.append(text)

    def total_of(self, inputs: Inputs) -> Changes:
        """Return what has changed, after reading all rows if none was counted yet; nothing is encoded."""
        if not any(self.counts.values()):
            for block in inputs.blocks():
                self.add(block)
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
    def _rows(self) -> tuple[UInt64Array, UInt64Array]:
        """The hashes of the ids of the directory in order, and of the contents of their rows."""
        ids, contents = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for table in self.stored.tables():
            (batch,) = table.combine_chunks().to_batches()
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            ids.append(value_hashes(columns.pop("id")))
            contents.append(row_hashes(columns))
        all_ids, all_contents = np.concatenate(ids), np.concatenate(contents)
        order = np.argsort(all_ids, kind="stable")
        return all_ids[order], all_contents[order]

    @property
    def were_numbers(self) -> bool:
        """Whether the ids of the directory are the numbers of its rows."""
        numbers = list(map(str, range(len(self._ids))))
        hashes = value_hashes(pa.array(numbers, pa.string()))
        return bool(np.array_equal(np.sort(hashes), self._ids))

    @property
    def _ids(self) -> UInt64Array:
        return self._rows[0]

    @property
    def _contents(self) -> UInt64Array:
        return self._rows[1]

    @cached_property
    def _seen(self) -> BoolArray:
        return np.zeros(len(self._ids), bool)


def counting(
    encoder: SentenceEncoder, inputs: Inputs, output: str, settings: EncodeSettings, facts: dict[str, Any] | None = None
) -> RowChanges:
    """Return what counts the changes of an update, which has counted no row yet.

    Args:
        encoder: the model.
        inputs: the inputs that `read_inputs` returned.
        output: the directory.
        settings: how the rows are encoded and written, with the texts of the directory.
        facts: the settings of the manifest that would be written, if they were made already.

    Raises:
        InputError: if the directory was made otherwise, ids are there twice, or rows that had ids have none.
    """
    stored = settings.stored
    assert stored is not None
    before = stored.manifest.settings
    facts = facts or settings_of(encoder, inputs, settings, BLOCK_ROWS, DIRECTORY)
    require_same_vectors(output, before, facts, encoder.identity)
    check_same_model(output, before, facts)
    surveyed = inputs.survey
    if surveyed.repeated_ids:
        raise InputError(
            f"{surveyed.repeated_ids:,} rows have the id of an earlier row, so it cannot be said which of them has "
            f"changed: {surveyed.repeated}"
        )
    counted = RowChanges(stored, surveyed.column_types)
    if surveyed.rows and not len(surveyed.id_hashes) and not counted.were_numbers:
        raise InputError(f"the rows of {stored.name} have ids, and these have none: name their column with --id-field")
    return counted


def dry_run(encoder: SentenceEncoder, inputs: Inputs, output: str, settings: EncodeSettings) -> dict[str, Any]:
    """Say what an update of a directory would change and how long encoding would take, and return it as JSON.

    Raises:
        InputError: if there is no directory, it was made otherwise, or the rows cannot be compared.
    """
    stored = settings.stored or open_stored_texts(output, encoder, settings.prompt, settings.on_long)
    if stored is None:
        raise InputError(f"{output} is not there yet: --update would encode all {inputs.survey.rows:,} rows")
    changed = counting(encoder, inputs, output, replace(settings, stored=stored)).total_of(inputs)
    seconds = changed.seconds(encoder, settings.prompt)
    console.note(f"{output}: {changed}, in about {seconds:,.0f} s; nothing was written (--dry-run)")
    return {**changed.to_dict(), "seconds_estimated": seconds}


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
