"""Write outputs whole or not at all: under another name first, which is then exchanged for that of the output.

A file or folder that is made in one go has a temporary name inside `replacing`. A folder that is made over hours, and
that a later command may go on with, is made in its `staging_folder`, while the old folder answers as before.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from sentcli.bounds import whole_number
from sentcli.errors import InputError, SentcliError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NUMBERS = "|".join(map(str, DISK_FULL))
WORDS_OF_NO_ROOM = re.compile(
    rf"No space left on device|os error ({_NUMBERS})\b|requested and [0-9]+ written|write error in"
)
"""What libraries in Rust, NumPy and faiss say of a full disk, whose error has no number of the system."""
SCHEMES = ("s3", "gs", "az", "hf", "https", "http")
"""The schemes of names that are not on this machine; see `places`."""
ALIASES = {"abfs": "az", "abfss": "az", "gcs": "gs", "s3a": "s3"}
"""What other programs call the schemes of object stores."""
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
LARGEST_POINTER = 1024
"""The most bytes of a pointer, by the specification of git-lfs."""


class NoRoomError(SentcliError):
    """The disk is full or too small, so that other sources do not help either."""


def require_room(folder: Path, size: int, name: str) -> None:
    """Check that the disk of a folder, which may be missing yet, has room for so many bytes.

    Raises:
        NoRoomError: if it has less; the message says what `name` needs.
    """
    present = next(place for place in (folder, *folder.resolve().parents) if place.exists())
    free = shutil.disk_usage(present).free
    if free < size:
        needs = f"{name} needs {size / 1e6:,.1f} MB below {folder}, whose disk has {free / 1e6:,.1f} MB left"
        raise NoRoomError(f"{needs}: make room, or choose another place")


@contextmanager
def room_explained(
    name: object, advice: str = "make room, then the same command continues with what is there"
) -> Iterator[None]:
    """Turn the error of a full disk inside the block into a message that names what was written and gives advice.

    Raises:
        NoRoomError: if the disk is full.
    """
    try:
        yield
    except Exception as error:
        number = getattr(error, "errno", None)
        if number not in DISK_FULL and not _tells_of_no_room(error):
            raise
        reason = getattr(error, "strerror", None) or "it cannot be written; is the disk full?"
        if number == errno.EFBIG:
            advice = f"raise the limit of a file's size (ulimit -f) if there is one; {advice}"
        raise NoRoomError(f"{name}: {reason}; {advice}") from error


def _tells_of_no_room(error: BaseException) -> bool:
    """Tell whether an error is what a library raises for a full disk, without a number."""
    if getattr(error, "errno", None) is not None or isinstance(error, SentcliError):
        return False
    return WORDS_OF_NO_ROOM.search(str(error)) is not None


@dataclass(frozen=True)
class OwnFiles:
    """What a command writes into a folder that it replaces whole: such a folder is no other than one of its own."""

    names: tuple[str, ...]
    """Patterns of what it may hold: names in the folder, of which one covers all below it, or paths with a slash."""
    markers: tuple[str, ...] = ()
    """The files of which it has one; none if no name tells it."""

    def refuse_others(self, folder: Path) -> None:
        """Refuse a folder that holds what the command has not written, and would delete.

        Raises:
            InputError: which names a file.
        """
        kept = "--overwrite does not delete what this command has not written"
        present = sorted(path.name for path in folder.iterdir())
        if present and self.markers and not any(marker in present for marker in self.markers):
            raise InputError(f"{folder} holds {present[0]}, but no {' or '.join(self.markers)}: {kept}")
        others = self.others(folder)
        if others:
            raise InputError(f"{folder} holds {others[0]}: {kept}")

    def others(self, folder: Path) -> list[str]:
        """Return the files of a folder that the command has not written, by their paths in it."""
        found = []
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            is_folder = path.is_dir() and not path.is_symlink()
            if not is_folder and not self._has(name.parts[0]) and not self._has(name.as_posix()):
                found.append(str(name))
        return found

    def _has(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.names)


def check_output(
    path: Path, *, overwrite: bool = False, resume: bool = False, folder: bool = False, own: OwnFiles | None = None
) -> None:
    """Refuse an output that exists, or whose folder cannot be written, before any work is done.

    What a process that was killed has left of the output is deleted.

    Args:
        path: the output.
        overwrite: accept an output that exists.
        resume: accept an output that exists.
        folder: whether the output is a folder; if it exists, it has to be one, and else a file.
        own: what is written into a folder that is replaced whole; one that holds anything else is refused.
    """
    scheme = scheme_of_path(path)
    if scheme:
        what = "only directories of encode are" if scheme in SCHEMES else "nothing is"
        raise InputError(f"{what} written to {scheme}://; choose an output on this machine")
    if folder and str(path) == "-":
        raise InputError("-o -: the output is a folder, which cannot go to standard output")
    _clear_abandoned(path)
    is_folder = path.is_dir()
    if path.exists():
        if is_folder != folder:
            raise InputError(f"{path} exists and is a {'folder' if is_folder else 'file'}; choose another name")
        if not overwrite and not resume:
            raise InputError(f"{path} exists; use --overwrite to replace it, or another name")
        if is_folder and overwrite:
            _check_replaceable(path)
            if own is not None:
                own.refuse_others(path)
    _check_writable(path.parent)
    if is_folder:
        _check_writable(path)


def _check_replaceable(folder: Path) -> None:
    """Refuse a folder that cannot have the name of another one."""
    place = folder.resolve()  # of ".", pathlib's is_mount() says that it is one
    if place.is_mount():
        what = "a disk of its own"
    elif Path.cwd().is_relative_to(place):
        what = "the folder that you are in, or holds it"
    else:
        return
    raise InputError(f"{folder} is {what}, which cannot be replaced; choose another folder")


def _check_writable(folder: Path) -> None:
    """Refuse a folder in which no file can be made; the folder is made if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".sentcli-write-test-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from error


def check_kept(output: Path, reads: Iterable[Path | str | None]) -> None:
    """Refuse an output that is, or holds, something that is read: replacing it would delete that.

    Args:
        output: the file or folder.
        reads: files and folders, or names of something else.
    """
    for name in reads:
        if name is None:
            continue
        path = Path(name)
        if path.exists() and path.resolve().is_relative_to(output.resolve()):
            raise InputError(f"{output} would replace {name}, which is read; choose another output")


def scheme_of_path(path: Path) -> str | None:
    """Return the scheme of a name that was taken for a path, which has made one slash of two, or None."""
    match = re.match(r"((?:[a-z][a-z\d+.-]+:)*[a-z][a-z\d+.-]+):/", str(path), re.IGNORECASE)
    if match is None:
        return None
    scheme = match[1].lower()
    return ALIASES.get(scheme, scheme)


def regular(path: Path) -> os.stat_result:
    """Return the state of a file.

    Raises:
        OSError: if it is missing, or is a folder, or a pipe or device, for whose bytes a reader would wait.
        InputError: if it is a pointer of git-lfs.
    """
    state = path.stat()
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    refuse_pointer(path, state.st_size)
    return state


def refuse_pointer(path: Path, size: int = 0) -> None:
    """Refuse what git leaves in place of a large file where git-lfs has not fetched it.

    Args:
        path: a regular file.
        size: its bytes, if they are known; a larger file is no pointer and is not opened.

    Raises:
        InputError: which names the command that fetches the file.
    """
    if size > LARGEST_POINTER:
        return
    with path.open("rb") as handle:
        first = handle.read(len(LFS_POINTER))
    if first == LFS_POINTER:
        raise InputError(f"{path} is a pointer of git-lfs, not the file itself: run git lfs pull in its folder")


def refuse_link(path: Path) -> None:
    """Refuse a link in a folder where sentcli replaces and deletes files: it may lead to files of others.

    Raises:
        InputError: if the path is a symbolic link.
    """
    if path.is_symlink():
        raise InputError(f"{path} is a link: put the file or folder itself there")


@contextmanager
def locked(lock: Path, message: str) -> Iterator[None]:
    """Hold a lock file inside the block; the lock of a process that was killed is free.

    Raises:
        InputError: with `message`, if another process holds it.
    """
    from filelock import FileLock, Timeout

    makes_folder = not lock.parent.exists()
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=0):
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
                if makes_folder:
                    with suppress(OSError):  # something came into it
                        lock.parent.rmdir()
    except Timeout as error:
        raise InputError(message) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` on success, delete it on any error.

    A symbolic link is followed; a device or pipe is written directly.
    """
    path = path.resolve()
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield temporary
        if temporary.is_file():
            with temporary.open("rb") as handle:
                os.fsync(handle.fileno())
        if path.is_dir() and temporary.is_dir():
            exchange(temporary, path)
            shutil.rmtree(temporary, ignore_errors=True)  # the output is whole, and the next command deletes the rest
        else:
            temporary.replace(path)
    except BaseException as error:
        _delete(temporary)
        if _tells_of_no_room(error):
            raise NoRoomError(f"{path} cannot be written; is the disk full?") from error
        if isinstance(error, OSError):
            unnamed = error.filename is None and error.errno in DISK_FULL  # the error of a failed write names no file
            if unnamed or str(error.filename).startswith(str(temporary)):
                error.filename = str(path)
                error.filename2 = None
        raise


def exchange(new: Path, old: Path) -> None:
    """Exchange the names of two folders of the same disk, in one step where the system can.

    Linux can (``renameat2``). Elsewhere the old folder is renamed twice, and put back after an error; a kill in between
    leaves both whole, the old one under a hidden name, which the next command that writes it puts back.

    Raises:
        OSError: if the names are not exchanged.
    """
    rename = None
    if sys.platform == "linux":
        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None:
        if rename(_HERE, os.fsencode(new), _HERE, os.fsencode(old), _EXCHANGE) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EINVAL):  # what a system or disk that cannot do it says
            raise OSError(code, os.strerror(code), str(old))
    aside = old.with_name(f".{old.name}.{os.getpid()}.old")
    old.rename(aside)
    try:
        new.rename(old)
    except BaseException:
        aside.rename(old)
        raise
    aside.rename(new)


_HERE, _EXCHANGE = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of Linux."""


def staging_folder(path: Path) -> Path:
    """Return the folder beside a folder in which what replaces it is made; a later command may go on with it."""
    path = path.resolve()
    return path.with_name(f".{path.name}-next")  # without a suffix, as a directory of encode has none


def promote(path: Path) -> None:
    """Put the finished `staging_folder` of a folder in its place, and delete the old one.

    Raises:
        OSError: if the names cannot be exchanged: both folders are as they were.
    """
    path = path.resolve()
    exchange(staging_folder(path), path)
    shutil.rmtree(staging_folder(path), ignore_errors=True)


def _clear_abandoned(path: Path) -> None:
    """Delete what processes that were killed have left of an output, and put back an old one without its name."""
    for partial in path.parent.glob(f".{glob.escape(path.name)}.*.*"):
        process = whole_number(partial.suffixes[-2][1:])
        if partial.suffix not in (".partial", ".old") or process is None or _is_running(process):
            continue
        if partial.suffix == ".old" and not path.exists():
            partial.rename(path)
        else:
            _delete(partial)


def _delete(path: Path) -> None:
    """Delete a file, a link or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def link(source: str | Path, target: str | Path, *, follow_symlinks: bool = True) -> None:
    """Give a file a second name, or copy it where the disk has no such thing."""
    try:
        os.link(source, target, follow_symlinks=follow_symlinks)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=follow_symlinks)


def _is_running(process: int) -> bool:
    if sys.platform == "win32":  # where signal 0 would interrupt it
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # there is none, or the number is none of a process
        return False
    except PermissionError:
        pass  # it belongs to someone else
    return True
