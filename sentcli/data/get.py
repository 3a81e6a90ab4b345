"""Getting a data set: from the first way that works, checked, unpacked, recorded."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from sentcli.console import Transfer
from sentcli.data import pins
from sentcli.data.download import NoRoomError, connection, download, finish, require_room, shown
from sentcli.data.pins import WORK, Fetched
from sentcli.data.registry import Archive, DataSet, File, Pin, instructions, missing, redirected
from sentcli.data.unpack import ArchiveError, choose, gunzip, unpack
from sentcli.errors import InputError, SentcliError

if TYPE_CHECKING:
    import httpx2


@dataclass
class Got:
    """What was done for a set."""

    name: str
    folder: Path
    files: list[str] = field(default_factory=list)
    """Below the folder; none if all were there."""
    size: int = 0
    """Bytes that were fetched."""
    sources: list[str] = field(default_factory=list)
    first_use: list[str] = field(default_factory=list)
    """What had no checksum before and was pinned by this download."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        state = "fetched" if self.files else "present"
        return {**vars(self), "folder": str(self.folder), "state": state}


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
) -> Got:
    """Bring the files of a set that are missing into the data folder.

    Args:
        dataset: what to get.
        folder: the data folder.
        meter: told of the progress.
        source: another address of its archive (or its file, if it is one); with a ``/`` at the end, of a folder with
            its files.
        given: its archive or file, which somebody has already.
        overwrite: get also what is there.
        offline: use no network.
        notice: told of what is noteworthy on the way.

    Raises:
        InputError: if the data folder cannot be written, `given` is wrong, or `offline` and something is missing.
        NoRoomError: if the disk is full.
        SentcliError: if no source gave what is missing; the message says of each why.
    """
    got = Got(dataset.name, folder / dataset.folder)
    if not overwrite and not missing(dataset, folder):
        return got  # also where nothing can be written
    with _alone(dataset, folder, notice):
        files = list(dataset.files) if overwrite else missing(dataset, folder)
        if not files:  # another process was faster
            return got
        job = _Fetch(dataset, folder, files, meter, notice, got)
        if given is not None:
            job.take(given)
        elif offline:
            forbidden = "--offline or one of SENTCLI_OFFLINE and HF_HUB_OFFLINE forbids the network"
            raise InputError(f"{forbidden}, and {instructions(dataset, folder, files)}")
        else:
            job.fetch(redirected(dataset, source) if source else dataset)
        shutil.rmtree(job.work, ignore_errors=True)
        return got


@contextmanager
def _alone(dataset: DataSet, folder: Path, notice: Callable[[str], None]) -> Iterator[None]:
    """Let one process at a time work on a folder of sets."""
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
    """The work on some files of one set."""

    dataset: DataSet
    folder: Path
    files: list[File]
    meter: Transfer
    notice: Callable[[str], None]
    got: Got
    locked: bool = False
    """Whether a checksum is that of the first download."""

    def __post_init__(self) -> None:
        self.work = self.folder / WORK / self.dataset.folder
        self.known = pins.read(self.folder)

    def fetch(self, dataset: DataSet) -> None:
        """Try the archives and the files by themselves, what can be checked first.

        Raises:
            SentcliError: if neither gave all; the message says why.
        """
        by_archive = [partial(self._archive, archive) for archive in dataset.archives]
        names = {file.path for file in self.files}
        single = [file for file in dataset.files if file.path in names]
        by_file = [partial(self._single, single)] if all(file.sources for file in single) else []
        reasons = []
        for way in [*by_archive, *by_file] if dataset.archive_first else [*by_file, *by_archive]:
            try:
                return way()
            except NoRoomError:
                raise
            except SentcliError as error:
                reasons.append(str(error))
        if self.locked:
            reasons.append(
                f"what is checked as first fetched is in {self.folder / pins.LOCK_FILE}: delete an entry there"
                " to take what a source gives now"
            )
        raise SentcliError(f"{dataset.name} could not be had\n" + "\n".join(reasons))

    def take(self, given: Path) -> None:
        """Use an archive, or the only file of a set, that is on this machine.

        Raises:
            InputError: if it is missing or not what the registry knows.
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

    def _archive(self, archive: Archive) -> None:
        whole, pin = self.work / archive.name, self._archive_pin(archive)
        source = archive.sources[0]
        if not whole.exists() or pin.mismatch(whole):  # else it was fetched before a kill
            with connection() as client:
                source = self._download(client, archive.sources, whole, pin)
            finish(_part(whole), whole)
        entry = Fetched.now(shown(source), whole)
        try:
            self._unpack(archive, whole, source)
        except ArchiveError:
            whole.unlink()  # the next one may be better
            raise
        pins.record(self.folder, {self._key(archive): entry})
        self._note_first_use(archive.name, pin, self.files)

    def _unpack(self, archive: Archive, packed: Path, source: str) -> None:
        self.meter.step(f"unpacking {packed.name}")
        room = self.work / "unpacked"
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir(parents=True)
        paths = [file.path for file in self.files]
        try:
            unpacked = unpack(packed, room, lambda names: choose(names, archive, paths))
            for file in self.files:
                if wrong := file.pin.mismatch(room / file.path):
                    raise ArchiveError(f"{file.path} of {packed.name}: {wrong}")
            self._keep({path: room / path for path in unpacked}, source, packed.stat().st_size)
        finally:
            shutil.rmtree(room, ignore_errors=True)

    def _single(self, files: Sequence[File]) -> None:
        sizes = [file.pin.size for file in files if file.pin.size is not None]
        if summed := len(sizes) == len(files):
            self.meter.total(sum(sizes))
        with connection() as client:
            for file in files:
                self.meter.step(file.path)
                pin = self._file_pin(file)
                packed = file.unpack == "gz"
                target = self.work / (f"{file.path}.gz" if packed else file.path)
                source = self._download(client, file.sources, target, Pin() if packed else pin, counts=not summed)
                came = self._gunzipped(file, target, pin, source) if packed else _part(target)
                self._keep({file.path: came}, source, came.stat().st_size)
                self._note_first_use(file.path, pin, [file])

    def _gunzipped(self, file: File, packed: Path, pin: Pin, source: str) -> Path:
        unpacked = self.work / f"{file.path}.unpacked"
        unpacked.unlink(missing_ok=True)
        finish(_part(packed), packed)
        gunzip(packed, unpacked)
        if wrong := pin.mismatch(unpacked):
            raise SentcliError(f"{file.path} of {shown(source)}: {wrong}")
        return unpacked

    def _download(
        self, client: httpx2.Client, sources: Sequence[str], target: Path, pin: Pin, *, counts: bool = True
    ) -> str:
        part = _part(target)
        part.parent.mkdir(parents=True, exist_ok=True)
        if pin.size is not None:
            require_room(part.parent, pin.size - (part.stat().st_size if part.exists() else 0), target.name)
        return download(client, sources, part, pin, self.meter, self.notice, counts=counts)

    def _keep(self, files: dict[str, Path], source: str, size: int) -> None:
        """Record files and move them to their places; a kill in between loses no checksum."""
        folder, shown_source = self.dataset.folder, shown(source)
        pins.record(self.folder, {f"{folder}/{path}": Fetched.now(shown_source, came) for path, came in files.items()})
        for path, came in files.items():
            finish(came, self.folder / folder / path)
        self.got.files += files
        self.got.size += size
        if shown_source not in self.got.sources:
            self.got.sources.append(shown_source)

    def _note_first_use(self, name: str, pin: Pin, files: Sequence[File]) -> None:
        if not pin.checks and not all(file.pin.checks for file in files):
            self.got.first_use.append(name)

    def _key(self, archive: Archive) -> str:
        return f"{self.dataset.folder}: {archive.name}"

    def _archive_pin(self, archive: Archive) -> Pin:
        if all(file.pin.checks for file in self.files):
            return archive.pin  # who packed them, and how, does not matter
        return self._pinned(archive.pin, self._key(archive))

    def _file_pin(self, file: File) -> Pin:
        return self._pinned(file.pin, f"{self.dataset.folder}/{file.path}")

    def _pinned(self, pin: Pin, key: str) -> Pin:
        """Return a pin, or, if there is none, what the lock file knows of the first download."""
        known = self.known.get(key)
        if pin.checks or known is None:
            return pin
        self.locked = True
        return known.pin


def _part(target: Path) -> Path:
    """Return where a file is collected until it is whole and checked."""
    return target.with_name(f"{target.name}.part")
