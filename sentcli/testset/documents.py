"""The documents of a corpus, and what in its structure can stand for a query."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from sentcli.errors import DataError, InputError
from sentcli.evaluation.beir_files import document_text
from sentcli.io.formats import id_of
from sentcli.io.sources import Source

Structure = Literal["title", "question", "heading", "link", "file name", "summary", "first sentence"]
STRONG: tuple[Structure, ...] = ("title", "question", "heading", "link", "file name")
"""The structures whose texts name a document; the others are words of the document itself."""
TEXT_FIELDS = ("text", "body", "content", "contents", "passage", "document", "answer")
SUMMARY_FIELDS = ("summary", "abstract", "description", "lead", "teaser")
"""Columns that are a summary of the text, or the text itself where there is no other."""
TITLE_FIELDS: dict[str, Structure] = {
    **dict.fromkeys(("title", "headline", "heading", "subject", "name"), "title"),
    "question": "question",
}
TEXT_SUFFIXES = (".txt",)
FIRST_SENTENCE = re.compile(r"(.+?(?:[.!?؟۔।]['\")\]”’»]*+\s++|[。！？][」』”’）]*+))\s*+(?=\S)", re.DOTALL)
"""The first sentence of a text that has others; nothing is tried twice, so that long blanks take no time."""


@dataclass(frozen=True)
class QueryCandidate:
    """A text that may become a query."""

    text: str
    document: int
    """The position of the document that it asks for."""
    structure: Structure


@dataclass
class Documents:
    """Documents in the order of the corpus."""

    ids: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    """The title or heading above each text; empty if there is none."""
    texts: list[str] = field(default_factory=list)
    candidates: list[QueryCandidate] = field(default_factory=list)
    origins: list[dict[str, Any]] = field(default_factory=list)
    """The name, the size and the SHA-256 of each file that was read."""
    taken: list[str] = field(default_factory=list)
    """Sentences that say which columns and files were taken for texts and titles."""
    names: list[str] = field(default_factory=list)
    """The files and folders, as they were named."""
    problems: list[InputError] = field(default_factory=list)
    """Rows and files that cannot be read."""
    text_fields: dict[str, None] = field(default_factory=dict)
    """The columns of the texts of tables."""
    places: dict[str, int] = field(default_factory=dict)
    """The position of each id."""

    def add(self, key: str, title: str, text: str, structure: Structure) -> int:
        """Append a document with what stands above it, which is a candidate, and return its position."""
        position = len(self.ids)
        self.places[key] = position
        self.ids.append(key)
        self.titles.append(title)
        self.texts.append(text)
        if title:
            self.candidates.append(QueryCandidate(title, position, structure))
        return position

    def graded(self, positions: Iterable[int]) -> dict[str, int]:
        """Return the ids of relevant documents with the grade 1, in the order of the corpus."""
        return {self.ids[position]: 1 for position in sorted(positions)}

    def title_and_text(self, position: int) -> str:
        """Return a document as it is encoded: what stands above it, and its text."""
        return document_text({"title": self.titles[position], "text": self.texts[position]})


def free_id(source: Source, value: Any, taken: Container[str], line: int | None = None) -> str:
    """Return an id as text, which can name another document or query in files of tab-separated UTF-8.

    Raises:
        DataError: if it cannot, or is taken.
    """
    problem = None
    try:
        key = id_of(value)
    except ValueError as error:
        problem = f"the id {error}"
    else:
        if not key or re.search(r"[\t\r\n\ud800-\udfff]", key):
            problem = f"the id {key!r} is empty, or has a tab, an end of line or bytes that are no UTF-8"
        elif key in taken:
            problem = f"the id {key!r} stands twice"
    if problem is not None:
        raise DataError(source.name, problem, line=line, unit=source.unit)
    return key
