"""The files of a retrieval set in BEIR layout: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sentcli.bounds import whole_number
from sentcli.errors import DataError, InputError
from sentcli.io.atomic import regular
from sentcli.io.formats import id_of, kind_of, records
from sentcli.io.packed import PACKED
from sentcli.io.sources import open_source

HIGHEST_RELEVANCE = 2**31 - 1
"""The highest relevance of a judgement, and its negative the lowest: what the metrics can hold."""
Qrels = dict[str, dict[str, int]]
"""Judgements by query id and document id."""


def document_text(record: dict[str, Any], *, join_title: bool = True) -> str:
    """Return the text of a document that is encoded: title and text, joined by a blank as in BEIR."""
    title = record.get("title") if join_title else None
    return f"{title or ''} {record['text']}".strip()


def is_beir(folder: Path) -> bool:
    """Tell whether a folder holds a corpus in BEIR layout."""
    return beir_file(folder, "corpus.jsonl") is not None


def splits_of(folder: Path) -> list[str]:
    """Return the names of the splits that a set has judgements for."""
    return sorted({file.name.partition(".tsv")[0] for file in (folder / "qrels").glob("*.tsv*")})


def beir_file(folder: Path, name: str) -> Path | None:
    """Return the path of a file of a set, which may be compressed, or None if it is missing."""
    for ending in ("", *PACKED):
        path = folder / f"{name}{ending}"
        if path.exists():
            return path
    return None


def required_file(folder: Path, name: str) -> Path:
    """Return the path of a file of a set.

    Raises:
        InputError: if it is missing, which says what the folder has instead.
    """
    path = beir_file(folder, name)
    if path is not None:
        regular(path)
        return path
    hint = ""
    if name.startswith("qrels/"):
        hint = ", and nothing says which documents are relevant"
        splits = splits_of(folder)
        if splits:
            hint = f"; it has: {', '.join(splits)}"
    elif name == "corpus.jsonl":
        folders = [entry for entry in folder.iterdir() if entry.is_dir()]
        sets = sorted(entry.name for entry in folders if is_beir(entry))
        if sets:
            hint = f"; it holds sets: {', '.join(sets)}"
    raise InputError(f"{folder / name} is missing: {folder} is not in BEIR layout{hint}")


def records_by_id(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the id and the record of each line of a corpus or of queries.

    Raises:
        DataError: for a line without id or text, or an id that stands twice.
    """
    seen: set[str] = set()
    for line, record in records(open_source(str(path))):
        if record.get("_id") in (None, ""):
            raise DataError(path, "no '_id'", line=line)
        try:
            key = id_of(record["_id"])
        except ValueError as error:
            raise DataError(path, f"'_id' {error}", line=line) from None
        if not isinstance(record.get("title") or "", str):
            raise DataError(path, f"'title' is {kind_of(record['title'])}, not a string", line=line)
        if key in seen:
            raise DataError(path, f"the id {key!r} stands twice", line=line)
        if not isinstance(record.get("text"), str):
            raise DataError(path, "'text' is missing, null or no string", line=line)
        seen.add(key)
        yield key, record


def relevant_documents(judgements: Mapping[str, int]) -> set[str]:
    """Return the ids of the relevant documents of a query, given the relevance of those that were judged."""
    return {document for document, relevance in judgements.items() if relevance > 0}


def read_qrels(path: Path) -> tuple[Qrels, int]:
    """Read ``query-id  corpus-id  score`` rows, below a header line if the first line is one.

    Returns:
        The judgements, the last one where a document is judged twice for a query, and the number of pairs of which two
        judgements differ.

    Raises:
        DataError: for a row that does not parse.
    """
    qrels: Qrels = {}
    contradicted: set[tuple[str, str]] = set()
    source = open_source(str(path), "txt")
    lines = (record["text"] for _, record in records(source))
    rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    for number, row in enumerate(rows, 1):
        if not row or (number == 1 and _is_header(row)):
            continue
        relevance = _relevance(row[-1].strip())
        if relevance is None or len(row) != 3:
            raise DataError(path, "expected query-id, corpus-id and a whole number", line=number)
        if abs(relevance) > HIGHEST_RELEVANCE:
            raise DataError(path, f"the relevance {row[-1]} is beyond {HIGHEST_RELEVANCE:,}", line=number)
        query, document, _ = row
        judged = qrels.setdefault(query, {})
        if judged.get(document, relevance) != relevance:
            contradicted.add((query, document))
        judged[document] = relevance
    return qrels, len(contradicted)


def _is_header(row: Sequence[str]) -> bool:
    """Tell whether the first line has a name in the place of a number; any number, such as 1.0, is a judgement."""
    try:
        float(row[-1])
    except ValueError:
        return True
    return False


def _relevance(text: str) -> int | None:
    """Return a relevance, which may be written as 1.0, or None for anything else."""
    whole, _, fraction = text.partition(".")
    if fraction.strip("0"):
        return None
    return whole_number(whole, signed=True)
