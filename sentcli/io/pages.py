"""Pages: files of Markdown or text that are one document each, with what their front matter says of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from sentcli.errors import DataError
from sentcli.io.forms import refuse_deep
from sentcli.io.places import Place
from sentcli.io.sources import is_markdown

MOST_MATTER = 65_536
"""The most characters that the aliases of front matter may make of it."""
NO_VALUE = ("", "~", "null", "Null", "NULL")
"""What YAML writes for a missing value."""
FRONT_MATTER = re.compile(r"---[ \t]*\n(.{,65536}?)\n---[ \t]*(\n|$)", re.DOTALL)
"""YAML at the start of a Markdown file; a longer one is text, since YAML is slow with long values."""
TOML_MATTER = re.compile(r"\+\+\+[ \t]*\n(.{,65536}?)\n\+\+\+[ \t]*(\n|$)", re.DOTALL)
"""TOML there, as Hugo has it."""
STATES = re.compile(r"^[A-Za-z][\w-]*\s*[:=]", re.MULTILINE)
"""A line that names a fact: what stands between two rules without one is text."""
_RESERVED_COLUMNS = ("id", "text", "embedding", "document", "passage", "start", "end", "heading")
"""The columns that `encode` writes itself, with passages."""
HEADING_SIGN = re.compile(r"(?:^|(?<=\r)) {0,3}(?:#{1,6}(?=\s|$)|(?:=+|-+)[ \t]*(?=\r|$))", re.MULTILINE)
"""What every heading of Markdown has: without it a text is not parsed for headings."""
ROWS_SIGN = re.compile(r"[|\t]|```|~~~| {4}")
"""What every table and every block of code has: without it a text is not parsed for them."""
END_OF_LINE = re.compile(r"\r\n?|\n")
"""The ends of lines of Markdown, among them a carriage return alone."""
LOWEST = 7
"""The level below that of every heading."""


@dataclass(frozen=True)
class Heading:
    """A heading of a page."""

    start: int
    """The character at which its line begins."""
    end: int
    """The character behind its line, or behind its last one."""
    level: int
    """1 for the highest."""
    words: str


@dataclass(frozen=True)
class TextSection:
    """The part of a page from a heading to the next one, or the part above the first."""

    start: int
    end: int
    body: int
    """The character at which its text begins, behind the heading and blanks; `end` if it has none."""
    level: int
    """That of its heading; `LOWEST` above the first, since no section belongs to that part."""
    path: tuple[Heading, ...] = ()
    """The headings above its text, the highest first; its own is the last."""


@dataclass(frozen=True)
class RowBlock:
    """A table or a block of code, whose lines stay whole and together with what introduces or closes them."""

    start: int
    end: int
    first: int
    """The character at which the first row of the table or line of the code begins, behind blanks."""
    last: int
    """The character at which the last row or line begins, behind blanks."""
    is_table: bool


@dataclass(frozen=True)
class PageLayout:
    """How a page is divided."""

    sections: Sequence[TextSection] = ()
    """Its parts, in order; every character is in one of them."""
    rows: Sequence[RowBlock] = ()
    """Its tables and blocks of code, in order."""

    def cut_at(self) -> str:
        """Name what the page is cut at: headings, rows, both, or nothing."""
        kinds = []
        if any(section.path for section in self.sections):
            kinds.append("headings")
        if self.rows:
            kinds.append("rows")
        return " and ".join(kinds)


@dataclass(frozen=True)
class PageContent:
    """The text of a file without its front matter, and the facts that this states."""

    text: str
    facts: dict[str, Any]
    """Values by their names; those of YAML are texts as they are written."""

    @classmethod
    def parse(cls, content: str, file: Path | Place) -> PageContent:
        """Read the content of a file, whose lines end with line feeds.

        A page without a title in its front matter has its first heading for one, a text its file's name.

        Raises:
            DataError: as for `front_matter`.
        """
        place = Place.of(file)
        if not is_markdown(place.path):
            return cls(content, {"title": words_of_name(place.path)})
        stated, text = front_matter(content, place.name)
        facts: dict[str, Any] = {}
        for name, value in stated.items():
            facts[free_name(str(name))] = _cell(value)
        if not isinstance(facts.get("title"), str):
            facts["title"] = ""
            for heading in headings(text)[:1]:
                facts["title"] = heading.words
        return cls(text, facts)


def front_matter(content: str, name: str) -> tuple[Mapping[Any, Any], str]:
    """Return what the front matter of a Markdown file says, if it has one, and the text behind it.

    Args:
        content: of the file.
        name: of the file, for errors.

    Raises:
        DataError: if it names a key twice, or aliases make far more of it than is written.
    """
    for pattern, value_of in ((FRONT_MATTER, _yaml_value), (TOML_MATTER, _toml_value)):
        found = pattern.match(content)
        if found is None:
            continue
        try:
            stated = value_of(found[1], name)
            refuse_deep(stated)
        except (ValueError, RecursionError):  # a rule above a text
            continue
        if not isinstance(stated, Mapping):
            stated = {}
        return stated, content[found.end() :]
    return {}, content


def _toml_value(text: str, _: str) -> Any:
    """Return the value of a text of TOML."""
    import tomllib

    return tomllib.loads(text)


def begins_with_facts(text: str) -> bool:
    """Tell whether a text begins with front matter that names facts, and so was not read as YAML or TOML."""
    found = FRONT_MATTER.match(text) or TOML_MATTER.match(text)
    return found is not None and STATES.search(found[1]) is not None


def free_name(name: str) -> str:
    """Return the name of a column for a fact of front matter; those that `encode` writes itself end in ``_`` then."""
    if name in _RESERVED_COLUMNS:
        return f"{name}_"
    return name


def words_of_name(path: Path) -> str:
    """Return the words of a file's name, which may be joined by signs or capitals; letters keep their marks."""
    signs = []
    for sign in path.stem:
        is_of_word = unicodedata.category(sign)[0] in "LMN"
        signs.append(sign if is_of_word else " ")
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", "".join(signs))
    return " ".join(apart.split())


def _cell(value: Any) -> Any:
    """Return a value of front matter as one of a table: a list of texts in one text."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return value


def headings(text: str) -> list[Heading]:
    """Return the headings of a Markdown text, in order; those inside of lists and quotations are no headings of it."""
    if not HEADING_SIGN.search(text):
        return []
    return headings_among(markdown_tokens(text), text)


def page_layout(text: str) -> PageLayout:
    """Return how a Markdown text is divided: into sections, and what has rows among them."""
    tokens: list[Any] = []
    if HEADING_SIGN.search(text) or ROWS_SIGN.search(text):
        tokens = markdown_tokens(text)
    return PageLayout(_sections(headings_among(tokens, text), text), _rows_among(tokens, text))


def markdown_tokens(text: str) -> list[Any]:
    """Return the tokens of markdown-it-py of a Markdown text, in which tables are known."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table").parse(text)


def headings_among(tokens: Sequence[Any], text: str) -> list[Heading]:
    """Return the headings of a Markdown text, given its tokens."""
    lines = _line_starts(text)
    found: list[Heading] = []
    for place, token in enumerate(tokens):
        if opens_heading(token):
            first, behind = token.map
            words = plain_words(tokens[place + 1].children or [])
            found.append(Heading(lines[first], lines[behind], int(token.tag[1:]), words))
    return found


def _rows_among(tokens: Sequence[Any], text: str) -> list[RowBlock]:
    """Return the tables and the blocks of code of a Markdown text, given its tokens."""
    lines = _line_starts(text)

    def behind_blanks(line: int) -> int:
        content = text[lines[line] : lines[line + 1]]
        return lines[line] + len(content) - len(content.lstrip())

    found: list[RowBlock] = []
    for token in tokens:
        if token.type not in ("table_open", "fence", "code_block"):
            continue
        first, behind = token.map
        start, end = lines[first], lines[behind]
        if token.type == "table_open":
            first += 2  # the header row, and what divides it from the others
        if token.type == "fence":
            first += 1
            if text[behind_blanks(behind - 1) : end].strip(" >\t\r\n").strip(token.markup[0]) == "":
                behind -= 1
        if first < behind:
            is_table = token.type == "table_open"
            found.append(RowBlock(start, end, behind_blanks(first), behind_blanks(behind - 1), is_table))
    return found


def _line_starts(text: str) -> list[int]:
    """Return the character at which each line of a Markdown text begins, and the one behind the last."""
    lines = [0]
    for end in END_OF_LINE.finditer(text):
        lines.append(end.end())
    lines.append(len(text))
    return lines


def opens_heading(token: Any) -> bool:
    """Tell whether a token begins a heading of the page itself, and not one inside of a list or quotation."""
    return token.type == "heading_open" and token.level == 0 and token.map is not None


def _sections(page_headings: Sequence[Heading], text: str) -> list[TextSection]:
    """Return the sections of a Markdown text, given its headings.

    Blanks above the first heading belong to its section. A text without headings is one section.
    """
    borders = [*(heading.start for heading in page_headings), len(text)]
    found: list[TextSection] = []
    if text[: borders[0]].strip() or not page_headings:
        found.append(TextSection(0, borders[0], 0, LOWEST))
    else:
        borders[0] = 0
    path: list[Heading] = []
    for heading, (start, end) in zip(page_headings, pairwise(borders), strict=True):
        while path and path[-1].level >= heading.level:
            path.pop()
        path.append(heading)
        body = end - len(text[heading.end : end].lstrip())
        found.append(TextSection(start, end, body, heading.level, tuple(path)))
    return found


def plain_words(tokens: Sequence[Any]) -> str:
    """Return the text of a line of Markdown without its markup."""
    text = ""
    for token in tokens:
        text += token.content if token.type in ("text", "code_inline") else " "
    return " ".join(text.split())


def _yaml_value(text: str, name: str) -> Any:
    """Return the value of a YAML text, of which every scalar is a text as it is written, or None for none.

    Raises:
        ValueError: if it is no YAML.
        DataError: if a key stands twice, or aliases make far more of it than is written.
    """
    from ruamel.yaml import YAML

    try:
        node = YAML(typ="base", pure=True).compose(text)
    except Exception as error:  # of YAMLError, what the library fails at, and too many levels
        raise ValueError("no YAML") from error
    try:
        return _Written(name).value(node)
    except RecursionError:  # an alias inside of what it stands for
        raise _multiplied(name) from None


def _multiplied(name: str) -> DataError:
    problem = f"the aliases of its front matter stand for more than {MOST_MATTER:,} characters: write them out"
    return DataError(name, problem)


@dataclass
class _Written:
    """Makes values of what the nodes of YAML say."""

    name: str
    """The name of the file, for errors."""
    size: int = 0
    """The characters so far, with those that aliases stand for, and as many more as there are nodes."""

    def value(self, node: Any) -> Any:
        """Return the value of a node.

        Raises:
            DataError: as for `_yaml_value`.
        """
        if node is None:
            return None
        self.size += 1
        if self.size > MOST_MATTER:
            raise _multiplied(self.name)
        if node.id == "sequence":
            return [self.value(item) for item in node.value]
        if node.id == "mapping":
            return self._mapping(node)
        self.size += len(node.value)
        if node.style is None and node.value in NO_VALUE:
            return None
        return node.value

    def _mapping(self, node: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(self.value(key_node))
            if key in values:
                line = key_node.start_mark.line + 2  # behind the rule
                raise DataError(self.name, f"its front matter has the key {key!r} twice: delete one of them", line=line)
            values[key] = self.value(value_node)
        return values
