"""Files and folders in object stores, on the hub and on the web, and their copies here: all that knows fsspec.

What is read is copied to this machine first, and whole: inputs are read twice and have a checksum, Parquet is read from
its end, and vectors are mapped into memory. A stream would have to be asked for three times, and may change between.

fsspec and the library of a store are imported when a name is used that needs them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import quote

from sentcli import console
from sentcli.errors import InputError, MissingExtraError, SentcliError, import_problem, required
from sentcli.io.atomic import DISK_FULL, replacing, require_room, room_explained
from sentcli.io.places import (
    CREDENTIALS,
    OBJECT_STORES,
    STORE_LIBRARIES,
    WEB,
    Doing,
    is_temporary,
    of_library,
    scheme_of,
    store_error,
    whole_name,
)

T = TypeVar("T")
PAUSES = (0.5, 1.0, 2.0)
"""The seconds before each further attempt, after those that the library of a store makes itself."""
SLOW_SECONDS, LEAST_BYTES = 60.0, 1000
"""How long a host may send slowly, and the bytes a second that it has to send on average in that time."""
ANNOUNCED_BYTES = 10**8
"""A file of more bytes is announced before it is copied."""
PROBE = ".sentcli-write-test-"
"""How the name of a file begins that is written to see whether a folder can be."""
VERSION_KEYS = (
    "ETag", "etag", "md5Hash", "crc32c", "content_md5", "generation", "blob_id", "oid", "LastModified", "updated",
    "last_modified", "Last-Modified",
)  # fmt: skip
"""The facts by which stores tell that a file is still the same, the best first."""


STORE_MODULES = {
    "s3": ("s3fs", "s3fs"),
    "gs": ("gcsfs", "gcsfs"),
    "az": ("adlfs", "adlfs"),
    "hf": ("huggingface_hub", "huggingface-hub"),
}
"""The module that opens each kind of store, and the distribution that brings it."""


class TooSlowError(Exception):
    """A host sends fewer bytes than it has to, and would be waited for without end; the message says how many."""

    def __init__(self, received: str = "") -> None:
        received = received or f"no whole headers in {SLOW_SECONDS:,.0f} seconds"
        super().__init__(f"sent {received}, which is too slow")


class Pace:
    """Watches the bytes of one file as they come."""

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.size_then = 0
        """The number of bytes that had come at that time."""

    def check(self, size: int) -> None:
        """Look at the number of bytes that have come so far, whenever some have.

        Raises:
            TooSlowError: if in the last `SLOW_SECONDS` fewer came than `LEAST_BYTES` a second.
        """
        passed = time.monotonic() - self.since
        if passed < SLOW_SECONDS:
            return
        received = size - self.size_then
        if received < LEAST_BYTES * passed:
            raise TooSlowError(f"{received:,} bytes in {passed:,.0f} seconds")
        self.since = time.monotonic()
        self.size_then = size


@dataclass(frozen=True)
class RemoteFile:
    """What a store says about a file."""

    size: int | None
    """The size in bytes; None if the host does not say it."""
    version: str
    """Differs between two states of the file; empty if the host does not say."""

    @classmethod
    def of(cls, facts: dict[str, Any]) -> RemoteFile:
        """Read what fsspec returns about a file."""
        version = ""
        for key in VERSION_KEYS:
            if facts.get(key) is not None:
                version = str(facts[key])
                break
        return cls(facts.get("size"), version)


@cache
def _filesystem(scheme: str) -> Any:
    """Return fsspec's file system of a scheme, with bounded waiting; credentials come from the environment.

    Raises:
        MissingExtraError: if a library is not installed.
        InputError: if it lacks credentials to begin with.
    """
    for library in STORE_LIBRARIES:  # what they log would come between our messages, and may hold what is secret
        logging.getLogger(library).addHandler(logging.NullHandler())
    try:
        import fsspec

        system = fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True, **_options(scheme))
    except ImportError as error:
        module, library = STORE_MODULES.get(scheme, ("aiohttp", "fsspec[http]"))
        required(module, library, "remote", f"{scheme}://")
        problem = import_problem(module, error)
        raise MissingExtraError(library, "remote", f"{scheme}://", problem=problem) from error
    except ValueError:  # of adlfs
        raise InputError(f"{scheme}://: there are no credentials; {CREDENTIALS.get(scheme)}") from None
    if scheme == "s3":
        system.retries = 2  # around those of botocore: a store that hangs has failed after two minutes, not ten
    return system


def _options(scheme: str) -> dict[str, Any]:
    """Return what the file system of a scheme is opened with, so that it waits for a host for a while only."""
    if scheme == "s3":
        retries = {"mode": "standard", "total_max_attempts": 3}
        return {"config_kwargs": {"connect_timeout": 10, "read_timeout": 20, "retries": retries}}
    if scheme not in WEB:
        return {}
    import aiohttp

    client = {
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=20),
        "trust_env": True,
        "raise_for_status": _refuse_status,
        "middlewares": (_in_time,),
    }
    return {"client_kwargs": client, "encoded": True, "headers": {"Accept-Encoding": "identity"}}


async def _in_time(request: Any, send: Callable[[Any], Awaitable[Any]]) -> Any:
    """Return the answer to a request when its headers are there; aiohttp's own limit is for a single read."""
    from asyncio import timeout  # which loads in as long as a small model

    try:
        async with timeout(SLOW_SECONDS) as limit:
            return await send(request)
    except TimeoutError:
        if limit.expired():
            raise TooSlowError from None
        raise


async def _refuse_status(response: Any) -> None:
    """Refuse a response that is not the file, also a redirection without an address, which aiohttp lets pass."""
    import aiohttp

    if response.status >= 300:
        raise aiohttp.ClientResponseError(
            response.request_info, response.history, status=response.status, message=response.reason or ""
        )


def _ask(name: str, doing: Doing, request: Callable[[Any, str], T]) -> T:
    """Return what a file system answers, after further attempts if an error comes that is temporary.

    The error has no cause, since the text of a library may hold an address with its secrets.

    Raises:
        SentcliError: as for `store_error`.
    """
    address = whole_name(name)
    scheme = scheme_of(name)
    if scheme in WEB:
        address = quote(address, safe="%/:?#[]@!$&'()*+,;=~-._")
    for pause in (*PAUSES, None):
        try:
            return request(_filesystem(scheme), address)
        except SentcliError:
            raise
        except TooSlowError as error:
            raise SentcliError(f"{name}: the host {error}") from None
        except Exception as error:
            if not of_library(error) or getattr(error, "errno", None) in DISK_FULL:
                raise
            if pause is None or not is_temporary(error, hopeful=scheme not in OBJECT_STORES):
                raise store_error(error, name, doing) from None
            console.detail(f"{name}: {type(error).__name__}; trying again")
        time.sleep(pause)
    raise AssertionError


def remote_state(name: str) -> RemoteFile:
    """Return size and version of a file.

    Raises:
        InputError: if there is none, it is a folder, or a web page instead of a file.
        SentcliError: if the host fails.
    """
    facts: dict[str, Any] = _ask(name, "read", _info)
    if facts.get("type") == "directory":
        raise InputError(f"{name} is a directory; name its files, for example {name.rstrip('/')}/*.jsonl")
    if facts.get("mimetype") == "text/html" and not name.lower().endswith((".html", ".htm")):
        raise InputError(f"{name} gives a web page, not the file")
    if name.startswith("https:") and str(facts.get("url", "https:")).startswith("http:"):
        raise InputError(f"{name} leads to an address that is not encrypted")
    return RemoteFile.of(facts)


def _info(fs: Any, address: str) -> Any:
    """Return the facts of a file; a host that sends them byte by byte has failed after a minute."""
    if not getattr(fs, "async_impl", False):
        return fs.info(address)
    from fsspec.asyn import sync

    return sync(fs.loop, fs._info, address, timeout=SLOW_SECONDS)


def listing(folder: str) -> dict[str, RemoteFile]:
    """Return the files below a folder by their relative names; a folder that is not there is empty.

    Raises:
        InputError: if there is no bucket, or no right to list it, or a name would lead out of the folder.
        SentcliError: if the host fails.
    """

    def find(fs: Any, address: str) -> dict[str, RemoteFile]:
        root = fs._strip_protocol(address).rstrip("/") + "/"
        files: dict[str, RemoteFile] = {}
        for path, facts in fs.find(address, detail=True).items():
            name = path.removeprefix(root)
            if path.startswith(root) and name and not name.endswith("/"):
                files[name] = RemoteFile.of(facts)
        return files

    files = _ask(folder, "read", find)
    for name in files:
        if "\\" in name or ".." in PurePosixPath(name).parts or name.startswith("/"):
            raise InputError(f"{folder} has a file {name!r}, whose name leads out of the folder")
    return files


def is_pattern(name: str) -> bool:
    """Tell whether a name of a store or of the hub may stand for several files."""
    return scheme_of(name) in (*OBJECT_STORES, "hf") and ("*" in name or "[" in name)


def matching_names(pattern: str) -> list[str]:
    """Return the names that a pattern such as ``s3://bucket/folder/*.jsonl`` stands for, in order; else the name.

    Raises:
        InputError: if no file matches.
    """
    if not is_pattern(pattern):
        return [pattern]
    names: list[str] = _ask(pattern, "read", lambda fs, address: fs.glob(address))
    if not names:
        raise InputError(f"no file matches {pattern}")
    return [f"{scheme_of(pattern)}://{name}" for name in sorted(names)]


def download(
    name: str,
    path: Path,
    *,
    meter: console.Transfer | None = None,
    size: int | None = None,
    quiet: bool = False,
) -> RemoteFile:
    """Copy a file to a path, where it appears whole; a large one is announced unless `quiet`.

    Args:
        name: of the file.
        path: of the copy.
        meter: is told of each byte; None shows a bar.
        size: the number of bytes that the file has to have; None takes what the host says, and tells it to the meter.
        quiet: whether a large file is not announced.

    Returns:
        The state of the file in the store.

    Raises:
        NoRoomError: if the disk has no room.
        SentcliError: if the host fails, or the file has another size or, without `size`, changes meanwhile.
    """
    file = remote_state(name)
    expected = file.size if size is None else size
    if file.size not in (None, expected):
        raise SentcliError(f"{name} has {file.size:,} bytes, not {expected:,}")
    stated_size = expected or 0
    require_room(path.parent, stated_size, name)
    if stated_size > ANNOUNCED_BYTES and not quiet:
        console.note(f"{name}: {stated_size / 1e6:,.0f} MB are copied to {path.parent} first")
    advice = f"it is copied to {path.parent}; make room there (TMPDIR is the disk of temporary copies)"
    with (
        room_explained(name, advice),
        replacing(path) as partial,
        nullcontext(meter) if meter is not None else console.transferring(PurePosixPath(name).name) as bar,
    ):
        if size is None and expected is not None:
            bar.total(expected)
        transfer = _Transfer(name, partial, bar, expected)
        try:
            _ask(name, "read", transfer.attempt)
            copied = partial.stat().st_size
            if expected not in (None, copied) or (size is None and remote_state(name) != file):
                raise SentcliError(f"{name} has changed while it was copied; run the command again")
            if not copied and scheme_of(name) in WEB:
                raise SentcliError(f"{name}: the host answers with an empty file")
        except BaseException:
            bar.advance(-transfer.received)
            raise
    return file


@dataclass
class _Transfer:
    """A file on its way to a path, whose bytes a bar shows."""

    name: str
    path: Path
    bar: Any
    expected: int | None
    """The number of bytes that may come; None if it is not known."""
    received: int = 0

    def attempt(self, fs: Any, address: str) -> None:
        """Copy the file, from its start."""
        from fsspec.callbacks import Callback

        pace = Pace()

        def show(_: int | None, size: int, **__: Any) -> None:
            self.bar.advance(size - self.received)
            self.received = size
            pace.check(size)
            if self.expected is not None and size > self.expected:
                raise SentcliError(f"{self.name} gives more than {self.expected:,} bytes")

        fs.get_file(address, str(self.path), callback=Callback(hooks={"bar": show}))


def upload(path: Path, name: str) -> None:
    """Copy a file to a store, where it appears whole.

    Raises:
        InputError: if there is no right to write.
        SentcliError: if the host fails, or has another number of bytes afterwards.
    """
    _ask(name, "write", lambda fs, address: fs.put_file(str(path), address))
    if remote_state(name).size != path.stat().st_size:
        raise SentcliError(f"{name} has another size than was written; run the command again with --resume")


def copy(name: str, other: str) -> None:
    """Copy a file within its store."""
    _ask(name, "write", lambda fs, address: fs.cp_file(address, other))


def delete_file(name: str) -> None:
    """Delete a file of a store."""
    _ask(name, "write", lambda fs, address: fs.rm_file(address))


def check_writable(folder: str) -> bool:
    """Write and delete a small file.

    Returns:
        Whether there is a right to delete, too. Without one the file stays.

    Raises:
        InputError: if there is no bucket, or no right to write.
        SentcliError: if the host fails.
    """
    probe = f"{folder.rstrip('/')}/{PROBE}{os.getpid()}"
    _ask(folder, "write", lambda fs, _: fs.pipe_file(probe, b""))
    try:
        delete_file(probe)
    except InputError as error:
        console.detail(str(error))
        return False
    return True
