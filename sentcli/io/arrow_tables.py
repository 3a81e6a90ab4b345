"""The records of Parquet and Arrow files, in values of Python that do not depend on what else is installed."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from sentcli.errors import DataError, library_errors
from sentcli.io.packed import DAMAGED
from sentcli.io.sources import BATCH_ROWS, Cursor, Source


def arrow_batches(source: Source, cursor: Cursor) -> Iterator[tuple[Sequence[int], list[dict[str, Any]]]]:
    """Yield the rows of a Parquet, Arrow or Feather file with their numbers, from 1, some thousand at a time.

    Raises:
        DataError: if it cannot be read, or names a column twice.
    """
    title = "Arrow or Feather"
    batches = _arrow_batches
    if source.format == "parquet":
        title = "Parquet"
        batches = _parquet_batches
    with library_errors(lambda why: DataError(source.name, f"not a readable {title} file ({why})"), *DAMAGED):
        for batch in batches(source, cursor):
            first = cursor.line + 1
            cursor.line += len(batch)
            if len(batch):
                yield range(first, first + len(batch)), records_of(batch)


def _parquet_batches(source: Source, cursor: Cursor) -> Iterator[Any]:
    """Yield the rows behind the cursor, which is moved to the first of them."""
    import pyarrow.parquet as pq

    with source.open() as handle:
        table = pq.ParquetFile(read_from_end(source, handle))
        columns = _columns(source, table.schema_arrow)
        firsts = [0]
        for number in range(table.num_row_groups):
            firsts.append(firsts[-1] + table.metadata.row_group(number).num_rows)
        group = max(bisect_right(firsts, cursor.line) - 1, 0)
        groups = range(group, table.num_row_groups)
        batches = table.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=columns)
        yield from _behind(batches, cursor, firsts[group])


def _arrow_batches(source: Source, cursor: Cursor) -> Iterator[Any]:
    """Yield the rows behind the cursor of a file or stream of Arrow, or of the first version of Feather."""
    with source.open() as handle:
        schema, batches = open_arrow(source, handle)
        columns = _columns(source, schema)
        yield from _behind((batch.select(columns) for batch in batches), cursor, 0)


def open_arrow(source: Source, handle: BinaryIO) -> tuple[Any, Iterator[Any]]:
    """Return the schema and the batches of a file or stream of Arrow, or of the first version of Feather.

    Args:
        source: the file.
        handle: what `Source.open` returned; the batches are read from it.
    """
    import pyarrow as pa
    import pyarrow.feather as feather

    first = handle.read(6)
    handle.seek(0)
    if first.startswith(b"ARROW1"):
        file = pa.ipc.open_file(read_from_end(source, handle))
        return file.schema, map(file.get_batch, range(file.num_record_batches))
    if first.startswith(b"FEA1"):
        table = feather.read_table(io.BytesIO(handle.read()))
        return table.schema, iter(table.to_batches())
    stream = pa.ipc.open_stream(handle)  # as the datasets library keeps its tables
    return stream.schema, iter(stream)


def read_from_end(source: Source, handle: BinaryIO) -> BinaryIO:
    """Return an open file for a reader that begins at its end; a compressed one is unpacked into memory for it."""
    return io.BytesIO(handle.read()) if source.packed else handle


def _columns(source: Source, schema: Any) -> list[str]:
    """Return the names of the columns that are read.

    Raises:
        DataError: if two columns have one name, of which a row could hold one only.
    """
    repeated = [name for name, count in Counter(schema.names).items() if count > 1]
    if repeated:
        problem = f"it has several columns called {', '.join(map(repr, repeated))}"
        raise DataError(source.name, f"{problem}: rename them, or leave out all but one")
    return [name for name in schema.names if name not in source.without]


def _behind(batches: Iterator[Any], cursor: Cursor, first: int) -> Iterator[Any]:
    """Yield the rows of batches that lie behind the cursor; `first` is the number of rows before the batches."""
    skipped = cursor.line - first
    cursor.line = first
    for batch in batches:
        left = batch.slice(skipped)
        passed = len(batch) - len(left)
        cursor.line += passed
        skipped -= passed
        for start in range(0, len(left), BATCH_ROWS):
            yield left.slice(start, BATCH_ROWS)


def records_of(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of an Arrow batch as values of Python.

    Times are those of Python, to the microsecond; where a column has nanoseconds, or a date or duration that Python
    cannot hold, such a value is given as text.
    """
    columns = list(map(_in_python, batch.columns))
    names = batch.schema.names
    if not columns:
        return [{} for _ in range(len(batch))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _in_python(column: Any) -> list[Any]:
    """Return the values of a column; nanoseconds would be objects of pandas where that is installed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    plain = _to_microseconds(column.type)
    try:
        if plain != column.type:
            column = column.cast(plain)
        return list(column.to_pylist())
    except (OverflowError, ValueError, pa.ArrowNotImplementedError):  # ValueError: a cast would lose digits, too
        return [_value(value, plain) for value in column]


def _value(value: Any, plain: Any) -> Any:
    import pyarrow as pa

    if not value.is_valid:
        return None
    try:
        return value.cast(plain).as_py()
    except (OverflowError, ValueError):
        return str(value.cast("string"))
    except pa.ArrowNotImplementedError:
        return value.as_py()


def _to_microseconds(kind: Any) -> Any:
    """Return a type of Arrow with microseconds in place of nanoseconds, also inside of lists and objects."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if pa.types.is_dictionary(kind):
        return _to_microseconds(kind.value_type)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_to_microseconds(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_to_microseconds(field.type)) for field in kind.fields])
    return kind
