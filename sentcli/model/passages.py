"""Passages of documents: rows with the columns of their document, their place in it and the headings above them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sentcli.errors import DataError, InputError
from sentcli.io.pages import Heading, PageLayout, page_layout
from sentcli.io.readers import SourceRows
from sentcli.io.table_source import TableSource
from sentcli.model.cutting import Cutter, Span

Context = Literal["none", "title", "headings"]
"""What is put in front of a passage when it is encoded: nothing, the title of its document, or that and the headings
above it."""
COLUMNS = ("document", "passage", "start", "end", "heading")
"""The columns of passages: the id of the document, the number of the passage in it, from 0, its characters in the text
of the document, and the headings above its text. The text of a passage is what stands between these characters, below
the header row of a table if it begins among the rows of one."""
_TITLE_COLUMNS = ("title", "headline", "subject", "name")
"""The columns that may hold the title of a document, in any case; `heading` is a column of passages."""
BETWEEN_HEADINGS = " > "
_ID = "id"
_TEXT = "text"


def title_columns(names: Iterable[str]) -> list[str]:
    """Return the columns that may hold the titles of documents, in the order of `_TITLE_COLUMNS`."""
    found = []
    for name in sorted(names):
        if name.lower() in _TITLE_COLUMNS:
            found.append(name)
    return sorted(found, key=lambda name: _TITLE_COLUMNS.index(name.lower()))


def _title_of(values: Iterable[object]) -> str:
    """Return the title of a document, given its cells of `title_columns`: the first text; empty if there is none."""
    for value in values:
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def context_of(title: str, path: str, context: Context) -> str:
    """Return what is put in front of a passage, with the end of its line; empty if there is nothing.

    Args:
        title: of the document.
        path: the headings above the passage, joined by `BETWEEN_HEADINGS`.
        context: which of them are taken.
    """
    line = ""
    if context == "title" or (context == "headings" and not path):
        line = title
    elif context == "headings":
        line = path
        has_title = not title or f"{path}{BETWEEN_HEADINGS}".startswith(f"{title}{BETWEEN_HEADINGS}")
        if not has_title:
            line = f"{title}{BETWEEN_HEADINGS}{path}"
    if not line:
        return ""
    return f"{line}\n"


def context_columns(context: Context, names: Iterable[str]) -> list[str]:
    """Return those of some columns of passages of which their contexts are made; none if there are no contexts."""
    if context == "none":
        return []
    return ["heading", *title_columns(names)]


def stored_contexts(context: Context, columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return what stands in front of each of some passages; empty if nothing does.

    Args:
        context: what is put in front of them.
        columns: the cells of `context_columns`, and any others.
    """
    needed = context_columns(context, columns)
    if not needed:
        return []
    headings, *titles = [columns[name] for name in needed]
    contexts = []
    for row, heading in enumerate(headings):
        title = _title_of([column[row] for column in titles])
        contexts.append(context_of(title, heading or "", context))
    return contexts


def with_contexts(context: Context, columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return what is encoded of each row, and what its words are taken from: its text, behind what stands before it.

    Args:
        context: as for `stored_contexts`.
        columns: the texts, the cells of `context_columns`, and any others.
    """
    texts = list(columns[_TEXT])
    contexts = stored_contexts(context, columns)
    if not contexts:
        return texts
    return [before + text for before, text in zip(contexts, texts, strict=True)]


def encoded_texts(rows: TableSource, context: Context) -> Iterator[str]:
    """Yield what `with_contexts` returns of every row, in order."""
    names = [_TEXT, *context_columns(context, rows.schema)]
    for table in rows.tables(names):
        yield from with_contexts(context, table.to_pydict())


@dataclass(frozen=True)
class PassageRows:
    """Makes passages of documents: rows with the columns of their document and `COLUMNS`.

    Args:
        cutter: cuts the texts.
        context: what will be put in front of each, which counts as tokens of it.
    """

    cutter: Cutter
    context: Context = "none"

    def __call__(self, documents: SourceRows, first_number: int) -> SourceRows:
        """Return the passages of some documents, in order.

        Args:
            documents: as they were read.
            first_number: the number of the first document, for ids that are numbers.

        Raises:
            DataError: for a document whose columns have a name of `COLUMNS`, or whose context takes all tokens.
        """
        source = documents.source
        for name in documents.names():
            if name in (_ID, _TEXT, *COLUMNS):
                raise DataError(source.name, f"column {name!r} is one that passages have: rename it in the input")
        titles = self._titles(documents)
        passages = _Passages(documents)
        for row in range(len(documents)):
            document = _id_of(documents, row, first_number)
            try:
                passages.add(row, document, self._cut(documents, row, titles[row]))
            except InputError as error:
                raise source.error(f"document {document!r}: {error}", documents.lines[row]) from None
        return passages.batch()

    def _titles(self, documents: SourceRows) -> list[str]:
        """Return the title of each document; empty where it has none."""
        names = title_columns(documents.names())
        if not names:
            return [""] * len(documents)
        return list(map(_title_of, zip(*map(documents.column, names), strict=True)))

    def _cut(self, documents: SourceRows, row: int, title: str) -> Iterator[_Passage]:
        """Yield the passages of a document."""
        text = documents.texts[row]
        page = PageLayout()
        if documents.source.is_markdown_page:
            page = page_layout(text)
        reserved = self.cutter.length(context_of(title, "", self.context))
        for part in page.sections:
            reserved = max(reserved, self.cutter.length(context_of(title, _joined(part.path), self.context)))
        for span in self.cutter.cut(text, page, reserved):
            path = _joined(span.path)
            yield _Passage(span, path, context_of(title, path, self.context))


def _joined(path: Sequence[Heading]) -> str:
    """Return headings in one line."""
    return BETWEEN_HEADINGS.join([heading.words for heading in path])


@dataclass(frozen=True)
class _Passage:
    """A passage of a document."""

    span: Span
    path: str
    """The headings above its text."""
    context: str
    """What stands in front of it when it is encoded."""


@dataclass
class _Passages:
    """The passages of some documents, which are gathered."""

    documents: SourceRows
    records: list[dict[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    contexts: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def add(self, row: int, document: str, passages: Iterable[_Passage]) -> None:
        """Append the passages of a document with its columns."""
        documents = self.documents
        whole = documents.texts[row]
        columns: dict[Any, Any] = dict(documents.records[row])
        for name in (documents.text_field, documents.id_field):
            columns.pop(name, None)
        for number, passage in enumerate(passages):
            span = passage.span
            text = span.text_in(whole)
            key = f"{document}#{number}"
            place = (document, number, span.start, span.end, passage.path or None)
            self.records.append({**columns, **dict(zip(COLUMNS, place, strict=True))})
            self.texts.append(text)
            self.ids.append(key)
            self.contexts.append(passage.context)
            self.places.append(documents.places[row])
            self.lines.append(documents.lines[row])

    def batch(self) -> SourceRows:
        """Return the passages as rows."""
        return replace(
            self.documents,
            text_field=_TEXT,
            id_field=_ID,
            places=self.places,
            lines=self.lines,
            texts=self.texts,
            ids=self.ids,
            records=self.records,
            without_text=frozenset(),
            contexts=self.contexts,
            cut_from=self.documents,
            typed=frozenset((*COLUMNS, *title_columns(self.documents.names()))),
        )


def _id_of(documents: SourceRows, row: int, first_number: int) -> str:
    """Return the id of a document, which is its number where it has no other."""
    key = None
    if documents.ids is not None:
        key = documents.ids[row]
    if key is None:
        key = str(first_number + documents.places[row])
    return key
