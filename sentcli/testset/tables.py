"""Documents of tables, and of directories of encode whose rows are passages of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli.errors import DataError
from sentcli.io.dataset import holds_manifest, read_manifest
from sentcli.io.formats import header, kind_of, records, say_quoted, without_broken_lines
from sentcli.io.sources import Source
from sentcli.io.text_inputs import text_sources
from sentcli.search.corpus_documents import CorpusDocuments
from sentcli.search.vector_directory import VectorDirectory
from sentcli.testset.documents import (
    SUMMARY_FIELDS,
    TEXT_FIELDS,
    TITLE_FIELDS,
    Documents,
    Structure,
    free_id,
)


def read_tables(name: str, documents: Documents, text_field: str | None, title_field: str | None) -> None:
    """Add the documents of a table, of a folder of tables, or of a directory of encode.

    Args:
        name: of the file or folder.
        documents: get those that are read.
        text_field: the column of the text; None tells it from the names.
        title_field: the column of the title; None tells it from the names.
    """
    passages = _passages(Path(name))
    if passages is not None:
        _read_passages(passages, documents, text_field, title_field)
        return
    for source in text_sources([name]):
        documents.origins.append(source.identity())
        _read_table(source, documents, text_field, title_field)


def _passages(path: Path) -> CorpusDocuments | None:
    """Return the documents of a directory of encode whose rows are passages of them; None for anything else."""
    if not path.is_dir() or not holds_manifest(file.name for file in path.iterdir()):
        return None
    if not read_manifest(path).settings.get("passages"):
        return None
    return CorpusDocuments(str(path), VectorDirectory.open(path, to_search=False).rows)


def _read_passages(
    whole: CorpusDocuments, documents: Documents, text_field: str | None, title_field: str | None
) -> None:
    """Read documents that were cut into passages, each as it was."""
    name = whole.title
    source = Source(name, Path(name), "parquet")
    columns = _columns(source, ["id", "text", *whole.columns], text_field, title_field)
    for number, document in enumerate(whole, 1):
        record = {**document.columns, "id": document.id, "text": document.text}
        try:
            _read_row(source, documents, columns, record, number)
        except DataError as error:
            documents.problems.append(error)
    documents.text_fields[columns.text] = None
    documents.taken.append(f"{name}: documents put together of their passages, {_above(columns)}")


def _above(columns: _Columns) -> str:
    """Say what stands above the texts of a table."""
    if not columns.title:
        return "nothing that stands above it"
    return f"{columns.structure} from {columns.title!r}"


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
    documents.taken.append(f"{source.name}: text from {text_column!r}, {_above(columns)}")


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
