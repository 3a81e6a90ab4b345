"""Download a file from one of several sources, with retries and checks.

pooch is not enough for it: its client waits without end for a host that sends a byte now and then, follows redirections
to addresses that are not encrypted, and reads what is larger than the file should be to its end.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from sentcli.console import Transfer
from sentcli.data.registry import Pin
from sentcli.errors import SentcliError, one_line
from sentcli.io import stores
from sentcli.io.atomic import replacing, require_room, room_explained
from sentcli.version import __version__

if TYPE_CHECKING:
    import httpx2

ROUNDS = 4
"""How often all sources are tried in turn; a source that does not have the file is tried once."""
PAUSE = 1.0
"""The seconds before the second round; the pause doubles for each further one."""
TIMEOUT = 30.0
"""The seconds without a byte after which a source has failed."""
HUB = "https://huggingface.co/"


class _RefusedError(Exception):
    """A source cannot give the file, and is not tried again."""


class _BrokenError(Exception):
    """A source has failed, but may work in the next round."""


@contextmanager
def connection() -> Iterator[httpx2.Client]:
    """Yield an HTTP client, which keeps connections open from one file to the next; proxies are in the environment."""
    import httpx2

    headers = {"User-Agent": f"sentcli/{__version__}", "Accept-Encoding": "identity"}
    with httpx2.Client(follow_redirects=True, timeout=TIMEOUT, headers=headers) as client:
        yield client


def download(
    client: httpx2.Client,
    sources: Sequence[str],
    target: Path,
    pin: Pin,
    meter: Transfer,
    notice: Callable[[str], None] = lambda text: None,
    *,
    counts: bool = True,
) -> str:
    """Download a file from the first source that gives the right bytes; it appears whole and checked.

    Args:
        client: an HTTP client; see `connection`.
        sources: the addresses of the file, the best first.
        target: the file.
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
    import httpx2

    reasons: dict[str, str] = {}
    remaining = list(sources)
    for number in range(ROUNDS if remaining else 0):
        if number:
            time.sleep(PAUSE * 2 ** (number - 1) * random.uniform(0.8, 1.2))
        for source in list(remaining):
            try:
                with room_explained(target.name), replacing(target) as partial:
                    _receive(client, source, partial, pin, meter, counts=counts)
                return source
            except (_RefusedError, httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.TooManyRedirects) as error:
                remaining.remove(source)
                reasons[source] = one_line(error) or type(error).__name__
            except (_BrokenError, stores.TooSlowError, httpx2.HTTPError) as error:
                reasons[source] = one_line(error) or type(error).__name__
            notice(f"{shown(source)}: {reasons[source]}")
        if not remaining:
            break
    lines = [f"  {shown(source)}: {reason}" for source, reason in reasons.items()]
    raise SentcliError(f"no source gave {target.name}:\n" + "\n".join(lines))


def shown(source: str) -> str:
    """Return an address without user name and password."""
    return re.sub(r"//[^/@]*@", "//", source)


def _receive(client: httpx2.Client, source: str, partial: Path, pin: Pin, meter: Transfer, *, counts: bool) -> None:
    """Write what one source gives into a file, and check it."""
    endpoint, address, received = os.environ.get("HF_ENDPOINT"), source, 0
    if endpoint and source.startswith(HUB):  # as in the hub's own library
        address = endpoint.rstrip("/") + "/" + source.removeprefix(HUB)
    try:
        with closing(_answer(client, address)) as response, partial.open("wb") as handle:
            total = _checked_length(response, address, pin)
            if total is not None:
                if counts:
                    meter.total(total)
                require_room(partial.parent, total, address.rpartition("/")[2])
            pace = stores.Pace()
            for block in response.iter_raw():
                handle.write(block)
                received += len(block)
                meter.advance(len(block))
                if pin.size is not None and received > pin.size:
                    raise _RefusedError(f"gives more than {pin.size:,} bytes")
                pace.check(received)
        if total is not None and received != total:
            raise _BrokenError(f"ended after {received:,} of {total:,} bytes")
        if not received:
            raise _RefusedError("gives an empty file")
        if problem := pin.mismatch(partial):
            raise _RefusedError(problem)
    except BaseException:
        meter.advance(-received)
        raise


def _answer(client: httpx2.Client, address: str) -> httpx2.Response:
    """Return the response of a source when its headers are there, which a thread waits for.

    Raises:
        TooSlowError: if that takes too long; the client's own limit is for a single read.
    """
    answer: Future[httpx2.Response] = Future()

    def ask() -> None:
        try:
            answer.set_result(client.send(client.build_request("GET", address), stream=True))
        except Exception as error:
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()
    if not wait([answer], stores.SLOW_SECONDS).done:
        raise stores.TooSlowError
    return answer.result()


def _checked_length(response: httpx2.Response, address: str, pin: Pin) -> int | None:
    """Return the number of bytes that a response says it has, or None, after a look at its status and headers."""
    status, length = response.status_code, response.headers.get("Content-Length")
    if status != 200:
        temporary = status in (408, 425, 429) or status >= 500
        raise (_BrokenError if temporary else _RefusedError)(f"answers {status} {response.reason_phrase}".rstrip())
    if address.startswith("https:") and response.url.scheme != "https":
        raise _RefusedError("leads to an address that is not encrypted")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise _RefusedError("compresses what it sends, although asked not to")
    if not pin.checks and "text/html" in response.headers.get("Content-Type", ""):
        raise _RefusedError("gives a web page, not the file")
    if length is None:
        return None
    if not length.isdecimal():
        raise _RefusedError(f"says that it sends {length!r:.40} bytes")
    if pin.size is not None and int(length) != pin.size:
        raise _RefusedError(f"has {int(length):,} bytes, not {pin.size:,}")
    return int(length)
