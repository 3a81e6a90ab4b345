"""The sections of a Markdown file, with their headings, anchors and links."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from sentcli.io.pages import front_matter, headings_among, markdown_tokens, opens_heading, plain_words
from sentcli.search.words import MARKS

PageAnchor: TypeAlias = tuple[str, str]
"""A page of a folder and an anchor on it, which is empty for the page."""


def link_target(page: str, address: str) -> PageAnchor | None:
    """Return page and anchor that a link on a page leads to, or None if it is broken or leads to another site."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    if parts.scheme or parts.netloc:
        return None
    if parts.path:
        folder = posixpath.dirname(page)
        page = posixpath.normpath(posixpath.join(folder, unquote(parts.path)))
    return page, unquote(parts.fragment)


def markdown_sections(text: str, name: str) -> Iterator[tuple[str, str, str, list[tuple[str, str]]]]:
    """Yield heading, anchor, text and links (words, address) of each section of a Markdown file.

    The anchor is the one that GitHub gives; the part before the first heading has none, and has the title of the front
    matter as its heading.

    Args:
        text: of the file.
        name: of the file, for errors.

    Raises:
        DataError: as for `front_matter`.
    """
    stated, text = front_matter(text, name)
    title = ""
    if isinstance(stated.get("title"), str):
        title = stated["title"].strip()
    tokens = markdown_tokens(text)
    links: list[list[tuple[str, str]]] = [[]]
    for token in tokens:
        if opens_heading(token):
            links.append([])
        links[-1] += _links(token.children or [])
    found = headings_among(tokens, text)
    borders = [*map(attrgetter("start"), found), len(text)]
    yield title, "", text[: borders[0]].strip(), links[0]
    anchors = {""}
    repeated: Counter[str] = Counter()
    for heading, end, links_there in zip(found, borders[1:], links[1:], strict=True):
        name = re.sub(rf"[^\w{MARKS}\- ]", "", heading.words.lower()).replace(" ", "-")
        anchor = name
        while anchor in anchors:  # all smaller numbers were taken by headings before
            repeated[name] += 1
            anchor = f"{name}-{repeated[name]}"
        anchors.add(anchor)
        yield heading.words, anchor, text[heading.end : end].strip(), links_there


def _links(tokens: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield words and address of each link in a line."""
    opened = None
    start = 0
    for place, token in enumerate(tokens):
        if token.type == "link_open":
            opened = token
            start = place + 1
        elif token.type == "link_close" and opened is not None:
            words = plain_words(tokens[start:place])
            address = opened.attrs.get("href", "")
            yield words, str(address)
