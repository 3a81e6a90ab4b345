"""Where data is kept, and what to say about data that is not there."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from sentcli.data.registry import DataSet, File, find, registry
from sentcli.errors import InputError
from sentcli.io.cache import cache_folder

OFFLINE = ("SENTCLI_OFFLINE", "HF_HUB_OFFLINE")
SHOWN = 5
"""Missing files that a message names; of more, it says how many."""


def data_folder(folder: Path | None = None) -> Path:
    """Return where data is kept: `folder`, else ``$SENTCLI_DATA_DIR``, else ``data`` in the cache of sentcli."""
    if folder is not None:
        return folder.expanduser()
    if named := os.environ.get("SENTCLI_DATA_DIR"):
        return Path(named).expanduser()
    return cache_folder("data")


def is_offline() -> bool:
    """Tell whether the environment forbids the network."""
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in OFFLINE)


def missing(dataset: DataSet, folder: Path) -> list[File]:
    """Return the files of a set that are not in the data folder."""
    return [file for file in dataset.files if not (folder / dataset.folder / file.path).is_file()]


def presence(dataset: DataSet, folder: Path) -> str:
    """Return ``yes``, ``partly`` or ``no``."""
    absent = len(missing(dataset, folder))
    return "yes" if absent == 0 else "no" if absent == len(dataset.files) else "partly"


def locate(name: str, folder: Path | None = None) -> Path:
    """Return the folder of a set that is there; ``NAME/SUB`` is a folder in it, as in ``cqadupstack/android``.

    Args:
        name: of the set, as `sentcli data list` prints it.
        folder: the data folder; see `data_folder`.

    Raises:
        InputError: if there is no set of that name, or files of it are missing; the message says how to get them.
    """
    first, _, sub = name.partition("/")
    dataset, folder = find(first), data_folder(folder)
    if absent := missing(dataset, folder):
        raise InputError(instructions(dataset, folder, absent))
    found = folder / dataset.folder / sub
    if not found.is_dir():
        folders = sorted(path.name for path in (folder / dataset.folder).iterdir() if path.is_dir())
        raise InputError(f"{first} has no folder {sub!r}; it has: {', '.join(folders)}")
    return found


def located(path: Path) -> Path:
    """Return a path as it is if it exists or is no data set's name, else the folder of the set of that name.

    Raises:
        InputError: see `locate`.
    """
    if path.exists() or path.is_absolute() or path.as_posix().partition("/")[0] not in registry():
        return path
    return locate(path.as_posix())


def instructions(dataset: DataSet, folder: Path, absent: list[File]) -> str:
    """Return what is missing of a set, where it could be had from, and where it could be put by hand."""
    where = folder / dataset.folder
    names = ", ".join(file.path for file in absent[:SHOWN]) + _more(len(absent))
    lines = [f"{dataset.name} is not on this machine: {len(absent)} of {len(dataset.files)} files are missing: {names}"]
    lines.append(f"  'sentcli data get {dataset.name}' fetches them from")
    lines += [f"    {source}" for source in addresses(dataset, absent)]
    archive = dataset.archives[0].name if dataset.archives else absent[0].path if len(dataset.files) == 1 else None
    if archive is not None:
        lines.append(f"  If you have {archive} already: sentcli data get {dataset.name} --from {archive}")
    lines.append("  Or copy the files to exactly these places:")
    lines += [f"    {where / file.path}" for file in absent[:SHOWN]]
    if len(absent) > SHOWN:
        lines.append(f"    {_more(len(absent)).strip()}, by the same names below {where}")
    return "\n".join(lines)


def addresses(dataset: DataSet, files: list[File]) -> list[str]:
    """Return the sources of files, in the order in which they are asked; a ``...`` stands for the path of a file."""
    archives = [source for archive in dataset.archives for source in archive.sources]
    several = len(files) > 1
    single = [_folder_of(source, file.path) if several else source for file in files for source in file.sources]
    single = list(dict.fromkeys(single))
    return [*archives, *single] if dataset.archive_first else [*single, *archives]


def _folder_of(source: str, path: str) -> str:
    base = source.removesuffix(quote(path))
    return source if base == source else f"{base}..."


def _more(count: int) -> str:
    return f" and {count - SHOWN} more" if count > SHOWN else ""
