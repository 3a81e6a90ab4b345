"""The documents of a corpus, and what in its structure can stand for a query."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from sentcli.errors import DataError, InputError, together
from sentcli.evaluation.retrieval import beir_file, document_text, is_beir
from sentcli.io.atomic import regular
from sentcli.io.dataset import holds_manifest
from sentcli.io.formats import header, id_of, kind_of, records, say_quoted, without_broken_lines
from sentcli.io.sources import Source
from sentcli.io.text_inputs import MARKDOWN_SUFFIXES, text_sources, visible_files
from sentcli.search.words import MARKS

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

FRONT_MATTER = re.compile(r"---\n(.{,65536}?)\n---(\n|$)", re.DOTALL)
"""YAML at the start of a Markdown file; a longer one is text, since YAML is slow with long values."""


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
    """What stands above each text; empty if nothing does."""
    texts: list[str] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    origins: list[dict[str, Any]] = field(default_factory=list)
    """Name, size and SHA-256 of each file."""
    taken: list[str] = field(default_factory=list)
    """What columns and files were taken for."""
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
        self.places[key] = len(self.ids)
        self.ids.append(key)
        self.titles.append(title)
        self.texts.append(text)
        if title:
            self.candidates.append(Candidate(title, self.places[key], structure))
        return self.places[key]

    def whole(self, position: int) -> str:
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
            _read_folder(path, documents, f"{path.resolve().name}/" if len(corpus) > 1 and path.is_dir() else "")
            continue
        for source in text_sources([str(beir_file(path, "corpus.jsonl") or name)]):
            documents.origins.append(source.identity())
            _read_table(source, documents, text_field, title_field)
    if documents.problems:
        raise together(documents.problems)
    if not documents.ids:
        raise InputError(f"{', '.join(corpus)}: there is no document")
    for position, text in enumerate(documents.texts):
        if sentence := SENTENCE.match(text):
            documents.candidates.append(Candidate(sentence[1].strip(), position, "first sentence"))
    return documents


def _holds_pages(path: Path) -> bool:
    """Tell whether a path is a Markdown file, or a folder of Markdown and text files."""
    if not path.is_dir():
        return path.suffix.lower() in MARKDOWN_SUFFIXES
    return not is_beir(path) and not holds_manifest(file.name for file in path.iterdir())


def _read_table(source: Source, documents: Documents, text_field: str | None, title_field: str | None) -> None:
    taken = None
    source, broken = without_broken_lines(source)
    documents.problems += broken
    for line, record in records(source):
        taken = taken or _columns(source, header(source) or list(record), text_field, title_field)
        try:
            _read_row(source, documents, taken, record, line)
        except DataError as error:
            documents.problems.append(error)
    if taken is not None:
        documents.text_fields[taken.text] = None
        above = f", {taken.structure} from {taken.title!r}" if taken.title else ", nothing that stands above it"
        documents.taken.append(f"{source.name}: text from {taken.text!r}{above}")


def _read_row(source: Source, documents: Documents, taken: _Columns, record: dict[str, Any], line: int) -> None:
    """Add the document of a row.

    Raises:
        DataError: if it has no text, or the id of another one.
    """
    text, title = record.get(taken.text), ""
    if taken.title:
        title = record.get(taken.title) or ""
    for name, value in ((taken.text, text), (taken.title, title)):
        if not isinstance(value, str):
            problem = "is missing or null" if value is None else f"is {kind_of(value)}, not a string"
            raise DataError(source.name, f"{name!r} {problem}", line=line, unit=source.unit)
    given = record.get(taken.id) if taken.id else len(documents.ids) + 1
    key = free_id(source, given, documents.places, line)
    say_quoted(source, str(text))
    documents.add(key, title.strip(), str(text), taken.structure)


def free_id(source: Source, value: Any, taken: Container[str], line: int | None = None) -> str:
    """Return an id as text, which can name another document or query in files of tab-separated UTF-8.

    Raises:
        DataError: if it cannot, or is taken.
    """
    key, problem = "", None
    try:
        key = id_of(value)
    except ValueError as error:
        raise DataError(source.name, f"the id {error}", line=line, unit=source.unit) from None
    if not key or re.search(r"[\t\r\n\ud800-\udfff]", key):
        problem = f"the id {key!r} is empty, or has a tab, an end of line or bytes that are no UTF-8"
    elif key in taken:
        problem = f"the id {key!r} stands twice"
    if problem is not None:
        raise DataError(source.name, problem, line=line, unit=source.unit)
    return key


@dataclass(frozen=True)
class _Columns:
    text: str
    title: str | None
    structure: Structure
    id: str | None


def _columns(source: Source, names: Sequence[str], text_field: str | None, title_field: str | None) -> _Columns:
    """Tell the columns of a table from their names."""
    lower = {name.lower(): name for name in names}
    for option, name in (("--text-field", text_field), ("--title-field", title_field)):
        if name is not None and name not in names:
            raise DataError(source.name, f"no column {name!r} for {option}; it has: {', '.join(names)}")
    texts = [lower[name] for name in TEXT_FIELDS if name in lower and lower[name] != title_field]
    summaries = [lower[name] for name in SUMMARY_FIELDS if name in lower and lower[name] != title_field]
    titles = [lower[name] for name in TITLE_FIELDS if name in lower and lower[name] != text_field]
    text = text_field or _single(source, "--text-field", texts or summaries, names)
    title = title_field or (_single(source, "--title-field", titles, names) if titles else None)
    structure: Structure = TITLE_FIELDS.get(title.lower(), "title") if title else "summary"
    if title is None and (others := [name for name in summaries if name != text]):
        title = _single(source, "--title-field", others, names)
    return _Columns(text, title, structure, next((name for name in ("id", "_id") if name in names), None))


def _single(source: Source, option: str, choices: Sequence[str], names: Sequence[str]) -> str:
    if len(choices) == 1:
        return choices[0]
    problem = f"{' and '.join(choices)} may all be it" if choices else "no column is called so that it is known"
    raise DataError(source.name, f"{problem}; say which with {option}: {', '.join(names)}")


def _read_folder(folder: Path, documents: Documents, prefix: str) -> None:
    """Read the Markdown and text files of a folder, or one Markdown file: a section is a document, or the whole file.

    The ids of documents are the paths of their files in the folder, after a prefix.
    """
    suffixes = (*MARKDOWN_SUFFIXES, *TEXT_SUFFIXES)
    files = visible_files(folder) if folder.is_dir() else [folder]
    paths = [path for path in files if path.suffix.lower() in suffixes]
    folder = folder if folder.is_dir() else folder.parent
    if not paths:
        raise InputError(f"{folder} has no files {', '.join(suffixes)} and is not in BEIR layout")
    before = len(documents.ids)
    links: list[tuple[str, tuple[str, str]]] = []
    targets: dict[tuple[str, str], int] = {}  # the document at each page and anchor
    for path in paths:
        page = path.relative_to(folder).as_posix()
        source = Source(str(path), path, "txt")
        try:
            regular(path)
            documents.origins.append(source.identity() | {"name": page})
            text = "\n".join(record["text"] for _, record in records(source))
        except (OSError, InputError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            documents.problems.append(error if isinstance(error, InputError) else DataError(path, f"{reason or error}"))
            continue
        if path.suffix.lower() in TEXT_SUFFIXES:
            name = re.sub(rf"[^\w{MARKS}]+|_+|(?<=[a-z])(?=[A-Z])", " ", path.stem).strip()
            if text.strip():
                documents.add(free_id(source, prefix + page, documents.places), name, text.strip(), "file name")
            continue
        for heading, anchor, body, found in _sections(text):
            links += [(words, goal) for words, address in found if (goal := _target(page, address))]
            if body:
                key = prefix + (f"{page}#{anchor}" if anchor else page)
                position = documents.add(free_id(source, key, documents.places), heading, body, "heading")
                targets[page, anchor] = position
                targets.setdefault((page, ""), position)
    documents.taken.append(
        f"{folder}: {len(paths):,} files, {len(documents.ids) - before:,} sections or files with a text"
    )
    documents.candidates += [Candidate(words, targets[goal], "link") for words, goal in links if goal in targets]


def _target(page: str, address: str) -> tuple[str, str] | None:
    """Return page and anchor that a link on a page leads to, or None if it is broken or leads to another site."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    if parts.scheme or parts.netloc:
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path))) if parts.path else page
    return path, unquote(parts.fragment)


def _sections(text: str) -> Iterator[tuple[str, str, str, list[tuple[str, str]]]]:
    """Yield heading, anchor, text and links (words, address) of each section of a Markdown file.

    The anchor is the one that GitHub gives; the part before the first heading has none, and has the title of the front
    matter as its heading.
    """
    from markdown_it import MarkdownIt

    title, text = _front_matter(text)
    lines, anchors = text.split("\n"), {""}
    repeated: Counter[str] = Counter()
    heading, anchor, start = title, "", 0
    links: list[tuple[str, str]] = []
    tokens = MarkdownIt("commonmark").parse(text)
    for place, token in enumerate(tokens):
        links += _links(token.children or [])
        if token.type == "heading_open" and token.level == 0 and token.map is not None:
            yield heading, anchor, "\n".join(lines[start : token.map[0]]).strip(), links
            heading, links = _words(tokens[place + 1].children or []), []
            start = token.map[1]
            name = re.sub(rf"[^\w{MARKS}\- ]", "", heading.lower()).replace(" ", "-")
            anchor = name
            while anchor in anchors:  # all smaller numbers were taken by headings before
                repeated[name] += 1
                anchor = f"{name}-{repeated[name]}"
            anchors.add(anchor)
    yield heading, anchor, "\n".join(lines[start:]).strip(), links


def _front_matter(text: str) -> tuple[str, str]:
    """Return the title of the front matter of a Markdown file, if it has one, and the text behind it."""
    if not (found := FRONT_MATTER.match(text)):
        return "", text
    try:
        facts = _facts(found[1])
    except ValueError:  # a rule above a text
        return "", text
    title = facts.get("title") if isinstance(facts, Mapping) else None
    return (title.strip() if isinstance(title, str) else ""), text[found.end() :]


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
    return " ".join("".join(t.content if t.type in ("text", "code_inline") else " " for t in tokens).split())


def _links(tokens: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield words and address of each link in a line."""
    opened = None
    for place, token in enumerate(tokens):
        if token.type == "link_open":
            opened = place
        elif token.type == "link_close" and opened is not None:
            yield _words(tokens[opened + 1 : place]), str(tokens[opened].attrs.get("href", ""))
