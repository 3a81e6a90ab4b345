"""Encode the rows of input files, and write them to the output.

Inputs and output are checked before any work starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.bulk.engine import EncodeSettings, advice_on_room, open_engine, write_blocks
from sentcli.bulk.files import Inputs
from sentcli.bulk.update import Changes, StoredTexts, changes, require_same_vectors, stored_texts
from sentcli.cluster.options import ClusterOptions
from sentcli.encoder.announce import announce, load_encoder
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import locked, require_room, room_explained
from sentcli.io.blocks import BLOCK_ROWS, Block
from sentcli.io.copies import is_scratch
from sentcli.io.dataset import PART, Counts, InputGroup, ShardShare, read_manifest, refuse_links
from sentcli.io.dataset_writer import DatasetWriter
from sentcli.io.folder import Folder, open_folder
from sentcli.io.output_formats import DIRECTORY, STDOUT, OutputFormat, open_writer, output_format
from sentcli.io.places import is_remote
from sentcli.io.writers import DTYPES, OutputPlan, Vectors, Write
from sentcli.model.encoding import EncodeStats, OnLong, Progress
from sentcli.model.options import LoadOptions

if TYPE_CHECKING:
    from sentcli.cluster.pool import Pool


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
        settings=_settings_of(encoder, inputs, settings, block_rows, form) if form.keeps_settings else {},
        dtype=settings.compression.dtype,
    )
    changed = None
    if settings.stored is not None:
        changed = changes_of(encoder, inputs, output, settings, plan.settings)
    with room_explained(_title(output), advice_on_room(output)), _open_output(output, plan, inputs, settings) as writer:
        _require_room(output, plan, writer.expected)
        repeated = 0
        if isinstance(writer, DatasetWriter):
            _check_same_model(output, writer.manifest.settings, plan.settings)
            repeated = 0 if is_remote(output) else writer.known_ids(inputs.survey.id_hashes)
        if repeated:
            console.warn(f"{repeated:,} ids are those of rows that {output} has already: both are kept")
        progress(EncodeStats(texts=writer.rows_before))
        reading: dict[str, Any] = {
            "block_rows": min(block_rows, settings.shard_rows),
            "shard_rows": settings.shard_rows,
            "first_number": writer.first_number,
            "columns": list(plan.column_types),
        }
        if settings.pool is not None and isinstance(writer, DatasetWriter):
            from sentcli.bulk.on_ray import make_shards

            counts = make_shards(settings.pool, inputs, reading, writer, settings, progress)
        else:
            reader = inputs.blocks(shards=writer.missing, **reading)
            with open_engine(encoder, settings, progress) as engine:
                counts = write_blocks(reader, engine, writer, output, settings, progress)
        if counts.rows != writer.expected:
            raise SentcliError(f"the input has changed while it was read: {writer.expected} rows, then {counts.rows}")
    rows_before, nulls = writer.first_row + writer.rows_before, inputs.survey.nulls
    rows, seconds = rows_before + counts.rows, time.perf_counter() - began
    facts = (output, rows, plan.dimension, rows_before, nulls, counts, writer.damaged, seconds, repeated, changed)
    return EncodeSummary(*facts)


def changes_of(
    encoder: SentenceEncoder, inputs: Inputs, output: str, settings: EncodeSettings, facts: dict[str, Any] | None = None
) -> Changes:
    """Return what an update of a directory would change.

    Args:
        encoder: the model.
        inputs: the inputs that `read_inputs` returned.
        output: the directory.
        settings: how the rows are encoded and written, with the texts of the directory.
        facts: the settings of the manifest that would be written, if they were made already.

    Raises:
        InputError: if the directory was made otherwise, or the rows have no ids by which they can be compared.
    """
    assert settings.stored is not None
    before = settings.stored.manifest.settings
    facts = facts or _settings_of(encoder, inputs, settings, BLOCK_ROWS, DIRECTORY)
    require_same_vectors(output, before, facts, encoder.identity)
    _check_same_model(output, before, facts)
    return changes(settings.stored, inputs.survey, inputs.blocks())


def dry_run(encoder: SentenceEncoder, inputs: Inputs, output: str, settings: EncodeSettings) -> dict[str, Any]:
    """Say what an update of a directory would change and how long encoding would take, and return it as JSON.

    Raises:
        InputError: if there is no directory, it was made otherwise, or the rows cannot be compared.
    """
    stored = settings.stored or stored_texts(output, encoder, settings.prompt, settings.on_long)
    if stored is None:
        raise InputError(f"{output} is not there yet: --update would encode all {inputs.survey.rows:,} rows")
    changed = changes_of(encoder, inputs, output, replace(settings, stored=stored))
    seconds = changed.seconds(encoder, settings.prompt)
    console.note(f"{output}: {changed}, in about {seconds:,.0f} s; nothing was written (--dry-run)")
    return {**changed.to_dict(), "seconds_estimated": seconds}


def store_files(
    vectors_of: Callable[[int, int], Vectors],
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
    with room_explained(_title(output), advice_on_room(output)), _open_output(output, plan, inputs, settings) as writer:
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


def _check_same_model(output: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to continue a directory with a model that has changed under the same name and files.

    Raises:
        InputError: if it makes other vectors of the fixed texts than when the directory was begun.
    """
    kept, made = (VectorFacts.read(output, settings).canaries for settings in (before, now))
    if kept is not None and made is not None:
        kinship, sentence = kept.compare(made)
        if kinship not in ("equal", "rounding", "another precision"):
            raise InputError(f"{output} was begun with a model that made other vectors: {sentence}")


@dataclass
class _FileWriter:
    """Writes one file or standard output, with the attributes that `encode_files` uses of a `DatasetWriter`."""

    append: Write
    expected: int
    missing = None
    first_row = first_number = rows_before = 0
    damaged: list[str] = field(default_factory=list)

    def write(self, block: Block, vectors: npt.NDArray[Any], counts: Counts) -> None:
        """Append rows."""
        self.append(block, vectors)


@contextmanager
def _open_output(
    output: str, plan: OutputPlan, inputs: Inputs, settings: EncodeSettings
) -> Iterator[DatasetWriter | _FileWriter]:
    message = f"another process encodes into {output}: wait for it, or choose another -o"
    form = output_format(output)
    if form is STDOUT:
        with open_writer(output, plan) as append:
            yield _FileWriter(append, plan.rows)
        return
    if form is not DIRECTORY:
        path = Path(output)
        with locked(path.with_name(f".{path.name}.lock"), message):
            if path.exists() and not settings.overwrite:  # another process has made it since it was checked
                raise InputError(f"{path} exists; use --overwrite to replace it, or another name")
            with open_writer(output, plan) as append:
                yield _FileWriter(append, plan.rows)
        return
    place, part = open_folder(output), settings.part
    group = InputGroup(inputs.identity(), plan.rows, inputs.survey.records)
    options: dict[str, Any] = {"part": part, "append": settings.append}
    with locked(place.lock(part.manifest), message), _staging_held(place, settings):
        _require_as_read(output, settings.stored)
        folder, writer = place, None
        if settings.overwrite and place.holds(part):
            refuse_links(place.path)
            folder = place.staging()
            begun = [folder] if settings.stays_beside else [folder, place]
            for one in begun if settings.resume else ():
                if writer is None and one.holds(part):
                    with suppress(InputError):  # it is of another input, model or setting
                        writer = DatasetWriter(one, plan, settings.shard_rows, group, resume=True, **options)
            if writer is None:
                _clear_staging(folder, part)
                console.detail(f"the new {place} is made in {folder}; the old one stays until it is complete")
        if writer is None:
            resume = settings.resume and folder is place
            writer = DatasetWriter(folder, plan, settings.shard_rows, group, resume=resume, **options)
        with writer:
            yield writer
        if writer.folder != place and not settings.stays_beside:
            _replace(place, part)


def _require_as_read(output: str, stored: StoredTexts | None) -> None:
    """Refuse to update a directory that another process has replaced since its texts were read.

    Raises:
        InputError: which says so.
    """
    if stored is not None and read_manifest(open_folder(output)) != stored.manifest:
        raise InputError(f"{output} was changed by another process after it was read: give the command again")


def _staging_held(place: Folder, settings: EncodeSettings) -> AbstractContextManager[None]:
    """Hold the staging folder of a directory that is replaced; parts share it, and `index` holds it itself."""
    if not settings.overwrite or settings.stays_beside or settings.part.of > 1:
        return nullcontext()
    return place.staging_held()


def _clear_staging(folder: Folder, part: ShardShare) -> None:
    """Delete what an interrupted run has left, which may be an index of other rows; parts of other machines stay."""
    if part.of == 1:
        folder.delete()


def _replace(place: Folder, part: ShardShare) -> None:
    """Put a new directory in the place of the old one, if the parts of all machines are there."""
    if part.of > 1:
        new = place.staging()
        count = sum(PART.fullmatch(name) is not None for name in new.names())
        if count < part.of or (joined := read_manifest(new)).rows_done < joined.rows_total:
            console.note(
                f"part {part.number} of {part.of} is in {new}; {place} is replaced when all parts are complete"
            )
            return
    place.promote()


def _settings_of(
    encoder: SentenceEncoder, inputs: Inputs, settings: EncodeSettings, block_rows: int, form: OutputFormat
) -> dict[str, Any]:
    """Return everything that decides the vectors of a row and their order."""
    facts = {
        **VectorFacts.of(encoder, settings.prompt, settings.compression, settings.passages).recorded(),
        **encoder.describe(),
        "on_long": settings.on_long,
        "batch_tokens": settings.batch_tokens or encoder.backend.default_batch_tokens,
        "block_rows": block_rows,
        "text_field": inputs.options.text_field,
        "id_field": inputs.options.id_field,
        "on_null": inputs.options.on_null,
    }
    if inputs.options.nulls:
        facts["null"] = list(inputs.options.nulls)
    if form is not DIRECTORY:
        facts["inputs"] = inputs.identity()
    return facts
