"""Checksums of files."""

from __future__ import annotations

import contextlib
import hashlib
import time
from functools import cache
from pathlib import Path

from sentcli.io.atomic import regular, replacing
from sentcli.io.cache import cache_folder

SETTLED = 2 * 10**9
"""A file that has not changed for so many nanoseconds gets another time of change when it changes again."""


def file_digest(path: Path, method: str = "sha256") -> str:
    """Return the checksum of a file in hexadecimal; a file that has not changed is not read twice by a process."""
    state = regular(path)
    return _digest(path.resolve(), method, state.st_size, state.st_mtime_ns, state.st_ino)


def damage(path: Path, sha256: str | None, *, known: bool = False) -> str | None:
    """Return what is wrong with a file that should have this SHA-256, or None if it is whole.

    Args:
        path: the file.
        sha256: what it should be.
        known: take the checksum from the cache if the file has not changed, see `known_digest`.
    """
    if path.is_symlink():
        return "is a link"
    if not path.exists():
        return "is missing"
    if not path.is_file():
        return "is no regular file"
    found = known_digest(path) if known else file_digest(path)
    return "is damaged (its SHA-256 differs)" if found != sha256 else None


@cache
def _digest(path: Path, method: str, size: int, modified: int, inode: int) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, method).hexdigest()


def known_digest(path: Path) -> str:
    """Return the SHA-256 of a file that every process needs when it starts, such as weights, from the cache.

    The cache keeps it with the size, the inode and the times of the file. One of them is the time of any change, which
    no program can set.
    """
    state = path.stat()
    facts = f"{state.st_size} {state.st_ino} {state.st_mtime_ns} {state.st_ctime_ns}"
    cached = cache_folder("digests") / hashlib.sha256(bytes(path.resolve())).hexdigest()[:32]
    with contextlib.suppress(OSError, ValueError):
        cached_facts, _, digest = cached.read_text("ascii").rpartition(" ")
        if cached_facts == facts:
            return digest
    digest = file_digest(path)
    if time.time_ns() - state.st_ctime_ns > SETTLED:
        with contextlib.suppress(OSError):
            cached.parent.mkdir(parents=True, exist_ok=True)
            with replacing(cached) as temporary:
                temporary.write_text(f"{facts} {digest}", "ascii")
    return digest
