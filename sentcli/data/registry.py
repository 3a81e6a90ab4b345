"""The data sets of ``models/datasets.toml`` by name, and their files on this machine."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sentcli.errors import InputError, nearest
from sentcli.io.digests import cache_folder, expanded, file_digest
from sentcli.io.places import is_remote
from sentcli.zoo import models_folder


@dataclass(frozen=True)
class Pin:
    """The checksum and the size that a file must have, as far as they are known."""

    sha256: str | None = None
    md5: str | None = None
    """The MD5 checksum, the only one that BEIR publishes."""
    size: int | None = None

    @property
    def checks(self) -> bool:
        """Whether there is a checksum."""
        return self.sha256 is not None or self.md5 is not None

    def mismatch(self, path: Path) -> str | None:
        """Return how a file differs, or None if it has this size and this checksum."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"{size:,} bytes, not {self.size:,}"
        for method, expected in (("sha256", self.sha256), ("md5", self.md5)):
            if expected is not None:
                digest = file_digest(path, method)
                if digest != expected:
                    return f"{method} is {digest}, not {expected}"
        return None


@dataclass(frozen=True)
class File:
    """One file of a data set."""

    path: str
    """The path below the folder of the set."""
    sources: tuple[str, ...] = ()
    """The addresses of the file; empty if it is only in an archive."""
    unpack: str = "none"
    """``gz`` if the sources give the file compressed."""
    pin: Pin = Pin()
    """The pin of the uncompressed file."""


@dataclass(frozen=True)
class Archive:
    """An archive with the files of a data set."""

    sources: tuple[str, ...]
    unpack: str
    """``zip``, ``tar`` or ``tar.gz``."""
    inside: str = ""
    """The prefix of the files' paths in the archive."""
    also: tuple[str, ...] = ()
    """Patterns of optional files, which are taken out if the archive has them."""
    pin: Pin = Pin()

    @property
    def name(self) -> str:
        """The file name of the archive."""
        return self.sources[0].rpartition("/")[2]


@dataclass(frozen=True)
class DataSet:
    """A set of evaluation or training data."""

    name: str
    title: str
    kind: str
    """``senteval``, ``beir``, ``text`` or ``pairs``."""
    folder: str
    """The folder below the data folder, which several sets can share."""
    licence: str
    files: tuple[File, ...]
    archives: tuple[Archive, ...] = ()
    note: str = ""

    @property
    def size(self) -> int | None:
        """The number of bytes to download, if it is known."""
        if self.archive_first:
            return self.archives[0].pin.size
        return total_size(self.files)

    @property
    def archive_first(self) -> bool:
        """Whether an archive is tried before single files, because it can be checked or they cannot all be had."""
        if not self.archives:
            return False
        if self.archives[0].pin.checks:
            return True
        return not all_checked(self.files) or not all(file.sources for file in self.files)


def total_size(files: Sequence[File]) -> int | None:
    """Return the number of bytes of files together, or None if that of one is not known."""
    total = 0
    for file in files:
        if file.pin.size is None:
            return None
        total += file.pin.size
    return total


def all_checked(files: Sequence[File]) -> bool:
    """Tell whether there is a checksum of each file."""
    return all(file.pin.checks for file in files)


@cache
def registry() -> dict[str, DataSet]:
    """Return all data sets by name."""
    text = (models_folder() / "datasets.toml").read_text("utf-8")
    tables: dict[str, dict[str, Any]] = tomllib.loads(text)
    sets: dict[str, DataSet] = {}
    for name, table in tables.items():
        if "part_of" in table:
            sets[name] = _part(sets[table["part_of"]], name, table)
        else:
            file = partial(_file, bases=table.pop("bases", {}))
            files = tuple(map(file, table.pop("files")))
            archives = tuple(map(_archive, table.pop("archives", [])))
            sets[name] = DataSet(name=name, files=files, archives=archives, **table)
    return sets


def _part(whole: DataSet, name: str, table: dict[str, Any]) -> DataSet:
    """Return a data set that has some files of another one."""
    files = []
    for file in whole.files:
        if any(fnmatch(file.path, pattern) for pattern in table["only"]):
            files.append(file)
    return replace(
        whole, name=name, files=tuple(files), title=table["title"], licence=table["licence"], note=table["note"]
    )


def find_data_set(name: str) -> DataSet:
    """Return a data set by its name.

    Raises:
        InputError: if there is no such data set.
    """
    sets = registry()
    if name not in sets:
        raise InputError(f"no data set {name!r}{nearest(name, list(sets))}; 'sentcli data list' shows all {len(sets)}")
    return sets[name]


def redirected(dataset: DataSet, source: str) -> DataSet:
    """Return a data set with another source as its only one.

    Args:
        dataset: the data set.
        source: the address of its archive, or of its only file; with a ``/`` at the end, that of a folder with its
            files.

    Raises:
        InputError: if the set has several files and no archive, and `source` is no folder.
    """
    if source.endswith("/"):
        files = []
        for file in dataset.files:
            files.append(replace(file, sources=(source + file.path,), unpack="none"))
        return replace(dataset, files=tuple(files), archives=())
    if dataset.archives:
        archive = replace(dataset.archives[0], sources=(source,))
        only_packed = tuple(replace(file, sources=()) for file in dataset.files)
        return replace(dataset, files=only_packed, archives=(archive,))
    if len(dataset.files) == 1:
        only_file = replace(dataset.files[0], sources=(source,))
        return replace(dataset, files=(only_file,))
    raise InputError(f"{dataset.name} is {len(dataset.files)} files: --source has to be a folder, with / at its end")


def _file(entry: dict[str, Any], bases: dict[str, str]) -> File:
    sources = [bases[base] + quote(entry["path"]) for base in entry.get("from", [])]
    sources += entry.get("sources", [])
    return File(entry["path"], tuple(sources), entry.get("unpack", "none"), _pin(entry))


def _archive(entry: dict[str, Any]) -> Archive:
    also = tuple(entry.get("also", []))
    return Archive(tuple(entry["sources"]), entry["unpack"], entry.get("inside", ""), also, _pin(entry))


def _pin(entry: dict[str, Any]) -> Pin:
    return Pin(entry.get("sha256"), entry.get("md5"), entry.get("size"))


OFFLINE_VARIABLES = ("SENTCLI_OFFLINE", "HF_HUB_OFFLINE")
FOLDER_VARIABLES = ("SENTCLI_DATA_DIR", "SENTCLI_DATA")
"""Variables that name the data folder; the first that is set counts."""
NAMED_FILES = 5
"""How many missing files a message names; it only counts the others."""


def data_folder(folder: Path | None = None) -> Path:
    """Return the data folder: `folder`, or what one of `FOLDER_VARIABLES` names, or ``data`` in the cache."""
    if folder is not None:
        return expanded(folder)
    variable = _variable()
    if variable is not None:
        return expanded(os.environ[variable])
    return cache_folder("data")


def _variable() -> str | None:
    """Return the variable that names the data folder, or None if none of them is set."""
    for name in FOLDER_VARIABLES:
        if os.environ.get(name):
            return name
    return None


def is_offline() -> bool:
    """Tell whether the environment forbids the network."""
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in OFFLINE_VARIABLES)


def missing(dataset: DataSet, folder: Path) -> list[File]:
    """Return the files of a data set that are not in the data folder."""
    return [file for file in dataset.files if not (folder / dataset.folder / file.path).is_file()]


def presence(dataset: DataSet, folder: Path) -> str:
    """Return whether a data set is in the data folder: ``yes``, ``partly`` or ``no``."""
    absent = len(missing(dataset, folder))
    if absent == 0:
        return "yes"
    if absent == len(dataset.files):
        return "no"
    return "partly"


def locate(name: str, folder: Path | None = None) -> Path:
    """Return the folder of a data set, or a folder in it such as ``cqadupstack/android``.

    Args:
        name: the name of the data set, perhaps with a folder: ``NAME/SUB``.
        folder: the data folder; see `data_folder`.

    Raises:
        InputError: if there is no such set or folder, or files are missing; the message says how to get them.
    """
    first, _, sub = name.partition("/")
    dataset = find_data_set(first)
    folder = data_folder(folder)
    absent = missing(dataset, folder)
    if absent:
        raise InputError(download_instructions(dataset, folder, absent))
    whole = folder / dataset.folder
    if not (whole / sub).is_dir():
        folders = sorted(path.name for path in whole.iterdir() if path.is_dir())
        raise InputError(f"{first} has no folder {sub!r}; it has: {', '.join(folders)}")
    return whole / sub


def dataset_path(path: Path) -> Path:
    """Return the folder of a data set if a path is its name and does not exist; else return the path unchanged.

    Of a text or a table that is one file, it is the file.

    Raises:
        InputError: see `locate`.
    """
    name = path.as_posix()
    if path.exists() or path.is_absolute() or name.partition("/")[0] not in registry():
        return path
    place = locate(name)
    dataset = registry().get(name)
    if dataset is not None and dataset.kind in ("text", "pairs") and len(dataset.files) == 1:
        return place / dataset.files[0].path
    return place


def located_name(name: str) -> str:
    """Return what `located` does as text; the name of a file elsewhere, such as ``s3://bucket/file``, is unchanged."""
    if is_remote(name):
        return name
    return str(dataset_path(Path(name)))


def download_instructions(dataset: DataSet, folder: Path, absent: list[File]) -> str:
    """Return a message that names the missing files of a set, their sources, and the places to copy them to."""
    place = folder / dataset.folder
    named = [file.path for file in absent[:NAMED_FILES]]
    names = ", ".join(named)
    others = ""
    if len(absent) > NAMED_FILES:
        others = f"and {len(absent) - NAMED_FILES} more"
        names += f" {others}"
    lines = [f"{dataset.name} is not on this machine: {len(absent)} of {len(dataset.files)} files are missing: {names}"]
    if folder == data_folder():
        variable = _variable()
        why = f"since {FOLDER_VARIABLES[-1]} names no other"
        if variable is not None:
            why = f"which {variable} names"
        lines.append(f"  They were looked for below {place}, in the data folder, {why}")
    lines.append(f"  'sentcli data get {dataset.name}' fetches them from")
    for source in addresses(dataset, absent):
        lines.append(f"    {source}")
    archive = None
    if dataset.archives:
        archive = dataset.archives[0].name
    elif len(dataset.files) == 1:
        archive = absent[0].path
    if archive is not None:
        lines.append(f"  If you have {archive} already: sentcli data get {dataset.name} --from {archive}")
    lines.append("  Or copy the files to exactly these places:")
    for path in named:
        lines.append(f"    {place / path}")
    if others:
        lines.append(f"    {others}, by the same names below {place}")
    return "\n".join(lines)


def addresses(dataset: DataSet, files: list[File]) -> list[str]:
    """Return the sources of files in the order in which they are tried; ``...`` stands for the path of a file."""
    archives: list[str] = []
    for archive in dataset.archives:
        archives += archive.sources
    single: dict[str, None] = {}
    for file in files:
        path = quote(file.path)
        for source in file.sources:
            if len(files) > 1 and source.endswith(path):
                source = f"{source.removesuffix(path)}..."
            single[source] = None
    if dataset.archive_first:
        return [*archives, *single]
    return [*single, *archives]
