"""Take files out of an untrusted archive: no path leads out of its folder, and a decompression bomb stops early."""

from __future__ import annotations

import gzip
import lzma
import re
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import IO, Literal, TypeAlias, cast

from sentcli.data.registry import Archive
from sentcli.errors import SentcliError, one_line
from sentcli.io.atomic import require_room, room_explained

UNPACKED_RATIO = 50
"""How many times its own size an archive of text may unpack to; those of BEIR unpack to less than 5 times theirs."""
SMALL_LIMIT = 2**24
"""The number of bytes that even a tiny archive may unpack to."""
LARGEST_LIMIT = 2**37
"""The number of bytes that no archive may exceed."""
MOST_MEMBERS = 100_000
"""The most files and folders that an archive may hold."""

ARCHIVE_DAMAGE = (
    zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError,
)  # fmt: skip


class ArchiveError(SentcliError):
    """An archive is damaged, lacks files, or holds something that an archive of data should not."""


_MemberKind: TypeAlias = Literal["file", "folder", "other"]


@dataclass(frozen=True)
class Member:
    """One member of an archive."""

    name: str
    kind: _MemberKind
    size: int
    open: Callable[[], IO[bytes] | None]


def limit(archive: Path) -> int:
    """Return how many bytes an archive may unpack to."""
    by_ratio = max(UNPACKED_RATIO * archive.stat().st_size, SMALL_LIMIT)
    return min(by_ratio, LARGEST_LIMIT)


def unpack(archive: Path, into: Path, choose: Callable[[list[str]], dict[str, str]]) -> list[str]:
    """Take files out of an archive.

    Args:
        archive: a zip, or a tar that may be gzipped; the kind is seen from its bytes.
        into: an empty folder.
        choose: takes the names in the archive, and returns the path below `into` for each name to take out.

    Returns:
        The paths of the files below `into`.

    Raises:
        ArchiveError: if a name leads out of the folder, a member is neither file nor folder, two names are equal on
            some systems, the archive unpacks to more than `limit`, or it is damaged.
        NoRoomError: if the disk is full.
    """
    with _explained(archive, into), _opened(archive) as members:
        places = choose(list(members))
        size = sum(members[name].size for name in places)
        require_room(into, size, archive.name)
        remaining = limit(archive)
        for name, member in members.items():  # in the order of the archive
            if name in places:
                with cast(IO[bytes], member.open()) as stream:
                    remaining -= _copy(stream, into / places[name], remaining, archive)
    return list(places.values())


def choose_files(names: list[str], archive: Archive, paths: list[str]) -> dict[str, str]:
    """Return the path of each file to take out, by its name in the archive.

    Raises:
        ArchiveError: if the archive lacks one of `paths`.
    """
    present = set(names)
    first = paths[0]
    inside = archive.inside
    if inside + first not in present:  # somebody else's archive may have another prefix
        prefixes = [name.removesuffix(first) for name in names if name.endswith(f"/{first}")]
        inside = min(prefixes, key=len, default="")
    chosen = {}
    absent = []
    for path in paths:
        chosen[inside + path] = path
        if inside + path not in present:
            absent.append(path)
    if absent:
        raise ArchiveError(f"the archive holds no {absent[0]}, and {len(absent)} of {len(paths)} files are not in it")
    for name in names:
        path = name.removeprefix(inside)
        if name.startswith(inside) and any(map(PurePosixPath(path).match, archive.also)):
            chosen[name] = path
    return chosen


def gunzip(packed: Path, target: Path) -> None:
    """Unpack a gzipped file.

    Raises:
        ArchiveError: if the file is damaged, or unpacks to more than `limit`.
        NoRoomError: if the disk is full.
    """
    with _explained(packed, target), gzip.open(packed, "rb") as stream:
        _copy(cast(IO[bytes], stream), target, limit(packed), packed)


@contextmanager
def _explained(archive: Path, target: Path) -> Iterator[None]:
    """Turn errors that mean a damaged archive, or a full disk, into messages that say so."""
    try:
        with room_explained(target):
            yield
    except (*ARCHIVE_DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # bz2 reports damage as an OSError without a number
            raise
        raise ArchiveError(f"{archive.name} is damaged: {one_line(error) or type(error).__name__}") from error


def _copy(stream: IO[bytes], target: Path, remaining: int, archive: Path) -> int:
    """Write a stream into a file, at most `remaining` bytes, and return how many bytes it has."""
    target.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with target.open("xb") as handle:
        while block := stream.read(min(2**20, remaining - size + 1)):
            size += len(block)
            if size > remaining:
                raise _too_much(archive)
            handle.write(block)
    return size


def _too_much(archive: Path) -> ArchiveError:
    packed = archive.stat().st_size
    unpacked = limit(archive)
    return ArchiveError(
        f"{archive.name} unpacks to more than {unpacked:,} bytes, too many for its {packed:,}: a bomb, or no text"
    )


@contextmanager
def _opened(archive: Path) -> Iterator[dict[str, Member]]:
    """Open an archive, and yield its files by name after all members have been checked."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            members = map(partial(_of_zip, opened), opened.infolist())
            yield _checked(members, archive)
    else:
        with _Capped(archive) as stream, tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as tar:
            members = map(partial(_of_tar, tar), tar)
            yield _checked(members, archive)


def _of_zip(opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    if info.flag_bits & 1:
        raise ArchiveError(f"{Path(str(opened.filename)).name} is encrypted")
    kind: _MemberKind = "folder" if info.is_dir() else "file"
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        kind = "other"
    return Member(info.orig_filename, kind, info.file_size, partial(opened.open, info))


def _of_tar(opened: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
    kind: _MemberKind = "other"
    if info.isdir() and not info.issparse():
        kind = "folder"
    elif info.isreg() and not info.issparse():
        kind = "file"
    return Member(info.name, kind, info.size, partial(opened.extractfile, info))


def _checked(members: Iterable[Member], archive: Path) -> dict[str, Member]:
    """Return the files by their names, which are distinct paths below the folder and hold no ``.`` parts.

    Raises:
        ArchiveError: if a name leads out of the folder, two names are equal, or a member is neither file nor folder.
    """
    files: dict[str, Member] = {}
    file_keys: set[str] = set()
    folder_keys: set[str] = set()
    size = 0
    for member in members:
        if member.kind == "other":
            raise ArchiveError(f"{archive.name} holds a link or device: {member.name!r}")
        parts = _parts(member.name, archive)
        if len(files) + len(folder_keys) > MOST_MEMBERS:
            raise ArchiveError(f"{archive.name} holds more than {MOST_MEMBERS:,} files")
        paths = accumulate(parts, "{}/{}".format)  # those of the folders above it, and its own
        keys = [unicodedata.normalize("NFC", path).casefold() for path in paths]
        twin = f"{archive.name} holds two things of the same name: {member.name!r}"
        if not file_keys.isdisjoint(keys):
            raise ArchiveError(twin)
        if keys and member.kind == "file":
            own_key = keys.pop()
            if own_key in folder_keys:
                raise ArchiveError(twin)
            file_keys.add(own_key)
            files["/".join(parts)] = member
            size += member.size
        folder_keys.update(keys)
    if size > limit(archive):
        raise _too_much(archive)
    return files


def _parts(name: str, archive: Path) -> list[str]:
    """Return the parts of a path in an archive, and refuse one that leads out of a folder on some system."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    is_absolute = name.startswith("/") or re.match(r"[A-Za-z]:", name)
    if is_absolute or ".." in parts or re.search(r"[\\\0]", name):
        raise ArchiveError(f"{archive.name} holds a path that leads out of its folder: {name!r}")
    return parts


class _Capped:
    """The bytes of a tar, decompressed if it is gzipped; reading beyond the limit of the archive is an error."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self.limit = limit(archive)
        with archive.open("rb") as handle:
            self.gzipped = handle.read(2) == b"\x1f\x8b"
        self.stream = cast(IO[bytes], gzip.open(archive, "rb") if self.gzipped else archive.open("rb"))  # noqa: SIM115

    def __enter__(self) -> _Capped:
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.close()

    def read(self, size: int = -1) -> bytes:
        is_large = not 0 <= size <= SMALL_LIMIT  # such as a header of many megabytes
        if is_large or (self.gzipped and self.stream.tell() + size > self.limit):
            raise _too_much(self.archive)
        return self.stream.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        if self.gzipped and (whence != 0 or place > self.limit):
            raise _too_much(self.archive)
        return self.stream.seek(place, whence)

    def tell(self) -> int:
        return self.stream.tell()
