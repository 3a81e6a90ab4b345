"""Tables and texts in memory as temporary files, so that everything that reads files reads them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.io import copies
from sentcli.io.formats import as_text
from sentcli.io.places import is_remote
from sentcli.io.sources import FORMATS, IN_MEMORY

NOT_IN_JSON = (date, time, timedelta, Decimal, bytes)
"""Values that would be text in JSON Lines, and stay what they are in Arrow; a datetime is a date."""


def in_files(value: Any, name: str, *, is_list: bool) -> Any:
    """Return a value of an argument that names files, with the paths of temporary files for what is in memory.

    A frame (pandas, polars), a table of Arrow, a `datasets.Dataset`, a list of dicts, and a list of texts are a table
    each. In an argument that takes a list of files a list of strings are names, unless each is a sentence and no file;
    ``[[...]]`` is a list of texts for sure.

    Args:
        value: what the caller gave.
        name: of the argument, which messages show for the file.
        is_list: whether the argument takes a list of files.

    Raises:
        InputError: for a table with several columns of one name, or a dictionary of data sets.
    """
    if (file := _file(value, name, sure=False)) is not None:
        return file
    if is_list and isinstance(value, list | tuple):
        numbers = [f"{name}-{number}" if len(value) > 1 else name for number in range(1, len(value) + 1)]
        files = [_file(item, title, sure=True) for item, title in zip(value, numbers, strict=True)]
        return [item if file is None else file for item, file in zip(value, files, strict=True)]
    return value


def texts_of(value: Any) -> Any:
    """Return the column ``text`` of a frame, a table of Arrow or a data set as a list, and anything else as it is.

    Raises:
        InputError: if it has no such column; the message names those that it has.
    """
    columns = getattr(value, "column_names", None) or getattr(value, "columns", None)
    if columns is None or isinstance(value, list | tuple):
        return value
    names = list(map(str, columns))
    if "text" not in names:
        example = names[0] if names else "body"
        has = ", ".join(names)
        raise InputError(f"the table has no column text, but {has}: give one of them, as frame[{example!r}]")
    column = value["text"]
    for method in ("to_list", "tolist", "to_pylist"):  # polars and pandas, NumPy, Arrow
        if hasattr(column, method):
            return getattr(column, method)()
    return list(column)


def _file(value: Any, name: str, *, sure: bool) -> str | None:
    """Return the file of a table in memory, or None for anything else, such as names of files."""
    table = _table(value, name)
    if table is None or not _is_plain(table):
        rows = _rows(value, sure=sure)
        table = None if rows is None or not _needs_types(rows) else _inferred(rows)
        if table is None:
            return None if rows is None else _write_rows(rows, name)
    return _write_arrow(table, name)


def _table(value: Any, name: str) -> Any:
    """Return a frame, a table of Arrow or a data set as a table of Arrow; None for anything else.

    A frame whose columns mix values of several types is no table of Arrow; `_rows` gives its rows.
    """
    package = type(value).__module__.partition(".")[0]
    if package == "datasets" and isinstance(value, dict):
        choices = ", ".join(f"{name}[{split!r}]" for split in value)
        raise InputError(f"{name} is a dictionary of data sets: choose one, {choices}")
    if package == "datasets" and hasattr(value, "with_format"):
        # IterableDataset has no length and is read through
        return value.with_format("arrow")[:] if hasattr(value, "__len__") else _inferred(list(value))
    if not hasattr(value, "columns"):
        return None
    names = list(map(str, getattr(value, "column_names", None) or list(value.columns)))
    repeated = [column for column, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"{name} has several columns called {', '.join(map(repr, repeated))}: rename them")
    import pyarrow as pa

    try:
        if package == "pandas":
            return pa.Table.from_pandas(value, preserve_index=False)
        return pa.table(value) if hasattr(value, "__arrow_c_stream__") else None
    except (pa.ArrowException, TypeError, ValueError):  # of a column with values of several types
        return None


def _rows(value: Any, *, sure: bool) -> list[dict[str, Any]] | None:
    """Return the rows of a table in memory, or None for anything else."""
    for method in ("to_dicts", "to_pylist"):  # polars, Arrow
        if hasattr(value, method) and hasattr(value, "columns"):
            return list(getattr(value, method)())
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # pandas
        return list(value.to_dict("records"))
    column = next((method for method in ("tolist", "to_pylist") if hasattr(value, method)), None)
    if column is not None:  # of a frame or of Arrow, or an array
        value, sure = getattr(value, column)(), True
    elif type(value).__module__.startswith("datasets."):
        value, sure = list(value), True
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


def _needs_types(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether rows with the same keys hold values that JSON does not have."""
    same = all(row.keys() == rows[0].keys() for row in rows)
    return same and any(isinstance(value, NOT_IN_JSON) for row in rows for value in row.values())


def _inferred(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a table of Arrow, or None if a column has values of several types."""
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    try:
        return pa.table({str(name): [row.get(name) for row in rows] for name in names})
    except (pa.ArrowException, TypeError, ValueError):
        return None


def _is_plain(table: Any) -> bool:
    """Tell whether a table has only types of Arrow itself; pandas has periods and intervals as types of its own."""
    import pyarrow as pa

    return not any(isinstance(kind, pa.BaseExtensionType) for kind in table.schema.types)


def _new_file(name: str) -> Path:
    path = copies.scratch() / IN_MEMORY / name
    path.parent.mkdir()
    return path


def _write_arrow(table: Any, name: str) -> str:
    import pyarrow as pa

    path, table = _new_file(f"{name}.arrow"), table.unify_dictionaries()
    with pa.OSFile(str(path), "wb") as handle, pa.ipc.new_file(handle, table.schema) as writer:
        writer.write_table(table)
    return str(path)


def _write_rows(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    path = _new_file(f"{name}.jsonl")
    with path.open("w", encoding="utf-8") as handle:
        for number, row in enumerate(rows, 1):
            try:
                plain = {str(key): _plain(value) for key, value in row.items()}
            except ValueError as error:
                raise InputError(f"{name} ({IN_MEMORY}), row {number}: a value {error}") from None
            handle.write(json.dumps(plain, ensure_ascii=True) + "\n")
    return str(path)


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it: missing ones as null, numbers of NumPy as numbers, dates as text."""
    value = value.tolist() if hasattr(value, "tolist") else as_text(value)
    if type(value).__name__ in ("NaTType", "NAType") or (isinstance(value, float) and value != value):
        return None
    return value if value is None or isinstance(value, str | int | float | list | dict) else str(value)
