"""Download a file from one of several sources, with resumption, retries and checks.

The bytes that have arrived are kept as ``NAME.part``, with a note of their source beside it, until the whole file has
been checked.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from sentcli.console import Transfer
from sentcli.data.registry import Pin
from sentcli.errors import SentcliError, one_line
from sentcli.io import pace
from sentcli.io.atomic import require_room, room_explained
from sentcli.io.json_files import contents, decode
from sentcli.version import __version__

if TYPE_CHECKING:
    import httpx2

ROUNDS = 4
"""How often all sources are tried in turn; a source that does not have the file is tried once."""
PAUSE = 1.0
"""The seconds before the second round; the pause doubles for each further one."""
TIMEOUT = 30.0
"""The seconds without a byte after which a source has failed."""
GAIN = 2**20
"""A source that broke off is tried again at once if it gave this many bytes before."""
HUB = "https://huggingface.co/"


class _Refused(Exception):
    """A source cannot give the file, and is not tried again."""


class _Broken(Exception):
    """A source has failed, but may work in the next round."""


@contextmanager
def connection() -> Iterator[httpx2.Client]:
    """Yield an HTTP client, which keeps connections open from one file to the next."""
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
    """Download a file from the first source that gives the right bytes.

    Args:
        client: an HTTP client; see `connection`.
        sources: the addresses of the file, the best first.
        part: the file that collects the bytes.
        pin: the checksum and the size that the file must have.
        meter: is told of the progress.
        notice: is told of sources that fail.
        counts: whether the meter is told the total number of bytes, which is wrong for one of several files.

    Returns:
        The source that gave the file.

    Raises:
        NoRoomError: if the disk is full.
        SentcliError: if no source gave the file; the message has the reason for each.
    """
    reasons: dict[str, str] = {}
    remaining = list(sources)
    for number in range(ROUNDS):
        if number:
            time.sleep(PAUSE * 2 ** (number - 1) * random.uniform(0.8, 1.2))
        for source in list(remaining):
            try:
                _Source(client, source, part, pin, meter, counts).run()
                return source
            except (_Refused, _Broken) as error:
                if isinstance(error, _Refused):
                    remaining.remove(source)
                reasons[source] = str(error)
            notice(f"{shown(source)}: {reasons[source]}")
        if not remaining:
            break
    lines = [f"  {shown(source)}: {reason}" for source, reason in reasons.items()]
    raise SentcliError(f"no source gave {part.stem}:\n" + "\n".join(lines))


def shown(source: str) -> str:
    """Return an address without user name and password."""
    return re.sub(r"//[^/@]*@", "//", source)


@dataclass
class _Source:
    """The download of one file from one source."""

    client: httpx2.Client
    source: str
    part: Path
    pin: Pin
    meter: Transfer
    counts: bool
    told: int = 0
    """The number of bytes that the meter was told."""

    @property
    def size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def run(self) -> None:
        """Download and check the file, and try again at once while each attempt gives enough bytes.

        Raises:
            _Refused: if the source cannot give the file.
            _Broken: if the source has failed.
            NoRoomError: if the disk is full.
        """
        begun = largest = self._usable()
        self._tell(begun)
        try:
            while (problem := self._attempt()) is not None:
                if self.size - largest < GAIN:
                    raise _Broken(problem)
                largest = self.size
            if problem := self.pin.mismatch(self.part):
                discard(self.part)
                # the bytes of an earlier download may be the wrong ones
                raise (_Broken if begun else _Refused)(problem)
        except (_Refused, _Broken):
            self._tell(0)
            raise

    def _tell(self, size: int) -> None:
        self.meter.advance(size - self.told)
        self.told = size

    def _usable(self) -> int:
        """Return how many bytes of an earlier download can be continued.

        If there is a checksum to compare at the end, they may come from any source. Otherwise they must come from this
        one, and it must be able to tell whether the file is still the same.
        """
        trusted = self.pin.checks or self._validator() is not None
        return self.size if trusted and (self.pin.size is None or self.size <= self.pin.size) else 0

    def _validator(self) -> str | None:
        """Return the ETag or the date that this source sent with the bytes, or None if they are not from it."""
        try:
            note: Any = decode(contents(_note(self.part)))
            return note["validator"] if note["url"] == self.source else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _attempt(self) -> str | None:
        """Take the bytes of one response; return None if the file is complete, else the reason why it is not."""
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
        """Write one response of the source into the file, from `offset` on if the source supports it."""
        validator = self._validator()
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        if offset and validator is not None:
            headers["If-Range"] = validator
        with closing(self._answer(headers)) as response:
            self._check_response(response)
            changed = response.status_code == 206 and validator not in (None, _tag(response))
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

    def _answer(self, headers: Mapping[str, str]) -> httpx2.Response:
        """Return the response of the source when its headers are there, which a thread waits for.

        Raises:
            _Broken: if that takes too long; the client's own limit is for a single read.
        """
        request = self.client.build_request("GET", _address(self.source), headers=headers)
        answer: Future[httpx2.Response] = Future()

        def ask() -> None:
            try:
                answer.set_result(self.client.send(request, stream=True))
            except Exception as error:
                answer.set_exception(error)

        Thread(target=ask, daemon=True).start()
        if not wait([answer], pace.SECONDS).done:
            raise _Broken(str(pace.no_answer()))
        return answer.result()

    def _write(self, response: httpx2.Response, start: int) -> None:
        """Write the body of a response into the file from byte `start` on."""
        self._tell(start)
        with self.part.open("r+b" if self.part.exists() else "wb", buffering=0) as handle:
            handle.truncate(start)
            handle.seek(start)
            watch = pace.Pace()
            for block in response.iter_raw():  # blocks as they arrive: buffered bytes are lost if the connection breaks
                if self.pin.size is not None and self.told + len(block) > self.pin.size:
                    raise _Refused(f"gives more than {self.pin.size:,} bytes")
                handle.write(block)
                self._tell(self.told + len(block))
                try:
                    watch.check(self.told - start)
                except pace.TooSlowError as error:
                    raise _Broken(str(error)) from error
        if not self.told:
            raise _Refused("gives an empty file")

    def _check_response(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status not in (200, 206, 416):
            temporary = status in (408, 425, 429) or status >= 500
            raise (_Broken if temporary else _Refused)(f"answers {status} {response.reason_phrase}".rstrip())
        if _address(self.source).startswith("https:") and response.url.scheme != "https":
            raise _Refused("leads to an address that is not encrypted")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise _Refused("compresses what it sends, although asked not to")
        if not self.pin.checks and "text/html" in response.headers.get("Content-Type", ""):
            raise _Refused("gives a web page, not the file")


def _extent(response: httpx2.Response, offset: int) -> tuple[int, int | None]:
    """Return the first byte of a response, and the size of the whole file if the response has it."""
    if response.status_code != 206:
        length = response.headers.get("Content-Length")
        if length is not None and not length.isdecimal():
            raise _Refused(f"says that it sends {length!r:.40} bytes")
        return 0, int(length) if length else None
    extent = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if extent is None or int(extent[1]) != offset:
        raise _Refused(f"was asked for bytes from {offset:,} on and sends others")
    return offset, None if extent[2] == "*" else int(extent[2])


def _tag(response: httpx2.Response) -> str | None:
    """Return what identifies the version of the file in a response: a strong ETag, or its date."""
    tag: str = response.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def _note(part: Path) -> Path:
    """Return the file that notes the source of a part, and the version of the file there."""
    return part.with_name(f"{part.name}.json")


def discard(part: Path) -> None:
    """Delete a part and its note."""
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
    """Return the address of a source, in which ``$HF_ENDPOINT`` replaces the hub, as in the hub's own library."""
    endpoint = os.environ.get("HF_ENDPOINT")
    return endpoint.rstrip("/") + "/" + source.removeprefix(HUB) if endpoint and source.startswith(HUB) else source


def _reason(error: Exception) -> str:
    return one_line(error) or type(error).__name__
