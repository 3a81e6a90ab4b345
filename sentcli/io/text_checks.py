"""What may be wrong with texts, counted with the first places: broken characters, markup of HTML, repetitions."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

NAMED_PLACES = 10
"""How many places of each kind are named."""
_HIGH = (
    "[\x80-\xbf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013\u2014\u2018-\u201a\u201c-\u201e"
    "\u2020-\u2022\u2026\u2030\u2039\u203a\u20ac\u2122]"
)
"""The characters that latin1 and cp1252 read in the bytes 0x80 to 0xBF, the later bytes of a character in UTF-8."""
_TAGS = (
    "a|abbr|b|blockquote|br|code|div|em|font|h[1-6]|hr|i|img|li|ol|p|pre|script|span|strong|style|sub|sup|table|tbody|td"
    "|th|tr|u|ul"
)
CHECKS: Mapping[str, re.Pattern[str]] = {
    "control_characters": re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"),
    "replacement_characters": re.compile("\ufffd"),
    "mojibake": re.compile(
        f"[ÂÃ]{_HIGH}|[ÄÅ][\x80-\x9f°±‡Ÿž¾¡]|â{_HIGH}{{2}}|ð[Ÿ\x9f]{_HIGH}|ã[€\x80]{_HIGH}|ï¼{_HIGH}"
        f"|ï»¿|ï¿½|(?:[Ã-ß]{_HIGH}){{2}}|(?:[à-é]{_HIGH}{{2}}){{2}}"
    ),
    "html": re.compile(rf"</?(?:{_TAGS})(?:\s[^<>]*)?/?>|&(?:amp|lt|gt|quot|apos|nbsp|#x?\w+);", re.IGNORECASE),
}
"""What is looked for in a text. Mojibake is UTF-8 that was read as latin1 or cp1252: its letters with accents and its
quotation marks, its emoji, and two letters of another script after each other."""
TITLES = {
    "control_characters": "control characters", "replacement_characters": "replacement characters",
    "mojibake": "UTF-8 read as cp1252 (mojibake)", "html": "markup of HTML",
}  # fmt: skip


@dataclass
class Occurrences:
    """How often something was found, and where first."""

    count: int = 0
    first: list[Any] = field(default_factory=list)
    """The first `NAMED_PLACES` places."""

    def add(self, place: Any) -> None:
        """Count a place."""
        self.count += 1
        if len(self.first) < NAMED_PLACES:
            self.first.append(place)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON."""
        return {"count": self.count, "first": self.first}


@dataclass
class TextChecks:
    """The texts in which each of `CHECKS` finds something."""

    occurrences: dict[str, Occurrences] = field(default_factory=lambda: {what: Occurrences() for what in CHECKS})

    def look(self, text: str, place: Any) -> None:
        """Look at a text, which stands at a place."""
        for what, pattern in CHECKS.items():
            if pattern.search(text):
                self.occurrences[what].add(place)


def repeated(keys: Iterable[tuple[Hashable, Any]]) -> Occurrences:
    """Return the places of keys that came before, each with the place of the first."""
    first: dict[Hashable, Any] = {}
    places = Occurrences()
    for key, place in keys:
        if key in first:
            places.add([first[key], place])
        else:
            first[key] = place
    return places
