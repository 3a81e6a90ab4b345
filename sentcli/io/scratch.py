"""Temporary files of a command: what comes through a pipe, copies of what is elsewhere, tables in memory as files."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SCRATCH_PREFIX = "sentcli-remote-"
_scratch: list[tuple[Path, Callable[[], None]]] = []
"""The temporary folder of this process, if there is one, and what lets go of its lock, which ends with the process."""


def scratch() -> Path:
    """Return a new temporary folder, which `remove_scratch` deletes; TMPDIR chooses the disk.

    The folders of processes that were killed are deleted.
    """
    if not _scratch:
        _clear_abandoned()
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX))
        _scratch.append((folder, _held(folder / ".lock")))
        atexit.register(remove_scratch)
    return Path(tempfile.mkdtemp(dir=_scratch[0][0]))


def is_scratch(path: Path) -> bool:
    """Tell whether a file is in the temporary folder of this process."""
    return any(path.is_relative_to(folder) for folder, _ in _scratch)


def _held(path: Path) -> Callable[[], None]:
    """Make a file, lock it, and return what lets go of it.

    The lock is that of filelock, whose import takes longer than all else here.

    Raises:
        OSError: if another process holds it.
    """
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # Windows
        from filelock import FileLock

        lock = FileLock(path, timeout=0)
        lock.acquire()
        return lock.release
    handle = path.open("w")
    try:
        flock(handle, LOCK_EX | LOCK_NB)
    except OSError:
        handle.close()
        raise
    return handle.close


def _clear_abandoned() -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*/.lock"):
        with suppress(OSError):  # it belongs to someone else, or to a process that runs
            if time.time() - lock.stat().st_mtime > 60:  # before, another process may not have locked it yet
                let_go = _held(lock)
                shutil.rmtree(lock.parent, ignore_errors=True)
                let_go()


def remove_scratch() -> None:
    """Delete all temporary files."""
    while _scratch:
        folder, let_go = _scratch.pop()
        shutil.rmtree(folder, ignore_errors=True)
        let_go()
