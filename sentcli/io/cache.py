"""Where sentcli keeps what it can make again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """Return a folder of the cache: in ``$SENTCLI_CACHE``, else in ``sentcli`` of the user's cache folder."""
    named = os.environ.get("SENTCLI_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(named) if named else Path(base) / "sentcli") / kind


def folder_bytes(folder: Path) -> int:
    """Return how many bytes the files in a folder take, those of its subfolders included."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def least_recently_used(
    paths: Iterable[Path], keep: Path, limit: int, used: Callable[[Path], Path] = lambda path: path
) -> list[Path]:
    """Return what to delete, the least recently changed first, so that the rest takes `limit` bytes at most.

    Args:
        paths: files or folders of the cache; those that vanish meanwhile do not count.
        keep: is never returned.
        limit: bytes.
        used: the file whose time of change is that of a path's last use.
    """
    known = []
    for path in paths:
        with suppress(OSError):
            size = folder_bytes(path) if path.is_dir() else path.stat().st_size
            known.append((used(path).stat().st_mtime if used(path).exists() else 0.0, size, path))
    total, gone = sum(size for _, size, _ in known), []
    for _, size, path in sorted(known):
        if total > limit and path != keep:
            total -= size
            gone.append(path)
    return gone
