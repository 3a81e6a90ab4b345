"""Whether an output may be written, and what a directory that is there says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.errors import InputError
from sentcli.io.atomic import check_output
from sentcli.io.blocks import MANIFEST
from sentcli.io.places import is_remote
from sentcli.io.writers import DIRECTORY, STDOUT, output_format

if TYPE_CHECKING:
    from sentcli.io.dataset import Manifest
    from sentcli.stores.options import WriteSettings


def check_target(output: str, writing: WriteSettings) -> None:
    """Refuse an output that must not be written, before anything is read.

    Raises:
        InputError: if the output exists and no flag allows that, it cannot be created, or the flags do not fit it.
    """
    form = output_format(output)
    append, is_shared = writing.append, writing.part.of > 1
    if form is not DIRECTORY and (append or is_shared):
        flag = "--shard"
        if append:
            flag = "--append"
        raise InputError(f"{flag} makes shards, so it needs a directory output (-o without a suffix)")
    if append and is_shared:
        raise InputError("--append and --shard do not go together: append on one machine")
    if writing.overwrite and append:
        raise InputError("--overwrite starts again, --append goes on: give one of them")
    if form is STDOUT:
        return
    if form is DIRECTORY:
        _check_directory(output, writing)
        return
    if is_remote(output):
        raise InputError(f"{output}: a store takes a directory of shards (-o without a suffix), not a single file")
    path = Path(output)
    if writing.resume and path.exists() and not writing.overwrite:
        raise InputError(f"{path} exists and is complete; only a directory output (-o without a suffix) is resumed")
    check_output(path, overwrite=writing.overwrite)


def _check_directory(path: str, writing: WriteSettings) -> None:
    from sentcli.io.dataset import PART, PARTIAL, holds_manifest
    from sentcli.io.folder import open_folder

    place, part = open_folder(path), writing.part
    names = [name for name in place.names() if not name.endswith(".lock")]
    if part.of > 1 and MANIFEST in names:
        raise InputError(f"{path} holds a dataset that one machine made; choose another -o for --shard")
    parts = [PART.fullmatch(name) for name in names]
    others = {int(match[2]) for match in parts if match is not None} - {part.of}
    if others and not writing.append and not (writing.overwrite and part.of == 1):
        count = others.pop()
        raise InputError(f"{path} holds parts of {count} machines: go on with --shard I/{count}, or choose another -o")
    begun = part.manifest in names if part.of > 1 else bool(names)  # other machines' parts may be there
    goes_on = writing.overwrite or writing.resume or writing.append
    if place.exists and (begun or not place.path.is_dir()) and not goes_on:
        raise InputError(f"{path} exists; --resume continues it, --overwrite replaces it")
    place.check_writable(overwrite=writing.overwrite)
    is_dataset = holds_manifest(names) or any(map(PARTIAL.fullmatch, names))
    if names and not is_dataset:
        raise InputError(f"{path} holds files, but no {MANIFEST} of sentcli encode; choose another -o")


def manifest_of(output: str) -> Manifest | None:
    """Return the manifest of a directory that is continued, or of one of its parts; None if there is none."""
    if output_format(output) is not DIRECTORY:
        return None
    from sentcli.io.dataset import is_manifest, load_manifest
    from sentcli.io.folder import open_folder

    folder = open_folder(output)
    manifests = [name for name in sorted(folder.names()) if is_manifest(name)]
    if not manifests:
        return None
    return load_manifest(folder, manifests[0])
