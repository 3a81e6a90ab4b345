"""Tables and texts in memory as temporary files, so that everything that reads files reads them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.errors import InputError
from sentcli.io.formats import decode_bytes, is_null
from sentcli.io.places import is_remote
from sentcli.io.scratch import scratch
from sentcli.io.sources import FORMATS, IN_MEMORY, is_in_memory

if TYPE_CHECKING:
    import pandas as pd

NOT_IN_JSON = (date, time, timedelta, Decimal, bytes)
"""Values that would be text in JSON Lines, and stay what they are in Arrow; a datetime is a date."""
_INDEX_SUFFIX = ".index"
"""The suffix of the file with the index of a frame, beside that of its rows."""


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
    file = _file(value, name, sure=False)
    if file is not None:
        return file
    if not isinstance(value, list | tuple):
        return value
    if is_list:
        files: list[Any] = []
        for number, item in enumerate(value, 1):
            title = name
            if len(value) > 1:
                title = f"{name}-{number}"
            files.append(_file(item, title, sure=True) or item)
        return files
    if len(value) == 1:
        return _file(value[0], name, sure=True) or value
    return value


def frame_index(file: str) -> pd.Index | None:
    """Return the index of the pandas frame or series that a file holds; None for any other file."""
    import pandas as pd

    index = Path(file).with_suffix(_INDEX_SUFFIX)
    if not is_in_memory(index) or not index.exists():
        return None
    return pd.read_pickle(index)


def texts_of(value: Any, column: str = "text") -> Any:
    """Return the texts of a table in memory, or of a column of one, as a list; anything else as it is.

    Args:
        value: a table as for `in_files`, a column of one, or texts.
        column: of the texts in a table.

    Raises:
        InputError: for a table without that column, or a dictionary of data sets.
        TypeError: for another dictionary.
    """
    _refuse_several(value, "the data")
    if isinstance(value, Mapping):
        raise TypeError("a dictionary is no table: give a frame, a list of dicts, or a list of texts")
    if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
        names = list(map(str, value[0]))
        if column in names:
            return [row.get(column) for row in value]
        text_column = _column_of_strings(_inferred(value), names)
        choice = f"[row[{text_column!r}] for row in rows]"
    else:
        columns = _names(value)
        if columns is None:
            return _values(value)
        if column in columns:
            return _values(value[column])
        names = columns
        choice = f"frame[{_column_of_strings(value, names)!r}]"
    has = ", ".join(names) or "none"
    raise InputError(f"the table has no column {column!r}; it has: {has}. Give the column of the texts: {choice}")


def _column_of_strings(table: Any, names: Sequence[str]) -> str:
    """Return the name of the first column that begins with a string; a table may be read once, or have no names."""
    if hasattr(table, "__len__"):
        for name in names:
            with suppress(KeyError):  # of a frame whose columns have numbers
                if any(isinstance(item, str) for item in _values(table[name][:1])):
                    return name
    return "NAME"


def _refuse_several(value: Any, name: str) -> None:
    """Refuse a dictionary of data sets, such as the splits of one."""
    if _package(value) == "datasets" and isinstance(value, dict):
        choices = ", ".join(f"{name}[{split!r}]" for split in value)
        raise InputError(f"{name} is a dictionary of data sets: choose one, {choices}")


def _names(value: Any) -> list[str] | None:
    """Return the names of the columns of a frame, a table of Arrow or a data set; None for anything else."""
    if isinstance(value, type) or not hasattr(value, "columns"):
        names = getattr(value, "column_names", None)  # of a data set
    else:
        names = getattr(value, "column_names", None) or value.columns
    if names is None:
        return None
    return list(map(str, names))


def _values(column: Any) -> Any:
    """Return the values of a column of a frame, of Arrow or of a data set as a list; anything else as it is."""
    for method in ("tolist", "to_pylist", "to_list"):
        if hasattr(column, method):
            return getattr(column, method)()
    if _package(column) == "datasets":
        return list(column)
    return column


def _package(value: Any) -> str:
    """Return the name of the package that the type of a value is from."""
    return type(value).__module__.partition(".")[0]


def _file(value: Any, name: str, *, sure: bool) -> str | None:
    """Return the file of a table in memory, or None for anything else, such as names of files."""
    table = _table(value, name)
    if table is None or not _is_plain(table):
        rows = _rows(value, sure=sure)
        if rows is None:
            return None
        table = _inferred(rows) if _needs_types(rows) else None
        if table is None:
            return _with_index(_write_rows(rows, name), value)
    return _with_index(_write_arrow(table, name), value)


def _with_index(file: str, value: Any) -> str:
    """Keep the index of a frame or series of pandas beside its file, for the rows of results."""
    if _package(value) == "pandas" and hasattr(value, "index"):
        import pandas as pd

        pd.to_pickle(value.index, Path(file).with_suffix(_INDEX_SUFFIX))
    return file


def _table(value: Any, name: str) -> Any:
    """Return a frame, a table of Arrow or a data set as a table of Arrow; None for anything else.

    A frame whose columns mix values of several types is no table of Arrow; `_rows` gives its rows.
    """
    _refuse_several(value, name)
    if _package(value) == "datasets" and hasattr(value, "with_format"):
        if hasattr(value, "__len__"):
            return value.with_format("arrow")[:]
        return _inferred(list(value))  # an IterableDataset is read through
    if not hasattr(value, "columns"):
        return None
    repeated = [column for column, count in Counter(_names(value)).items() if count > 1]
    if repeated:
        raise InputError(f"{name} has several columns called {', '.join(map(repr, repeated))}: rename them")
    import pyarrow as pa

    try:
        if _package(value) == "pandas":
            return pa.Table.from_pandas(value, preserve_index=False)
        if hasattr(value, "__arrow_c_stream__"):
            return pa.table(value)
    except (pa.ArrowException, TypeError, ValueError):  # of a column with values of several types
        pass
    return None


def _rows(value: Any, *, sure: bool) -> list[dict[str, Any]] | None:
    """Return the rows of a table in memory, or None for anything else."""
    for method in ("to_dicts", "to_pylist"):  # polars, Arrow
        if hasattr(value, method) and hasattr(value, "columns"):
            return list(getattr(value, method)())
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # pandas
        return list(value.to_dict("records"))
    values = _values(value)
    if values is not value:  # a column of a frame or of Arrow, or an array
        value = values
        sure = True
    if not isinstance(value, list | tuple) or not value:
        return None
    if all(isinstance(item, Mapping) for item in value):
        return list(map(dict, value))
    if not all(isinstance(item, str) for item in value):
        return None
    if sure or all(map(_is_sentence, value)):
        return [{"text": text} for text in value]
    return None


def _is_sentence(text: str) -> bool:
    """Tell whether a string is a text and not the name of a file: it has blanks, no suffix of a file, and is none."""
    try:
        path = Path(text)
        is_name = is_remote(text) or path.suffix in FORMATS or path.exists()
        return " " in text.strip() and not is_name
    except (OSError, ValueError):  # longer than a name can be
        return True


def _needs_types(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether rows with the same keys hold values that JSON does not have."""
    if any(row.keys() != rows[0].keys() for row in rows):
        return False
    values = chain.from_iterable(row.values() for row in rows)
    return any(isinstance(value, NOT_IN_JSON) for value in values)


def _inferred(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a table of Arrow, or None if a column has values of several types."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {}
    for name in dict.fromkeys(chain.from_iterable(rows)):
        columns[str(name)] = [row.get(name) for row in rows]
    try:
        return pa.table(columns)
    except (pa.ArrowException, TypeError, ValueError):
        return None


def _is_plain(table: Any) -> bool:
    """Tell whether a table has only types of Arrow itself; pandas has periods and intervals as types of its own."""
    import pyarrow as pa

    return not any(isinstance(kind, pa.BaseExtensionType) for kind in table.schema.types)


def _new_file(name: str) -> Path:
    path = scratch() / IN_MEMORY / name
    path.parent.mkdir()
    return path


def _write_arrow(table: Any, name: str) -> str:
    import pyarrow as pa

    path = _new_file(f"{name}.arrow")
    table = table.unify_dictionaries()
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
    value = value.tolist() if hasattr(value, "tolist") else decode_bytes(value)
    if type(value).__name__ in ("NaTType", "NAType") or is_null(value):
        return None
    if isinstance(value, str | int | float | list | dict):
        return value
    return str(value)
