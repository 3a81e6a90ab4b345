"""Checksums of files, JSON values, texts and vectors, and the cache of sentcli.

The cache keeps checksums of files, and other files that can be made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.io.atomic import regular, replacing

if TYPE_CHECKING:
    from sentcli.arrays import AnyArray, Digests


CACHE = "SENTCLI_CACHE"
"""The variable of the environment that names the folder of the cache."""
SETTLED_NANOSECONDS = 2 * 10**9
"""A file that has not changed for so long gets another time of change when it changes again."""
DIGEST_BYTES = 16
"""The size of the digest of a text or a vector, by which equal ones are found among many."""
MODEL_BYTES = 8 * 2**30
"""The most bytes that the models of a kind may take in the cache; the least recently used are deleted first."""


def file_digest(path: Path, method: str = "sha256") -> str:
    """Return the checksum of a file in hexadecimal; a file that has not changed is not read twice by a process."""
    regular(path)
    return _digest(path.resolve(), method, file_state(path))


def file_state(path: Path) -> tuple[int, int, int, int]:
    """Return the size of a file, its inode, and when its content and when anything of it changed, in nanoseconds.

    The last of them no program can set: a file with the same state is the same, unless it changed twice between two
    ticks of the clock.
    """
    state = path.stat()
    return state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns


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
    digest = known_digest(path) if known else file_digest(path)
    if digest != sha256:
        return "is damaged (its SHA-256 differs)"
    return None


def json_digest(value: Any) -> str:
    """Return the SHA-256 of the JSON of a value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@cache
def _digest(path: Path, method: str, state: tuple[int, int, int, int]) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, method).hexdigest()


def known_digest(path: Path) -> str:
    """Return the SHA-256 of a file that every process needs when it starts, such as weights, from the cache.

    The cache keeps it with the state of the file.
    """
    state = file_state(path)
    facts = " ".join(map(str, state))
    cached = cache_folder("digests") / hashlib.sha256(bytes(path.resolve())).hexdigest()[:32]
    with suppress(OSError, ValueError):
        cached_facts, _, digest = cached.read_text("ascii").rpartition(" ")
        if cached_facts == facts:
            return digest
    digest = file_digest(path)
    changed = state[-1]
    if time.time_ns() - changed > SETTLED_NANOSECONDS:
        with suppress(OSError):
            cached.parent.mkdir(parents=True, exist_ok=True)
            with replacing(cached) as temporary:
                temporary.write_text(f"{facts} {digest}", "ascii")
    return digest


def cache_folder(kind: str) -> Path:
    """Return a folder of the cache: in ``$SENTCLI_CACHE``, else in ``sentcli`` in the user's cache folder.

    Without a home folder it is a temporary one, which is said.

    The cache holds texts and what runs as models, so nobody else may read or write it.
    """
    cache = _cache()
    with suppress(OSError):
        cache.mkdir(mode=0o700, parents=True)
    return cache / kind


def _cache() -> Path:
    if own_cache := os.environ.get(CACHE):
        return Path(own_cache)
    if user_cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(user_cache) / "sentcli"
    try:
        return Path.home() / ".cache" / "sentcli"
    except RuntimeError:  # there is no HOME, and the user has no entry among the users, as in many containers
        return Path(_passing_cache().name)


@cache
def _passing_cache() -> tempfile.TemporaryDirectory[str]:
    """Make a folder that nobody else reads and that ends with this process."""
    console.note(f"there is no home folder, so nothing is kept for later commands: {CACHE} names a folder for that")
    return tempfile.TemporaryDirectory(prefix="sentcli-cache-")


def expanded(path: Path | str) -> Path:
    """Return a path with the home folder in place of a ``~`` at its beginning, where there is one.

    Raises:
        InputError: if there is no such folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(f"{path}: there is no home folder for its ~; give the whole path") from error


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
    entries: list[tuple[float, int, Path]] = []
    for path in paths:
        with suppress(OSError):
            size = folder_bytes(path) if path.is_dir() else path.stat().st_size
            use = used(path)
            last_use = use.stat().st_mtime if use.exists() else 0.0
            entries.append((last_use, size, path))
    total = sum(size for _, size, _ in entries)
    to_delete: list[Path] = []
    for _, size, path in sorted(entries):
        if total > limit and path != keep:
            total -= size
            to_delete.append(path)
    return to_delete


def text_digests(texts: Iterable[str]) -> Digests:
    """Return a digest of each text ``[n]``."""
    return _digests(map(methodcaller("encode", "utf-8", "surrogatepass"), texts))


def vector_digests(vectors: Iterable[AnyArray]) -> Digests:
    """Return a digest of each vector ``[n]``, which is contiguous."""
    return _digests(vector.data for vector in vectors)


def _digests(values: Iterable[bytes | memoryview]) -> Digests:
    import numpy as np

    digests = bytearray()
    for value in values:
        digests += hashlib.blake2b(value, digest_size=DIGEST_BYTES).digest()
    return np.frombuffer(bytes(digests), f"S{DIGEST_BYTES}")
