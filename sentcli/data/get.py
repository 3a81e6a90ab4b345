"""Getting a data set: from the first way that works, checked, unpacked, recorded."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from sentcli.data import pins
from sentcli.data.checks import NoRoomError, digest, mismatch, require_room
from sentcli.data.download import Meter, Received, connection, download, shown
from sentcli.data.part import finish
from sentcli.data.pins import WORK, Fetched
from sentcli.data.place import instructions, missing
from sentcli.data.registry import Archive, DataSet, File, Pin, redirected
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
    meter: Meter,
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
        wanted = list(dataset.files) if overwrite else missing(dataset, folder)
        if not wanted:  # another process was faster
            return got
        job = _Job(dataset, folder, meter, notice, got)
        if given is not None:
            job.take(given, wanted)
        elif offline:
            forbidden = "--offline or one of SENTCLI_OFFLINE and HF_HUB_OFFLINE forbids the network"
            raise InputError(f"{forbidden}, and {instructions(dataset, folder, wanted)}")
        else:
            job.fetch(redirected(dataset, source) if source else dataset, wanted)
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


class _Job:
    """The work on one set."""

    def __init__(self, dataset: DataSet, folder: Path, meter: Meter, notice: Callable[[str], None], got: Got) -> None:
        self.dataset, self.folder, self.meter, self.notice, self.got = dataset, folder, meter, notice, got
        self.target = folder / dataset.folder
        self.work = folder / WORK / dataset.folder
        self.known = pins.read(folder)
        self.locked = False
        """Whether a checksum is that of the first download."""

    def fetch(self, dataset: DataSet, wanted: list[File]) -> None:
        """Try the archives and the files by themselves, what can be checked first.

        Raises:
            SentcliError: if neither gave all; the message says why.
        """
        by_archive = [partial(self._archive, archive, wanted) for archive in dataset.archives]
        names = {file.path for file in wanted}
        single = [file for file in dataset.files if file.path in names]
        by_file = [partial(self._files, single)] if all(file.sources for file in single) else []
        reasons = []
        for way in [*by_archive, *by_file] if dataset.archive_first else [*by_file, *by_archive]:
            try:
                way()
                shutil.rmtree(self.work, ignore_errors=True)
                return
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

    def take(self, given: Path, wanted: list[File]) -> None:
        """Use an archive, or the only file of a set, that is on this machine.

        Raises:
            InputError: if it is missing or not what the registry knows.
        """
        if not given.is_file():
            raise InputError(f"no such file: {given}")
        archive = self.dataset.archives[0] if self.dataset.archives else None
        if archive is None and len(self.dataset.files) > 1:
            raise InputError(instructions(self.dataset, self.folder, wanted))
        pin = self._archive_pin(archive, wanted) if archive else self._file_pin(wanted[0])
        if wrong := mismatch(given, pin):
            raise InputError(f"{given} is not the known {self.dataset.name}: {wrong}")
        self.work.mkdir(parents=True, exist_ok=True)
        require_room(self.work, given.stat().st_size, self.dataset.name)
        received = Received(given, str(given.resolve()), digest(given), given.stat().st_size, 0)
        if archive is not None:
            self._unpack(archive, received, wanted)
            self._first_use(archive, pin, wanted)
        else:
            copy = self.work / given.name
            shutil.copyfile(given, copy)
            self._keep({wanted[0].path: copy}, received)
            if not pin.checks:
                self.got.first_use.append(wanted[0].path)
        shutil.rmtree(self.work, ignore_errors=True)

    def _archive(self, archive: Archive, wanted: list[File]) -> None:
        whole = self.work / archive.name
        pin = self._archive_pin(archive, wanted)
        if whole.exists() and not mismatch(whole, pin):  # fetched before a kill
            received = Received(whole, archive.sources[0], digest(whole), whole.stat().st_size, 0)
        else:
            with connection() as client:
                received = self._download(client, archive.sources, whole, pin, self.meter)
            finish(received.path, whole)
            received = replace(received, path=whole)
        try:
            self._unpack(archive, received, wanted)
        except ArchiveError:
            whole.unlink()  # the next one may be better
            raise
        entry = Fetched.now(shown(received.source), received.sha256, received.size)
        pins.record(self.folder, {self._key(archive): entry})
        self._first_use(archive, pin, wanted)

    def _first_use(self, archive: Archive, pin: Pin, wanted: list[File]) -> None:
        if not pin.checks and not all(file.pin.checks for file in wanted):
            self.got.first_use.append(archive.name)

    def _unpack(self, archive: Archive, received: Received, wanted: list[File]) -> None:
        self.meter.step(f"unpacking {received.path.name}")
        room = self.work / "unpacked"
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir(parents=True)
        paths = [file.path for file in wanted]
        try:
            went = unpack(received.path, room, lambda names: choose(names, archive, paths))
            for file in wanted:
                if wrong := mismatch(room / file.path, file.pin):
                    raise ArchiveError(f"{file.path} of {received.path.name}: {wrong}")
            self._keep({path: room / path for path in went}, received)
        finally:
            shutil.rmtree(room, ignore_errors=True)

    def _files(self, wanted: Sequence[File]) -> None:
        meter = self.meter
        if None not in (sizes := [file.pin.size for file in wanted]):
            meter.total(sum(size for size in sizes if size is not None))
            meter = _Part(meter)
        with connection() as client:
            for file in wanted:
                pin = self._file_pin(file)
                self.meter.step(file.path)
                received = (self._packed if file.unpack == "gz" else self._plain)(client, file, pin, meter)
                self._keep({file.path: received.path}, received)
                if not pin.checks:
                    self.got.first_use.append(file.path)

    def _plain(self, client: httpx2.Client, file: File, pin: Pin, meter: Meter) -> Received:
        return self._download(client, file.sources, self.work / file.path, pin, meter)

    def _packed(self, client: httpx2.Client, file: File, pin: Pin, meter: Meter) -> Received:
        packed = self.work / f"{file.path}.gz"
        received = self._download(client, file.sources, packed, Pin(), meter)
        unpacked = self.work / f"{file.path}.unpacked"
        unpacked.unlink(missing_ok=True)
        finish(received.path, packed)
        gunzip(packed, unpacked)
        if wrong := mismatch(unpacked, pin):
            raise SentcliError(f"{file.path} of {shown(received.source)}: {wrong}")
        return replace(received, path=unpacked, sha256=digest(unpacked), size=unpacked.stat().st_size)

    def _download(
        self, client: httpx2.Client, sources: Sequence[str], target: Path, pin: Pin, meter: Meter
    ) -> Received:
        part = target.with_name(f"{target.name}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        if pin.size is not None:
            require_room(part.parent, pin.size - (part.stat().st_size if part.exists() else 0), target.name)
        return download(client, sources, part, pin, meter, self.notice)

    def _keep(self, files: dict[str, Path], received: Received) -> None:
        """Move files to their places and record them."""
        entries = {}
        for path, made in files.items():
            sha256 = received.sha256 if made == received.path else digest(made)
            entries[f"{self.dataset.folder}/{path}"] = Fetched.now(shown(received.source), sha256, made.stat().st_size)
        pins.record(self.folder, entries)  # before they are there: a kill in between loses no checksum
        for path, made in files.items():
            finish(made, self.target / path)
        self.got.files += files
        self.got.size += received.size
        if shown(received.source) not in self.got.sources:
            self.got.sources.append(shown(received.source))

    def _key(self, archive: Archive) -> str:
        return f"{self.dataset.folder}: {archive.name}"

    def _archive_pin(self, archive: Archive, wanted: list[File]) -> Pin:
        if all(file.pin.checks for file in wanted):
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
        return Pin(known.sha256, None, known.size)


class _Part:
    """The meter of one file of several whose sizes are known together."""

    def __init__(self, meter: Meter) -> None:
        self.advance, self.step = meter.advance, meter.step

    def total(self, size: int) -> None:
        """Leave the sum as it is."""
