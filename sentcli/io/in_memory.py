"""Data frames and lists of texts or dicts as files, so that everything that reads files reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentcli.io.remote import scratch
from sentcli.io.remote_names import is_remote, remember_copy
from sentcli.io.sources import FORMATS


def in_files(value: Any, name: str, *, several: bool) -> Any:
    """Return a value of an argument that names files, with the paths of temporary files for what is in memory.

    A frame (pandas, polars), a list of dicts, and a list of texts are a table of JSON Lines each. In an argument that
    takes several files a list of strings are names, unless each is a sentence and no file; ``[[...]]`` is a list of
    texts for sure.

    Args:
        value: what the caller gave.
        name: of the argument, which messages show for the file.
        several: whether the argument takes a list of files.
    """
    if (rows := _rows(value, sure=False)) is not None:
        return _written(rows, name)
    if several and isinstance(value, list | tuple):
        tables = [_rows(item, sure=True) for item in value]
        numbers = [f"{name}-{number}" if len(value) > 1 else name for number in range(1, len(value) + 1)]
        items = zip(value, tables, numbers, strict=True)
        return [item if rows is None else _written(rows, title) for item, rows, title in items]
    return value


def _rows(value: Any, *, sure: bool) -> list[dict[str, Any]] | None:
    """Return the rows of a table in memory, or None for anything else, such as names of files."""
    if hasattr(value, "to_dicts"):  # polars
        return list(value.to_dicts())
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # pandas
        return list(value.to_dict("records"))
    if hasattr(value, "tolist") and not isinstance(value, list):  # a column of a frame, or an array
        value, sure = value.tolist(), True
    if not isinstance(value, list | tuple) or not value:
        return None
    if all(isinstance(item, Mapping) for item in value):
        return [dict(item) for item in value]
    if all(isinstance(item, str) for item in value) and (sure or all(map(_is_sentence, value))):
        return [{"text": text} for text in value]
    return None


def _is_sentence(text: str) -> bool:
    """Tell whether a string is a text and not the name of a file: it has blanks, no suffix of a file, and is none."""
    try:
        path = Path(text)
        return " " in text.strip() and not is_remote(text) and path.suffix not in FORMATS and not path.exists()
    except (OSError, ValueError):  # longer than a name can be
        return True


def _written(rows: list[dict[str, Any]], name: str) -> str:
    path = scratch() / f"{name}.jsonl"
    with path.open("w", encoding="utf-8") as handle:
        for row in rows:
            handle.write(json.dumps({str(key): _plain(value) for key, value in row.items()}, ensure_ascii=True) + "\n")
    remember_copy(path, f"{name} (in memory)")
    return str(path)


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it: missing ones as null, numbers of NumPy as numbers, dates as text."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if type(value).__name__ in ("NaTType", "NAType") or (isinstance(value, float) and value != value):
        return None
    return value if value is None or isinstance(value, str | int | float | list | dict) else str(value)
