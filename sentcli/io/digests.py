"""Checksums of files."""

from __future__ import annotations

import contextlib
import hashlib
import time
from functools import cache
from pathlib import Path

from sentcli.io.atomic import replacing
from sentcli.io.cache import cache_folder

SETTLED = 2 * 10**9
"""Nanoseconds without a change after which a file's times tell a further change apart."""


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


def known_digest(path: Path) -> str:
    """Return the SHA-256 of a file that every start of a process asks for, such as weights, from an earlier start.

    It is kept in the user's cache beside the file's size, inode and times. The last of them is that of any change of
    the file, which no program can set.
    """
    state = path.stat()
    facts = f"{state.st_size} {state.st_ino} {state.st_mtime_ns} {state.st_ctime_ns}"
    note = cache_folder("digests") / hashlib.sha256(bytes(path.resolve())).hexdigest()[:32]
    with contextlib.suppress(OSError, ValueError):
        known, _, digest = note.read_text("ascii").rpartition(" ")
        if known == facts:
            return digest
    digest = file_digest(path)
    if time.time_ns() - state.st_ctime_ns > SETTLED:
        with contextlib.suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            with replacing(note) as temporary:
                temporary.write_text(f"{facts} {digest}", "ascii")
    return digest
