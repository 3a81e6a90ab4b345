"""Where sentcli keeps what it can make again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """Return a folder of the cache: in ``$SENTCLI_CACHE``, else in ``sentcli`` of the user's cache folder."""
    named = os.environ.get("SENTCLI_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(named) if named else Path(base) / "sentcli") / kind


def least_recently_used(files: Iterable[Path], keep: Path, limit: int) -> list[Path]:
    """Return the files to delete, the least recently changed first, so that the rest takes `limit` bytes at most.

    Args:
        files: of the cache; those that vanish meanwhile do not count.
        keep: is never returned.
        limit: bytes.
    """
    known = []
    for file in files:
        try:
            found = file.stat()
        except OSError:
            continue
        known.append((found.st_mtime, found.st_size, file))
    total, gone = sum(size for _, size, _ in known), []
    for _, size, file in sorted(known):
        if total <= limit:
            break
        if file != keep:
            total -= size
            gone.append(file)
    return gone
