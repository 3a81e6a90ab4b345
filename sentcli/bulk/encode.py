"""Encode the rows of input files, and write them to the output.

Inputs and output are checked before any work starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.bulk.encode_summary import EncodeSummary
from sentcli.bulk.engine import EncodeSettings, advice_on_room, open_engine, write_blocks
from sentcli.bulk.files import Inputs
from sentcli.bulk.outputs import open_output
from sentcli.bulk.stored_texts import stored_texts
from sentcli.bulk.update import Changes, changes, require_same_vectors
from sentcli.cluster.options import ClusterOptions
from sentcli.encoder.announce import announce, load_encoder
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import require_room, room_explained
from sentcli.io.blocks import BLOCK_ROWS
from sentcli.io.dataset import Counts
from sentcli.io.dataset_writer import DatasetWriter
from sentcli.io.output_formats import DIRECTORY, STDOUT, OutputFormat, output_format
from sentcli.io.places import is_remote
from sentcli.io.writers import DTYPES, OutputPlan, Vectors
from sentcli.model.encoding import EncodeStats, Progress
from sentcli.model.options import LoadOptions

if TYPE_CHECKING:
    from sentcli.cluster.pool import Pool


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
    with room_explained(_title(output), advice_on_room(output)), open_output(output, plan, inputs, settings) as writer:
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
    kept = VectorFacts.read(output, before).canaries
    made = VectorFacts.read(output, now).canaries
    if kept is not None and made is not None:
        kinship, sentence = kept.compare(made)
        if kinship not in ("equal", "rounding", "another precision"):
            raise InputError(f"{output} was begun with a model that made other vectors: {sentence}")


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
