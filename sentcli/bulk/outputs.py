"""Where encoded rows go: a file, standard output, or a directory of shards, which may replace another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from sentcli import console
from sentcli.bulk.engine import EncodeSettings
from sentcli.bulk.files import Inputs
from sentcli.bulk.stored_texts import StoredTexts
from sentcli.errors import InputError
from sentcli.io.atomic import locked
from sentcli.io.blocks import Block
from sentcli.io.dataset import PART, Counts, InputGroup, ShardShare, read_manifest, refuse_links
from sentcli.io.dataset_writer import DatasetWriter
from sentcli.io.folder import Folder, open_folder
from sentcli.io.output_formats import DIRECTORY, STDOUT, open_writer, output_format
from sentcli.io.writers import OutputPlan, Write


@dataclass
class FileWriter:
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
    if form is STDOUT:
        with open_writer(output, plan) as append:
            yield FileWriter(append, plan.rows)
        return
    if form is not DIRECTORY:
        path = Path(output)
        with locked(path.with_name(f".{path.name}.lock"), message):
            if path.exists() and not settings.overwrite:  # another process has made it since it was checked
                raise InputError(f"{path} exists; use --overwrite to replace it, or another name")
            with open_writer(output, plan) as append:
                yield FileWriter(append, plan.rows)
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
