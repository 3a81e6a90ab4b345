"""Tables, folders of Markdown or text files, and folders in BEIR layout, read as documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sentcli.errors import DataError, InputError, joined_errors
from sentcli.evaluation.beir_files import beir_file, is_beir
from sentcli.io.atomic import regular
from sentcli.io.dataset import holds_manifest
from sentcli.io.formats import records
from sentcli.io.pages import words_of_name
from sentcli.io.sources import MARKDOWN_SUFFIXES, Source
from sentcli.io.text_inputs import visible_files
from sentcli.testset.documents import (
    FIRST_SENTENCE,
    TEXT_SUFFIXES,
    Documents,
    QueryCandidate,
    free_id,
)
from sentcli.testset.markdown import PageAnchor, link_target, markdown_sections
from sentcli.testset.tables import read_tables


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
        read_tables(str(table), documents, text_field, title_field)
    if documents.problems:
        raise joined_errors(documents.problems)
    if not documents.ids:
        raise InputError(f"{', '.join(corpus)}: there is no document")
    for position, text in enumerate(documents.texts):
        sentence = FIRST_SENTENCE.match(text)
        if sentence:
            candidate = QueryCandidate(sentence[1].strip(), position, "first sentence")
            documents.candidates.append(candidate)
    return documents


def _holds_pages(path: Path) -> bool:
    """Tell whether a path is a Markdown file, or a folder of Markdown and text files."""
    if not path.is_dir():
        return path.suffix.lower() in MARKDOWN_SUFFIXES
    return not is_beir(path) and not holds_manifest(file.name for file in path.iterdir())


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
            name = words_of_name(path)
            key = free_id(source, prefix + page, documents.places)
            documents.add(key, name, text.strip(), "file name")
    added = len(ids) - before
    documents.taken.append(f"{folder}: {len(paths):,} files, {added:,} sections or files with a text")
    for words, target in links:
        if target in targets:
            candidate = QueryCandidate(words, targets[target], "link")
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
    for heading, anchor, body, section_links in markdown_sections(text, source.name):
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
