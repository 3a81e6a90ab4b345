"""The BM25 index of a directory that `encode` wrote: ``indexes/bm25/``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.io.atomic import replacing
from sentcli.io.digests import file_digest
from sentcli.search.bm25 import BM25
from sentcli.search.index import different
from sentcli.search.stored import INDEXES, Stored

NAME = "bm25"
OF = "rows.json"
"""Says which rows it was built from."""


def build(stored: Stored, language: str = "english") -> BM25:
    """Index the texts of a directory, and keep the index there."""
    found = BM25.build(stored.rows.texts(), language=language)
    place = stored.folder / INDEXES / NAME
    place.parent.mkdir(exist_ok=True)
    with replacing(place) as temporary:
        found.save(temporary)
        files = {path.name: file_digest(path) for path in sorted(temporary.iterdir())}
        (temporary / OF).write_text(json.dumps({"rows": _rows(stored), "files": files}), "utf-8")
    return found


def kept(stored: Stored, language: str | None = None) -> BM25 | None:
    """Return the index that is there, or None if there is none of just these rows.

    Args:
        stored: the directory.
        language: that is wanted; None is that of the index.

    Raises:
        InputError: if it is damaged.
    """
    place: Path = stored.folder / INDEXES / NAME
    if not place.is_dir():
        return None
    found = BM25.open(place) if _of(place)["rows"] == _rows(stored) else None
    return found if found is not None and language in (None, found.language) else None


def check(stored: Stored) -> list[str]:
    """Compare every file with its checksum, and the rows with those that are there; say what is wrong.

    Raises:
        InputError: if the list of checksums is damaged.
    """
    place: Path = stored.folder / INDEXES / NAME
    of = _of(place)
    stale = [] if of["rows"] == _rows(stored) else [f"{place} is of other rows than those that are there"]
    return [*different(place, of["files"]), *stale]


def _of(place: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((place / OF).read_text("utf-8"))
        return {"rows": list(found["rows"]), "files": dict(found["files"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{place / OF} is damaged ({error}); build the index again") from error


def _rows(stored: Stored) -> list[str]:
    return [shard["sha256"][shard["rows"]] for shard in stored.manifest["shards"]]
