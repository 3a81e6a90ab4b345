"""Where bytes lie: on this machine, in an object store, on the hub or on the web, and under which name they are shown.

A web address may hold a password, or a signature in its query. Names of verbs are made an `Address` where the program
begins; as text it is the public part alone, so that no output can hold the rest, and only `stores` asks for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from sentcli.errors import InputError
from sentcli.io.atomic import SCHEMES, scheme_of_path

STORES = ("s3", "gs", "az")
"""The schemes of object stores, which hold directories of `encode`, too."""
COPYING = {"s3": "aws s3 cp --recursive FOLDER {}", "gs": "gcloud storage cp --recursive FOLDER {}"}
"""The commands that copy a folder of this machine to a store, by scheme."""
_SCHEME = re.compile(rf"({'|'.join(SCHEMES)})://", re.IGNORECASE)
_SECRET = re.compile(r"(?<=//)[^/@\s]+@|\?[^\s'\"<>)]*=[^\s'\"<>)]*")
"""The user in front of a host, and a query."""
_VERSION = re.compile(r"\?(versionId|snapshot|generation)=.*", re.IGNORECASE)
"""What stores put behind the name of an object for one of its versions."""
_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CONNECTION_STRING|SAS")


@dataclass(frozen=True)
class Place:
    """Where the bytes of a file or folder are; as text it is its name, which every message shows."""

    name: str
    """As the user knows it, without password and query."""
    path: Path
    """The file or folder on this machine: itself, or a copy of what is elsewhere."""

    @classmethod
    def of(cls, path: Path | Place) -> Place:
        """Return the place of a path, whose name is the path itself."""
        return path if isinstance(path, Place) else Place(str(path), path)

    def __str__(self) -> str:
        return self.name


class Address(str):
    """A name with a scheme: as text its public part, without user, password and query.

    Copies that are pickled have the public part alone.
    """

    whole: str
    """The address with user, password and query."""

    def __new__(cls, name: str) -> Address:
        """Cut a name to its public part.

        Raises:
            InputError: if the name is broken, or that of an object holds a password, for which there is no use.
        """
        if isinstance(name, Address):
            return name
        scheme, rest = scheme_of(name), name.partition("://")[2]
        if rest.startswith("/") or not rest:
            raise InputError(f"{scheme}://: a name goes on with a bucket, a host or datasets/owner/name")
        if scheme in ("http", "https"):
            try:
                parts = urlsplit(name)
            except ValueError as error:
                raise InputError(f"{scheme}://...: no web address ({error})") from None
            public = urlunsplit((scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
        elif ":" in rest.partition("/")[0]:
            raise InputError(f"{scheme}://...: keys and passwords do not stand in a name; they are set in variables")
        elif version := _VERSION.search(rest):
            raise InputError(
                f"{scheme}://{rest}: {version[0]!r} asks for a version, and the current one of an object is read: copy "
                "that version to a name of its own first"
            )
        else:
            public = name = f"{scheme}://{rest}"
        address = super().__new__(cls, public)
        address.whole = name
        return address

    def __str__(self) -> str:
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str.__str__(self),)


def is_remote(name: str) -> bool:
    """Tell whether a name has one of SCHEMES."""
    return _SCHEME.match(name) is not None


def scheme_of(name: str) -> str:
    """Return the scheme of a remote name."""
    return name.partition("://")[0].lower()


def public_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a verb with an `Address` for each name with a scheme.

    Raises:
        InputError: if there is a name with a scheme where there can only be a path, or two addresses have the same
            public name, so that they could not be told apart.
    """
    addresses: dict[str, Address] = {}

    def public(argument: str, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [public(argument, item) for item in value]
        if isinstance(value, Path) and (scheme := scheme_of_path(value)):
            copy = COPYING.get(scheme, "").format(name := str(value).replace(":/", "://", 1))
            how = f": {copy}" if copy and argument == "output" else ""
            option = f"--{argument.replace('_', '-')}"
            raise InputError(f"{option} takes a path on this machine, which {name} is not; copy the files{how}")
        if not isinstance(value, str) or not is_remote(value):
            return value
        return addresses.setdefault(value, Address(value))

    arguments = {argument: public(argument, value) for argument, value in values.items()}
    names = list(addresses.values())
    if twin := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{twin}: two addresses differ only in their queries or users; download one of them first")
    return arguments if addresses else dict(values)


def without_secrets(text: str) -> str:
    """Return a message of a library without users, queries and the secrets in the variables of the environment."""
    for variable, value in os.environ.items():
        if _SECRET_VARIABLE.search(variable) and len(value) >= 8:
            text = text.replace(value, "...")
    return _SECRET.sub("", text)
