"""Comparing what is in the data folder with its checksums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sentcli.data import pins
from sentcli.data.checks import mismatch
from sentcli.data.registry import DataSet, Pin

OK, WRONG, MISSING, UNKNOWN = "ok", "wrong", "missing", "no checksum"


@dataclass(frozen=True)
class FileCheck:
    """One file."""

    name: str
    """Of its set."""
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
    """Compare the files of a set with the checksums of the registry, else of their first download.

    Args:
        dataset: which set.
        folder: the data folder.
        whole: files that were never fetched are missing, too.
        finished: told of each file.

    Raises:
        InputError: if the lock file is damaged.
    """
    known = pins.read(folder)
    expected = {file.path: file.pin for file in dataset.files}
    for key in known:
        path = key.removeprefix(f"{dataset.folder}/")
        if path != key and path not in expected and _extra(dataset, path):
            expected[path] = Pin()
    found = []
    for path, pin in expected.items():
        entry = known.get(f"{dataset.folder}/{path}")
        if whole or entry is not None or (folder / dataset.folder / path).is_file():
            if entry is not None and not pin.checks:
                pin = Pin(entry.sha256, None, entry.size)
            found.append(_check(dataset.name, folder / dataset.folder / path, pin))
        finished(1)
    return found


def _extra(dataset: DataSet, path: str) -> bool:
    """Tell whether a recorded file is one that an archive of this set brought along."""
    return any(PurePosixPath(path).match(pattern) for archive in dataset.archives for pattern in archive.also)


def _check(name: str, path: Path, pin: Pin) -> FileCheck:
    if not path.is_file():
        return FileCheck(name, path, MISSING)
    if wrong := mismatch(path, pin):
        return FileCheck(name, path, WRONG, wrong)
    return FileCheck(name, path, OK if pin.checks else UNKNOWN)
