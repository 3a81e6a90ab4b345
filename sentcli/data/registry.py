"""The data sets that are known by name, from ``models/datasets.toml``, and where they are on this machine."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sentcli.errors import InputError, nearest
from sentcli.io.cache import cache_folder
from sentcli.io.digests import file_digest
from sentcli.zoo import models_folder


@dataclass(frozen=True)
class Pin:
    """What is known of the bytes of a file before they are there."""

    sha256: str | None = None
    md5: str | None = None
    """BEIR prints no other checksum."""
    size: int | None = None

    @property
    def checks(self) -> bool:
        """Tell whether other bytes would be noticed."""
        return self.sha256 is not None or self.md5 is not None

    def mismatch(self, path: Path) -> str | None:
        """Return what is wrong with a file, or None."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"{size:,} bytes, not {self.size:,}"
        for method, known in (("sha256", self.sha256), ("md5", self.md5)):
            if known is not None and (digest := file_digest(path, method)) != known:
                return f"{method} is {digest}, not {known}"
        return None


@dataclass(frozen=True)
class File:
    """One file of a set."""

    path: str
    """Below the folder of the set."""
    sources: tuple[str, ...] = ()
    """Where it can be had by itself."""
    unpack: str = "none"
    """``gz`` if the sources give it compressed."""
    pin: Pin = Pin()
    """Of the file as it lies there at the end."""


@dataclass(frozen=True)
class Archive:
    """A file that holds files of a set."""

    sources: tuple[str, ...]
    unpack: str
    """``zip``, ``tar`` or ``tar.gz``."""
    inside: str = ""
    """What stands in front of the paths."""
    also: tuple[str, ...] = ()
    """Patterns of files that are taken out if they are there."""
    pin: Pin = Pin()

    @property
    def name(self) -> str:
        """Return its file name."""
        return self.sources[0].rpartition("/")[2]


@dataclass(frozen=True)
class DataSet:
    """A set of evaluation or training data."""

    name: str
    title: str
    kind: str
    """``senteval``, ``beir``, ``text`` or ``pairs``."""
    folder: str
    """Below the data folder; several sets can share one."""
    licence: str
    files: tuple[File, ...]
    archives: tuple[Archive, ...] = ()
    note: str = ""

    @property
    def size(self) -> int | None:
        """Return how many bytes are fetched, if that is known."""
        sizes = [self.archives[0].pin.size] if self.archive_first else [file.pin.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def archive_first(self) -> bool:
        """Tell whether an archive is asked before the files by themselves: what can be checked goes first."""
        if not self.archives:
            return False
        return self.archives[0].pin.checks or not all(file.sources and file.pin.checks for file in self.files)


@cache
def registry() -> dict[str, DataSet]:
    """Return all sets by name."""
    with (models_folder() / "datasets.toml").open("rb") as handle:
        tables: dict[str, dict[str, Any]] = tomllib.load(handle)
    sets: dict[str, DataSet] = {}
    for name, table in tables.items():
        sets[name] = _part(name, table, sets) if "part_of" in table else _whole(name, table)
    return sets


def find(name: str) -> DataSet:
    """Return a set by its name.

    Raises:
        InputError: if there is none.
    """
    known = registry()
    if name not in known:
        raise InputError(
            f"no data set {name!r}{nearest(name, list(known))}; 'sentcli data list' shows all {len(known)}"
        )
    return known[name]


def redirected(dataset: DataSet, source: str) -> DataSet:
    """Return a set whose only source is another one.

    Args:
        dataset: the set.
        source: the address of its archive, or of its file if it is one; with a ``/`` at the end, of a folder with its
            files.

    Raises:
        InputError: if the set is neither an archive nor one file, and `source` is no folder.
    """
    if source.endswith("/"):
        files = tuple(replace(file, sources=(source + file.path,), unpack="none") for file in dataset.files)
        return replace(dataset, files=files, archives=())
    if len(dataset.files) == 1 and not dataset.archives:
        return replace(dataset, files=(replace(dataset.files[0], sources=(source,)),))
    if not dataset.archives:
        raise InputError(
            f"{dataset.name} is {len(dataset.files)} files: --source has to be a folder, with / at its end"
        )
    files = tuple(replace(file, sources=()) for file in dataset.files)
    return replace(dataset, files=files, archives=(replace(dataset.archives[0], sources=(source,)),))


def _whole(name: str, table: dict[str, Any]) -> DataSet:
    bases: dict[str, str] = table.pop("bases", {})
    files = tuple(_file(entry, bases) for entry in table.pop("files"))
    archives = tuple(_archive(entry) for entry in table.pop("archives", []))
    return DataSet(name=name, files=files, archives=archives, **table)


def _part(name: str, table: dict[str, Any], known: dict[str, DataSet]) -> DataSet:
    whole = known[table["part_of"]]
    files = tuple(file for file in whole.files if any(fnmatch(file.path, pattern) for pattern in table["only"]))
    facts = {key: table[key] for key in ("title", "licence", "note")}
    return DataSet(name=name, kind=whole.kind, folder=whole.folder, files=files, archives=whole.archives, **facts)


def _file(entry: dict[str, Any], bases: dict[str, str]) -> File:
    sources = [bases[base] + quote(entry["path"]) for base in entry.get("from", [])]
    return File(entry["path"], (*sources, *entry.get("sources", [])), entry.get("unpack", "none"), _pin(entry))


def _archive(entry: dict[str, Any]) -> Archive:
    also = tuple(entry.get("also", []))
    return Archive(tuple(entry["sources"]), entry["unpack"], entry.get("inside", ""), also, _pin(entry))


def _pin(entry: dict[str, Any]) -> Pin:
    return Pin(entry.get("sha256"), entry.get("md5"), entry.get("size"))


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
    place = folder / dataset.folder / sub
    if not place.is_dir():
        folders = sorted(path.name for path in (folder / dataset.folder).iterdir() if path.is_dir())
        raise InputError(f"{first} has no folder {sub!r}; it has: {', '.join(folders)}")
    return place


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
