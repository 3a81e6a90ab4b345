"""Where a directory of shards lies: on a disk, or in an object store.

Shards are always made on a disk. For a store this is a temporary folder, from which a shard is copied when it is whole,
and then deleted; the manifest is copied after it. So the store never has a manifest that lists what is not there.
"""

from __future__ import annotations

import filecmp
import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from sentcli.errors import InputError, SentcliError
from sentcli.io import object_stores
from sentcli.io.atomic import check_output, exchange, link, locked, promote, replacing, staging_folder
from sentcli.io.blocks import ShardShare
from sentcli.io.copies import FolderCopy, local_file
from sentcli.io.dataset import (
    PART,
    Manifest,
    Shard,
    holds_manifest,
    is_manifest,
    is_own,
    read_manifest,
)
from sentcli.io.digests import cache_folder
from sentcli.io.places import OBJECT_STORES, STORE_SCHEMES, Place, is_remote, scheme_of
from sentcli.io.scratch import scratch
from sentcli.io.writers import npy_bytes


@dataclass(frozen=True)
class Folder(Place):
    """A directory of shards on a disk; manifests are read, and shards are made, in its path."""

    @property
    def full_name(self) -> str:
        """An absolute path or an address, which means the same in every process and on every node."""
        return str(self.path.resolve())

    @property
    def exists(self) -> bool:
        """Whether there is anything of this name."""
        return self.path.exists()

    def names(self) -> list[str]:
        """Return the names of the files and folders in the directory."""
        if not self.path.is_dir():
            return []
        return [file.name for file in self.path.iterdir()]

    def holds(self, part: ShardShare) -> bool:
        """Tell whether there is a manifest of a part, or for all parts, of any."""
        names = self.names()
        return part.manifest in names or (part.of == 1 and any(map(PART.fullmatch, names)))

    def check_writable(self, *, overwrite: bool = False) -> None:
        """Refuse a directory that cannot be written; see `check_output`."""
        check_output(self.path, overwrite=overwrite, resume=True, folder=True)

    def lock(self, manifest: str) -> Path:
        """Return the path of the lock file of a part."""
        return self.path / f".{manifest}.lock"

    def damage(self, shard: Shard, manifest: Manifest) -> str | None:
        """Return what is wrong with the files of a shard that is to be kept, or None if they are whole."""
        return shard.damage(self.path)

    @contextmanager
    def held(self, shard: Shard) -> Iterator[Path]:
        """Yield a local folder that holds those files of a shard which exist."""
        yield self.path

    def publish(self, *names: str) -> None:
        """Put finished files where the directory lies; on a disk they are in their place already."""

    def remove(self, name: str) -> None:
        """Delete a file of the directory, if it is there."""
        (self.path / name).unlink(missing_ok=True)

    def delete(self) -> None:
        """Delete the directory with all that is in it, if it is there."""
        shutil.rmtree(self.path, ignore_errors=True)

    def staging(self) -> Folder:
        """Return the directory in which what replaces this one is made; it need not be there yet."""
        return open_folder(staging_folder(self.path))

    @contextmanager
    def staging_held(self) -> Iterator[None]:
        """Hold the staging folder inside the block, until it takes the place of this directory.

        Raises:
            InputError: if another process holds it.
        """
        staging = staging_folder(self.path)
        message = f"another process makes what replaces {self}: wait for it"
        with locked(staging.with_name(f"{staging.name}.lock"), message):
            yield

    def promote(self) -> None:
        """Put the finished staging folder in the place of this directory, with the files that `encode` did not write.

        Raises:
            OSError: if it cannot be: both directories are whole.
        """
        new = staging_folder(self.path)
        for name in self.names():
            source = self.path / name
            target = new / name
            if is_own(name) or target.exists() or target.is_symlink():
                continue
            if source.is_dir() and not source.is_symlink():
                shutil.copytree(source, target, copy_function=link, symlinks=True)
            else:
                link(source, target, follow_symlinks=False)
        promote(self.path)

    @property
    def before(self) -> Folder:
        """Where the directory is kept as it was before it moved to another model; it need not be there."""
        path = self.path.resolve()
        before = path.with_name(f"{path.name}.before")
        name = self.name.rstrip("/")
        if Path(name).name != path.name:  # a link, or "."
            return Folder(str(before), before)
        return Folder(f"{name}.before", before)

    def is_before(self) -> bool:
        """Whether `before` is but a second name of the files here, as an interrupted move leaves it."""
        kept = self.before.path
        if not kept.is_dir():
            return False
        for file in kept.rglob("*"):
            here = self.path / file.relative_to(kept)
            if file.is_file() and not (here.is_file() and filecmp.cmp(file, here)):
                return False
        return True

    def check_replaceable(self) -> None:
        """Refuse a directory that cannot take the name of another one: a disk, or the folder that the user is in."""
        check_output(self.path, overwrite=True, folder=True)

    def keep_before(self) -> None:
        """Give all files of the directory a second name in `before`; what is there already is replaced."""
        check_output(self.before.path, overwrite=True, folder=True)
        with replacing(self.before.path) as copy:
            ignored = shutil.ignore_patterns(".*.lock", ".*.partial", ".*.building")
            shutil.copytree(self.path, copy, copy_function=link, symlinks=True, ignore=ignored)

    def go_back(self) -> None:
        """Exchange the directory with `before` in one step; links to either of them stay where they are."""
        exchange(self.before.path.resolve(), self.path.resolve())


@dataclass(frozen=True)
class RemoteFolder(Folder):
    """A directory of shards in an object store; its path is a temporary folder with its manifests."""

    sizes: dict[str, int | None] = field(default_factory=dict)
    """The size of each file below the directory in bytes, by relative name."""

    @classmethod
    def open(cls, address: str) -> RemoteFolder:
        """List a directory, and copy its manifests.

        Raises:
            InputError: if there is no such bucket, or no right to read it.
            SentcliError: if the store fails.
        """
        if scheme_of(address) not in OBJECT_STORES:
            raise InputError(
                f"{address}: a directory of vectors lies on a disk or in an object store ({STORE_SCHEMES})"
            )
        address = address.rstrip("/")
        files = object_stores.listing(address)
        path = scratch()
        for name in files:
            if is_manifest(name):
                object_stores.download(f"{address}/{name}", path / name)
        return cls(address, path, {name: file.size for name, file in files.items()})

    @property
    def full_name(self) -> str:
        """An absolute path or an address, which means the same in every process and on every node."""
        return self.name

    @property
    def exists(self) -> bool:
        """Whether there is any file."""
        return bool(self.names())

    def names(self) -> list[str]:
        """Return the names of the files and folders in the directory."""
        names = (name.partition("/")[0] for name in self.sizes if not name.startswith(object_stores.PROBE))
        return list(dict.fromkeys(names))

    def check_writable(self, *, overwrite: bool = False) -> None:
        """Refuse a directory that cannot be written, after writing and deleting a small file."""
        if not object_stores.check_writable(self.name) and overwrite and self.exists:
            raise InputError(f"--overwrite: there is no right to delete files of {self.name}; choose another -o")

    def lock(self, manifest: str) -> Path:
        """Return the path of a lock file, which only processes of this machine see."""
        digest = hashlib.sha256(f"{self.name}/{manifest}".encode()).hexdigest()
        return cache_folder("locks") / f"{digest[:32]}.lock"

    def damage(self, shard: Shard, manifest: Manifest) -> str | None:
        """Return which file of a shard is missing or has the wrong size; ``encode --check`` reads them whole.

        An object appears whole and before the manifest that lists it, so that its size tells enough to go on.
        """
        expected = npy_bytes(shard.count, manifest.dimension, manifest.dtype)
        for name in shard.files:
            if name not in self.sizes:
                return f"{name} is missing"
            size = self.sizes[name]
            if size == 0 or (name == shard.vectors and size != expected):
                return f"{name} is damaged (it has {size:,} bytes)"
        return None

    @contextmanager
    def held(self, shard: Shard) -> Iterator[Path]:
        """Yield a folder with copies of the files of a shard, which are deleted afterwards."""
        names = [name for name in shard.files if name in self.sizes]
        try:
            for name in names:
                object_stores.download(f"{self.name}/{name}", self.path / name)
            yield self.path
        finally:
            for name in names:
                (self.path / name).unlink(missing_ok=True)

    def publish(self, *names: str) -> None:
        """Copy finished files to the store, and delete those of shards here."""
        for name in names:
            path = self.path / name
            object_stores.upload(path, f"{self.name}/{name}")
            self.sizes[name] = path.stat().st_size
        for name in names:
            if not is_manifest(name):
                (self.path / name).unlink()

    def remove(self, name: str) -> None:
        """Delete a file in the store, and here if it is a manifest."""
        object_stores.delete_file(f"{self.name}/{name}")
        self.sizes.pop(name, None)
        (self.path / name).unlink(missing_ok=True)

    def delete(self) -> None:
        """Delete the directory with all that is in it, if it is there."""
        for name in list(self.sizes):
            self.remove(name)

    def staging(self) -> RemoteFolder:
        """Return the directory in which what replaces this one is made; it need not be there yet."""
        return RemoteFolder.open(f"{self.name}-next")

    def promote(self) -> None:
        """Copy the finished staging folder over this directory within the store, and delete what is old.

        A store cannot exchange names. The old manifest goes first and the new one comes last, so that nobody reads a
        mixture; what is copied stays until all is there, and the same command with ``--resume`` copies again.

        Raises:
            SentcliError: if the store fails.
        """
        new = self.staging()
        for name in list(self.sizes):
            if is_manifest(name):
                self.remove(name)
        for name in sorted(new.sizes, key=is_manifest):
            object_stores.copy(f"{new.name}/{name}", f"{self.name}/{name}")
        for name in list(self.sizes):
            if is_own(name) and name not in new.sizes:
                self.remove(name)
        for name in list(new.sizes):
            new.remove(name)


def open_folder(name: str | Path) -> Folder:
    """Return where a directory of shards lies; it need not be there yet.

    Raises:
        InputError: if a name with a scheme is of no store, or there is no right to read it.
        SentcliError: if the store fails.
    """
    if is_remote(str(name)):
        return RemoteFolder.open(str(name))
    return Folder(str(name), Path(name))


def join_folder(name: str, manifest: str) -> Folder:
    """Return a directory that another process has begun, to put further shards into it.

    Args:
        name: its `Folder.full_name`.
        manifest: the name of the manifest that the other process writes.

    Raises:
        InputError: if this machine does not see it.
        SentcliError: if the store fails.
    """
    if is_remote(name):
        object_stores.remote_state(f"{name}/{manifest}")
        return RemoteFolder(name, scratch())
    if not (Path(name) / manifest).exists():
        raise InputError(
            f"{name} is not there: the output has to be in an object store, or on a file system that all nodes share, "
            "under the same path"
        )
    return Folder(name, Path(name))


def local_place(name: str | Path) -> Place:
    """Return where a file or folder is on this machine: a copy if it is elsewhere; a pattern is left as it is.

    The cache keeps the copies of folders; those of files are temporary. Shards that were copied are compared with their
    checksums.

    Raises:
        InputError: if there is nothing of this name elsewhere, or no right to read it.
        SentcliError: if a host fails, or a shard that was copied is not the one of the manifest.
    """
    name = str(name)
    if not is_remote(name) or object_stores.is_pattern(name):
        return Place.of(Path(name))
    if scheme_of(name) not in OBJECT_STORES or not object_stores.listing(name):
        return local_file(name)
    copy = FolderCopy.open(name)
    if not holds_manifest(path.name for path in copy.path.iterdir()):
        return copy
    for shard in read_manifest(copy).shards:
        is_new = not copy.copied.isdisjoint(shard.files)
        problem = shard.damage(copy.path) if is_new else None
        if problem:
            for file in shard.files:
                (copy.path / file).unlink(missing_ok=True)
            raise SentcliError(f"{name}: {problem}; encode with --resume makes it again")
    return copy


def is_whole(output: str) -> bool:
    """Whether a directory has all of its rows."""
    with suppress(SentcliError, OSError):  # it is not there, or parts of other machines are missing
        manifest = read_manifest(open_folder(output))
        return manifest.rows_done == manifest.rows_total
    return False


def rows_so_far(output: str, *, overwrite: bool) -> dict[str, int]:
    """Return how many rows an unfinished directory holds and is to hold; nothing if it was not begun.

    Args:
        output: the directory.
        overwrite: whether it replaces another one, so that it is made in the staging folder of that.
    """
    place = open_folder(output)
    for folder in (place.staging(), place) if overwrite else (place,):
        with suppress(SentcliError, OSError):  # it is not there, or parts of other machines are missing
            manifest = read_manifest(folder)
            if manifest.rows_done < manifest.rows_total:
                return {"rows_done": manifest.rows_done, "rows_total": manifest.rows_total}
    return {}
