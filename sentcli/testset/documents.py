"""The documents of a corpus, and what in its structure can stand for a query."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sentcli.errors import DataError, InputError, together
from sentcli.evaluation.beir_files import beir_file, document_text, is_beir
from sentcli.io.atomic import regular
from sentcli.io.dataset import holds_manifest
from sentcli.io.formats import header, id_of, kind_of, records, say_quoted, without_broken_lines
from sentcli.io.pages import MARKDOWN_SUFFIXES
from sentcli.io.sources import Source
from sentcli.io.text_inputs import text_sources, visible_files
from sentcli.search.words import MARKS
from sentcli.testset.markdown import PageAnchor, link_target, sections

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
SENTENCE = re.compile(r"(.+?(?:[.!?؟۔।]['\")\]”’»]*+\s++|[。！？][」』”’）]*+))\s*+(?=\S)", re.DOTALL)
"""The first sentence of a text that has others; nothing is tried twice, so that long blanks take no time."""


@dataclass(frozen=True)
class Candidate:
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
    candidates: list[Candidate] = field(default_factory=list)
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
            self.candidates.append(Candidate(title, position, structure))
        return position

    def graded(self, positions: Iterable[int]) -> dict[str, int]:
        """Return the ids of relevant documents with the grade 1, in the order of the corpus."""
        return {self.ids[position]: 1 for position in sorted(positions)}

    def title_and_text(self, position: int) -> str:
        """Return a document as it is encoded: what stands above it, and its text."""
        return document_text({"title": self.titles[position], "text": self.texts[position]})


def read_documents(corpus: Sequence[str], text_field: str | None = None, title_field: str | None = None) -> Documents:
    """Read tables, folders of Markdown or text files, and folders in BEIR layout as documents.

    Args:
        corpus: files and folders.
        text_field: the column of the text; None tells it from the names.
        title_field: the column of the title; None tells it from the names.

    Raises:
        InputError: if the columns cannot be told from their names, or there is no document.
        DataError: for rows without text, ids that are there twice, and files that cannot be read; it names all of them.
    """
    documents = Documents(names=list(corpus))
    for name in corpus:
        path = Path(name)
        if _holds_pages(path):
            if text_field or title_field:
                raise InputError(f"--text-field and --title-field are of tables, and {name} holds pages")
            prefix = ""
            if len(corpus) > 1 and path.is_dir():
                prefix = f"{path.resolve().name}/"
            _read_folder(path, documents, prefix)
            continue
        table = beir_file(path, "corpus.jsonl") or name
        for source in text_sources([str(table)]):
            documents.origins.append(source.identity())
            _read_table(source, documents, text_field, title_field)
    if documents.problems:
        raise together(documents.problems)
    if not documents.ids:
        raise InputError(f"{', '.join(corpus)}: there is no document")
    for position, text in enumerate(documents.texts):
        sentence = SENTENCE.match(text)
        if sentence:
            candidate = Candidate(sentence[1].strip(), position, "first sentence")
            documents.candidates.append(candidate)
    return documents


def _holds_pages(path: Path) -> bool:
    """Tell whether a path is a Markdown file, or a folder of Markdown and text files."""
    if not path.is_dir():
        return path.suffix.lower() in MARKDOWN_SUFFIXES
    return not is_beir(path) and not holds_manifest(file.name for file in path.iterdir())


def _read_table(source: Source, documents: Documents, text_field: str | None, title_field: str | None) -> None:
    columns = None
    source, broken = without_broken_lines(source)
    documents.problems += broken
    for line, record in records(source):
        if columns is None:
            columns = _columns(source, header(source) or list(record), text_field, title_field)
        try:
            _read_row(source, documents, columns, record, line)
        except DataError as error:
            documents.problems.append(error)
    if columns is None:
        return
    text_column = columns.text
    documents.text_fields[text_column] = None
    above = "nothing that stands above it"
    if columns.title:
        above = f"{columns.structure} from {columns.title!r}"
    documents.taken.append(f"{source.name}: text from {text_column!r}, {above}")


def _read_row(source: Source, documents: Documents, columns: _Columns, record: dict[str, Any], line: int) -> None:
    """Add the document of a row.

    Raises:
        DataError: if it has no text, or the id of another one.
    """
    value = record.get(columns.text)
    text = _text(source, columns.text, value, line)
    title = ""
    if columns.title:
        value = record.get(columns.title) or ""
        title = _text(source, columns.title, value, line)
    number: Any = len(documents.ids) + 1
    if columns.id:
        number = record.get(columns.id)
    key = free_id(source, number, documents.places, line)
    say_quoted(source, text)
    documents.add(key, title.strip(), text, columns.structure)


def _text(source: Source, name: str, value: Any, line: int) -> str:
    """Return the value of a column, which has to be a text."""
    if isinstance(value, str):
        return str(value)
    problem = "is missing or null" if value is None else f"is {kind_of(value)}, not a string"
    raise DataError(source.name, f"{name!r} {problem}", line=line, unit=source.unit)


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


@dataclass(frozen=True)
class _Columns:
    """The columns of a table: of its text, of what stands above it, with what that is, and of the id."""

    text: str
    title: str | None
    structure: Structure
    id: str | None


def _columns(source: Source, names: Sequence[str], text_field: str | None, title_field: str | None) -> _Columns:
    """Tell the columns of a table from their names."""
    for option, name in (("--text-field", text_field), ("--title-field", title_field)):
        if name is not None and name not in names:
            raise DataError(source.name, f"no column {name!r} for {option}; it has: {', '.join(names)}")
    texts = _columns_called(TEXT_FIELDS, names, title_field)
    summaries = _columns_called(SUMMARY_FIELDS, names, title_field)
    titles = _columns_called(TITLE_FIELDS, names, text_field)
    text = text_field or _single(source, "--text-field", texts or summaries, names)
    if not title_field and titles:
        title_field = _single(source, "--title-field", titles, names)
    structure: Structure = "summary"
    if title_field:
        structure = TITLE_FIELDS.get(title_field.lower(), "title")
    else:
        title_field = None
        if text in summaries:
            summaries.remove(text)
        if summaries:
            title_field = _single(source, "--title-field", summaries, names)
    id_field = None
    if "id" in names:
        id_field = "id"
    elif "_id" in names:
        id_field = "_id"
    return _Columns(text, title_field, structure, id_field)


def _columns_called(usual: Iterable[str], names: Sequence[str], other: str | None) -> list[str]:
    """Return the columns that have a usual name in any case, but for one that is used otherwise."""
    lower = {name.lower(): name for name in names}
    return [lower[name] for name in usual if name in lower and lower[name] != other]


def _single(source: Source, option: str, choices: Sequence[str], names: Sequence[str]) -> str:
    if len(choices) == 1:
        return choices[0]
    problem = "no column is called so that it is known"
    if choices:
        problem = f"{' and '.join(choices)} may all be it"
    raise DataError(source.name, f"{problem}; say which with {option}: {', '.join(names)}")


def _read_folder(folder: Path, documents: Documents, prefix: str) -> None:
    """Read the Markdown and text files of a folder, or one Markdown file: a section is a document, or the whole file.

    The ids of documents are the paths of their files in the folder, after a prefix.
    """
    suffixes = (*MARKDOWN_SUFFIXES, *TEXT_SUFFIXES)
    files = [folder]
    if folder.is_dir():
        files = visible_files(folder)
    else:
        folder = folder.parent
    paths = [path for path in files if path.suffix.lower() in suffixes]
    if not paths:
        raise InputError(f"{folder} has no files {', '.join(suffixes)} and is not in BEIR layout")
    ids = documents.ids
    before = len(ids)
    links: list[tuple[str, PageAnchor]] = []
    targets: dict[PageAnchor, int] = {}  # the document at each page and anchor
    for path in paths:
        page = path.relative_to(folder).as_posix()
        source = Source(str(path), path, "txt")
        text = _read_file(source, page, documents)
        if path.suffix.lower() not in TEXT_SUFFIXES:
            links += _add_sections(source, text, page, prefix, documents, targets)
        elif text.strip():
            name = re.sub(rf"[^\w{MARKS}]+|_+|(?<=[a-z])(?=[A-Z])", " ", path.stem).strip()
            key = free_id(source, prefix + page, documents.places)
            documents.add(key, name, text.strip(), "file name")
    added = len(ids) - before
    documents.taken.append(f"{folder}: {len(paths):,} files, {added:,} sections or files with a text")
    for words, target in links:
        if target in targets:
            candidate = Candidate(words, targets[target], "link")
            documents.candidates.append(candidate)


def _read_file(source: Source, page: str, documents: Documents) -> str:
    """Return the text of a file and note where it is from; what cannot be read is a problem and has no text."""
    try:
        regular(source.path)
        origin = source.identity() | {"name": page}
        documents.origins.append(origin)
        return "\n".join([record["text"] for _, record in records(source)])
    except InputError as error:
        documents.problems.append(error)
    except OSError as error:
        documents.problems.append(DataError(source.path, error.strerror or str(error)))
    return ""


def _add_sections(
    source: Source, text: str, page: str, prefix: str, documents: Documents, targets: dict[PageAnchor, int]
) -> list[tuple[str, PageAnchor]]:
    """Add the sections of a Markdown file as documents, with their positions, and return the links of the file."""
    links = []
    for heading, anchor, body, section_links in sections(text):
        for words, address in section_links:
            target = link_target(page, address)
            if target is not None:
                links.append((words, target))
        if body:
            key = prefix + page
            if anchor:
                key += f"#{anchor}"
            key = free_id(source, key, documents.places)
            position = documents.add(key, heading, body, "heading")
            targets[page, anchor] = position
            targets.setdefault((page, ""), position)
    return links
