"""One short message of each error that a store or a host gives, without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

from sentcli.errors import InputError, SentcliError
from sentcli.io.places import scheme_of, without_secrets

Doing = Literal["read", "write"]
LIBRARIES = (
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
"""What was sent is no answer that could be read."""
_REFUSED = ("ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "RequestTimeTooSkewed")


def of_library(error: BaseException) -> bool:
    """Tell whether an error comes from the store or its library, and is no defect of sentcli."""
    return (
        isinstance(error, OSError | ValueError | NotImplementedError)
        or type(error).__module__.partition(".")[0] in LIBRARIES
    )


def passing(error: BaseException, *, hopeful: bool) -> bool:
    """Tell whether the same request may work a moment later.

    Args:
        error: of a library.
        hopeful: whether to wait again for a host that was too slow; the libraries of stores have done that already.
    """
    kinds = {type(link).__name__ for link in _chain(error)}
    if not hopeful and any("Timeout" in kind for kind in kinds):
        return False
    return not kinds & {*_SILENT} and (bool(kinds & {*_BROKEN}) or (_status(error) or 0) in (408, 425, 429, *_5XX))


_5XX = range(500, 600)


def explained(error: BaseException, name: str, doing: Doing) -> SentcliError:
    """Return the error that users see: bad input (exit code 2), or a host that fails (1).

    Args:
        error: of a library.
        name: the public name of the file or folder.
        doing: what was done with it.
    """
    status, code = _status(error), _code(error)
    kinds = [type(link).__name__ for link in _chain(error)]
    scheme = scheme_of(name)
    host = urlsplit(name).hostname if scheme in ("http", "https") else f"the store of {name}"
    how = CREDENTIALS.get(scheme, CREDENTIALS["https"])
    with_code = f" ({code or status})" if code or status else ""
    if code in _REFUSED:
        return InputError(f"{name}: the store refuses the credentials ({code})")
    if status == 401 or any("Credential" in kind for kind in kinds):
        return InputError(f"{name}: there are no credentials for it; {how}")
    if status == 403 or "PermissionError" in kinds:
        return InputError(f"no right to {doing} {name} with the credentials of this environment{with_code}")
    if code == "NoSuchBucket" or "bucket does not exist" in str(error):
        return InputError(f"{name}: there is no bucket {urlsplit(name).netloc!r}")
    if failed := [kind for kind in kinds if kind in _SILENT]:
        return SentcliError(f"{host} does not answer: no connection could be made ({failed[0]})")
    if failed := [kind for kind in kinds if kind in _BROKEN]:
        return SentcliError(f"{host} is too slow or breaks off ({failed[0]}), again after several attempts")
    if status in _5XX or status == 429:
        return SentcliError(f"{host} answers {status}, again after several attempts")
    if failed := [kind for kind in kinds if kind in _GARBAGE]:
        return SentcliError(f"{host} gives no valid answer of HTTP ({failed[0]})")
    if scheme in ("http", "https") and status not in (None, 404, 410):
        return SentcliError(f"{host} answers {status} {_reason(error)}".rstrip())
    return _last(error, name, doing)


def _last(error: BaseException, name: str, doing: Doing) -> SentcliError:
    """Return the error for what is none of the known failures of a host."""
    kinds, scheme = [type(link).__name__ for link in _chain(error)], scheme_of(name)
    if _status(error) in (404, 410) or "FileNotFoundError" in kinds:
        return InputError(f"no such file: {name}")
    in_own_words = scheme not in ("http", "https")  # of the web, the text may hold the whole address
    text = without_secrets(" ".join(str(error).split()))[:300] if in_own_words else ""
    bad_name = isinstance(error, ValueError | NotImplementedError) or "ParamValidationError" in kinds
    kind = InputError if bad_name else SentcliError
    return kind(f"{name} cannot be {'read' if doing == 'read' else 'written'}: {text or type(error).__name__}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and the errors that it was raised from."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _status(error: BaseException) -> int | None:
    """Return the status of the HTTP response that an error tells of."""
    for link in _chain(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):  # botocore
            return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        for holder in (link, response):
            for attribute in ("status", "status_code", "code"):
                if isinstance(status := getattr(holder, attribute, None), int):
                    return status
    return None


def _reason(error: BaseException) -> str:
    """Return the words of a web server behind its status."""
    messages = (getattr(link, "message", None) for link in _chain(error))
    words = next((message for message in messages if isinstance(message, str)), "")
    return without_secrets(" ".join(words.split()))[:100]


def _code(error: BaseException) -> str | None:
    """Return the code of an error of S3, such as NoSuchBucket."""
    for link in _chain(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):
            code = response.get("Error", {}).get("Code")
            return code if isinstance(code, str) and not code.isdigit() else None
    return None
