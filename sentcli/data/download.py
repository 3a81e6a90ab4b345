"""One file from one of several sources: resumed, retried, checked.

What has come so far is kept as ``NAME.part``, with a note of its source beside it, until its checksum was compared.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.console import Transfer
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


class NoRoomError(SentcliError):
    """The disk is full, or would be: no other source helps."""


class _Refused(Exception):
    """This source cannot give the file: it is not asked again."""


class _Broken(Exception):
    """This source failed for now."""


def require_room(folder: Path, size: int, what: str) -> None:
    """Refuse to begin what cannot end.

    Raises:
        NoRoomError: if a folder's disk has less room.
    """
    free = shutil.disk_usage(folder).free
    if free < size:
        raise NoRoomError(f"{what} needs {size / 1e6:,.0f} MB below {folder}, whose disk has {free / 1e6:,.0f} MB left")


@contextmanager
def room_explained(path: Path) -> Iterator[None]:
    """Say of a disk that fills up inside what to do about it.

    Raises:
        NoRoomError: if it does.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise NoRoomError(
            f"{path}: {error.strerror}; make room, then the same command continues with what is there"
        ) from error


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
    meter: Transfer,
    notice: Callable[[str], None] = lambda text: None,
    *,
    counts: bool = True,
) -> str:
    """Get a file from the first source that gives the right bytes.

    Args:
        client: see `connection`.
        sources: its addresses, the best first.
        part: where to collect it.
        pin: what it has to be.
        meter: told of the progress.
        notice: told of what went wrong on the way.
        counts: whether the meter is told how many bytes there will be; not for one of several files.

    Returns:
        The source that gave it.

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
                _Source(client, source, part, pin, meter, counts).run()
                return source
            except (_Refused, _Broken) as error:
                if isinstance(error, _Refused):
                    left.remove(source)
                reasons[source] = str(error)
            notice(f"{shown(source)}: {reasons[source]}")
        if not left:
            break
    lines = [f"  {shown(source)}: {reason}" for source, reason in reasons.items()]
    raise SentcliError(f"no source gave {part.stem}:\n" + "\n".join(lines))


def shown(source: str) -> str:
    """Return an address without a password."""
    return re.sub(r"//[^/@]*@", "//", source)


@dataclass
class _Source:
    """One source that gives one file."""

    client: httpx2.Client
    source: str
    part: Path
    pin: Pin
    meter: Transfer
    counts: bool
    told: int = 0
    """Bytes that the meter knows of."""

    @property
    def size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def run(self) -> None:
        """Ask the source, again at once as long as it gives something.

        Raises:
            _Refused: if it cannot give the file.
            _Broken: if it fails for now.
            NoRoomError: if the disk is full.
        """
        begun = most = self._usable()
        self._tell(begun)
        try:
            while (wrong := self._attempt()) is not None:
                if self.size - most < GAIN:
                    raise _Broken(wrong)
                most = self.size
            if wrong := self.pin.mismatch(self.part):
                discard(self.part)
                raise (_Broken if begun else _Refused)(wrong)  # what was there before may have been of other bytes
        except (_Refused, _Broken):
            self._tell(0)
            raise

    def _tell(self, size: int) -> None:
        self.meter.advance(size - self.told)
        self.told = size

    def _usable(self) -> int:
        """Return how many bytes can be gone on with.

        With a checksum to compare at the end, those of any source; else only those of the same one, if it can tell
        whether the file is still the same.
        """
        trusted = self.pin.checks or self._validator() is not None
        return self.size if trusted and (self.pin.size is None or self.size <= self.pin.size) else 0

    def _validator(self) -> str | None:
        """Return by what the source told which file it was giving, if the bytes are its."""
        try:
            note: Any = json.loads(_note(self.part).read_text("utf-8"))
            return note["validator"] if note["url"] == self.source else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _attempt(self) -> str | None:
        """Take what one answer gives; return None if that is all, else why it ended."""
        import httpx2

        offset = self._usable()
        try:
            if self.pin.size is None or offset != self.pin.size:
                with room_explained(self.part):
                    self._stream(offset)
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.TooManyRedirects) as error:
            raise _Refused(_reason(error)) from error
        except (httpx2.HTTPError, _Broken) as error:
            return _reason(error)
        return None

    def _stream(self, offset: int) -> None:
        """Let one answer of the source flow into the file, from `offset` on if it can."""
        known = self._validator()
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        if offset and known is not None:
            headers["If-Range"] = known
        with self.client.stream("GET", _address(self.source), headers=headers) as response:
            self._check_answer(response)
            changed = response.status_code == 206 and known not in (None, _tag(response))
            if response.status_code == 416 or changed:
                discard(self.part)
                self._tell(0)
                raise _Broken(f"does not go on at byte {offset:,}")
            start, total = _extent(response, offset)
            if self.pin.size is not None and total not in (None, self.pin.size):
                raise _Refused(f"has {total:,} bytes, not {self.pin.size:,}")
            if total is not None:
                if self.counts:
                    self.meter.total(total)
                require_room(self.part.parent, total - start, self.part.stem)
            _note(self.part).write_text(json.dumps({"url": self.source, "validator": _tag(response)}), "utf-8")
            self._write(response, start)
        if total is not None and self.told != total:
            raise _Broken(f"ended after {self.told:,} of {total:,} bytes")

    def _write(self, response: httpx2.Response, start: int) -> None:
        """Append an answer at `start`."""
        self._tell(start)
        with self.part.open("r+b" if self.part.exists() else "wb", buffering=0) as handle:
            handle.truncate(start)
            handle.seek(start)
            for block in response.iter_raw():  # in the sizes in which they come: what is buffered is lost if it breaks
                if self.pin.size is not None and self.told + len(block) > self.pin.size:
                    raise _Refused(f"gives more than {self.pin.size:,} bytes")
                handle.write(block)
                self._tell(self.told + len(block))

    def _check_answer(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status not in (200, 206, 416):
            passing = status in (408, 425, 429) or status >= 500
            raise (_Broken if passing else _Refused)(f"answers {status} {response.reason_phrase}".rstrip())
        if _address(self.source).startswith("https:") and response.url.scheme != "https":
            raise _Refused("leads to an address that is not encrypted")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise _Refused("compresses what it sends, although asked not to")
        if not self.pin.checks and "text/html" in response.headers.get("Content-Type", ""):
            raise _Refused("gives a web page, not the file")


def _extent(response: httpx2.Response, offset: int) -> tuple[int, int | None]:
    """Return at which byte an answer begins and how many the whole file has, if that is said."""
    if response.status_code != 206:
        length = response.headers.get("Content-Length")
        return 0, int(length) if length else None
    extent = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if extent is None or int(extent[1]) != offset:
        raise _Refused(f"was asked for bytes from {offset:,} on and gives others")
    return offset, None if extent[2] == "*" else int(extent[2])


def _tag(response: httpx2.Response) -> str | None:
    """Return by what an answer tells that the file is still the same: a strong ETag, or a date."""
    tag: str = response.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def _note(part: Path) -> Path:
    """Return the file that says whose bytes are in a part, and of which state of the file."""
    return part.with_name(f"{part.name}.json")


def discard(part: Path) -> None:
    """Delete what has come of a file so far."""
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def finish(part: Path, target: Path) -> None:
    """Give a checked file its final name."""
    with part.open("rb") as handle:
        os.fsync(handle.fileno())
    target.parent.mkdir(parents=True, exist_ok=True)
    part.replace(target)
    discard(part)


def _address(source: str) -> str:
    """Return where to ask: ``$HF_ENDPOINT`` stands for the hub, as in the hub's own library."""
    endpoint = os.environ.get("HF_ENDPOINT")
    return endpoint.rstrip("/") + "/" + source.removeprefix(HUB) if endpoint and source.startswith(HUB) else source


def _reason(error: Exception) -> str:
    return one_line(error) or type(error).__name__
