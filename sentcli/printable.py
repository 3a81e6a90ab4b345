"""Text that may be shown: without what acts on a terminal or a runner, on streams that lack some of its signs."""

from __future__ import annotations

import json
import re
from typing import Any

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
