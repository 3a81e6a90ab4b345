"""Vectors out: npy, parquet, jsonl and safetensors files, and standard output. For directories see `dataset`.

Each writer streams: memory does not grow with the number of rows. A file appears under its final name when it is
complete.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError, nearest
from sentcli.io.atomic import replacing
from sentcli.io.readers import Block

Vectors = npt.NDArray[Any]
"""``[rows, dim]`` of one of the types of DTYPES."""
SUFFIXES = (".npy", ".parquet", ".jsonl", ".safetensors")
DTYPES = {"float32": "F32", "float16": "F16", "int8": "I8", "uint8": "U8"}
"""Element types, and what safetensors calls them."""


@dataclass(frozen=True)
class OutputPlan:
    """What will be written: `rows` vectors of `dimension`, with the other columns of the input."""

    rows: int
    dimension: int
    column_types: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    """Everything that decides the vectors; stored with them."""
    dtype: str = "float32"
    """Of DTYPES."""


class Writer(Protocol):
    """Takes blocks of rows with their vectors ``[rows, dim]``, in order."""

    def write(self, block: Block, vectors: Vectors) -> None:
        """Append."""


def output_kind(target: str) -> str:
    """Return ``stdout``, ``directory`` or a suffix of SUFFIXES."""
    if target == "-":
        return "stdout"
    suffix = Path(target).suffix.lower()
    if suffix in SUFFIXES:
        return suffix
    if suffix:
        hint = nearest(suffix, list(SUFFIXES))
        raise InputError(f"{target}: unknown output format {suffix!r}{hint}; use {', '.join(SUFFIXES)} or no suffix")
    return "directory"


@contextmanager
def open_writer(target: str, plan: OutputPlan) -> Iterator[Writer]:
    """Open the writer for one file or standard output; the file is renamed into place when the block ends well."""
    kind = output_kind(target)
    if kind == "stdout":
        yield JsonlWriter(sys.stdout)
        sys.stdout.flush()
        return
    with replacing(Path(target)) as temporary, ExitStack() as stack:
        if kind == ".jsonl":
            yield JsonlWriter(stack.enter_context(temporary.open("w", encoding="utf-8")))
        elif kind == ".parquet":
            yield stack.enter_context(ParquetWriter(temporary, plan))
        else:
            handle = stack.enter_context(temporary.open("wb"))
            yield npy_writer(handle, plan) if kind == ".npy" else safetensors_writer(handle, plan)


@dataclass(frozen=True)
class RawWriter:
    """Row-major ``[rows, dim]`` behind a header that is there already."""

    handle: IO[bytes]
    dtype: np.dtype[Any]

    def write(self, block: Block, vectors: Vectors) -> None:
        """Append the vectors."""
        self.handle.write(np.ascontiguousarray(vectors, dtype=self.dtype).data)


def npy_writer(handle: IO[bytes], plan: OutputPlan) -> RawWriter:
    """Begin an ``.npy`` file."""
    dtype = np.dtype(plan.dtype).newbyteorder("<")
    header = {"descr": dtype.str, "fortran_order": False, "shape": (plan.rows, plan.dimension)}
    np.lib.format.write_array_header_1_0(handle, header)
    return RawWriter(handle, dtype)


def safetensors_writer(handle: IO[bytes], plan: OutputPlan) -> RawWriter:
    """Begin a file with one tensor ``embeddings``; the settings go into the header's metadata.

    The safetensors library serialises whole arrays from memory; the format (an 8-byte length, a JSON header, raw
    row-major data) allows streaming.
    """
    dtype = np.dtype(plan.dtype).newbyteorder("<")
    size = plan.rows * plan.dimension * dtype.itemsize
    tensor = {"dtype": DTYPES[plan.dtype], "shape": [plan.rows, plan.dimension], "data_offsets": [0, size]}
    metadata = {"settings": json.dumps(plan.settings, ensure_ascii=False)}
    header = json.dumps({"__metadata__": metadata, "embeddings": tensor}).encode()
    header += b" " * (-len(header) % 8)
    handle.write(struct.pack("<Q", len(header)) + header)
    return RawWriter(handle, dtype)


class JsonlWriter:
    """One object a row: ``id``, ``text``, the other columns, ``embedding``."""

    def __init__(self, handle: IO[str]) -> None:
        self.handle = handle

    def write(self, block: Block, vectors: Vectors) -> None:
        """Append rows."""
        for i, vector in enumerate(vectors):
            row = {"id": block.ids[i], "text": block.texts[i]}
            row.update((name, values[i]) for name, values in block.columns.items())
            numbers = ",".join(vector.astype("U"))  # float32's shortest text that reads back to the same bits
            self.handle.write(f'{_json(row)[:-1]}, "embedding": [{numbers}]}}\n')


class ParquetWriter:
    """``id``, ``text``, the other columns and, for vectors, ``embedding`` as a fixed-size list."""

    def __init__(self, path: Path, plan: OutputPlan, *, vectors: bool = True) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.with_vectors, self.dimension, self.types = vectors, plan.dimension, plan.column_types
        fields = [("id", pa.string()), ("text", pa.string()), *plan.column_types.items()]
        if vectors:
            self.element = pa.from_numpy_dtype(np.dtype(plan.dtype))
            fields.append(("embedding", pa.list_(self.element, plan.dimension)))
        metadata = {"sentcli": json.dumps(plan.settings, ensure_ascii=False)}
        self.schema = pa.schema(fields, metadata=metadata)
        self.writer = pq.ParquetWriter(path, self.schema)

    def write(self, block: Block, vectors: Vectors) -> None:
        """Append one row group."""
        import pyarrow as pa

        arrays = [pa.array(block.ids, pa.string()), pa.array(block.texts, pa.string())]
        for name, kind in self.types.items():
            values = block.columns[name]
            if pa.types.is_string(kind):
                values = [_as_text(value) for value in values]
            arrays.append(pa.array(values, kind))
        if self.with_vectors:
            flat = pa.array(np.ascontiguousarray(vectors).reshape(-1), self.element)
            arrays.append(pa.FixedSizeListArray.from_arrays(flat, self.dimension))
        self.writer.write_table(pa.Table.from_arrays(arrays, schema=self.schema))

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:  # NaN and the infinities, which JSON does not have, become null
        plain = json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)
        return json.dumps(plain, ensure_ascii=False)


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _json(value) if isinstance(value, (bool, int, float, list, dict)) else str(value)
