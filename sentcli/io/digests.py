"""Checksums of files."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal; one that has not changed since is not read again."""
    state = path.stat()
    return _digest(path.resolve(), state.st_size, state.st_mtime_ns, state.st_ino)


@cache
def _digest(path: Path, size: int, modified: int, inode: int) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
