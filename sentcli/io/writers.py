"""The formats of outputs of vectors: what each keeps, and how it is written and read back.

Every writer streams, so that memory does not grow with the number of rows.
"""

from __future__ import annotations

import io
import json
import re
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from sentcli.errors import DataError, InputError, library_errors, nearest
from sentcli.io.atomic import regular, replacing
from sentcli.io.blocks import Block
from sentcli.io.places import Place
from sentcli.printable import escaped

if TYPE_CHECKING:
    import pyarrow as pa

    from sentcli.arrays import AnyArray

TENSOR = "embeddings"
"""The tensor of the vectors in a safetensors file."""
DTYPES = {"float32": "F32", "float16": "F16", "int8": "I8", "uint8": "U8"}
"""The element types, with their names in safetensors."""


@dataclass(frozen=True)
class OutputPlan:
    """The shape and the types of an output: `rows` vectors of `dimension`, with the other columns of the input."""

    rows: int
    dimension: int
    column_types: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    """Everything that decides the vectors, which is stored with them."""
    dtype: str = "float32"
    """One of DTYPES."""


Write = Callable[[Block, "AnyArray"], None]
"""Appends the rows of a block with their vectors ``[rows, dim]``."""


@contextmanager
def npy_writer(path: Path, plan: OutputPlan) -> Iterator[Write]:
    """Yield a function that appends vectors to an ``.npy`` file."""
    dtype = np.dtype(plan.dtype).newbyteorder("<")
    with path.open("wb") as handle:
        _write_npy_header(handle, (plan.rows, plan.dimension), dtype)
        yield partial(_write_raw, handle, dtype)


def npy_bytes(rows: int, dimension: int, dtype: str) -> int:
    """Return the size of an ``.npy`` file of vectors of one of DTYPES."""
    stored = np.dtype(dtype).newbyteorder("<")
    header = io.BytesIO()
    _write_npy_header(header, (rows, dimension), stored)
    return header.tell() + rows * dimension * stored.itemsize


def _write_npy_header(handle: IO[bytes], shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(handle, header)


@contextmanager
def safetensors_writer(path: Path, plan: OutputPlan) -> Iterator[Write]:
    """Yield a function that appends vectors to the one tensor of a file, with the settings in the metadata of its head.

    The safetensors library can only write whole arrays from memory. Its format, an 8-byte length, a JSON header and raw
    row-major data, can be streamed.
    """
    dtype = np.dtype(plan.dtype).newbyteorder("<")
    size = plan.rows * plan.dimension * dtype.itemsize
    shape = [plan.rows, plan.dimension]
    tensor = {"dtype": DTYPES[plan.dtype], "shape": shape, "data_offsets": [0, size]}
    metadata = {"settings": json.dumps(plan.settings, ensure_ascii=False)}
    header = json.dumps({"__metadata__": metadata, TENSOR: tensor}).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as handle:
        handle.write(struct.pack("<Q", len(header)))
        handle.write(header)
        yield partial(_write_raw, handle, dtype)


@contextmanager
def jsonl_writer(path: Path, _: OutputPlan) -> Iterator[Write]:
    """Yield a function that appends an object for each row to a file of JSON Lines."""
    with path.open("w", encoding="utf-8") as handle:
        yield partial(_write_jsonl, handle.write)


@contextmanager
def stdout_writer() -> Iterator[Write]:
    """Yield a function that writes an object of JSON for each row to standard output."""
    yield partial(_write_jsonl, lambda line: sys.stdout.write(escaped(line)))
    sys.stdout.flush()


def _write_raw(handle: IO[bytes], dtype: np.dtype[Any], _: Block, vectors: AnyArray) -> None:
    """Append the vectors row by row."""
    handle.write(np.ascontiguousarray(vectors, dtype=dtype).data)


def _write_jsonl(write: Callable[[str], object], block: Block, vectors: AnyArray) -> None:
    """Append an object with ``id``, ``text``, the other columns and ``embedding`` for each row."""
    for i, vector in enumerate(vectors):
        row = {"id": block.ids[i], "text": block.texts[i]}
        for name, values in block.columns.items():
            row[name] = values[i]
        numbers = ",".join(vector.astype("U"))  # the shortest text of each float32 that gives the same bits again
        write(f'{as_json(row)[:-1]}, "embedding": [{numbers}]}}\n')


@contextmanager
def parquet_writer(path: Path, plan: OutputPlan, *, with_vectors: bool = True) -> Iterator[Write]:
    """Yield a function that writes blocks as row groups, with ``id``, ``text`` and the other columns.

    Args:
        path: the file.
        plan: its types and its settings.
        with_vectors: also write the vectors, as the fixed-size list ``embedding``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    element = pa.from_numpy_dtype(np.dtype(plan.dtype))
    fields = [("id", pa.string()), ("text", pa.string()), *plan.column_types.items()]
    if with_vectors:
        fields.append(("embedding", pa.list_(element, plan.dimension)))
    settings = json.dumps(plan.settings, ensure_ascii=False).encode("utf-8", "backslashreplace")
    schema = pa.schema(fields, metadata={"sentcli": settings})
    # Arrow opens no file whose name is no UTF-8
    with path.open("wb") as file, pq.ParquetWriter(file, schema) as writer:

        def write(block: Block, vectors: AnyArray) -> None:
            arrays = list(arrow_rows(block, plan.column_types).values())
            if with_vectors:
                numbers = np.ascontiguousarray(vectors).reshape(-1)
                flat = pa.array(numbers, element)
                arrays.append(pa.FixedSizeListArray.from_arrays(flat, plan.dimension))
            table = pa.Table.from_arrays(arrays, schema=writer.schema)
            writer.write_table(table)

        yield write


def arrow_rows(block: Block, column_types: Mapping[str, Any]) -> dict[str, pa.Array]:
    """Return the ids, the texts and the other columns of a block as they are written, by name.

    Args:
        block: the rows.
        column_types: the Arrow types of the other columns.
    """
    import pyarrow as pa

    columns = {"id": pa.array(block.ids, pa.string()), "text": pa.array(block.texts, pa.string())}
    for name, kind in column_types.items():
        columns[name] = arrow_column(block.columns[name], kind)
    return columns


def as_json(value: Any) -> str:
    """Return a value as JSON on one line, other types as text and numbers that JSON lacks as null."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:  # NaN and the infinities, which JSON does not have, become null
        plain = json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)
        return json.dumps(plain, ensure_ascii=False)


def arrow_column(values: Sequence[Any], kind: Any) -> pa.Array:
    """Return the values of a column as an array of an Arrow type; text holds other values as JSON."""
    import pyarrow as pa

    if pa.types.is_string(kind):
        return pa.array(map(text_cell, values), kind)
    return pa.array(values, kind)


def text_cell(value: Any) -> str | None:
    """Return a value of a column of texts: as it is, or as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float, list, dict)):
        return as_json(value)
    return str(value)


def mapped_array(file: Path | Place) -> AnyArray:
    """Map an ``.npy`` file.

    Raises:
        FileNotFoundError: if it is missing.
        DataError: if it is no regular file, is no array, or is shorter than its header says.
    """
    place = Place.of(file)
    with library_errors(lambda why: DataError(place.name, f"not a NumPy array: {why}"), FileNotFoundError):
        regular(place.path)
        array = np.load(place.path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            array.close()
            raise ValueError("it is an .npz file of several arrays")
        return array


def read_npy(place: Place) -> tuple[AnyArray, str | None]:
    """Map the vectors of an ``.npy`` file, which keeps no settings.

    Raises:
        InputError: if it is missing.
        DataError: as for `mapped_array`.
    """
    try:
        return mapped_array(place), None
    except FileNotFoundError as error:
        raise InputError(f"no such file: {place}") from error


def read_safetensors(place: Place) -> tuple[AnyArray, str | None]:
    """Read the vectors of a safetensors file, and the text of the settings in its head, if there is one.

    Raises:
        InputError: if it is missing.
        DataError: if it is damaged, or has no tensor of vectors.
    """
    from safetensors import safe_open

    damaged = library_errors(
        lambda why: DataError(place.name, f"not a readable safetensors file: {why}"), FileNotFoundError
    )
    vectors: AnyArray | None = None
    try:
        with damaged:
            regular(place.path)
            with safe_open(place.path, "numpy") as file:
                names = list(file.keys())
                metadata = file.metadata() or {}
                if TENSOR in names:
                    vectors = file.get_tensor(TENSOR)
    except FileNotFoundError as error:
        raise InputError(f"no such file: {place}") from error
    if vectors is None:
        has = ", ".join(names[:5]) or "none"
        raise DataError(place.name, f"no tensor {TENSOR!r} of vectors; it has: {has}")
    return vectors, metadata.get("settings")


@dataclass(frozen=True)
class OutputFormat:
    """A format of outputs; `output_format` tells it from the name of an output."""

    name: str
    """``stdout``, ``directory``, or the suffix of a file."""
    keeps_rows: bool = True
    """Whether ids, texts and other columns stand beside the vectors."""
    keeps_settings: bool = True
    """Whether the settings that decide the vectors are stored with them."""
    compresses: bool = False
    writer: Callable[[Path, OutputPlan], AbstractContextManager[Write]] | None = None
    """Opens a file to be written; None for what is no file."""
    read: Callable[[Place], tuple[AnyArray, str | None]] | None = None
    """Returns the vectors of a file that keeps them alone, and the text of its settings; None for all others."""


STDOUT = OutputFormat("stdout", keeps_settings=False)
DIRECTORY = OutputFormat("directory")
"""A directory of shards, which `dataset_writer` writes."""
FILES = {
    form.name: form
    for form in (
        OutputFormat(".npy", keeps_rows=False, keeps_settings=False, writer=npy_writer, read=read_npy),
        OutputFormat(".parquet", compresses=True, writer=parquet_writer),
        OutputFormat(".jsonl", keeps_settings=False, writer=jsonl_writer),
        OutputFormat(".safetensors", keeps_rows=False, writer=safetensors_writer, read=read_safetensors),
    )
}
"""The formats of files, by their suffixes."""
VERSION = re.compile(r"\.v?\d(?!z$)")
"""The end of a version such as ``.0`` or ``.v2``, which is part of the name of a directory; ``.7z`` is an archive."""


def output_format(target: str) -> OutputFormat:
    """Return the format of an output by its name; ``-`` is standard output, and ``v2.0`` the name of a directory.

    Raises:
        InputError: for the suffix of another format, or one that is mistyped.
    """
    if target == "-":
        return STDOUT
    suffix = Path(target).suffix.lower()
    if suffix in FILES:
        return FILES[suffix]
    if suffix and not VERSION.match(suffix):
        hint = nearest(suffix, list(FILES))
        raise InputError(f"{target}: unknown output format {suffix!r}{hint}; use {', '.join(FILES)} or no suffix")
    return DIRECTORY


@contextmanager
def open_writer(target: str, plan: OutputPlan) -> Iterator[Write]:
    """Yield a function that writes to a file or to standard output.

    The file gets its name after the block, when it is complete.
    """
    form = output_format(target)
    if form is STDOUT:
        with stdout_writer() as write:
            yield write
        return
    if form.writer is None:
        raise ValueError(f"{target} is a directory of shards")
    with replacing(Path(target)) as temporary, form.writer(temporary, plan) as write:
        yield write
