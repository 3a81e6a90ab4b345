"""The client of Milvus: a file of Milvus Lite, a server, a cluster or Zilliz, all by an address."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sentcli.errors import InputError, SentcliError, library_errors, one_line, required
from sentcli.io.atomic import NoRoomError, require_room, room_explained
from sentcli.io.places import by_proxy, path_behind
from sentcli.printable import remember
from sentcli.stores.store import CONNECT_SECONDS

SCHEME = "milvus:"


@contextmanager
def answering(name: str) -> Iterator[None]:
    """Turn errors of Milvus inside the block into one message that names the collection."""
    from pymilvus.exceptions import MilvusException

    advice = "make room, then the same command writes what is missing"
    with library_errors(lambda why: SentcliError(f"{name}: Milvus says: {why}")), room_explained(name, advice):
        try:
            yield
        except MilvusException as error:  # as text it has its code as well
            said = one_line(error.message or error)
            if "no space left on device" in said.lower():
                raise NoRoomError(f"{name}: No space left on device; {advice}") from error
            raise SentcliError(f"{name}: Milvus says: {said}") from error


def is_file(address: str) -> bool:
    """Whether an address is of Milvus Lite."""
    return re.match(r"(https?|tcp|unix)://", address.removeprefix(SCHEME)) is None


def place_of(address: str) -> str:
    """Return the absolute path of a file, or the address of a server."""
    if is_file(address):
        return str(path_behind(address, SCHEME))
    return address.removeprefix(SCHEME)


def clear_half_made(address: str, name: str) -> None:
    """Delete what Milvus Lite cannot read of an unfinished collection: indexes, or all if there is no schema yet."""
    folder = Path(place_of(address)) / "collections" / name
    if is_file(address) and folder.is_dir():
        paths = [folder]
        if (folder / "schema.json").exists():
            paths = list(folder.glob("partitions/*/indexes"))
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)  # Lite makes the indexes again


def require_room_in(address: str, size: int) -> None:
    """Check that the disk of a file of Milvus Lite has room for so many bytes; what a server has is not known.

    Raises:
        NoRoomError: if it has less.
    """
    if is_file(address):
        require_room(Path(place_of(address)), size, address)


def check_milvus(address: str) -> None:
    """Check what can be checked before a file is opened or a server asked: the address, and the libraries it needs.

    Raises:
        InputError: if it is neither a file nor a server, or holds a password.
        MissingExtraError: if pymilvus or milvus-lite is not installed.
    """
    place = place_of(address)
    is_server = not is_file(address)
    if is_server and "@" in place.partition("?")[0]:
        raise InputError("an address of Milvus with a password would stand in logs: set MILVUS_TOKEN=user:password")
    if not is_server and not place.endswith(".db"):
        raise InputError(f"{address}: give a file that ends in .db, or http://HOST:PORT")
    required("pymilvus", "pymilvus", "milvus", "Milvus")
    if not is_server:
        required("milvus_lite", "milvus-lite", "milvus", "Milvus in a file")


@contextmanager
def connect(address: str, *, to_write: bool = False) -> Iterator[Any]:
    """Yield a client; a file is free for other processes after the block.

    Args:
        address: ``milvus:`` and a file that ends in .db, or the address of a server, such as
            ``milvus:http://localhost:19530``. ``MILVUS_TOKEN`` of the environment is its token, or user:password.
        to_write: make a file that is missing.

    Raises:
        InputError: if there is no such place, or it does not answer.
        MissingExtraError: if pymilvus or milvus-lite is not installed.
    """
    check_milvus(address)
    place = place_of(address)
    is_server = not is_file(address)
    if not is_server and to_write:
        Path(place).parent.mkdir(parents=True, exist_ok=True)
    elif not is_server and not Path(place).exists():
        raise InputError(f"no such file: {place}; sentcli index CORPUS --to {address} --collection NAME makes it")
    for name in ("pymilvus", "milvus_lite", "grpc._server"):  # they print what is raised as well
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    client = _client(address)
    _opened[place] += 1
    try:
        yield client
    finally:
        client.close()
        _opened[place] -= 1
        if not is_server and not _opened[place]:
            _release(place)


def _client(address: str) -> Any:
    """Return a client of a file or a server.

    Raises:
        InputError: if it does not answer.
    """
    from pymilvus import MilvusClient

    token = os.environ.get("MILVUS_TOKEN", "")
    remember(token)
    remember(token.partition(":")[2])
    place = place_of(address)
    why = f"does not answer{by_proxy(place, ('grpc', 'https', 'http'))}"
    options = {}
    if is_file(address):
        why = "cannot be opened; another process may have it open"
        options["grpc_options"] = {"grpc.enable_http_proxy": 0}  # its server is in this process, where no proxy leads
    try:
        return MilvusClient(place, token=token, timeout=CONNECT_SECONDS, **options)
    except Exception as error:
        raise InputError(f"{address} {why} ({one_line(error)})") from error


_opened: Counter[str] = Counter()
"""How many blocks of this process have each place open: one may read what another one writes."""


def _release(place: str) -> None:
    """Stop the server of a file, and forget what pymilvus knows of it.

    Its table of schemas has an entry for each port and name of a collection. The next file may be served at the same
    port, and its rows would be written by the schema of this one.
    """
    from milvus_lite.server_manager import server_manager_instance
    from pymilvus.client.cache import GlobalCache

    server_manager_instance.release_server(place)
    GlobalCache.schema.clear()
    GlobalCache.collection_ts.clear()
