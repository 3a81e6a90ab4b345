"""Columns of vectors in tables that any program wrote: Parquet, Arrow, JSON Lines, Lance, and data sets on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from sentcli.arrays import AnyArray
from sentcli.errors import DataError, InputError, library_errors
from sentcli.io.arrow_tables import open_arrow, read_from_end
from sentcli.io.formats import records
from sentcli.io.packed import DAMAGED
from sentcli.io.sources import Source, say_once

EMBEDDING = "embedding"
"""The column of the vectors in files that `encode` wrote."""
RECORD = b"sentcli"
"""The key of the settings of `encode` in the head of a table that it wrote."""
OF_ARROW = ("parquet", "arrow")
"""The formats whose columns have types."""


def vector_column(source: Source, field: str | None = None) -> str | None:
    """Return the name of the column of vectors that is taken, or None if there is none.

    It is the one that the user names, else ``embedding``, else the first whose type is a list of so many numbers. A
    list of any length may be something else, such as tokens, and is taken by its name alone.

    Args:
        source: a table.
        field: the column that the user names.

    Raises:
        InputError: if the table has no such column, or it holds something else.
    """
    if source.format not in OF_ARROW:
        if field is not None and source.format != "jsonl":
            raise InputError(
                f"--vector-field goes with Parquet, Arrow, JSON Lines and Lance; {source.name} is another file"
            )
        return field
    import pyarrow as pa

    kinds = dict(schema_of(source))
    lists = [name for name, kind in kinds.items() if is_list_of_numbers(kind)]
    if field is not None:
        if field not in lists:
            there = ", ".join(lists) or "none"
            raise InputError(f"{source.name}: {field!r} is no column of lists of numbers; those are: {there}")
        return field
    if EMBEDDING in lists:
        return EMBEDDING
    fixed = [name for name in lists if pa.types.is_fixed_size_list(kinds[name])]
    if fixed:
        say_once(f"{source.name}: its column {fixed[0]!r} is taken for the vectors (--vector-field names another one)")
        return fixed[0]
    if lists:
        say_once(
            f"{source.name}: {', '.join(map(repr, lists))} holds lists of numbers, and its texts are encoded all the "
            f"same: --vector-field {lists[0]} takes them for vectors"
        )
    return None


def is_list_of_numbers(kind: Any) -> bool:
    """Tell whether a type of Arrow is one of lists of numbers, such as vectors."""
    import pyarrow as pa

    is_list = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return is_list and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


def schema_of(source: Source) -> list[tuple[str, Any]]:
    """Return the names and types of the columns of a table of Parquet or Arrow.

    Raises:
        DataError: if it cannot be read.
    """
    with _opened(source) as (schema, _):
        return [(field.name, field.type) for field in schema]


def metadata_of(source: Source) -> dict[bytes, bytes]:
    """Return what a program has written into the head of a table of Parquet or Arrow.

    Raises:
        DataError: if it cannot be read.
    """
    with _opened(source) as (schema, _):
        return dict(schema.metadata or {})


def read_vectors(source: Source, column: str) -> list[AnyArray]:
    """Return the vectors in a column, as arrays ``[rows, dimension]`` that follow on each other.

    Raises:
        DataError: if the file is damaged, or a row has no vector or one of another dimension.
    """
    if source.format not in OF_ARROW:
        return _of_records(source, column)
    import pyarrow.compute as pc

    arrays: list[AnyArray] = []
    first = 0
    with _opened(source, column) as (schema, chunks):
        for chunk in chunks:
            if chunk.null_count:
                row = first + pc.index(chunk.is_null(), True).as_py() + 1
                raise DataError(source.name, f"{column!r} is null", line=row, unit="row")
            widths = set(pc.unique(pc.list_value_length(chunk)).to_pylist())
            widths.update(array.shape[1] for array in arrays)
            numbers = pc.list_flatten(chunk)
            if len(widths) > 1 or numbers.null_count:
                raise DataError(
                    source.name, f"{column!r} holds lists of {sorted(widths)} numbers, or nulls, not vectors"
                )
            if len(chunk):
                arrays.append(numbers.to_numpy(zero_copy_only=False).reshape(len(chunk), -1))
            first += len(chunk)
        width = getattr(schema.field(column).type, "list_size", 0)
    return arrays or [np.empty((0, max(width, 0)), np.float32)]


def _of_records(source: Source, column: str) -> list[AnyArray]:
    """Return the vectors in JSON Lines."""
    rows: list[AnyArray] = []
    for line, record in records(source):
        values = record.get(column)
        if not isinstance(values, list) or not set(map(type, values)) <= {int, float}:
            raise source.error(f"{column!r} is no list of numbers", line)
        try:
            row = np.array(values, np.float32)
        except OverflowError:
            raise source.error(f"{column!r} has a number that is larger than any float", line) from None
        if rows and len(row) != len(rows[0]):
            raise source.error(f"{column!r} has {len(row)} numbers, and {len(rows[0])} before", line)
        rows.append(row)
    if not rows:
        return [np.empty((0, 0), np.float32)]
    return [np.stack(rows)]


@contextmanager
def _opened(source: Source, column: str | None = None) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Open a table, and yield the schema, and the chunks of one column or none."""
    title = source.format.capitalize()
    passed_on = (*DAMAGED, FileNotFoundError)
    reading = library_errors(lambda why: DataError(source.name, f"not a readable {title} file: {why}"), *passed_on)
    with reading, source.open() as handle:
        if source.format == "parquet":
            yield _of_parquet(read_from_end(source, handle), column)
            return
        schema, batches = open_arrow(source, handle)
        if column is None:
            yield schema, iter(())
        else:
            yield schema, (batch[column] for batch in batches)


def _of_parquet(handle: BinaryIO, column: str | None) -> tuple[Any, Iterator[Any]]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(handle)
    if column is None:
        return file.schema_arrow, iter(())
    return file.schema_arrow, iter(file.read(columns=[column]).column(0).chunks)
