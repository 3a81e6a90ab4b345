"""TREC run files: ``query Q0 document rank score name``, one hit a line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sentcli.errors import InputError
from sentcli.io.atomic import replacing

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


def write_run(run: Run, path: Path, name: str = "sentcli") -> None:
    """Write a run, best document first.

    Raises:
        InputError: if an id holds white space, which the format cannot carry.
    """
    check_ids([*run, *(document for documents in run.values() for document in documents)])
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as handle:
        for query, documents in run.items():
            ranked = sorted(documents.items(), key=lambda item: -item[1])
            for rank, (document, score) in enumerate(ranked, 1):
                handle.write(f"{query} Q0 {document} {rank} {score:.6f} {name}\n")
