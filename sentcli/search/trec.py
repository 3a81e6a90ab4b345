"""TREC run files, with a line ``query Q0 document rank score name`` for each hit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from sentcli.errors import DataError, InputError
from sentcli.io.atomic import replacing
from sentcli.io.formats import records
from sentcli.io.sources import open_source

Run = dict[str, dict[str, float]]
"""Scores by query id and document id."""


def check_ids(ids: Iterable[str]) -> None:
    """Refuse ids that a TREC run cannot hold.

    Raises:
        InputError: if an id is empty or holds white space.
    """
    for key in ids:
        if len(key.split()) != 1 or key.split()[0] != key:
            raise InputError(f"a TREC run cannot hold the id {key!r}: white space or empty")


def write_run(run: Run, path: Path) -> None:
    """Write a run, best document first.

    Raises:
        InputError: if an id is empty or holds white space.
    """
    check_ids([*run, *(document for documents in run.values() for document in documents)])
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as handle:
        for query, documents in run.items():
            ranked = sorted(documents.items(), key=lambda item: -item[1])
            for rank, (document, score) in enumerate(ranked, 1):
                handle.write(f"{query} Q0 {document} {rank} {score:.9g} sentcli\n")  # all that a float32 holds


def read_run(path: Path) -> Run:
    """Read a run, which may be gzipped: six columns separated by white space, of which rank and name are ignored.

    The hits of a query stay in the order of the file. As in trec_eval, only the scores decide the ranks.

    Raises:
        InputError: if there is no such file.
        DataError: for a line without six columns, a score that is not finite, a repeated document of a query, or an
            empty file.
    """
    run: Run = {}
    for line, record in records(open_source(str(path), "txt")):
        row = record["text"].split()
        if not row:
            continue
        if len(row) != 6:
            raise DataError(path, f"expected query Q0 document rank score name, found {len(row)} columns", line=line)
        query, _, document, _, score, _ = row
        hits = run.setdefault(query, {})
        if document in hits:
            raise DataError(path, f"the document {document!r} stands twice for the query {query!r}", line=line)
        try:
            hits[document] = float(score)
        except ValueError:
            hits[document] = math.nan
        if not math.isfinite(hits[document]):
            raise DataError(path, f"the score {score!r} is no finite number", line=line)
    if not run:
        raise DataError(path, "the file is empty: a TREC run has a line for each hit")
    return run
