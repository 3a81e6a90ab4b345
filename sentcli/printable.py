"""Text from files, made safe to show."""

from __future__ import annotations


def safe(text: str) -> str:
    """Replace control characters: a document must not move the cursor, colour the terminal or break a page."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)
