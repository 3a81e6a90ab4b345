"""The sections of a Markdown file, with their headings, anchors and links."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from sentcli.search.words import MARKS

PageAnchor: TypeAlias = tuple[str, str]
"""A page of a folder and an anchor on it, which is empty for the page."""
FRONT_MATTER = re.compile(r"---\n(.{,65536}?)\n---(\n|$)", re.DOTALL)
"""YAML at the start of a Markdown file; a longer one is text, since YAML is slow with long values."""


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


def sections(text: str) -> Iterator[tuple[str, str, str, list[tuple[str, str]]]]:
    """Yield heading, anchor, text and links (words, address) of each section of a Markdown file.

    The anchor is the one that GitHub gives; the part before the first heading has none, and has the title of the front
    matter as its heading.
    """
    from markdown_it import MarkdownIt

    heading, text = _front_matter(text)
    lines = text.split("\n")
    anchor = ""
    anchors = {anchor}
    repeated: Counter[str] = Counter()
    start = 0
    links: list[tuple[str, str]] = []
    tokens = MarkdownIt("commonmark").parse(text)
    for place, token in enumerate(tokens):
        links += _links(token.children or [])
        if token.type == "heading_open" and token.level == 0 and token.map is not None:
            end, after = token.map
            body = "\n".join(lines[start:end])
            yield heading, anchor, body.strip(), links
            heading = _words(tokens[place + 1].children or [])
            links = []
            start = after
            name = re.sub(rf"[^\w{MARKS}\- ]", "", heading.lower()).replace(" ", "-")
            anchor = name
            while anchor in anchors:  # all smaller numbers were taken by headings before
                repeated[name] += 1
                anchor = f"{name}-{repeated[name]}"
            anchors.add(anchor)
    body = "\n".join(lines[start:])
    yield heading, anchor, body.strip(), links


def _front_matter(text: str) -> tuple[str, str]:
    """Return the title of the front matter of a Markdown file, if it has one, and the text behind it."""
    front_matter = FRONT_MATTER.match(text)
    if front_matter is None:
        return "", text
    try:
        facts = _facts(front_matter[1])
    except ValueError:  # a rule above a text
        return "", text
    title = facts.get("title") if isinstance(facts, Mapping) else None
    if not isinstance(title, str):
        title = ""
    return title.strip(), text[front_matter.end() :]


def _facts(text: str) -> Any:
    """Return the value of a YAML text; its values are texts where one is not what its tag says, or no date.

    Raises:
        ValueError: if it is no YAML.
    """
    import yaml

    for loader in (yaml.SafeLoader, yaml.BaseLoader):
        try:
            return yaml.load(text, loader)
        except (yaml.reader.ReaderError, yaml.scanner.ScannerError, yaml.parser.ParserError, RecursionError) as error:
            raise ValueError("no YAML") from error
        except Exception as error:  # of what makes a value: KeyError, IndexError, AttributeError, ValueError and others
            failed = error
    raise ValueError("no YAML") from failed


def _words(tokens: Sequence[Any]) -> str:
    """Return the text of a line of Markdown without its markup."""
    text = ""
    for token in tokens:
        if token.type in ("text", "code_inline"):
            text += token.content
        else:
            text += " "
    return " ".join(text.split())


def _links(tokens: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield words and address of each link in a line."""
    opened = None
    start = 0
    for place, token in enumerate(tokens):
        if token.type == "link_open":
            opened = token
            start = place + 1
        elif token.type == "link_close" and opened is not None:
            words = _words(tokens[start:place])
            address = opened.attrs.get("href", "")
            yield words, str(address)
