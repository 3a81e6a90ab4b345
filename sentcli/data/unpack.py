"""Taking files out of an archive that nobody has looked at: no path leads out, and a bomb ends early."""

from __future__ import annotations

import gzip
import lzma
import re
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from sentcli.data.checks import full, require_room
from sentcli.data.registry import Archive
from sentcli.errors import SentcliError, one_line
from sentcli.io.atomic import DISK_FULL

RATIO = 50
"""How many times its own size an archive of text can unpack to; BEIR's are below 5."""
LEAST = 2**24
"""What even a tiny archive can unpack to."""
MOST = 2**37
MEMBERS = 100_000
BLOCK = 2**20

DAMAGE = (
    zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError,
)  # fmt: skip


class ArchiveError(SentcliError):
    """An archive is damaged, or holds what no archive of data holds."""


@dataclass(frozen=True)
class Member:
    """A regular file in an archive."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


def limit(archive: Path) -> int:
    """Return how many bytes an archive may unpack to."""
    return min(max(RATIO * archive.stat().st_size, LEAST), MOST)


def unpack(archive: Path, into: Path, choose: Callable[[list[str]], dict[str, str]]) -> list[str]:
    """Take files out of an archive.

    Args:
        archive: a zip, or a tar that may be gzipped; what it is, is seen from its bytes.
        into: an empty folder.
        choose: of the names in the archive, those that are wanted, and where each goes below `into`.

    Returns:
        Where the files went, below `into`.

    Raises:
        ArchiveError: if any name in it leads elsewhere, anything in it is neither file nor folder, two names are one
            on some systems, it unpacks to more than `limit`, or it is damaged.
        NoRoomError: if the disk is full.
    """
    with _explained(archive, into), _opened(archive) as members:
        wanted = choose([member.name for member in members])
        require_room(into, sum(member.size for member in members if member.name in wanted), archive.name)
        left = limit(archive)
        for member in members:
            if member.name in wanted:
                left -= _copy(member, into / wanted[member.name], left, archive)
    return list(wanted.values())


def choose(names: list[str], archive: Archive, wanted: list[str]) -> dict[str, str]:
    """Return which names of an archive are wanted, and where they go.

    Raises:
        ArchiveError: if a wanted file is not in it.
    """
    there = set(names)
    inside = archive.inside
    if inside + wanted[0] not in there:  # packed by somebody else
        others = [name.removesuffix(wanted[0]) for name in names if name.endswith(f"/{wanted[0]}")] or [""]
        inside = min(others, key=len)
    chosen = {inside + path: path for path in wanted}
    if absent := [path for name, path in chosen.items() if name not in there]:
        raise ArchiveError(f"the archive holds no {absent[0]}, and {len(absent)} of {len(wanted)} files are not in it")
    for name in names:
        path = name.removeprefix(inside)
        if name.startswith(inside) and any(PurePosixPath(path).match(pattern) for pattern in archive.also):
            chosen[name] = path
    return chosen


def gunzip(packed: Path, target: Path) -> None:
    """Unpack a gzipped file.

    Raises:
        ArchiveError: if it is damaged, or unpacks to more than `limit`.
        NoRoomError: if the disk is full.
    """
    with _explained(packed, target), gzip.open(packed, "rb") as stream:
        _copy(Member(target.name, 0, lambda: cast(IO[bytes], stream)), target, limit(packed), packed)


@contextmanager
def _explained(archive: Path, target: Path) -> Iterator[None]:
    """Say of an error inside what it means for the archive."""
    try:
        yield
    except DAMAGE as error:
        raise ArchiveError(f"{archive.name} is damaged: {one_line(error) or type(error).__name__}") from error
    except OSError as error:
        if error.errno in DISK_FULL:
            raise full(error, target) from error
        if error.errno is None:  # what bz2 says
            raise ArchiveError(f"{archive.name} is damaged: {one_line(error)}") from error
        raise


def _copy(member: Member, target: Path, left: int, archive: Path) -> int:
    """Write a member and return its size."""
    target.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with member.open() as source, target.open("xb") as handle:
        while block := source.read(min(BLOCK, left - size + 1)):
            size += len(block)
            if size > left:
                raise _too_much(archive)
            handle.write(block)
    return size


def _too_much(archive: Path) -> ArchiveError:
    packed, unpacked = archive.stat().st_size, limit(archive)
    return ArchiveError(
        f"{archive.name} unpacks to more than {unpacked:,} bytes, too many for its {packed:,}: a bomb, or no text"
    )


@contextmanager
def _opened(archive: Path) -> Iterator[list[Member]]:
    """Yield the files of an archive, after a look at everything in it."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            yield _zip_members(opened, archive)
    else:
        with _Capped(archive) as stream, tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as tar:
            yield _tar_members(tar, archive)


def _zip_members(opened: zipfile.ZipFile, archive: Path) -> list[Member]:
    names, found = _Names(archive), []
    for info in opened.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ArchiveError(f"{archive.name} holds a link or device: {info.filename!r}")
        if info.flag_bits & 1:
            raise ArchiveError(f"{archive.name} is encrypted")
        name = names.add(info.orig_filename, info.is_dir())
        if not info.is_dir():
            found.append(Member(name, info.file_size, lambda info=info: opened.open(info)))  # type: ignore[misc]
    if sum(member.size for member in found) > limit(archive):
        raise _too_much(archive)
    return found


def _tar_members(opened: tarfile.TarFile, archive: Path) -> list[Member]:
    names, found = _Names(archive), []
    for info in opened:
        if not (info.isdir() or info.isreg()) or info.issparse():
            raise ArchiveError(f"{archive.name} holds a link or device: {info.name!r}")
        name = names.add(info.name, info.isdir())
        if info.isreg():
            found.append(Member(name, info.size, lambda info=info: cast(IO[bytes], opened.extractfile(info))))  # type: ignore[misc]
    return found


class _Capped:
    """The bytes of a tar, unpacked if it is gzipped; reading beyond the limit of the archive is an error."""

    def __init__(self, archive: Path) -> None:
        self.archive, self.limit = archive, limit(archive)
        with archive.open("rb") as handle:
            gzipped = handle.read(2) == b"\x1f\x8b"
        self.stream = cast(IO[bytes], gzip.open(archive, "rb") if gzipped else archive.open("rb"))  # noqa: SIM115
        self.gzipped = gzipped

    def __enter__(self) -> _Capped:
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.close()

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LEAST or (self.gzipped and self.stream.tell() + size > self.limit):
            raise _too_much(self.archive)  # a header of many megabytes is none
        return self.stream.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        if self.gzipped and (whence != 0 or place > self.limit):
            raise _too_much(self.archive)
        return self.stream.seek(place, whence)

    def tell(self) -> int:
        return self.stream.tell()


class _Names:
    """The names in an archive, each of which has to be a place below the folder, and its own."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self.files: set[str] = set()
        self.folders: set[str] = set()

    def add(self, name: str, folder: bool) -> str:
        """Return a name without ``.`` in it.

        Raises:
            ArchiveError: if it leads elsewhere, or is another's.
        """
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or re.match(r"[A-Za-z]:", name) or ".." in parts or re.search(r"[\\\0]", name):
            raise ArchiveError(f"{self.archive.name} holds a path that leads out of its folder: {name!r}")
        if len(self.files) + len(self.folders) > MEMBERS:
            raise ArchiveError(f"{self.archive.name} holds more than {MEMBERS:,} files")
        keys = [unicodedata.normalize("NFC", "/".join(parts[: i + 1])).casefold() for i in range(len(parts))]
        above = keys if folder else keys[:-1]
        taken = any(key in self.files for key in above)
        if taken or (not folder and keys and (keys[-1] in self.files or keys[-1] in self.folders)):
            raise ArchiveError(f"{self.archive.name} holds two things of the same name: {name!r}")
        self.folders.update(above)
        if not folder:
            self.files.update(keys[-1:])
        return "/".join(parts)
