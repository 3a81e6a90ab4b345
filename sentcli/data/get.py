"""Get a data set from the first source that works; its files are checked, unpacked and recorded.

``datasets.lock.json`` in the data folder has the source and the checksum of every fetched file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from filelock import FileLock, Timeout

from sentcli.console import Transfer
from sentcli.data.download import connection, download, shown
from sentcli.data.registry import Archive, DataSet, File, Pin, instructions, missing, redirected
from sentcli.data.unpack import ArchiveError, choose, gunzip, unpack
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import NoRoomError, replacing, require_room
from sentcli.io.digests import file_digest
from sentcli.io.forms import read_json_form, write_json

LOCK_FILE = "datasets.lock.json"
WORK = ".downloads"
"""The folder for unfinished downloads in the data folder."""


@dataclass(frozen=True)
class Fetched:
    """A file as it was when it was fetched."""

    url: str
    """The address of the source, or the path of a file that the user gave."""
    sha256: str
    size: int
    date: str

    @classmethod
    def now(cls, url: str, path: Path) -> Fetched:
        """Describe a file that was fetched just now; the time is in UTC."""
        return cls(url, file_digest(path), path.stat().st_size, datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def pin(self) -> Pin:
        """The checksum and the size as a `Pin`."""
        return Pin(self.sha256, None, self.size)


@dataclass(frozen=True)
class LockFile:
    """The content of the lock file: files by their paths below the data folder, and archives by ``SET: NAME``."""

    format: Literal[1] = 1
    files: dict[str, Fetched] = field(default_factory=dict)


def recorded_files(folder: Path) -> dict[str, Fetched]:
    """Return the entries of the lock file.

    Raises:
        InputError: if the lock file is damaged.
    """
    path = folder / LOCK_FILE
    remedy = "delete it, and files without a checksum are pinned anew"
    return read_json_form(LockFile, path, missing="", remedy=remedy).files if path.exists() else {}


def record_files(folder: Path, entries: dict[str, Fetched]) -> None:
    """Add entries to the lock file, while no other process writes to it."""
    with FileLock(folder / WORK / f"{LOCK_FILE}.lock"):
        files = dict(sorted({**recorded_files(folder), **entries}.items()))
        write_json(folder / LOCK_FILE, asdict(LockFile(files=files)))


@dataclass(frozen=True)
class FileCheck:
    """The result of checking one file."""

    name: str
    """The name of its data set."""
    path: Path
    state: str
    """``ok``, ``wrong``, ``missing`` or ``no checksum``."""
    problem: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form."""
        return {**vars(self), "path": str(self.path)}


def verify(
    dataset: DataSet, folder: Path, *, whole: bool, finished: Callable[[int], None] = lambda count: None
) -> list[FileCheck]:
    """Compare the files of a data set with the checksums of the registry, or else of their first download.

    Args:
        dataset: the data set.
        folder: the data folder.
        whole: whether files that were never fetched count as missing.
        finished: called with 1 for each checked file.

    Raises:
        InputError: if the lock file is damaged.
    """
    prefix = f"{dataset.folder}/"
    recorded = {
        key.removeprefix(prefix): entry for key, entry in recorded_files(folder).items() if key.startswith(prefix)
    }
    expected = {file.path: file.pin for file in dataset.files}
    optional = [pattern for archive in dataset.archives for pattern in archive.also]
    others = [path for path in recorded if path not in expected]
    expected |= {path: Pin() for path in others if any(map(PurePosixPath(path).match, optional))}
    checks = []
    for path, pin in expected.items():
        entry, place = recorded.get(path), folder / dataset.folder / path
        pin = entry.pin if entry is not None and not pin.checks else pin
        if not place.is_file():
            if whole or entry is not None:
                checks.append(FileCheck(dataset.name, place, "missing"))
        elif wrong := pin.mismatch(place):
            checks.append(FileCheck(dataset.name, place, "wrong", wrong))
        else:
            checks.append(FileCheck(dataset.name, place, "ok" if pin.checks else "no checksum"))
        finished(1)
    return checks


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
        return {**vars(self), "folder": str(self.folder), "state": "fetched" if self.files else "present"}


def get(
    dataset: DataSet,
    folder: Path,
    meter: Transfer,
    *,
    source: str | None = None,
    given: Path | None = None,
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
        given: the archive, or the only file, of the set on this machine.
        overwrite: get all files anew.
        offline: use no network.
        notice: called with notes for the user.

    Raises:
        InputError: if the data folder cannot be written, `given` is wrong, or files are missing with `offline`.
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
        if given is not None:
            job.take(given)
        elif offline:
            forbidden = "--offline or one of SENTCLI_OFFLINE and HF_HUB_OFFLINE forbids the network"
            raise InputError(f"{forbidden}, and {instructions(dataset, folder, files)}")
        else:
            job.fetch(redirected(dataset, source) if source else dataset)
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
        by_archive = [partial(self._fetch_archive, archive) for archive in dataset.archives]
        names = {file.path for file in self.files}
        single = [file for file in dataset.files if file.path in names]
        by_file = [partial(self._fetch_files, single)] if all(file.sources for file in single) else []
        reasons = []
        for attempt in [*by_archive, *by_file] if dataset.archive_first else [*by_file, *by_archive]:
            try:
                return attempt()
            except NoRoomError:
                raise
            except SentcliError as error:
                reasons.append(str(error))
        if self.uses_lock_file:
            reasons.append(
                f"checksums of the first download are in {self.folder / LOCK_FILE}: delete an entry there"
                " to take what a source gives now"
            )
        raise SentcliError(f"{dataset.name} could not be fetched\n" + "\n".join(reasons))

    def take(self, given: Path) -> None:
        """Use an archive, or the only file of a set, that is on this machine.

        Raises:
            InputError: if the file is missing, or has other bytes than the registry says.
        """
        if not given.is_file():
            raise InputError(f"no such file: {given}")
        archive, file = next(iter(self.dataset.archives), None), self.files[0]
        if archive is None and len(self.dataset.files) > 1:
            raise InputError(instructions(self.dataset, self.folder, self.files))
        pin = self._file_pin(file) if archive is None else self._archive_pin(archive)
        if wrong := pin.mismatch(given):
            raise InputError(f"{given} is not the known {self.dataset.name}: {wrong}")
        self.work.mkdir(parents=True, exist_ok=True)
        size = given.stat().st_size
        require_room(self.work, size, self.dataset.name)
        if archive is None:
            copy = self.work / given.name
            shutil.copyfile(given, copy)
            self._keep({file.path: copy}, str(given.resolve()), size)
        else:
            self._unpack(archive, given, str(given.resolve()))
        self._note_first_use(file.path if archive is None else archive.name, pin, self.files)

    def _fetch_archive(self, archive: Archive) -> None:
        packed, pin = self.work / archive.name, self._archive_pin(archive)
        source = archive.sources[0]
        if not packed.exists() or pin.mismatch(packed):  # otherwise a run that was killed has downloaded it
            with connection() as client:
                self._make_room(pin, archive.name)
                source = download(client, archive.sources, packed, pin, self.meter, self.notice)
        entry = Fetched.now(shown(source), packed)
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
            unpacked = unpack(packed, into, lambda names: choose(names, archive, paths))
            for file in self.files:
                if wrong := file.pin.mismatch(into / file.path):
                    raise ArchiveError(f"{file.path} of {packed.name}: {wrong}")
            self._keep({path: into / path for path in unpacked}, source, packed.stat().st_size)
        finally:
            shutil.rmtree(into, ignore_errors=True)

    def _fetch_files(self, files: Sequence[File]) -> None:
        sizes = [file.pin.size for file in files if file.pin.size is not None]
        if summed := len(sizes) == len(files):
            self.meter.total(sum(sizes))
        with connection() as client:
            for file in files:
                self.meter.step(file.path)
                pin = self._file_pin(file)
                self._make_room(pin, file.path)
                target = self.work / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                ask = partial(download, client, file.sources, meter=self.meter, notice=self.notice, counts=not summed)
                if file.unpack != "gz":
                    source = ask(target, pin)
                else:
                    packed = target.with_name(f"{target.name}.gz")
                    source = ask(packed, Pin())
                    target.unlink(missing_ok=True)
                    gunzip(packed, target)
                    if wrong := pin.mismatch(target):
                        raise SentcliError(f"{file.path} of {shown(source)}: {wrong}")
                self._keep({file.path: target}, source, target.stat().st_size)
                self._note_first_use(file.path, pin, [file])

    def _make_room(self, pin: Pin, name: str) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        if pin.size is not None:
            require_room(self.work, pin.size, name)

    def _keep(self, files: dict[str, Path], source: str, size: int) -> None:
        """Record the checksums of files and then move the files to their places, so that no file lacks a checksum."""
        folder, url = self.dataset.folder, shown(source)
        record_files(self.folder, {f"{folder}/{path}": Fetched.now(url, fetched) for path, fetched in files.items()})
        for path, fetched in files.items():
            place = self.folder / folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            with replacing(place) as temporary:  # which brings the bytes to the disk
                fetched.replace(temporary)
        self.result.files += files
        self.result.size += size
        if url not in self.result.sources:
            self.result.sources.append(url)

    def _note_first_use(self, name: str, pin: Pin, files: Sequence[File]) -> None:
        if not pin.checks and not all(file.pin.checks for file in files):
            self.result.first_use.append(name)

    def _key(self, archive: Archive) -> str:
        return f"{self.dataset.folder}: {archive.name}"

    def _archive_pin(self, archive: Archive) -> Pin:
        if all(file.pin.checks for file in self.files):
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
