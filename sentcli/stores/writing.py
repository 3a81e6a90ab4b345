"""Write rows with their vectors into a file, standard output or a directory of shards.

This is the one way from rows to them, for `encode`, `index -o`, updates, shards of several machines, workers on a
cluster and moves to another model: the inputs are read in blocks, which get their vectors (`row_vectors.py`), and a
writer takes both. A block of rows never crosses a shard. A collection of a database is written by the same blocks
(`updating.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.arrays import AnyArray
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import locked, require_room, room_explained
from sentcli.io.blocks import Block, Counts
from sentcli.io.places import is_remote
from sentcli.io.scratch import is_scratch
from sentcli.io.writers import DIRECTORY, STDOUT, OutputFormat, OutputPlan, Write, open_writer, output_format
from sentcli.model.encoding import EncodeStats, Progress
from sentcli.stores.inputs import Inputs
from sentcli.stores.options import WriteSettings
from sentcli.stores.row_vectors import EncodedVectors, RowVectors, advice_on_room, write_blocks

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.io.dataset_writer import DatasetWriter
    from sentcli.stores.changes import Changes
    from sentcli.stores.directory.changes import DirectoryComparison
    from sentcli.stores.directory.texts import StoredTexts


@dataclass(frozen=True)
class EncodeSummary:
    """What one call of `write_rows` has written."""

    output: str
    rows: int
    """The number of rows in the output, or in this machine's share of it."""
    dimension: int
    rows_before: int
    """The number of rows that earlier runs had written."""
    nulls_skipped: int
    counts: Counts
    """The counts over the rows that this call encoded."""
    damaged: list[str]
    """What was wrong with shards of an earlier run, which were made again."""
    seconds: float
    repeated_ids: int = 0
    """The number of ids that rows of earlier inputs have, to which these were appended."""
    changes: Changes | None = None
    """What has changed in a directory that was updated."""

    @property
    def output_file(self) -> str | None:
        """The output; None for vectors that stay in memory, whose file is temporary."""
        return None if is_scratch(Path(self.output)) else self.output

    @property
    def rows_per_second(self) -> float:
        """The speed of this call."""
        return self.counts.rows / max(self.seconds, 1e-9)

    def say(self, vectors: RowVectors) -> None:
        """Say what was written, and warn of rows that were left out or cut."""
        counts = self.counts
        if self.changes is not None:
            console.note(f"{self.output}: {self.changes}")
        for problem in self.damaged:
            console.warn(f"{problem}: its shard was made again")
        before = f", {self.rows_before} were there" if self.rows_before else ""
        written = f"{self.output_file or 'a frame'} [{self.rows}, {self.dimension}]"
        console.note(
            f"{counts.rows} rows{before} -> {written} in {self.seconds:.1f} s ({self.rows_per_second:,.0f} rows/s, "
            f"{counts.duplicates} duplicate and {counts.empty} empty rows; {vectors.origin})"
        )
        if self.nulls_skipped:
            console.warn(f"{self.nulls_skipped} rows without text were left out")
        vectors.warn_of_cut(counts)

    def to_dict(self, encoder: SentenceEncoder) -> dict[str, Any]:
        """Return the results as JSON, with what a model that is served was sent."""
        counts = self.counts
        results: dict[str, Any] = {
            "output": self.output_file,
            "rows": self.rows,
            "dimension": self.dimension,
            "rows_encoded": counts.rows,
            "rows_skipped": self.nulls_skipped,
            "distinct": counts.rows - counts.duplicates,
            "duplicates": counts.duplicates,
            "empty": counts.empty,
            "tokens": counts.tokens,
            "truncated": counts.truncated,
            "tokens_lost": counts.tokens_lost,
            "rows_per_second": self.rows_per_second,
        }
        if encoder.sent is not None:
            results["sent"] = asdict(encoder.sent)
        if self.changes is not None:
            results |= self.changes.to_dict()
        return results


def write_rows(
    inputs: Inputs,
    vectors: RowVectors,
    output: str,
    writing: WriteSettings | None = None,
    stored: StoredTexts | None = None,
    progress: Progress = lambda added: None,
) -> EncodeSummary:
    """Write every row of the inputs with its vector, in order.

    Args:
        inputs: the rows.
        vectors: what gives them their vectors.
        output: a path, or ``-`` for standard output; see `output_format`.
        writing: how it is written.
        stored: the directory as it is, if it is updated: its texts keep their vectors.
        progress: called with the rows and tokens that were encoded.

    Raises:
        InputError: if the output to resume was made from another input, model or setting; for a long text, with
            ``on_long="error"``.
        SentcliError: if the input changes while it is read, or an engine fails.
    """
    began = time.perf_counter()
    writing = writing or WriteSettings()
    form = output_format(output)
    plan = _plan(inputs, vectors, form)
    compared = _comparison(output, inputs, vectors, stored)
    title = "standard output" if form is STDOUT else output
    with (
        room_explained(title, advice_on_room(output)),
        open_output(output, plan, inputs, writing, stored) as writer,
    ):
        _require_room(output, plan, writer.expected)
        repeated = 0
        if form is DIRECTORY:
            from sentcli.stores.directory.output import continued

            repeated = continued(output, writer, plan, inputs)
        progress(EncodeStats(texts=writer.rows_before))
        reading = _reading(vectors, plan, writing, writer.first_number)
        if isinstance(vectors, EncodedVectors) and vectors.settings.pool is not None:
            from sentcli.stores.on_ray import make_shards

            assert not isinstance(writer, FileWriter)
            counts = make_shards(vectors.settings, inputs, reading, writer, stored, progress)
        else:
            blocks = inputs.blocks(shards=writer.missing, **reading)
            if compared is not None and not writer.rows_before:
                blocks = compared.counted(blocks)
            counts = write_blocks(blocks, vectors, writer.write, output, stored, progress)
        if counts.rows != writer.expected:
            raise SentcliError(f"the input has changed while it was read: {writer.expected} rows, then {counts.rows}")
        changes = None
        if compared is not None:  # before the directory is replaced
            changes = compared.total_of(inputs)
    rows_before, nulls = writer.first_row + writer.rows_before, inputs.survey.nulls
    rows, seconds = rows_before + counts.rows, time.perf_counter() - began
    facts = (output, rows, plan.dimension, rows_before, nulls, counts, writer.damaged, seconds, repeated, changes)
    return EncodeSummary(*facts)


def _plan(inputs: Inputs, vectors: RowVectors, form: OutputFormat) -> OutputPlan:
    """Return the shape and the types of an output, with what it keeps of how its vectors were made."""
    survey = inputs.survey
    settings = vectors.kept_settings(inputs, form)
    return OutputPlan(survey.rows, vectors.dimension, survey.column_types, settings, vectors.dtype)


def _comparison(
    output: str, inputs: Inputs, vectors: RowVectors, stored: StoredTexts | None
) -> DirectoryComparison | None:
    """Return what compares the rows with those of a directory that is updated; None if none is."""
    if stored is None:
        return None
    from sentcli.stores.directory.changes import comparison

    assert isinstance(vectors, EncodedVectors)  # others are taken anew
    return comparison(output, inputs, vectors, stored)


def _reading(vectors: RowVectors, plan: OutputPlan, writing: WriteSettings, first_number: int) -> dict[str, Any]:
    """Return how blocks are read: none has rows of two shards."""
    return {
        "block_rows": min(vectors.block_rows, writing.shard_rows),
        "shard_rows": writing.shard_rows,
        "first_number": first_number,
        "columns": list(plan.column_types),
    }


@dataclass
class FileWriter:
    """Writes one file or standard output, with the attributes that `write_rows` uses of a `DatasetWriter`."""

    append: Write
    expected: int
    missing = None
    first_row = first_number = rows_before = 0
    damaged: list[str] = field(default_factory=list)

    def write(self, block: Block, vectors: AnyArray, counts: Counts) -> None:
        """Append rows."""
        self.append(block, vectors)


@contextmanager
def open_output(
    output: str, plan: OutputPlan, inputs: Inputs, writing: WriteSettings, stored: StoredTexts | None = None
) -> Iterator[DatasetWriter | FileWriter]:
    """Yield the writer of an output; a directory that is replaced is so when all its rows are there.

    Args:
        output: a path, or ``-`` for standard output.
        plan: the rows.
        inputs: where they come from.
        writing: whether the output is continued, appended to or replaced.
        stored: the directory as it was read, if it is updated.

    Raises:
        InputError: if another process writes it, or it was made otherwise.
    """
    message = f"another process encodes into {output}: wait for it, or choose another -o"
    form = output_format(output)
    if form is DIRECTORY:
        from sentcli.stores.directory.output import open_directory

        with open_directory(output, plan, inputs, writing, stored, message) as writer:
            yield writer
        return
    if form is STDOUT:
        with open_writer(output, plan) as append:
            yield FileWriter(append, plan.rows)
        return
    path = Path(output)
    with locked(path.with_name(f".{path.name}.lock"), message):
        if path.exists() and not writing.overwrite:  # another process has made it since it was checked
            raise InputError(f"{path} exists; use --overwrite to replace it, or another name")
        with open_writer(output, plan) as append:
            yield FileWriter(append, plan.rows)


def _require_room(output: str, plan: OutputPlan, rows: int) -> None:
    """Check that the disk of an output has room for the vectors of so many rows, before any of them is made.

    Raises:
        NoRoomError: if they do not fit. Texts and columns, whose size is not known, are not counted.
    """
    form = output_format(output)
    if form is STDOUT or is_remote(output):
        return
    size = rows * plan.dimension * np.dtype(plan.dtype).itemsize
    if form.compresses:
        size //= 2  # which saves little where the texts are different
    path = Path(output)
    require_room(path if form is DIRECTORY else path.parent, size, output)  # a directory may be a disk of its own
