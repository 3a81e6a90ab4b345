"""Where bytes lie, on this machine, in an object store, on the hub or on the web, and what is said of it.

A web address may hold a password, or a signature in its query. Names of verbs are made an `Address` where the program
begins; as text it is the public part alone, so that no output can hold the rest, and only `stores` asks for it. Each
error that a store or a host gives becomes one short message, without secrets.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import ALIASES, SCHEMES, scheme_of_path
from sentcli.printable import remember_secrets_in, without_secrets

OBJECT_STORES = ("s3", "gs", "az")
"""The schemes of object stores, which hold directories of `encode`, too."""
STORE_SCHEMES = ", ".join(f"{scheme}://" for scheme in OBJECT_STORES)
"""The schemes of object stores, as messages name them."""
WEB = ("http", "https")
"""The schemes of web addresses."""
COPYING = {"s3": "aws s3 cp --recursive FOLDER {}", "gs": "gcloud storage cp --recursive FOLDER {}"}
"""The commands that copy a folder of this machine to a store, by scheme."""
_SCHEME = re.compile(rf"({'|'.join((*SCHEMES, *ALIASES))})://", re.IGNORECASE)
_USER = re.compile(r"(?<=//)[^/@\s]+@")
"""The user in front of a host."""
_QUERY = re.compile(r"\?[^\s'\"<>)]*")
"""A pattern of the part of an address that may be a query; one with an equals sign is."""
_VERSION = re.compile(r"\?(versionId|snapshot|generation)=.*", re.IGNORECASE)
"""The endings by which stores name one version of an object."""

Doing = Literal["read", "write"]
STORE_LIBRARIES = (
    "adlfs", "aiobotocore", "aiohttp", "azure", "botocore", "fsspec", "gcsfs", "google", "httpcore", "httpx", "httpx2",
    "huggingface_hub", "requests", "s3fs", "urllib3",
)  # fmt: skip
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, give them (FSSPEC_S3_ANON=1 reads without)",
    "gs": "'gcloud auth application-default login' or GOOGLE_APPLICATION_CREDENTIALS gives them",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_CONNECTION_STRING, give them",
    "hf": "'hf auth login' or HF_TOKEN gives them",
    "https": "user and password stand in the address, or in ~/.netrc",
}
_SILENT = (
    "ClientConnectorError", "ClientConnectorDNSError", "ClientConnectorCertificateError", "ConnectTimeoutError",
    "ConnectionTimeoutError", "EndpointConnectionError", "ConnectError", "ConnectTimeout", "SSLError",
    "ProxyConnectionError", "ServiceRequestError", "ClientConnectorSSLError",
)  # fmt: skip
"""A connection could not be made: waiting longer rarely helps."""
_BROKEN = (
    "ClientOSError", "ClientPayloadError", "ConnectionClosedError", "FSTimeoutError", "IncompleteRead",
    "IncompleteReadError", "ReadTimeoutError", "ResponseStreamingError", "ServerDisconnectedError",
    "ServerTimeoutError", "SocketTimeoutError", "TimeoutError", "ReadTimeout", "ReadError", "RemoteProtocolError",
    "ConnectionResetError", "ServiceResponseError", "FlexibleChecksumError", "HTTPClientError",
)  # fmt: skip
"""A connection broke off or was too slow: the next attempt may work."""
_GARBAGE = (
    "BadHttpMessage", "BadHttpMethod", "BadStatusLine", "ContentLengthError", "InvalidHeader", "LineTooLong",
    "InvalidURLError", "TransferEncodingError", "ContentEncodingError",
)  # fmt: skip
"""The errors of libraries for an answer that cannot be read."""
_REFUSED = ("ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "RequestTimeTooSkewed")
_5XX = range(500, 600)


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


def by_proxy(address: str, schemes: Sequence[str]) -> str:
    """Return by which proxy an address is asked, in brackets for the end of a message; empty if by none.

    Args:
        address: of a host.
        schemes: whose variables, such as ``http_proxy``, lead there, the first one that is set.
    """
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    host = urlsplit(address).hostname or ""
    names = [scheme for scheme in schemes if scheme in proxies]
    if not names or proxy_bypass(host):
        return ""
    return f" (by the proxy of the variable {names[0]}_proxy; no_proxy={host} goes past it)"


def path_behind(address: str, scheme: str) -> Path:
    """Return the absolute path of a place behind a scheme, such as ``lance:~/kb``, where no shell has put the home.

    Raises:
        InputError: if nobody has the home.
    """
    try:
        return Path(address.removeprefix(scheme)).expanduser().absolute()
    except RuntimeError as error:
        raise InputError(f"{address}: there is no such home") from error


class Address(str):
    """A name with a scheme: as text its public part, without user, password and query.

    Copies that are pickled have the public part alone.
    """

    full_url: str
    """The address with user, password and query."""

    def __new__(cls, name: str) -> Address:
        """Cut a name to its public part.

        Raises:
            InputError: if the name is broken, or that of an object holds a password, for which there is no use.
        """
        if isinstance(name, Address):
            return name
        scheme = scheme_of(name)
        rest = name.partition("://")[2]
        if rest.startswith("/") or not rest:
            raise InputError(f"{scheme}://: a name goes on with a bucket, a host or datasets/owner/name")
        if scheme in WEB:
            public = _without_secrets(name, scheme)
            whole = name
        else:
            _check_object(scheme, rest)
            public = whole = f"{scheme}://{rest}"
        address = super().__new__(cls, public)
        address.full_url = whole
        return address

    def __str__(self) -> str:
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str.__str__(self),)


def _without_secrets(name: str, scheme: str) -> str:
    """Return a web address without its user and query.

    These are noted, so that nothing that comes back from a host shows them.

    Raises:
        InputError: if it is no web address.
    """
    try:
        parts = urlsplit(name)
    except ValueError as error:
        raise InputError(f"{scheme}://...: no web address ({error})") from None
    host = parts.netloc.rpartition("@")[2]
    remember_secrets_in(name)
    return urlunsplit((scheme, host, parts.path, "", parts.fragment))


def _check_object(scheme: str, name: str) -> None:
    """Refuse the name of an object in a store that holds an account, a password or a version."""
    bucket, _, path = name.partition("/")
    if scheme == "az" and "@" in bucket:
        raise InputError(
            f"{scheme}://{name}: the account comes from AZURE_STORAGE_ACCOUNT_NAME; the name is "
            f"az://{bucket.partition('@')[0]}/{path}"
        )
    if ":" in bucket:
        raise InputError(f"{scheme}://...: keys and passwords do not stand in a name; they are set in variables")
    if version := _VERSION.search(name):
        raise InputError(
            f"{scheme}://{name}: {version[0]!r} asks for a version, and the current one of an object is read: copy "
            "that version to a name of its own first"
        )


def whole_name(name: str) -> str:
    """Return a name with user, password and query, if it is a web address that has them."""
    return name.full_url if isinstance(name, Address) else name


def is_remote(name: str) -> bool:
    """Tell whether a name has one of SCHEMES or ALIASES."""
    return _SCHEME.match(name) is not None


def scheme_of(name: str) -> str:
    """Return the scheme of a remote name, one of SCHEMES."""
    scheme = name.partition("://")[0].lower()
    return ALIASES.get(scheme, scheme)


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
        if isinstance(value, Path):
            _check_path(argument, value)
        if not isinstance(value, str) or not is_remote(value):
            return value
        if value not in addresses:
            addresses[value] = Address(value)
        return addresses[value]

    arguments = {argument: public(argument, value) for argument, value in values.items()}
    names = Counter(addresses.values())
    for name, count in names.items():
        if count > 1:
            raise InputError(f"{name}: two addresses differ only in their queries or users; download one of them first")
    return arguments if addresses else dict(values)


def _check_path(argument: str, path: Path) -> None:
    """Refuse a name with a scheme where an argument takes a path on this machine."""
    scheme = scheme_of_path(path)
    if scheme is None:
        return
    name = str(path).replace(":/", "://", 1)
    how = ""
    if argument == "output" and scheme in COPYING:
        how = f": {COPYING[scheme].format(name)}"
    option = f"--{argument.replace('_', '-')}"
    raise InputError(f"{option} takes a path on this machine, which {name} is not; copy the files{how}")


def without_address_secrets(text: str) -> str:
    """Return a message of a library without secrets, and without the users and queries of addresses."""
    plain = _USER.sub("", without_secrets(text, of_host=True))
    return _QUERY.sub(lambda query: "" if "=" in query[0] else query[0], plain)


def of_library(error: BaseException) -> bool:
    """Tell whether an error comes from the store or its library, and is no defect of sentcli."""
    return (
        isinstance(error, OSError | ValueError | NotImplementedError)
        or type(error).__module__.partition(".")[0] in STORE_LIBRARIES
    )


def is_temporary(error: BaseException, *, hopeful: bool) -> bool:
    """Tell whether the same request may work a moment later.

    Args:
        error: of a library.
        hopeful: whether to wait again for a host that was too slow; the libraries of stores have done that already.
    """
    kinds = _classes(error)
    if not hopeful and any("Timeout" in kind for kind in kinds):
        return False
    if _first_of(_SILENT, kinds):
        return False
    return bool(_first_of(_BROKEN, kinds)) or status_of(error) in (408, 425, 429, *_5XX)


def store_error(error: BaseException, name: str, doing: Doing) -> SentcliError:
    """Return the error that users see: bad input (exit code 2), or a host that fails (1).

    Args:
        error: of a library.
        name: the public name of the file or folder.
        doing: what was done with it.
    """
    status = status_of(error)
    code = _code(error)
    kinds = _classes(error)
    if code in _REFUSED:
        return InputError(f"{name}: the store refuses the credentials ({code})")
    if status == 401 or any("Credential" in kind for kind in kinds):
        how = CREDENTIALS.get(scheme_of(name), CREDENTIALS["https"])
        return InputError(f"{name}: there are no credentials for it; {how}")
    if status == 403 or "PermissionError" in kinds:
        problem = f"no right to {doing} {name} with the credentials of this environment"
        if code or status:
            problem += f" ({code or status})"
        return InputError(problem)
    if code == "NoSuchBucket" or "bucket does not exist" in str(error):
        return InputError(f"{name}: there is no bucket {urlsplit(name).netloc!r}")
    failure = _failure(error, name, kinds, status)
    if failure is not None:
        return SentcliError(failure)
    return _last(error, name, doing)


def _failure(error: BaseException, name: str, kinds: list[str], status: int | None) -> str | None:
    """Return in what way a host failed, given the classes of an error and its causes, or None if it did not."""
    is_web = scheme_of(name) in WEB
    host = urlsplit(name).hostname if is_web else f"the store of {name}"
    if silent := _first_of(_SILENT, kinds):
        return f"{host} does not answer: no connection could be made ({silent})"
    if broken := _first_of(_BROKEN, kinds):
        return f"{host} is too slow or breaks off ({broken}), again after several attempts"
    if status in _5XX or status == 429:
        return f"{host} answers {status}, again after several attempts"
    if garbage := _first_of(_GARBAGE, kinds):
        return f"{host} gives no valid answer of HTTP ({garbage})"
    if is_web and status not in (None, 404, 410):
        return f"{host} answers {status} {_reason(error)}".rstrip()
    return None


def _last(error: BaseException, name: str, doing: Doing) -> SentcliError:
    """Return the error for what is none of the known failures of a host."""
    kinds = _classes(error)
    if status_of(error) in (404, 410) or "FileNotFoundError" in kinds:
        return InputError(f"no such file: {name}")
    words = " ".join(str(error).split())
    if scheme_of(name) in WEB:  # of the web, the text may hold the whole address
        words = ""
    reason = without_address_secrets(words)[:300] or type(error).__name__
    done = "read" if doing == "read" else "written"
    problem = f"{name} cannot be {done}: {reason}"
    if isinstance(error, ValueError | NotImplementedError) or "ParamValidationError" in kinds:
        return InputError(problem)
    return SentcliError(problem)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and the errors that it was raised from, each once: a library may raise them in a circle."""
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and all(link is not known for known in seen):
        yield link
        seen.append(link)
        link = link.__cause__ or link.__context__


def _classes(error: BaseException) -> list[str]:
    """Return the names of the classes of an error and of what it was raised from."""
    return [type(link).__name__ for link in causes(error)]


def _first_of(names: Sequence[str], classes: Sequence[str]) -> str | None:
    """Return the first of an error's classes that has one of some names, or None."""
    return next((name for name in classes if name in names), None)


def status_of(error: BaseException) -> int | None:
    """Return the status of the HTTP response that an error tells of."""
    for link in causes(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):  # botocore
            return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        for holder in (link, response):
            for attribute in ("status", "status_code", "code"):
                status = getattr(holder, attribute, None)
                if isinstance(status, int):
                    return status
    return None


def _reason(error: BaseException) -> str:
    """Return the words of a web server behind its status."""
    for link in causes(error):
        message = getattr(link, "message", None)
        if isinstance(message, str):
            return without_address_secrets(" ".join(message.split()))[:100]
    return ""


def _code(error: BaseException) -> str | None:
    """Return the code of an error of S3, such as NoSuchBucket."""
    for link in causes(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):
            code = response.get("Error", {}).get("Code")
            return code if isinstance(code, str) and not code.isdigit() else None
    return None
