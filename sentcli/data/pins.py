"""``datasets.lock.json``, which records the source and the checksum of every fetched file, and checks against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Literal

from filelock import FileLock

from sentcli.data.registry import DataSet, Pin
from sentcli.io.digests import file_digest
from sentcli.io.forms import read_json_form, write_json

PINS_FILE = "datasets.lock.json"
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
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(url, file_digest(path), path.stat().st_size, date)

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
    path = folder / PINS_FILE
    if not path.exists():
        return {}
    remedy = "delete it, and files without a checksum are pinned anew"
    return read_json_form(LockFile, path, missing="", remedy=remedy).files


def record_files(folder: Path, entries: dict[str, Fetched]) -> None:
    """Add entries to the lock file, while no other process writes to it."""
    with FileLock(folder / WORK / f"{PINS_FILE}.lock"):
        files = {**recorded_files(folder), **entries}
        write_json(folder / PINS_FILE, asdict(LockFile(files=dict(sorted(files.items())))))


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


def verify_files(
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
    recorded: dict[str, Fetched] = {}
    for key, entry in recorded_files(folder).items():
        if key.startswith(prefix):
            recorded[key.removeprefix(prefix)] = entry
    checks = []
    for path, pin in _expected(dataset, recorded).items():
        place = folder / dataset.folder / path
        if path in recorded and not pin.checks:
            pin = recorded[path].pin
        if not place.is_file():
            if whole or path in recorded:
                checks.append(FileCheck(dataset.name, place, "missing"))
        elif wrong := pin.mismatch(place):
            checks.append(FileCheck(dataset.name, place, "wrong", wrong))
        else:
            checks.append(FileCheck(dataset.name, place, "ok" if pin.checks else "no checksum"))
        finished(1)
    return checks


def _expected(dataset: DataSet, recorded: Iterable[str]) -> dict[str, Pin]:
    """Return the files of a data set with their pins, and those that were recorded though they are optional."""
    expected = {file.path: file.pin for file in dataset.files}
    optional: list[str] = []
    for archive in dataset.archives:
        optional += archive.also
    for path in recorded:
        if any(map(PurePosixPath(path).match, optional)):
            expected.setdefault(path, Pin())
    return expected
