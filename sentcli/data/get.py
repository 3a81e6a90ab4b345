"""Get a data set from the first source that works; its files are checked, unpacked and recorded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sentcli.console import Transfer
from sentcli.data.pins import PINS_FILE, WORK, Fetched, record_files, recorded_files
from sentcli.data.registry import (
    Archive,
    DataSet,
    File,
    Pin,
    all_checked,
    download_instructions,
    missing,
    redirected,
    total_size,
)
from sentcli.data.unpack import ArchiveError, choose_files, gunzip, unpack
from sentcli.errors import InputError, SentcliError
from sentcli.io import object_stores
from sentcli.io.atomic import NoRoomError, replacing, require_room
from sentcli.io.places import Address, is_remote

HUB = "https://huggingface.co/"


@dataclass
class FetchResult:
    """What was fetched for a data set."""

    name: str
    folder: Path
    files: list[str] = field(default_factory=list)
    """The paths of the fetched files below the folder; empty if none was missing."""
    size: int = 0
    """The number of bytes that were fetched."""
    sources: list[str] = field(default_factory=list)
    first_use: list[str] = field(default_factory=list)
    """The files and archives that had no checksum before, and have that of this download from now on."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        state = "fetched" if self.files else "present"
        return {**vars(self), "folder": str(self.folder), "state": state}


def fetch_data_set(
    dataset: DataSet,
    folder: Path,
    meter: Transfer,
    *,
    source: str | None = None,
    local_file: Path | None = None,
    overwrite: bool = False,
    offline: bool = False,
    notice: Callable[[str], None] = lambda text: None,
) -> FetchResult:
    """Bring the missing files of a data set into the data folder.

    Args:
        dataset: the data set.
        folder: the data folder.
        meter: is told of the progress.
        source: another address of the archive, or of the only file, of the set; with a ``/`` at the end, that of a
            folder with the files.
        local_file: the archive, or the only file, of the set on this machine.
        overwrite: get all files anew.
        offline: use no network.
        notice: called with notes for the user.

    Raises:
        InputError: if the data folder cannot be written, `local_file` is wrong, or files are missing with `offline`.
        NoRoomError: if the disk is full.
        SentcliError: if no source gave the missing files; the message has the reason for each.
    """
    result = FetchResult(dataset.name, folder / dataset.folder)
    if not overwrite and not missing(dataset, folder):
        return result  # without the lock, so that the folder may be read-only
    with _alone(dataset, folder, notice):
        files = list(dataset.files) if overwrite else missing(dataset, folder)
        if not files:  # another process was faster
            return result
        job = _Fetch(dataset, folder, files, meter, notice, result)
        if local_file is not None:
            job.take(local_file)
        elif offline:
            forbidden = "--offline or one of SENTCLI_OFFLINE and HF_HUB_OFFLINE forbids the network"
            raise InputError(f"{forbidden}, and {download_instructions(dataset, folder, files)}")
        else:
            if source:
                dataset = redirected(dataset, source)
            job.fetch(dataset)
        shutil.rmtree(job.work, ignore_errors=True)
        return result


@contextmanager
def _alone(dataset: DataSet, folder: Path, notice: Callable[[str], None]) -> Iterator[None]:
    """Keep other processes from getting the same folder inside the block; wait for one that does."""
    work = folder / WORK
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = FileLock(work / f"{dataset.folder.replace('/', '-')}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            notice(f"another process is getting {dataset.folder}; waiting for it")
            lock.acquire()
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; --data-dir names another folder") from error
    try:
        yield
    finally:
        lock.release()


@dataclass
class _Fetch:
    """The fetching of some files of one data set."""

    dataset: DataSet
    folder: Path
    files: list[File]
    meter: Transfer
    notice: Callable[[str], None]
    result: FetchResult
    uses_lock_file: bool = False
    """Whether a checksum is taken from the lock file, which has those of the first downloads."""

    def __post_init__(self) -> None:
        self.work = self.folder / WORK / self.dataset.folder
        self.recorded = recorded_files(self.folder)

    def fetch(self, dataset: DataSet) -> None:
        """Try the archives of a set and its single files, first those that can be checked.

        Raises:
            SentcliError: if neither gave all files; the message has the reasons.
        """
        attempts = [partial(self._fetch_archive, archive) for archive in dataset.archives]
        files = {file.path: file for file in dataset.files}
        single = [files[file.path] for file in self.files]
        if all(file.sources for file in single):
            place = len(attempts) if dataset.archive_first else 0
            attempts.insert(place, partial(self._fetch_files, single))
        reasons = []
        for attempt in attempts:
            try:
                return attempt()
            except NoRoomError:
                raise
            except SentcliError as error:
                reasons.append(str(error))
        if self.uses_lock_file:
            reasons.append(
                f"checksums of the first download are in {self.folder / PINS_FILE}: delete an entry there"
                " to take what a source gives now"
            )
        raise SentcliError(f"{dataset.name} could not be fetched\n" + "\n".join(reasons))

    def take(self, local_file: Path) -> None:
        """Use an archive, or the only file of a set, that is on this machine.

        Raises:
            InputError: if the file is missing, or has other bytes than the registry says.
        """
        if not local_file.is_file():
            raise InputError(f"no such file: {local_file}")
        archives = self.dataset.archives
        if archives:
            name = archives[0].name
            pin = self._archive_pin(archives[0])
        elif len(self.dataset.files) == 1:
            name = self.files[0].path
            pin = self._file_pin(self.files[0])
        else:
            raise InputError(download_instructions(self.dataset, self.folder, self.files))
        if wrong := pin.mismatch(local_file):
            raise InputError(f"{local_file} is not the known {self.dataset.name}: {wrong}")
        self.work.mkdir(parents=True, exist_ok=True)
        size = local_file.stat().st_size
        require_room(self.work, size, self.dataset.name)
        if archives:
            self._unpack(archives[0], local_file, str(local_file.resolve()))
        else:
            copy = self.work / local_file.name
            shutil.copyfile(local_file, copy)
            self._keep({name: copy}, str(local_file.resolve()), size)
        self._note_first_use(name, pin, self.files)

    def _fetch_archive(self, archive: Archive) -> None:
        packed = self.work / archive.name
        pin = self._archive_pin(archive)
        source = archive.sources[0]
        if is_remote(source):
            source = Address(source)
        if not packed.exists() or pin.mismatch(packed):  # otherwise a run that was killed has downloaded it
            if pin.size is not None:
                self.meter.total(pin.size)
            source = download_checked(archive.sources, packed, pin, self.meter, self.notice)
        entry = Fetched.now(source, packed)
        try:
            self._unpack(archive, packed, source)
        except ArchiveError:
            packed.unlink()  # a further download may be whole
            raise
        record_files(self.folder, {self._key(archive): entry})
        self._note_first_use(archive.name, pin, self.files)

    def _unpack(self, archive: Archive, packed: Path, source: str) -> None:
        self.meter.step(f"unpacking {packed.name}")
        into = self.work / "unpacked"
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        paths = [file.path for file in self.files]
        try:
            unpacked = unpack(packed, into, partial(choose_files, archive=archive, paths=paths))
            for file in self.files:
                if wrong := file.pin.mismatch(into / file.path):
                    raise ArchiveError(f"{file.path} of {packed.name}: {wrong}")
            self._keep({path: into / path for path in unpacked}, source, packed.stat().st_size)
        finally:
            shutil.rmtree(into, ignore_errors=True)

    def _fetch_files(self, files: Sequence[File]) -> None:
        size = total_size(files)
        if size is not None:
            self.meter.total(size)
        for file in files:
            self.meter.step(file.path)
            target = self.work / file.path
            pin = self._file_pin(file)
            if file.unpack != "gz":
                source = download_checked(file.sources, target, pin, self.meter, self.notice)
            else:
                packed = target.with_name(f"{target.name}.gz")
                source = download_checked(file.sources, packed, Pin(), self.meter, self.notice)
                target.unlink(missing_ok=True)
                gunzip(packed, target)
                if wrong := pin.mismatch(target):
                    raise SentcliError(f"{file.path} of {source}: {wrong}")
            self._keep({file.path: target}, source, target.stat().st_size)
            self._note_first_use(file.path, pin, [file])

    def _keep(self, files: dict[str, Path], source: str, size: int) -> None:
        """Record the checksums of files and then move the files to their places, so that no file lacks a checksum."""
        folder = self.dataset.folder
        entries = {}
        for path, fetched in files.items():
            entries[f"{folder}/{path}"] = Fetched.now(source, fetched)
        record_files(self.folder, entries)
        for path, fetched in files.items():
            place = self.folder / folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            with replacing(place) as temporary:  # which brings the bytes to the disk
                fetched.replace(temporary)
        self.result.files += files
        self.result.size += size
        if source not in self.result.sources:
            self.result.sources.append(source)

    def _note_first_use(self, name: str, pin: Pin, files: Sequence[File]) -> None:
        if not pin.checks and not all_checked(files):
            self.result.first_use.append(name)

    def _key(self, archive: Archive) -> str:
        return f"{self.dataset.folder}: {archive.name}"

    def _archive_pin(self, archive: Archive) -> Pin:
        if all_checked(self.files):
            return archive.pin  # the files are checked, so any archive with them will do
        return self._pinned(archive.pin, self._key(archive))

    def _file_pin(self, file: File) -> Pin:
        return self._pinned(file.pin, f"{self.dataset.folder}/{file.path}")

    def _pinned(self, pin: Pin, key: str) -> Pin:
        """Return the pin of the registry, or that of the first download if the registry has no checksum."""
        first = self.recorded.get(key)
        if pin.checks or first is None:
            return pin
        self.uses_lock_file = True
        return first.pin


def download_checked(
    sources: Sequence[str],
    target: Path,
    pin: Pin,
    meter: Transfer,
    notice: Callable[[str], None] = lambda text: None,
) -> str:
    """Download a file, which appears whole and checked.

    Args:
        sources: the web addresses of the file, the best first.
        target: the file.
        pin: the checksum and the size that the file must have.
        meter: is told of the progress.
        notice: is told of sources that fail.

    Returns:
        The source that gave the file, without user and password.

    Raises:
        NoRoomError: if the disk is full.
        SentcliError: if no source gave the file; the message has the reason for each.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for source in sources:
        endpoint = os.environ.get("HF_ENDPOINT")  # another hub, as in the hub's own library
        address = source
        if endpoint and source.startswith(HUB):
            address = f"{endpoint.rstrip('/')}/{source.removeprefix(HUB)}"
        try:
            if not is_remote(address):
                raise SentcliError(f"{address}: no web address")
            object_stores.download(Address(address), target, meter=meter, size=pin.size, quiet=True)
            if problem := pin.mismatch(target):
                meter.advance(-target.stat().st_size)
                target.unlink()
                raise SentcliError(f"{Address(address)}: {problem}")
            return Address(source)
        except NoRoomError:
            raise
        except SentcliError as error:
            reasons.append(str(error))
            notice(reasons[-1])
    raise SentcliError("\n  ".join([f"no source gave {target.name}:", *reasons]))
