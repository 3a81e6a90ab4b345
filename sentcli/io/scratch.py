"""Temporary files of a command: what comes through a pipe, copies of what is elsewhere, tables in memory as files."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import BaseFileLock

SCRATCH_PREFIX = "sentcli-remote-"


@dataclass(frozen=True)
class _Folder:
    """The temporary folder of a process and of those that are forked from it."""

    path: Path
    let_go: Callable[[], None]
    """Lets go of its lock, which ends with the process."""
    process: int
    """The id of the process that made it, which alone removes it."""


_scratch: list[_Folder] = []
"""The temporary folder of this process, if there is one."""


def scratch() -> Path:
    """Return a new temporary folder, which `remove_scratch` deletes; TMPDIR chooses the disk.

    The folders of processes that were killed are deleted.
    """
    if not _scratch:
        _clear_abandoned()
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX))
        _scratch.append(_Folder(folder, _held(folder / ".lock"), os.getpid()))
        atexit.register(remove_scratch)
    return Path(tempfile.mkdtemp(dir=_scratch[0].path))


def is_scratch(path: Path) -> bool:
    """Tell whether a file is in the temporary folder of this process."""
    return any(path.is_relative_to(folder.path) for folder in _scratch)


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

        return _acquired(FileLock(path, timeout=0))
    handle = path.open("a")
    try:
        flock(handle, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        handle.close()
        raise
    except OSError:  # the disk has no such locks: that the file is there, with its owner's name, is the lock
        from filelock import SoftFileLock

        handle.close()
        if not path.stat().st_size:
            path.unlink()
        return _acquired(SoftFileLock(path, timeout=0))
    return handle.close


def _acquired(lock: BaseFileLock) -> Callable[[], None]:
    """Acquire a lock, and return what lets go of it."""
    lock.acquire()
    return lock.release


def _clear_abandoned() -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*/.lock"):
        with suppress(OSError):  # it belongs to someone else, or to a process that runs
            if time.time() - lock.stat().st_mtime > 60:  # before, another process may not have locked it yet
                let_go = _held(lock)
                shutil.rmtree(lock.parent, ignore_errors=True)
                let_go()


def remove_scratch() -> None:
    """Delete all temporary files, unless they are those of the process that this one is forked from."""
    while _scratch:
        folder = _scratch.pop()
        if folder.process == os.getpid():
            shutil.rmtree(folder.path, ignore_errors=True)
            folder.let_go()
