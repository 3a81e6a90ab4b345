"""Text that may be shown: without secrets, and without what acts on a terminal or a runner of CI.

Keys and passwords are taken out of texts in each encoding in which they come back. A host may quote what it was sent:
as it is, in percent encoding, escaped in JSON or HTML, or in the base64 of a header. What is cut or shown goes through
`without_secrets` first, as half a key is one that was printed.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, unquote_plus

STRICT = ("strict", "surrogateescape")
"""Python's names of the ways to treat signs that a stream lacks which end in an error."""


def escaped(text: str) -> str:
    """Return a JSON text in which all characters but line feeds that would act on a terminal are JSON escapes."""

    def escape(match: re.Match[str]) -> str:
        if match[0].isprintable():
            return match[0]
        return json.dumps(match[0])[1:-1]

    return re.sub(r"[^ -~\n]", escape, text)


_RUNNER_COMMANDS = re.compile(
    r"(^\s*:|:(?=:(?:add-(?:mask|matcher|path)|debug|echo|end-?group|error|group|notice|remove-matcher|save-state|"
    r"set-(?:env|output)|stop-commands|warning)(?:\s|::)))(?=:)|#(?=#(?:\[|vso\[|teamcity\[))",
    re.IGNORECASE,
)
"""Where a line of output would be a command for a runner of CI: of GitHub, Azure or TeamCity."""


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    if character.isspace():
        return " "
    return "\N{REPLACEMENT CHARACTER}"


def as_text(name: str) -> str:
    """Return the name of a file as text, in which a byte that is no UTF-8 stands as ``udcXX`` behind a backslash."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def safe(text: str) -> str:
    """Replace what acts on who shows a text: control characters, and commands for the runner of a CI job.

    A document must not move the cursor, colour the terminal, break a page or stop the annotations of a job.
    """
    if not text.isprintable():
        text = "".join(map(_printable, text))
    return _RUNNER_COMMANDS.sub(lambda sign: f"{sign[0]} ", text)


class _Replacing:
    """A stream that shows a question mark for each sign that its encoding lacks."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text."""
        encoding = self._stream.encoding
        return int(self._stream.write(text.encode(encoding, "replace").decode(encoding)))


def printable_on(stream: Any) -> Any:
    """Return what takes any text and writes it to a stream, which may belong to another program."""
    if getattr(stream, "errors", None) in STRICT and getattr(stream, "encoding", None) is not None:
        return _Replacing(stream)
    return stream


_MARK = "..."
"""Stands for a secret."""
_SHORT_SECRET = 8
"""Shorter secrets may be words, such as the ``EMPTY`` that servers without keys are given."""
_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|CONNECTION_STRING|SAS", re.IGNORECASE)
_NAMES_A_FILE = re.compile(r"(FILE|DIR|PATH|HOME|URL|CREDENTIALS)$", re.IGNORECASE)
_PARTS = re.compile(r"(?:AccountKey|SharedAccessSignature|sig|Password|password)=([^;&\s]+)")
"""The secrets inside connection strings and signatures."""
_USER = re.compile(r"//([^/@\s:]*:[^/@\s]+)@")
_REST = r"[\w.~+/=%\\-]{0,1000}+"
"""What may follow the beginning of a key."""
_USER_IN = re.compile(r"://([^\s/@:]+)@")
"""The user of an address that has no password."""
_KEY_IN = re.compile(r"(?:https?|s3a?|gs|gcs|az|abfss?|hf)://([^\s/@:]+)@", re.IGNORECASE)
"""The user of an address of a web server or of a store, some of which take a key for one."""
_PASSWORD_IN = re.compile(r":/{1,2}([^\s/@:]*):((?!\d{1,5}/)\S+)@")
"""The user and the password of an address, also where a path has made one slash of two; no port and what follows it."""
_QUERY_IN = re.compile(r"[?&;]([^\s=&;#]+)=([^\s&;#]+)")
_SECRET_QUERY = re.compile(r"key|token|secret|sig|signature|credential|passw|auth|jwt", re.IGNORECASE)
"""What the names of secrets in queries have."""
_sent: set[str] = set()
_sent_users: set[str] = set()
"""Users with passwords, and short secrets of queries with their names, which are secrets however short they are."""


def remember(secret: str) -> None:
    """Note what is sent as a key or password, so that no text that comes back shows it."""
    if secret:
        _sent.add(secret)


def has_user(address: str) -> bool:
    """Tell whether an address names a user, with a password or without."""
    return bool(_USER_IN.search(address) or _PASSWORD_IN.search(address))


def remember_secrets_in(address: str) -> None:
    """Note the user, the password and the secret parts of the query of what the user gave, of whatever scheme it is."""
    secrets = _KEY_IN.findall(address)
    for user, password in _PASSWORD_IN.findall(address):
        secrets += [f"{user}:{password}", password]
        _sent_users.add(f"{user}:{password}@")
    for secret in secrets:
        remember(secret)
        remember(unquote(secret))
    for name, value in _QUERY_IN.findall(address):
        if _SECRET_QUERY.search(name):
            remember(value)
            remember(unquote_plus(value))
            if len(value) < _SHORT_SECRET:
                _sent_users.add(f"{name}={value}")


def without_secrets(text: str, *, of_host: bool = False) -> str:
    """Return a text with `_MARK` in place of what was sent as a key, and of the secrets of the environment.

    Args:
        text: whole: what was cut before may hold a part of a secret.
        of_host: the text comes from a host, which may quote a short key as well; elsewhere a word is a word.
    """
    pattern = _secrets(of_host=of_host)
    if pattern is None:
        return text
    return pattern.sub(_MARK, text)


def value_without_secrets(value: Any) -> Any:
    """Return a value of JSON whose texts and names have no secrets of `_SHORT_SECRET` or more characters."""
    pattern = _secrets(of_host=False)
    if pattern is None:
        return value
    return _cleaned(value, pattern)


def _cleaned(value: Any, pattern: re.Pattern[str]) -> Any:
    """Return a value of JSON with `_MARK` in place of what the pattern finds in its texts and names."""
    if isinstance(value, str):
        return pattern.sub(_MARK, value)
    if isinstance(value, dict):
        return {_cleaned(key, pattern): _cleaned(item, pattern) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if all(isinstance(item, float) for item in value):  # a vector
            return value
        return [_cleaned(item, pattern) for item in value]
    return value


def _secrets(*, of_host: bool) -> re.Pattern[str] | None:
    """Return what finds the secrets that are known now; None if there are none."""
    long, short = _known()
    if not of_host:
        short = set()
    return _pattern(frozenset(long), frozenset(_sent), frozenset(short))


def _known() -> tuple[set[str], set[str]]:
    """Return the long and the short secrets: of the environment the long ones, and all that was sent."""
    secrets = set(_sent)
    for variable, value in os.environ.items():
        if _VARIABLE.search(variable) and not _NAMES_A_FILE.search(variable):
            secrets |= {value, *_PARTS.findall(value)}
        user = _USER.search(value)
        if user is not None:
            secrets |= {user[1], user[1].partition(":")[2]}
        secrets |= set(_KEY_IN.findall(value))
    long = {secret for secret in secrets if len(secret) >= _SHORT_SECRET}
    return long | _sent_users, _sent - long


@lru_cache(maxsize=8)
def _pattern(long: Iterable[str], sent: Iterable[str], short: Iterable[str]) -> re.Pattern[str] | None:
    """Return what finds secrets in any encoding; None if there are none."""
    forms: list[str] = []
    for secret in sorted(long, key=len, reverse=True):
        forms += _forms(secret)
    for key in sent:
        if (
            len(key) > _SHORT_SECRET
        ):  # who quotes it may have cut it: half of it is told anywhere, less at the end of a text
            half = max(_SHORT_SECRET, (len(key) + 1) // 2)
            forms += [f"{_signs(key[:half])}{_REST}", rf"{_signs(key[:_SHORT_SECRET])}{_REST}\s{{0,9}}\Z"]
    forms += [rf"(?<!\w)(?:{_signs(key)}|{re.escape(_base64(key))}=*)(?!\w)" for key in short]
    if not forms:
        return None
    return re.compile("|".join(forms))


def _forms(secret: str) -> list[str]:
    """Return patterns of a secret: with each sign as it is or escaped, in base64 with others around it, as numbers."""
    raw = secret.encode("utf-8", "surrogateescape")
    forms = [_signs(secret), f"(?i:{raw.hex()})"]
    if not secret.isascii():  # UTF-8 that was read as Latin-1
        forms.append(_signs(raw.decode("latin-1")))
    # Where three bytes begin in a text is not known; its first and last signs belong to the neighbours as well
    for before, cut in ((0, 0), (1, 2), (2, 3)):
        coded = base64.b64encode(bytes(before) + raw).decode("ascii")
        whole = coded[cut : (before + len(raw)) * 8 // 6]
        neighbour = "[A-Za-z0-9+/_-]?"
        forms.append(f"{neighbour if before else ''}{''.join(map(_coded, whole))}{neighbour}(?:=|%3[dD])*")
    return forms


def _base64(secret: str) -> str:
    return base64.b64encode(secret.encode("utf-8", "surrogateescape")).decode("ascii").rstrip("=")


def _coded(sign: str) -> str:
    """Return a pattern of a sign of base64 in both alphabets."""
    return {"+": rf"(?:-|{_signs('+')})", "/": rf"(?:_|{_signs('/')})"}.get(sign, sign)


def _signs(text: str) -> str:
    return "".join(map(_sign, text))


@lru_cache(maxsize=1024)
def _sign(sign: str) -> str:
    """Return a pattern of a sign: itself, or as URLs, JSON, Python and HTML escape it."""
    import html

    units = sign.encode("utf-16-be", "surrogatepass")
    pairs = (units[place : place + 2] for place in range(0, len(units), 2))
    in_json = "".join(rf"\\{{1,8}}u(?i:{pair.hex()})" for pair in pairs)
    in_url = "".join(f"%(?:25){{0,4}}(?i:{byte:02x})" for byte in sign.encode("utf-8", "surrogateescape"))
    number = ord(sign)
    in_html = rf"&#(?:0{{0,6}}{number}|[xX]0{{0,6}}(?i:{number:x}));"
    forms = [rf"\\{{0,8}}{re.escape(sign)}", in_json, in_url, rf"\\{{1,8}}x(?i:{number:02x})", in_html]
    if (named := html.escape(sign)) != sign:
        forms.append(re.escape(named))
    if sign == " ":
        forms += [r"\+", r"\s{1,99}"]
    if sign == "\\":
        forms[0] = r"\\{1,16}"
    return f"(?:{'|'.join(forms)})"
