"""Where encoded rows go if the output is a directory of shards, which may be continued, or replace another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.io.atomic import locked
from sentcli.io.blocks import ShardShare
from sentcli.io.dataset import PART, InputGroup, read_manifest, refuse_links
from sentcli.io.dataset_writer import DatasetWriter
from sentcli.io.folder import Folder, open_folder
from sentcli.io.places import is_remote
from sentcli.io.writers import OutputPlan
from sentcli.stores.directory.settings import check_same_model

if TYPE_CHECKING:
    from sentcli.stores.directory.texts import StoredTexts
    from sentcli.stores.inputs import Inputs
    from sentcli.stores.options import WriteSettings


@contextmanager
def open_directory(
    output: str,
    plan: OutputPlan,
    inputs: Inputs,
    writing: WriteSettings,
    stored: StoredTexts | None,
    message: str,
) -> Iterator[DatasetWriter]:
    """Yield the writer of a directory.

    Args:
        output: the directory.
        plan: the rows.
        inputs: where they come from.
        writing: whether it is continued, appended to or replaced.
        stored: the directory as it was read, if it is updated.
        message: the error message if another process writes it.

    Raises:
        InputError: if another process writes it, or it was made otherwise.
    """
    place, part = open_folder(output), writing.part
    group = InputGroup(inputs.identity(), plan.rows, inputs.survey.records)
    options: dict[str, Any] = {"part": part, "append": writing.append}
    with locked(place.lock(part.manifest), message), _staging_held(place, writing):
        _require_as_read(output, stored)
        folder, writer = place, None
        if writing.overwrite and place.holds(part):
            refuse_links(place.path)
            folder = place.staging()
            begun = [folder] if writing.stays_beside else [folder, place]
            for one in begun if writing.resume else ():
                if writer is None and one.holds(part):
                    with suppress(InputError):  # it is of another input, model or setting
                        begun_writer = DatasetWriter(one, plan, writing.shard_rows, group, resume=True, **options)
                        if not begun_writer.was_cut_otherwise:
                            writer = begun_writer
            if writer is None:
                _clear_staging(folder, part)
                console.detail(f"the new {place} is made in {folder}; the old one stays until it is complete")
        if writer is None:
            resume = writing.resume and folder is place
            writer = DatasetWriter(folder, plan, writing.shard_rows, group, resume=resume, **options)
            if writer.was_cut_otherwise:
                console.note(f"{place} keeps its passages as an earlier version cut them: --update cuts them anew")
        with writer:
            yield writer
        if writer.folder != place and not writing.stays_beside:
            _replace(place, part)


def continued(output: str, writer: Any, plan: OutputPlan, inputs: Inputs) -> int:
    """Check that a directory is continued with the same model, and warn of ids that it has already.

    Returns:
        How many ids are those of rows that it has already; 0 in a store, where they are not looked at.

    Raises:
        InputError: if its vectors were made by another model.
    """
    check_same_model(output, writer.manifest.settings, plan.settings)
    if is_remote(output):
        return 0
    repeated = int(writer.known_ids(inputs.survey.id_hashes))
    if repeated:
        console.warn(f"{repeated:,} ids are those of rows that {output} has already: both are kept")
    return repeated


def _require_as_read(output: str, stored: StoredTexts | None) -> None:
    """Refuse to update a directory that another process has replaced since its texts were read.

    Raises:
        InputError: which says so.
    """
    if stored is not None and read_manifest(open_folder(output)) != stored.manifest:
        raise InputError(f"{output} was changed by another process after it was read: give the command again")


def _staging_held(place: Folder, writing: WriteSettings) -> AbstractContextManager[None]:
    """Hold the staging folder of a directory that is replaced; parts share it, and `index` holds it itself."""
    if not writing.overwrite or writing.stays_beside or writing.part.of > 1:
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
