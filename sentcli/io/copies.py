"""Copies of what is elsewhere: files for the time of a command, and in the cache folders of stores, such as models.

A copied folder is brought up to date whenever it is opened: files that have not changed in the store are kept. The
record beside it says which files came from the store, and in which state.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sentcli import console
from sentcli.errors import InputError
from sentcli.io import object_stores
from sentcli.io.atomic import require_room
from sentcli.io.digests import cache_folder
from sentcli.io.forms import checked, read_json, write_json
from sentcli.io.object_stores import RemoteFile
from sentcli.io.places import OBJECT_STORES, STORE_SCHEMES, Address, Place, scheme_of
from sentcli.io.scratch import scratch

_local_files: dict[str, tuple[RemoteFile, Path]] = {}


def local_name(name: str) -> str:
    """Return a name as a file name of a copy; one that is too long ends with a hash instead, before its suffixes."""
    name = re.sub("[:/]+", "-", name)
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) <= 200:  # most file systems take 255
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    suffixes = "".join(PurePosixPath(name).suffixes[-2:])
    if len(suffixes) > 40:
        suffixes = ""
    return f"{name[:40]}-{digest}{suffixes}"


def local_file(name: str) -> Place:
    """Return a file with a temporary copy as its path; one that has not changed is not copied twice by a process.

    Raises:
        InputError: if there is no such file, or no right to read it.
        SentcliError: if the host fails, or the disk has no room.
    """
    address = Address(name)
    state = object_stores.remote_state(address)
    if address.full_url in _local_files:
        copied_state, path = _local_files[address.full_url]
        if copied_state == state and path.exists():
            return Place(address, path)
    path = scratch() / local_name(address)
    _local_files[address.full_url] = object_stores.download(address, path), path
    return Place(address, path)


CopiedFiles = dict[str, tuple[int | None, str, int | None]]
"""What is recorded of each copied file: its size and version in the store, and when the copy was changed."""


@dataclass(frozen=True)
class FolderCopy(Place):
    """The copy of a folder of a store; its path tells the address, as errors about files in it name them."""

    copied: frozenset[str] = frozenset()
    """The relative names of the files that were copied when it was opened."""

    @classmethod
    def open(cls, address: str) -> FolderCopy:
        """Copy the files of a folder that are new or have changed, and delete those that are gone from it.

        Raises:
            InputError: if there is no such folder, or no right to read it.
            SentcliError: if the store fails, or the disk has no room.
        """
        from filelock import FileLock

        address = address.rstrip("/")
        if scheme_of(address) not in OBJECT_STORES:
            raise InputError(f"{address}: folders are read from object stores ({STORE_SCHEMES}) and from this machine")
        files = _placeable(address, object_stores.listing(address))
        if not files:
            raise InputError(f"no such folder: {address}")
        digest = hashlib.sha256(address.encode()).hexdigest()[:16]
        path = cache_folder("remote") / f"{local_name(address)}-{digest}"
        path.mkdir(parents=True, exist_ok=True)
        copy = cls(address, path)
        with FileLock(copy._sidecar("lock")):
            return copy._updated(files)

    @contextmanager
    def making(self, below: str) -> Iterator[None]:
        """Make files below a folder of the copy, and upload them: meanwhile no other process brings it up to date."""
        from filelock import FileLock

        with FileLock(self._sidecar(f"{below}.lock")):
            yield

    def _is_made(self, below: str) -> bool:
        """Tell whether another process makes files below a folder of the copy."""
        from filelock import FileLock, Timeout

        try:
            with FileLock(self._sidecar(f"{below}.lock"), timeout=0):
                return False
        except Timeout:
            return True

    def _sidecar(self, kind: str) -> Path:
        """Return the path of a file about the copy, which stands beside it."""
        return self.path.with_name(f".{self.path.name}.{kind}")

    def _recorded(self) -> dict[str, RemoteFile]:
        """Return the files whose copies have not been changed here, each as it was in the store."""
        path = self._sidecar("json")
        try:
            record = checked(CopiedFiles, read_json(path, default={}), path)
        except InputError:
            return {}  # it is damaged: everything is copied anew
        unchanged: dict[str, RemoteFile] = {}
        for name, (size, version, changed_at) in record.items():
            if self._changed_at(name) == changed_at:
                unchanged[name] = RemoteFile(size, version)
        return unchanged

    def _place(self, name: str) -> Path:
        """Return the path of the copy of a file."""
        return self.path.joinpath(*map(local_name, PurePosixPath(name).parts))

    def _changed_at(self, name: str) -> int | None:
        """Return when the copy of a file was changed, in nanoseconds; None if there is none."""
        path = self._place(name)
        if not path.is_file():
            return None
        return path.stat().st_mtime_ns

    def _note(self, files: dict[str, RemoteFile]) -> None:
        """Record the files whose copies are as in the store."""
        facts = {}
        for name, file in files.items():
            facts[name] = [file.size, file.version, self._changed_at(name)]
        write_json(self._sidecar("json"), facts)

    def _updated(self, files: dict[str, RemoteFile]) -> FolderCopy:
        """Bring the copy up to date with the files in the store, but for folders that another process makes."""
        recorded = self._recorded()
        folders = {name.partition("/")[0] for name in {*files, *recorded} if "/" in name}
        for folder in folders:
            if self._is_made(folder):
                files = _outside(folder, files)
                recorded = _outside(folder, recorded)
        same = {}
        new = []
        size = 0
        for name, file in files.items():
            if recorded.get(name) == file:
                same[name] = file
            else:
                new.append(name)
                size += file.size or 0
        for name in recorded.keys() - same.keys():
            self._place(name).unlink()
        require_room(self.path, size, self.name)
        if size > object_stores.ANNOUNCED_BYTES:
            console.note(f"{self.name}: {size / 1e6:,.0f} MB are copied to {self.path} first")
        try:
            for name in new:
                self._place(name).parent.mkdir(parents=True, exist_ok=True)
                object_stores.download(f"{self.name}/{name}", self._place(name), quiet=True)
                same[name] = files[name]
        finally:
            self._note(same)
        return FolderCopy(self.name, self.path, frozenset(new))

    def upload(self, below: str, last: tuple[str, ...]) -> None:
        """Copy to the store what has changed here below a folder, and delete there what is gone from changed folders.

        Args:
            below: the relative name of the folder.
            last: the names of files that are copied after all others, since they tell that the others are there.

        Raises:
            InputError: if there is no right to write.
            SentcliError: if the store fails.
        """
        names = self._visible_files(below)
        recorded = self._recorded()
        stored = object_stores.listing(self.name).keys()
        changed_folders = set()
        for name in sorted(names - recorded.keys(), key=lambda name: (name.endswith(last), name)):
            object_stores.upload(self.path / name, f"{self.name}/{name}")
            changed_folders.add(PurePosixPath(name).parent)
        for name in stored - names:
            if PurePosixPath(name).parent in changed_folders:
                object_stores.delete_file(f"{self.name}/{name}")
        as_here = {}
        for name, file in object_stores.listing(self.name).items():
            if name in names or name in recorded:
                as_here[name] = file
        self._note(as_here)

    def _visible_files(self, below: str) -> set[str]:
        """Return the relative names of the files below a folder of the copy that are not hidden."""
        names: set[str] = set()
        for path in (self.path / below).rglob("*"):
            relative = path.relative_to(self.path)
            if path.is_file() and not any(part.startswith(".") for part in relative.parts):
                names.add(relative.as_posix())
        return names


def _outside(folder: str, files: dict[str, RemoteFile]) -> dict[str, RemoteFile]:
    """Return the files that are not below a folder."""
    return {name: file for name, file in files.items() if not name.startswith(f"{folder}/")}


def _placeable(address: str, files: dict[str, RemoteFile]) -> dict[str, RemoteFile]:
    """Return the files without the empty ones that stand for folders.

    Raises:
        InputError: if a file has the name of a folder, which no disk can hold.
    """
    folders: set[str] = set()
    for name in files:
        folders.update(parent.as_posix() for parent in PurePosixPath(name).parents)
    for name, file in files.items():
        if name in folders and file.size:
            raise InputError(
                f"{address} has a file and a folder of the name {name!r}, which a disk cannot hold: rename one"
            )
    return {name: file for name, file in files.items() if name not in folders}
