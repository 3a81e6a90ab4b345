"""Names with a scheme, such as ``s3://bucket/corpus.jsonl``, and what must not be seen of them.

A web address may hold a password, or a signature in its query. They are cut off where the program begins, and only
`remote` asks for the whole address: what has only the public name cannot print or store the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from sentcli.errors import InputError

STORES = ("s3", "gs", "az")
"""The schemes of object stores, which hold directories of `encode`, too."""
SCHEMES = (*STORES, "hf", "https", "http")
COPYING = {"s3": "aws s3 cp --recursive FOLDER {}", "gs": "gcloud storage cp --recursive FOLDER {}"}
"""The commands that copy a folder of this machine to a store, by scheme."""
_SCHEME = re.compile(rf"({'|'.join(SCHEMES)})://", re.IGNORECASE)
_SECRET = re.compile(r"(?<=//)[^/@\s]+@|\?[^\s'\"<>)]*=[^\s'\"<>)]*")
"""The user in front of a host, and a query."""
_VERSION = re.compile(r"\?(versionId|snapshot|generation)=.*", re.IGNORECASE)
"""What stores put behind the name of an object for one of its versions."""
_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CONNECTION_STRING|SAS")

_addresses: dict[str, str] = {}
"""The whole addresses by public name."""
_copies: dict[str, str] = {}
"""The names by the paths of their copies on this machine."""


def is_remote(name: str) -> bool:
    """Tell whether a name has one of SCHEMES."""
    return _SCHEME.match(name) is not None


def scheme_of(name: str) -> str:
    """Return the scheme of a remote name."""
    return name.partition("://")[0].lower()


def scheme_of_path(path: Path) -> str | None:
    """Return the scheme of a remote name that was taken for a path, which has made one slash of two, or None."""
    scheme = re.match(rf"({'|'.join(SCHEMES)}):/", str(path), re.IGNORECASE)
    return scheme[1] if scheme else None


def public_name(name: str) -> str:
    """Return a name without user, password and query; `whole_address` knows them.

    Raises:
        InputError: if the name is broken, or that of an object holds a password, for which there is no use.
    """
    if not is_remote(name):
        return name
    scheme, rest = scheme_of(name), name.partition("://")[2]
    if rest.startswith("/") or not rest:
        raise InputError(f"{scheme}://: a name goes on with a bucket, a host or datasets/owner/name")
    if scheme not in ("http", "https"):
        if ":" in rest.partition("/")[0]:
            raise InputError(f"{scheme}://...: keys and passwords do not stand in a name; they are set in variables")
        if version := _VERSION.search(rest):
            raise InputError(
                f"{scheme}://{rest}: {version[0]!r} asks for a version, and the current one of an object is read: copy "
                "that version to a name of its own first"
            )
        return f"{scheme}://{rest}"
    try:
        parts = urlsplit(name)
    except ValueError as error:
        raise InputError(f"{scheme}://...: no web address ({error})") from None
    public = urlunsplit((scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    if public != name:
        _addresses[public] = name
    return public


def public_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a verb by name with public names, so that no output can hold a password of an address.

    Raises:
        InputError: if there is a name with a scheme where there can only be a path, or two addresses have the same
            public name, so that they could not be told apart.
    """
    public: dict[str, str] = {}
    for argument, value in values.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, Path) and (scheme := scheme_of_path(item)):
                option = f"--{argument.replace('_', '-')}"
                copy = COPYING.get(scheme.lower(), "").format(name := str(item).replace(":/", "://", 1))
                how = f": {copy}" if copy and argument == "output" else ""
                raise InputError(f"{option} takes a path on this machine, which {name} is not; copy the files{how}")
            if isinstance(item, str) and is_remote(item):
                public[item] = public_name(item)
    names = list(public.values())
    if twin := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{twin}: two addresses differ only in their queries or users; download one of them first")

    def shown(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [shown(item) for item in value]
        return public.get(value, value) if isinstance(value, str) else value

    return {argument: shown(value) for argument, value in values.items()} if public else dict(values)


def whole_address(name: str) -> str:
    """Return the address of a public name, with user, password and query."""
    return _addresses.get(name, name)


def without_secrets(text: str) -> str:
    """Return a message of a library without users, queries and the secrets in the variables of the environment."""
    for variable, value in os.environ.items():
        if _SECRET_VARIABLE.search(variable) and len(value) >= 8:
            text = text.replace(value, "...")
    return _SECRET.sub("", text)


def remember_copy(path: Path, name: str) -> None:
    """Note that a path holds what a name stands for, for `in_names`."""
    _copies[str(path)] = name


def in_names(message: str) -> str:
    """Return a message with the names of files and folders instead of the paths of their copies."""
    for path, name in _copies.items():
        message = message.replace(path, name)
    return message
