"""Encode the rows of input files, and write them to the output.

Inputs and output are checked before any work starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.bulk.engine import EncodeSettings, advice_on_room, open_engine, write_blocks
from sentcli.bulk.files import Inputs
from sentcli.cluster import ClusterOptions
from sentcli.encoder import announce, load_encoder
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import locked, require_room, room_explained
from sentcli.io.blocks import BLOCK_ROWS, Block, Counts
from sentcli.io.places import is_remote
from sentcli.io.scratch import is_scratch
from sentcli.io.writers import DIRECTORY, DTYPES, STDOUT, OutputFormat, OutputPlan, Write, open_writer, output_format
from sentcli.model.encoding import EncodeStats, OnLong, Progress
from sentcli.model.options import LoadOptions

if TYPE_CHECKING:
    from sentcli.arrays import AnyArray
    from sentcli.bulk.update import Changes
    from sentcli.cluster.pool import Pool
    from sentcli.io.dataset_writer import DatasetWriter


@dataclass(frozen=True)
class EncodeSummary:
    """The result of one call of `encode_files`."""

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

    def say(self, encoder: SentenceEncoder, on_long: OnLong) -> None:
        """Say what was encoded, and warn of rows that were left out or cut."""
        counts = self.counts
        if self.changes is not None:
            console.note(f"{self.output}: {self.changes}")
        for problem in self.damaged:
            console.warn(f"{problem}: its shard was made again")
        before = f", {self.rows_before} were there" if self.rows_before else ""
        ran = f"{encoder.backend.name} on {encoder.backend.device}, {encoder.backend.precision}"
        if encoder.sent is not None:
            ran = f"{encoder.model} was sent {encoder.sent}"
        written = f"{self.output_file or 'a frame'} [{self.rows}, {self.dimension}]"
        console.note(
            f"{counts.rows} rows{before} -> {written} in {self.seconds:.1f} s "
            f"({self.rows_per_second:,.0f} rows/s, {counts.duplicates} duplicate and {counts.empty} empty rows; {ran})"
        )
        if self.nulls_skipped:
            console.warn(f"{self.nulls_skipped} rows without text were left out")
        if counts.truncated:
            fate = f"were cut, {counts.tokens_lost} tokens lost (--on-long, --max-length)"
            if on_long == "chunk-mean":
                fate = "are the mean of their pieces"
            limit = encoder.spec.max_length
            console.warn(f"{counts.truncated} rows are longer than {limit} tokens and {fate}")

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


@contextmanager
def open_encoder(
    model: str, options: LoadOptions, cluster: ClusterOptions, *, most: int
) -> Iterator[tuple[SentenceEncoder, Pool | None]]:
    """Load a model in this process, or in workers on Ray.

    Args:
        model: its name.
        options: how it is loaded.
        cluster: whether there is a cluster, and what its workers reserve.
        most: no more workers than this, because there is no work for them.

    Yields:
        The encoder, and the workers that make shards with it if that is not this process.
    """
    if cluster.ray is None:
        yield load_encoder(model, options), None
        return
    from sentcli.bulk.on_ray import encoder_of, encoder_pool
    from sentcli.cluster.pool import open_cluster

    with open_cluster(cluster, most=most, on_cpu=options.device == "cpu") as (nodes, workers):
        if not workers.gpus and any(node.gpus for node in nodes):
            options = replace(options, device="cpu")  # a GPU that is not reserved belongs to others
        with encoder_pool(nodes, workers, model, options) as pool:
            encoder = encoder_of(pool)
            announce(encoder)
            yield encoder, pool


def encode_files(
    encoder: SentenceEncoder,
    inputs: Inputs,
    output: str,
    settings: EncodeSettings,
    progress: Progress = lambda added: None,
) -> EncodeSummary:
    """Encode every row of the inputs, in order.

    Args:
        encoder: the model.
        inputs: the inputs that `read_inputs` returned.
        output: a path, or ``-`` for standard output; see `output_format`.
        settings: how the rows are encoded and written.
        progress: called with the rows and tokens that were encoded.

    Raises:
        InputError: if the output to resume was made from another input, model or setting; for a long text, with
            ``on_long="error"``.
        SentcliError: if the input changes while it is read, or an engine fails.
    """
    began = time.perf_counter()
    form = output_format(output)
    # Large batches need more texts of similar length to choose from
    block_rows = BLOCK_ROWS if encoder.backend.device == "cpu" else 65536
    plan = OutputPlan(
        rows=inputs.survey.rows,
        dimension=settings.compression.dimension(encoder.dimension),
        column_types=inputs.survey.column_types,
        settings=_kept_settings(encoder, inputs, settings, block_rows, form),
        dtype=settings.compression.dtype,
    )
    counted = None
    if settings.stored is not None:
        from sentcli.bulk.update import counting

        counted = counting(encoder, inputs, output, settings, plan.settings)
    with room_explained(_title(output), advice_on_room(output)), open_output(output, plan, inputs, settings) as writer:
        _require_room(output, plan, writer.expected)
        repeated = 0
        if form is DIRECTORY:
            from sentcli.bulk.directory_output import continued

            repeated = continued(output, writer, plan, inputs)
        if repeated:
            console.warn(f"{repeated:,} ids are those of rows that {output} has already: both are kept")
        progress(EncodeStats(texts=writer.rows_before))
        reading: dict[str, Any] = {
            "block_rows": min(block_rows, settings.shard_rows),
            "shard_rows": settings.shard_rows,
            "first_number": writer.first_number,
            "columns": list(plan.column_types),
        }
        if settings.pool is not None and not isinstance(writer, FileWriter):
            from sentcli.bulk.on_ray import make_shards

            counts = make_shards(settings.pool, inputs, reading, writer, settings, progress)
        else:
            reader = inputs.blocks(shards=writer.missing, **reading)
            if counted is not None and not writer.rows_before:
                reader = counted.counted(reader)
            with open_engine(encoder, settings, progress) as engine:
                counts = write_blocks(reader, engine, writer, output, settings, progress)
        if counts.rows != writer.expected:
            raise SentcliError(f"the input has changed while it was read: {writer.expected} rows, then {counts.rows}")
        changed = None
        if counted is not None:  # before the directory is replaced
            changed = counted.total_of(inputs)
    rows_before, nulls = writer.first_row + writer.rows_before, inputs.survey.nulls
    rows, seconds = rows_before + counts.rows, time.perf_counter() - began
    facts = (output, rows, plan.dimension, rows_before, nulls, counts, writer.damaged, seconds, repeated, changed)
    return EncodeSummary(*facts)


def store_files(
    vectors_of: Callable[[int, int], AnyArray],
    dimension: int,
    inputs: Inputs,
    output: str,
    settings: EncodeSettings,
    facts: dict[str, Any],
) -> EncodeSummary:
    """Write vectors that are there already, with the rows of the inputs, into a directory.

    Args:
        vectors_of: returns the vectors of the rows from one number to before another ``[n, dimension]``.
        dimension: of the vectors.
        inputs: the inputs that `read_inputs` returned.
        output: the directory.
        settings: how they are written.
        facts: how the vectors were made, as far as it is known.
    """
    began = time.perf_counter()
    dtype = str(vectors_of(0, 1).dtype)
    dtype = dtype if dtype in DTYPES else "float32"
    plan = OutputPlan(inputs.survey.rows, dimension, inputs.survey.column_types, facts, dtype)
    counts = Counts()
    with room_explained(_title(output), advice_on_room(output)), open_output(output, plan, inputs, settings) as writer:
        _require_room(output, plan, writer.expected)
        reader = inputs.blocks(
            shards=writer.missing,
            block_rows=min(BLOCK_ROWS, settings.shard_rows),
            shard_rows=settings.shard_rows,
            first_number=writer.first_number,
        )
        for block in reader:
            of_block = Counts(rows=len(block), empty=sum(not text.strip() for text in block.texts))
            vectors = vectors_of(block.first_row, block.first_row + len(block))
            writer.write(block, vectors.astype(dtype, copy=False), of_block)
            counts += of_block
    rows_before = writer.first_row + writer.rows_before
    rows, seconds = rows_before + counts.rows, time.perf_counter() - began
    return EncodeSummary(output, rows, dimension, rows_before, inputs.survey.nulls, counts, writer.damaged, seconds)


@dataclass
class FileWriter:
    """Writes one file or standard output, with the attributes that `encode_files` uses of a `DatasetWriter`."""

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
    output: str, plan: OutputPlan, inputs: Inputs, settings: EncodeSettings
) -> Iterator[DatasetWriter | FileWriter]:
    """Yield the writer of an output; a directory that is replaced is so when all its rows are there.

    Args:
        output: a path, or ``-`` for standard output.
        plan: the rows.
        inputs: where they come from.
        settings: whether the output is continued, appended to or replaced.

    Raises:
        InputError: if another process writes it, or it was made otherwise.
    """
    message = f"another process encodes into {output}: wait for it, or choose another -o"
    form = output_format(output)
    if form is DIRECTORY:
        from sentcli.bulk.directory_output import open_directory

        with open_directory(output, plan, inputs, settings, message) as writer:
            yield writer
        return
    if form is STDOUT:
        with open_writer(output, plan) as append:
            yield FileWriter(append, plan.rows)
        return
    path = Path(output)
    with locked(path.with_name(f".{path.name}.lock"), message):
        if path.exists() and not settings.overwrite:  # another process has made it since it was checked
            raise InputError(f"{path} exists; use --overwrite to replace it, or another name")
        with open_writer(output, plan) as append:
            yield FileWriter(append, plan.rows)


def _kept_settings(
    encoder: SentenceEncoder, inputs: Inputs, settings: EncodeSettings, block_rows: int, form: OutputFormat
) -> dict[str, Any]:
    """Return the settings that the output keeps, which may be none."""
    if not form.keeps_settings:
        return {}
    from sentcli.bulk.vector_settings import settings_of

    return settings_of(encoder, inputs, settings, block_rows, form)


def _title(output: str) -> str:
    """Return what messages call an output."""
    return "standard output" if output == "-" else output


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
