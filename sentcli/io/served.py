"""Models that are served: an OpenAI-compatible address, which is asked with several requests at a time."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from sentcli.bounds import whole_number
from sentcli.errors import InputError, SentcliError
from sentcli.io.forms import decode
from sentcli.io.places import WEB, Address, by_proxy, whole_name, without_address_secrets
from sentcli.printable import remember, value_without_secrets, without_secrets

KEY = "SENTCLI_API_KEY"
"""The variable of the environment with the key, which is sent as a bearer token."""
_REQUESTS_AT_A_TIME = 4
"""How many requests are under way at the same time."""
WAITS = (1.0, 4.0, 16.0)
"""Seconds before each further attempt where a host is busy, fails or cannot be reached, unless it says another time."""
LONGEST_WAIT = 60.0
REQUEST_SECONDS = 120.0
"""The longest time of one request."""
LARGEST_ANSWER, LARGEST_REASON = 32 * 2**20, 2**16
"""The most bytes that are read of an answer, which is several times a batch of wide vectors, and of an error."""


class RefusedError(SentcliError):
    """A host has refused a request with this status, and will refuse it again."""

    def __init__(self, message: str, status: int) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True)
class Served:
    """A model behind an address, such as ``http://localhost:8080/v1#name``."""

    address: str
    """Without the name of the model; it has no secrets."""
    model: str

    @classmethod
    def parse(cls, name: str) -> Served | None:
        """Return the model of a name, or None if the name is no web address.

        Raises:
            InputError: if the address does not name a model, or has a user or a query.
        """
        whole = whole_name(name)
        parts = urlsplit(whole)
        if parts.scheme.lower() not in WEB:
            return None
        if parts.username or parts.password or parts.query:
            raise InputError(f"{Address(whole)}: no user, password or query; a key comes from the variable {KEY}")
        if not parts.hostname or not parts.fragment:
            raise InputError(
                f"{Address(whole)}: a model that is served is http://HOST/v1#MODEL; a folder lies here, or at s3://, "
                "gs://, az://"
            )
        return cls(whole.partition("#")[0].rstrip("/"), parts.fragment)

    def __str__(self) -> str:
        return f"{self.address}#{self.model}"

    def lacks(self, what: str) -> InputError:
        """Return the error for what only a model on this machine can do."""
        return InputError(f"{self} is served: without its weights and its tokenizer there is no {what}")

    def answers(self, path: str, requests: Iterable[dict[str, Any]], *, refusals: bool = False) -> Iterator[Any]:
        """Yield the JSON answer to each request, in order.

        Args:
            path: behind the address, such as ``embeddings``.
            requests: JSON objects, to which the name of the model is added; they are taken a few ahead.
            refusals: yield a `RefusedError` in the place of an answer instead of raising it.

        Raises:
            InputError: if the key holds a control character.
            SentcliError: if the host cannot be reached, refuses, or does not answer with JSON, after several attempts
                where it may be busy.
        """
        from fsspec.asyn import get_loop, sync

        remaining = iter(requests)
        while group := list(islice(remaining, 4 * _REQUESTS_AT_A_TIME)):
            for answer in sync(get_loop(), self._answers, path, group):
                is_refusal = refusals and isinstance(answer, RefusedError)
                if isinstance(answer, BaseException) and not is_refusal:
                    raise answer
                yield answer

    async def _answers(self, path: str, requests: Sequence[dict[str, Any]]) -> list[Any]:
        import asyncio

        import aiohttp

        key = os.environ.get(KEY, "")
        if not key.isprintable():
            raise InputError(f"{KEY} holds a line break or another control character, which no key has")
        headers = {"Accept-Encoding": "gzip"}
        if key:
            remember(key)
            headers["Authorization"] = f"Bearer {key}"
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        gate = asyncio.Semaphore(_REQUESTS_AT_A_TIME)
        options: dict[str, Any] = {"timeout": timeout, "headers": headers, "trust_env": True}
        async with aiohttp.ClientSession(auto_decompress=False, **options) as session:

            async def answer(request: dict[str, Any]) -> Any:
                async with gate:
                    return await self._answer(session, path, {"model": self.model, **request})

            return await asyncio.gather(*map(answer, requests), return_exceptions=True)

    async def _answer(self, session: Any, path: str, request: dict[str, Any]) -> Any:
        import asyncio

        import aiohttp

        for wait in (*WAITS, None):
            try:
                async with session.post(f"{self.address}/{path}", json=request, allow_redirects=False) as response:
                    if response.status == 200:
                        return await _value(response)
                    problem = f"status {response.status} {await _reason(response)}".strip()
                    if response.status in (401, 403):
                        problem += f" (the key comes from the variable {KEY})"
                    if response.status != 429 and response.status < 500:
                        raise RefusedError(f"{self}: {without_secrets(problem)}{self._by_proxy}", response.status)
                    wait = wait and seconds_to_wait(response.headers.get("Retry-After", ""), wait)
            except (aiohttp.InvalidURL, UnicodeError):  # as of a label of a host that is too long
                raise InputError(f"{self}: no web address") from None
            except _UnusableError as error:
                problem = f"its answer {error}"
                break
            except TimeoutError:
                problem = f"no answer within {REQUEST_SECONDS:g} seconds"
            except aiohttp.ClientError as error:
                problem = str(error)
            if wait is not None:
                await asyncio.sleep(wait)
        raise SentcliError(f"{self}: {without_address_secrets(problem)}{self._by_proxy}")

    @property
    def _by_proxy(self) -> str:
        return by_proxy(self.address, [urlsplit(self.address).scheme])


def seconds_to_wait(asked: str, usual: float) -> float:
    """Return how long to wait before the next attempt: what the host asks for in ``Retry-After``, up to a minute."""
    seconds = whole_number(asked)
    if seconds is None:
        return usual
    return min(float(seconds), LONGEST_WAIT)


class _UnusableError(Exception):
    """The body of an answer is not what it should be; the message goes on from "its answer"."""


async def _value(response: Any) -> Any:
    """Return the JSON of an answer, without secrets."""
    body = await _body(response, LARGEST_ANSWER)
    if len(body) > LARGEST_ANSWER:
        raise _UnusableError(f"has more than {LARGEST_ANSWER // 2**20} MB")
    try:
        return value_without_secrets(decode(body))
    except ValueError as error:
        raise _UnusableError(f"is not JSON ({error})") from error


async def _reason(response: Any) -> str:
    """Return the beginning of what a host says of an error, on one line and without secrets."""
    body = await _body(response, LARGEST_REASON)
    text = without_secrets(body.decode("utf-8", "replace"), of_host=True)
    return " ".join(text.split())[:300]


async def _body(response: Any, limit: int) -> bytes:
    """Read the body of an answer, unpacked; of a longer one than the limit in bytes the first bytes beyond that.

    Raises:
        _UnusableError: if it is packed in another way than was asked for, or damaged.
    """
    packed = response.headers.get("Content-Encoding", "").strip().lower()
    if packed not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise _UnusableError(f"is packed with {packed[:20]}, which was not asked for")
    unpacking = zlib.decompressobj(47) if packed not in ("", "identity") else None  # 47 takes gzip and zlib
    body = bytearray()
    try:
        async for chunk in response.content.iter_chunked(2**16):
            body += chunk if unpacking is None else unpacking.decompress(chunk, limit + 1 - len(body))
            if len(body) > limit:
                response.close()  # the rest is not waited for
                return bytes(body)
    except zlib.error as error:
        raise _UnusableError(f"cannot be unpacked ({error})") from error
    if unpacking is not None and body and not unpacking.eof:
        raise _UnusableError("cannot be unpacked (it ends too early)")
    return bytes(body)
