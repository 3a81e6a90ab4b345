"""TREC run files: ``query Q0 document rank score name``, one hit a line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from sentcli.errors import DataError, InputError
from sentcli.io.atomic import replacing
from sentcli.io.sources import open_source, records

Run = dict[str, dict[str, float]]
"""Scores by query id and document id."""


def check_ids(ids: Iterable[str]) -> None:
    """Refuse ids that the format cannot carry.

    Raises:
        InputError: if one is empty or holds white space.
    """
    for key in ids:
        if len(key.split()) != 1 or key.split()[0] != key:
            raise InputError(f"a TREC run cannot hold the id {key!r}: white space or empty")


def write_run(run: Run, path: Path) -> None:
    """Write a run, best document first.

    Raises:
        InputError: if an id holds white space, which the format cannot carry.
    """
    check_ids([*run, *(document for documents in run.values() for document in documents)])
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as handle:
        for query, documents in run.items():
            ranked = sorted(documents.items(), key=lambda item: -item[1])
            for rank, (document, score) in enumerate(ranked, 1):
                handle.write(f"{query} Q0 {document} {rank} {score:.9g} sentcli\n")  # all that a float32 holds


def read_run(path: Path) -> Run:
    """Read a run, which may be gzipped: six columns between white space; rank and name are not looked at.

    The hits of a query stay in the order of the file. As for trec_eval, scores alone decide the ranks.

    Raises:
        InputError: if there is no such file; DataError: a row of other columns, a score that is no finite number, a
            document twice for a query, an empty file.
    """
    run: Run = {}
    for line, record in records(open_source(str(path), "txt")):
        row = record["text"].split()
        if not row:
            continue
        if len(row) != 6:
            raise DataError(path, f"expected query Q0 document rank score name, found {len(row)} columns", line=line)
        query, _, document, _, written, _ = row
        hits = run.setdefault(query, {})
        if document in hits:
            raise DataError(path, f"the document {document!r} stands twice for the query {query!r}", line=line)
        hits[document] = _number(written, path, line)
    if not run:
        raise DataError(path, "the file is empty: a TREC run has a line for each hit")
    return run


def _number(written: str, path: Path, line: int) -> float:
    try:
        score = float(written)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise DataError(path, f"the score {written!r} is no finite number", line=line)
    return score
