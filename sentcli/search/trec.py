"""TREC run files: ``query Q0 document rank score name``, one hit a line."""

from __future__ import annotations

from pathlib import Path

from sentcli.errors import InputError
from sentcli.io.atomic import replacing

Run = dict[str, dict[str, float]]
"""Scores by query id and document id."""


def write_run(run: Run, path: Path, name: str = "sentcli") -> None:
    """Write a run, best document first.

    Raises:
        InputError: if an id holds white space, which the format cannot carry.
    """
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as handle:
        for query, documents in run.items():
            ranked = sorted(documents.items(), key=lambda item: -item[1])
            for rank, (document, score) in enumerate(ranked, 1):
                if len(f"{query} {document}".split()) != 2:
                    raise InputError(f"a TREC run cannot hold the ids {query!r} and {document!r}: white space or empty")
                handle.write(f"{query} Q0 {document} {rank} {score:.6f} {name}\n")
