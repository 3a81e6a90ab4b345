"""Checksums of files."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


def file_digest(path: Path, method: str = "sha256") -> str:
    """Return the checksum of a file in hexadecimal; one that has not changed since is not read again."""
    state = path.stat()
    return _digest(path.resolve(), method, state.st_size, state.st_mtime_ns, state.st_ino)


def damage(path: Path, sha256: str | None) -> str | None:
    """Say what is wrong with a file that should have a SHA-256, or return None."""
    if not path.exists():
        return "is missing"
    return "is damaged (its SHA-256 differs)" if file_digest(path) != sha256 else None


@cache
def _digest(path: Path, method: str, size: int, modified: int, inode: int) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, method).hexdigest()
