"""Is a file what it should be, and is there room for it?"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from sentcli.data.registry import Pin
from sentcli.errors import SentcliError


class NoRoomError(SentcliError):
    """The disk is full, or would be: no other source helps."""


def digest(path: Path, method: str = "sha256") -> str:
    """Return the checksum of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, method).hexdigest()


def mismatch(path: Path, pin: Pin) -> str | None:
    """Return what is wrong with a file, or None."""
    size = path.stat().st_size
    if pin.size is not None and size != pin.size:
        return f"{size:,} bytes, not {pin.size:,}"
    for method, wanted in (("sha256", pin.sha256), ("md5", pin.md5)):
        if wanted is not None and (found := digest(path, method)) != wanted:
            return f"{method} is {found}, not {wanted}"
    return None


def require_room(folder: Path, size: int, what: str) -> None:
    """Refuse to begin what cannot end.

    Raises:
        NoRoomError: if a folder's disk has less room.
    """
    free = shutil.disk_usage(folder).free
    if free < size:
        raise NoRoomError(f"{what} needs {size / 1e6:,.0f} MB below {folder}, whose disk has {free / 1e6:,.0f} MB left")


def full(error: OSError, path: Path) -> NoRoomError:
    """Return the message of a full disk."""
    return NoRoomError(f"{path}: {error.strerror}; make room, then the same command continues with what is there")
