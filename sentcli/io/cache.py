"""The cache of sentcli, for files that it can make again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """Return a folder of the cache: in ``$SENTCLI_CACHE``, else in ``sentcli`` in the user's cache folder.

    The cache holds texts and what runs as models, so nobody else may read or write it.
    """
    chosen = os.environ.get("SENTCLI_CACHE")
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(chosen) if chosen else Path(user_cache) / "sentcli"
    with suppress(OSError):
        cache.mkdir(mode=0o700, parents=True)
    return cache / kind


def folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder and its subfolders, in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def least_recently_used(
    paths: Iterable[Path], keep: Path, limit: int, used: Callable[[Path], Path] = lambda path: path
) -> list[Path]:
    """Return the least recently used paths, which have to be deleted so that the others take at most `limit` bytes.

    Args:
        paths: files or folders of the cache; a path that vanishes meanwhile does not count.
        keep: a path that is never returned.
        limit: the size of the cache in bytes.
        used: returns the file whose time of change is the last use of a path.
    """
    entries = []
    for path in paths:
        with suppress(OSError):
            size = folder_bytes(path) if path.is_dir() else path.stat().st_size
            entries.append((used(path).stat().st_mtime if used(path).exists() else 0.0, size, path))
    total, to_delete = sum(size for _, size, _ in entries), []
    for _, size, path in sorted(entries):
        if total > limit and path != keep:
            total -= size
            to_delete.append(path)
    return to_delete
