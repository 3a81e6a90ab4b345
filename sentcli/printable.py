"""Text from files, made safe to show."""

from __future__ import annotations

import json
import re


def escaped(text: str) -> str:
    """Return a JSON text in which all characters but line feeds that would act on a terminal are JSON escapes."""
    return re.sub(r"[^ -~\n]", lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)


def safe(text: str) -> str:
    """Replace control characters: a document must not move the cursor, colour the terminal or break a page."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)
