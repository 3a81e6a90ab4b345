"""Vectors out: npy, parquet, jsonl and safetensors files, standard output, and directories of shards.

Each writer streams: memory does not grow with the number of rows. A file appears under its final name when it is
complete; a directory grows by whole shards, and its manifest says how far it has come.
"""

from __future__ import annotations

import json
import re
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
from sentcli.io.atomic import replacing, write_json
from sentcli.io.readers import Block

Vectors = npt.NDArray[np.float32]
SUFFIXES = (".npy", ".parquet", ".jsonl", ".safetensors")
MANIFEST = "manifest.json"
SHARD_FILE = r"(vectors-\d{5,}\.npy|rows-\d{5,}\.parquet)"


@dataclass(frozen=True)
class Plan:
    """What will be written: `rows` vectors of `dimension`, with the other columns of the input."""

    rows: int
    dimension: int
    column_types: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    """Everything that decides the vectors; stored with them."""


class Writer(Protocol):
    """Takes blocks of rows with their vectors ``[rows, dim]``, in order."""

    def write(self, block: Block, vectors: Vectors) -> None:
        """Append."""


def output_kind(target: str) -> str:
    """Return ``stdout``, ``directory`` or a suffix of SUFFIXES.

    Raises:
        InputError: for a suffix that is not an output format.
    """
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
def open_writer(target: str, plan: Plan) -> Iterator[Writer]:
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
            yield NpyWriter(handle, plan) if kind == ".npy" else SafetensorsWriter(handle, plan)


class NpyWriter:
    """Row-major float32 ``[rows, dim]``; the header is written first, so the row count must be known."""

    def __init__(self, handle: IO[bytes], plan: Plan) -> None:
        self.handle = handle
        header = {"descr": "<f4", "fortran_order": False, "shape": (plan.rows, plan.dimension)}
        np.lib.format.write_array_header_1_0(handle, header)

    def write(self, block: Block, vectors: Vectors) -> None:
        """Append the vectors."""
        self.handle.write(np.ascontiguousarray(vectors, dtype="<f4").data)


class SafetensorsWriter:
    """One tensor ``embeddings``; the settings go into the header's metadata.

    The safetensors library serialises whole arrays from memory; the format (an 8-byte length, a JSON header, raw
    row-major data) allows streaming.
    """

    def __init__(self, handle: IO[bytes], plan: Plan) -> None:
        self.handle = handle
        size = plan.rows * plan.dimension * 4
        tensor = {"dtype": "F32", "shape": [plan.rows, plan.dimension], "data_offsets": [0, size]}
        metadata = {"settings": json.dumps(plan.settings, ensure_ascii=False)}
        header = json.dumps({"__metadata__": metadata, "embeddings": tensor}).encode()
        header += b" " * (-len(header) % 8)
        handle.write(struct.pack("<Q", len(header)) + header)

    def write(self, block: Block, vectors: Vectors) -> None:
        """Append the vectors."""
        self.handle.write(np.ascontiguousarray(vectors, dtype="<f4").data)


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
    """``id``, ``text``, the other columns and, for vectors, ``embedding`` as a fixed-size list of float32."""

    def __init__(self, path: Path, plan: Plan, *, vectors: bool = True) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.with_vectors, self.dimension, self.types = vectors, plan.dimension, plan.column_types
        fields = [("id", pa.string()), ("text", pa.string()), *plan.column_types.items()]
        if vectors:
            fields.append(("embedding", pa.list_(pa.float32(), plan.dimension)))
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
            flat = pa.array(np.ascontiguousarray(vectors).reshape(-1), pa.float32())
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


class DatasetWriter:
    """A directory of shards: ``vectors-00000.npy``, ``rows-00000.parquet``, ... and ``manifest.json``.

    The manifest is rewritten after each finished shard, so that a run killed at any moment resumes there. Blocks
    must end at shard boundaries (`blocks(break_every=shard_rows)`).
    """

    def __init__(self, folder: Path, plan: Plan, shard_rows: int, *, resume: bool = False) -> None:
        self.folder, self.plan, self.shard_rows = folder, plan, shard_rows
        self.shards: list[dict[str, Any]] = []
        if resume and (folder / MANIFEST).exists():
            self.shards = self._finished_shards()
        self.rows_done: int = sum(shard["count"] for shard in self.shards)
        self.stack = ExitStack()
        self.current: tuple[NpyWriter, ParquetWriter] | None = None
        self.count = 0
        folder.mkdir(parents=True, exist_ok=True)
        for old in list(folder.iterdir()):
            stale = re.fullmatch(rf"\.({SHARD_FILE}|{re.escape(MANIFEST)})\.\d+\.partial", old.name)
            if stale or (not self.shards and re.fullmatch(SHARD_FILE, old.name)):
                old.unlink()

    def _finished_shards(self) -> list[dict[str, Any]]:
        manifest = read_manifest(self.folder)
        there, now = manifest["settings"], self.plan.settings
        if "model_fingerprint" in now and there.get("model_fingerprint") == now["model_fingerprint"]:
            there["model"] = now["model"]  # the same model under another path
        wanted = {"settings": self.plan.settings, "rows_total": self.plan.rows, "shard_rows": self.shard_rows}
        for key, value in wanted.items():
            if manifest.get(key) != value:
                difference = _difference(manifest.get(key), value)
                raise InputError(f"{self.folder} cannot be resumed, {key} differ: {difference}; use --overwrite")
        shards: list[dict[str, Any]] = manifest["shards"]
        return shards

    def write(self, block: Block, vectors: Vectors) -> None:
        """Append rows; a shard that is full is published."""
        if self.current is None:
            self._open()
        assert self.current is not None
        for writer in self.current:
            writer.write(block, vectors)
        self.count += len(block)
        if self.count >= self._shard_size():
            self._publish()

    def _shard_size(self) -> int:
        return min(self.shard_rows, self.plan.rows - self.rows_done)

    def _names(self) -> tuple[str, str]:
        number = len(self.shards)
        return f"vectors-{number:05d}.npy", f"rows-{number:05d}.parquet"

    def _open(self) -> None:
        size = Plan(self._shard_size(), self.plan.dimension, self.plan.column_types, self.plan.settings)
        vectors_path, rows_path = (self.stack.enter_context(replacing(self.folder / name)) for name in self._names())
        handle = self.stack.enter_context(vectors_path.open("wb"))
        rows_writer = self.stack.enter_context(ParquetWriter(rows_path, size, vectors=False))
        self.current = NpyWriter(handle, size), rows_writer

    def _publish(self) -> None:
        self.stack.close()
        vectors_name, rows_name = self._names()
        self.shards.append({"vectors": vectors_name, "rows": rows_name, "count": self.count})
        self.rows_done += self.count
        self.current, self.count = None, 0
        self._write_manifest()

    def _write_manifest(self) -> None:
        manifest = {
            "format": 1,
            "rows_total": self.plan.rows,
            "rows_done": self.rows_done,
            "dimension": self.plan.dimension,
            "shard_rows": self.shard_rows,
            "shards": self.shards,
            "settings": self.plan.settings,
        }
        write_json(self.folder / MANIFEST, manifest)

    def __enter__(self) -> DatasetWriter:
        if self.rows_done == 0:
            self._write_manifest()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stack.__exit__(*error)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a directory written by `encode`.

    Raises:
        InputError: if there is none, or it is damaged.
    """
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if manifest["format"] != 1 or not isinstance(manifest["shards"], list):
            raise KeyError("format")
    except FileNotFoundError as error:
        raise InputError(f"{folder} was not written by 'sentcli encode': it has no {MANIFEST}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged ({error}); encode again with --overwrite") from error
    return manifest


def _difference(old: Any, new: Any) -> str:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return f"{old!r} there, {new!r} now"
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key)!r} there, {new.get(key)!r} now" for key in changed)
