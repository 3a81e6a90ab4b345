"""One file from one of several sources: resumed, retried, checked.

What has come so far is kept as ``NAME.part``, with a note of its source beside it, until its checksum was compared.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sentcli.data.checks import digest, full, mismatch, require_room
from sentcli.data.part import PartialFile, validator
from sentcli.data.registry import Pin
from sentcli.errors import SentcliError, one_line
from sentcli.io.atomic import DISK_FULL
from sentcli.version import __version__

if TYPE_CHECKING:
    import httpx2

ROUNDS = 4
"""How often all sources are asked in turn; one that says that it has no such file is asked once."""
PAUSE = 1.0
"""Seconds before the second round; twice as long before each further one."""
TIMEOUT = 30.0
"""Seconds without a byte after which a source counts as silent."""
GAIN = 2**20
"""A source that broke off is asked again at once if it gave this many bytes before."""
HUB = "https://huggingface.co/"


class Meter(Protocol):
    """What is told of the progress of a download."""

    def total(self, size: int) -> None:
        """Take the number of bytes that there will be."""

    def advance(self, count: int) -> None:
        """Take that bytes came, or, if negative, that they have to come again."""

    def step(self, text: str) -> None:
        """Take what is being done."""


@dataclass(frozen=True)
class Received:
    """A whole and checked file."""

    path: Path
    source: str
    sha256: str
    size: int
    resumed: int
    """Bytes that an earlier attempt had left."""


class _Refused(Exception):
    """This source cannot give the file: it is not asked again."""


class _Broken(Exception):
    """This source failed for now."""


@contextmanager
def connection() -> Iterator[httpx2.Client]:
    """Yield what keeps connections open from one file to the next."""
    import httpx2

    headers = {"User-Agent": f"sentcli/{__version__}", "Accept-Encoding": "identity"}
    with httpx2.Client(follow_redirects=True, timeout=TIMEOUT, headers=headers) as client:
        yield client


def download(
    client: httpx2.Client,
    sources: Sequence[str],
    part: Path,
    pin: Pin,
    meter: Meter,
    notice: Callable[[str], None] = lambda text: None,
) -> Received:
    """Get a file from the first source that gives the right bytes.

    Args:
        client: see `connection`.
        sources: its addresses, the best first.
        part: where to collect it.
        pin: what it has to be.
        meter: told of the progress.
        notice: told of what went wrong on the way.

    Raises:
        NoRoomError: if the disk is full.
        SentcliError: if no source gave it; the message says of each why.
    """
    reasons: dict[str, str] = {}
    left = list(sources)
    for number in range(ROUNDS):
        if number:
            time.sleep(PAUSE * 2 ** (number - 1) * random.uniform(0.8, 1.2))
        for source in list(left):
            try:
                return _persist(client, source, PartialFile(part), pin, meter)
            except _Refused as error:
                left.remove(source)
                reasons[source] = str(error)
            except _Broken as error:
                reasons[source] = str(error)
            notice(f"{shown(source)}: {reasons[source]}")
        if not left:
            break
    lines = [f"  {shown(source)}: {reason}" for source, reason in reasons.items()]
    raise SentcliError(f"no source gave {part.stem}:\n" + "\n".join(lines))


def shown(source: str) -> str:
    """Return an address without a password."""
    return re.sub(r"//[^/@]*@", "//", source)


class _Counted:
    """A meter that can take back what it was told."""

    def __init__(self, meter: Meter) -> None:
        self.meter, self.count = meter, 0

    def total(self, size: int) -> None:
        self.meter.total(size)

    def advance(self, count: int) -> None:
        self.count += count
        self.meter.advance(count)

    def step(self, text: str) -> None:
        self.meter.step(text)

    def undo(self) -> None:
        self.advance(-self.count)


def _persist(client: httpx2.Client, source: str, part: PartialFile, pin: Pin, meter: Meter) -> Received:
    """Ask one source, again at once as long as it gives something."""
    counted = _Counted(meter)
    begun = most = part.usable(source, pin)
    counted.advance(begun)
    try:
        while (wrong := _attempt(client, source, part, pin, counted)) is not None:
            if part.size - most < GAIN:
                raise _Broken(wrong)
            most = part.size
        if wrong := mismatch(part.path, pin):
            part.forget()
            raise (_Broken if begun else _Refused)(wrong)  # what was there before may have been of other bytes
    except (_Refused, _Broken):
        counted.undo()
        raise
    return Received(part.path, source, digest(part.path), part.size, begun)


def _attempt(client: httpx2.Client, source: str, part: PartialFile, pin: Pin, meter: Meter) -> str | None:
    """Take what one answer gives; return None if that is all, else why it ended.

    Raises:
        _Refused: if the source cannot give the file.
        NoRoomError: if the disk is full.
    """
    import httpx2

    offset = part.usable(source, pin)
    try:
        if pin.size is None or offset != pin.size:
            _stream(client, source, part, pin, offset, meter)
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.TooManyRedirects) as error:
        raise _Refused(_reason(error)) from error
    except (httpx2.HTTPError, _Broken) as error:
        return _reason(error)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise full(error, part.path) from error
        raise
    return None


def _stream(client: httpx2.Client, source: str, part: PartialFile, pin: Pin, offset: int, meter: Meter) -> None:
    """Let one answer of a source flow into the file, from `offset` on if it can.

    Raises:
        _Refused: if it cannot give the file.
        _Broken: if it fails for now.
    """
    known = part.validator(source)
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    if offset and known is not None:
        headers["If-Range"] = known
    with client.stream("GET", _address(source), headers=headers) as response:
        _check_answer(response, source, pin)
        changed = response.status_code == 206 and known not in (None, validator(response))
        if response.status_code == 416 or changed:
            part.forget()
            meter.advance(-offset)
            raise _Broken(f"does not go on at byte {offset:,}")
        start, total = _extent(response, offset)
        if pin.size is not None and total not in (None, pin.size):
            raise _Refused(f"has {total:,} bytes, not {pin.size:,}")
        if total is not None:
            meter.total(total)
            require_room(part.path.parent, total - start, part.path.stem)
        meter.advance(start - offset)
        part.remember(source, response)
        received = _write(response, part.path, start, pin, meter)
    if total is not None and received != total:
        raise _Broken(f"ended after {received:,} of {total:,} bytes")


def _write(response: httpx2.Response, part: Path, start: int, pin: Pin, meter: Meter) -> int:
    """Append an answer at `start` and return the size then."""
    size = start
    with part.open("r+b" if part.exists() else "wb", buffering=0) as handle:
        handle.truncate(start)
        handle.seek(start)
        for block in response.iter_raw():  # in the sizes in which they come: what is buffered is lost if it breaks off
            size += len(block)
            if pin.size is not None and size > pin.size:
                raise _Refused(f"gives more than {pin.size:,} bytes")
            handle.write(block)
            meter.advance(len(block))
    return size


def _check_answer(response: httpx2.Response, source: str, pin: Pin) -> None:
    status = response.status_code
    if status in (408, 425, 429) or status >= 500:
        raise _Broken(f"answers {status} {response.reason_phrase}".rstrip())
    if status not in (200, 206, 416):
        raise _Refused(f"answers {status} {response.reason_phrase}".rstrip())
    if _address(source).startswith("https:") and response.url.scheme != "https":
        raise _Refused("leads to an address that is not encrypted")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise _Refused("compresses what it sends, although asked not to")
    if not pin.checks and "text/html" in response.headers.get("Content-Type", ""):
        raise _Refused("gives a web page, not the file")


def _extent(response: httpx2.Response, offset: int) -> tuple[int, int | None]:
    """Return at which byte an answer begins and how many the whole file has, if that is said."""
    if response.status_code != 206:
        length = response.headers.get("Content-Length")
        return 0, int(length) if length else None
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != offset:
        raise _Refused(f"was asked for bytes from {offset:,} on and gives others")
    return offset, None if found[2] == "*" else int(found[2])


def _address(source: str) -> str:
    """Return where to ask: ``$HF_ENDPOINT`` stands for the hub, as in the hub's own library."""
    endpoint = os.environ.get("HF_ENDPOINT")
    return endpoint.rstrip("/") + "/" + source.removeprefix(HUB) if endpoint and source.startswith(HUB) else source


def _reason(error: Exception) -> str:
    return one_line(error) or type(error).__name__
