"""LanceDB: a folder or a bucket with tables, by an address; its exceptions end here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sentcli.errors import DataError, InputError, SentcliError, library_errors, one_line, required
from sentcli.io.atomic import WORDS_OF_NO_ROOM, NoRoomError, require_room, room_explained
from sentcli.io.places import CREDENTIALS, path_behind
from sentcli.printable import has_user
from sentcli.stores.record import no_collection

SCHEME = "lance:"
NEXT = "_sentcli_next"
"""The end of the name of the table in which rows wait until all are there."""
TABLE = "corpus"
"""The table that is written if no other is named."""
STORES = ("s3", "gs", "az", "abfss")
"""The schemes of stores that LanceDB writes into."""
ROOM_ADVICE = "make room, then the same command writes what is missing"


@contextmanager
def lance_errors(title: str) -> Iterator[None]:
    """Turn errors of LanceDB inside the block into one message that names what was read.

    Raises:
        DataError: if it is damaged.
        InputError: if a newer LanceDB wrote it.
    """
    with library_errors(lambda why: _unreadable(title, why)), _translated(title):
        yield


@contextmanager
def writing(title: str) -> Iterator[None]:
    """Turn errors of LanceDB inside the block into one message that names what was written.

    Raises:
        NoRoomError: if the disk is full.
        SentcliError: whatever else LanceDB says.
    """
    with library_errors(lambda why: _unwritable(title, why)), room_explained(title, ROOM_ADVICE), _translated(title):
        yield


@contextmanager
def _translated(title: str) -> Iterator[None]:
    """Raise one error for a panic of Rust, which is no Exception, and for what a store refuses or does not answer."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise InputError(f"{title}: LanceDB has failed: {one_line(error)}") from error
        if (refusal := _refused(title, error)) is not None:
            raise refusal from error
        raise


def _refused(title: str, error: BaseException) -> InputError | None:
    """Return the error of a store, of which LanceDB's words hold the answer somewhere; None for another one."""
    if is_folder(title) or isinstance(error, SentcliError):
        return None
    words = str(error)
    answer = re.search(r"<Code>(\w+)</Code>", words) or re.search(r"status(?: code)?: ([45]\d\d)", words)
    problem = "the store does not answer"
    if answer is not None and answer[1] != "NoSuchKey":
        problem = f"the store refuses ({answer[1]})"
    elif answer is not None or re.search(SILENT, words, re.IGNORECASE) is None:
        return None
    scheme = place_of(title).partition("://")[0]
    how = CREDENTIALS.get(scheme, CREDENTIALS["az"])
    return InputError(f"{title}: {problem}; look at the address and the credentials: {how}")


SILENT = "RetryError|error sending request|timed out|dns error|connection (refused|reset|closed)"
"""What LanceDB says of a store that cannot be reached."""


def _unwritable(title: str, why: str) -> SentcliError:
    """Return the error of what LanceDB could not write; of a full disk its words have the number alone."""
    if WORDS_OF_NO_ROOM.search(why):
        return NoRoomError(f"{title}: No space left on device; {ROOM_ADVICE}")
    if _is_newer(why):
        return _unreadable(title, why)
    return SentcliError(f"{title}: LanceDB says: {_own_words(why)}")


def _own_words(why: str) -> str:
    """Return what LanceDB says without the place in its source."""
    return re.sub(r",? \S+\.rs:\d+:\d+", "", why)


def _unreadable(title: str, why: str) -> InputError:
    """Return the error of a table that LanceDB cannot read."""
    words = _own_words(why)
    if _is_newer(words):
        return InputError(f"{title}: a newer LanceDB wrote it ({words}); pip install -U lancedb reads it")
    advice = "write it again with sentcli index --overwrite, or copy it again"
    return DataError(title, f"LanceDB cannot read it ({words}); {advice}")


def _is_newer(why: str) -> bool:
    """Tell by the words of LanceDB whether a table has what only later releases know."""
    return re.search("please upgrade|newer version|feature flag", why, re.IGNORECASE) is not None


def place_of(address: str) -> str:
    """Return the absolute path or the store of an address such as ``lance:reviews`` or ``lance:s3://team/reviews``.

    Raises:
        InputError: if there is none, or LanceDB does not write into such a store.
    """
    place = address.removeprefix(SCHEME)
    scheme, separator, _ = place.partition("://")
    if not place:
        raise InputError(f"{address}: give a folder, as lance:reviews, or a bucket, as lance:s3://team/reviews")
    if separator and scheme not in STORES:
        raise InputError(f"{address}: LanceDB keeps tables in a folder or in {', '.join(STORES)}, not in {scheme}")
    if has_user(place) and scheme != "abfss":
        raise InputError("an address with a password would stand in logs: give it in the variables of the store")
    return place if separator else str(path_behind(address, SCHEME))


def is_folder(address: str) -> bool:
    """Whether an address is a folder of this machine."""
    return "://" not in address


def require_room_in(address: str, size: int) -> None:
    """Check that the disk of a folder has room for so many bytes; what a store has is not known.

    Raises:
        NoRoomError: if it has less.
    """
    if is_folder(address):
        require_room(Path(place_of(address)), size, address)


def library() -> Any:
    """Return the module lancedb, which says on standard error what is wrong and nothing else.

    Raises:
        MissingExtraError: if it is not installed.
    """
    os.environ.setdefault("LANCEDB_LOG", "error")  # read when it is imported
    return required("lancedb", "lancedb", "lance", "LanceDB")


def connect(address: str, *, to_write: bool = False) -> Any:
    """Return a database of LanceDB.

    Args:
        address: ``lance:`` and a folder or a store, whose credentials the environment has.
        to_write: make a folder that is missing.

    Raises:
        InputError: if there is no such place.
        MissingExtraError: if lancedb is not installed.
    """
    place = place_of(address)
    lancedb = library()
    if not is_folder(address):
        with lance_errors(address):
            return lancedb.connect(place, storage_options=_store_options())
    folder = Path(place)
    if (folder / "_versions").is_dir():
        hint = f"{SCHEME}{folder.parent} --collection {folder.stem}"
        raise InputError(f"{address} is a table of LanceDB: give the folder that it stands in, {hint}")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{address}: {place} is a file; give a folder")
    if not to_write and not folder.exists():
        raise InputError(f"no such folder: {place}; sentcli index CORPUS --to {address} makes it")
    with writing(address):
        return lancedb.connect(folder)


def _store_options() -> dict[str, str]:
    """Return where the store is, as other libraries find it in the environment; LanceDB reads the rest itself."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint is None:
        return {}
    options = {"aws_endpoint": endpoint}
    if endpoint.startswith("http:"):
        options["allow_http"] = "true"
    return options


def table_names(database: Any, address: str) -> list[str]:
    """Return the names of all tables but those in which rows wait."""
    with lance_errors(address):
        names = all_tables(database)
    return sorted(name for name in names if not name.endswith(NEXT))


def all_tables(database: Any) -> list[str]:
    """Return the names of all tables."""
    names: list[str] = []
    page = None
    while True:
        answer = database.list_tables(page_token=page)
        names += answer.tables
        page = answer.page_token
        if not page:
            return names


def chosen_table(database: Any, address: str, name: str | None) -> str:
    """Return the name of the table to read: the one that was named, or the only one.

    Raises:
        InputError: if there is none of that name, or several and none is named.
    """
    names = table_names(database, address)
    if name is not None:
        if name in names:
            return name
        raise no_collection(address, name, names)
    if len(names) == 1:
        return names[0]
    if not names:
        raise InputError(f"{address} has no collection; sentcli index CORPUS --to {address} makes one")
    raise InputError(f"{address} has {', '.join(names)}: name one with --collection")


def opened_table(database: Any, address: str, name: str) -> Any:
    """Return a table of LanceDB.

    Raises:
        DataError: if it is damaged, or has a pipe or a device among its files, for whose bytes LanceDB would wait.
    """
    title = f"{address} {name}"
    if is_folder(address):
        for folder, _, _ in os.walk(Path(place_of(address), f"{name}.lance")):
            for entry in os.scandir(folder):
                if not entry.is_file() and not entry.is_dir():
                    raise DataError(title, f"{entry.path} is no regular file; remove it, or copy the table again")
    with lance_errors(title):
        return database.open_table(name)
