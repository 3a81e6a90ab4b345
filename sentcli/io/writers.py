"""Write vectors to npy, parquet, jsonl and safetensors files, to standard output, and to directories of shards.

Every writer streams, so that memory does not grow with the number of rows. A file gets its final name when it is
complete.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError, nearest
from sentcli.io import dataset
from sentcli.io.atomic import replacing
from sentcli.io.dataset import Counts, InputGroup, Manifest, Shard, ShardShare
from sentcli.io.digests import file_digest
from sentcli.io.folder import Folder
from sentcli.io.json_files import write_json
from sentcli.io.readers import Block
from sentcli.printable import escaped

if TYPE_CHECKING:
    import pyarrow as pa

Vectors = npt.NDArray[Any]
"""``[rows, dim]`` of one of the types of DTYPES."""
SUFFIXES = (".npy", ".parquet", ".jsonl", ".safetensors")
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


Write = Callable[[Block, Vectors], None]
"""Appends the rows of a block with their vectors ``[rows, dim]``."""


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
def open_writer(target: str, plan: OutputPlan) -> Iterator[Write]:
    """Yield a function that writes to a file or to standard output; the file is complete after the block."""
    kind = output_kind(target)
    if kind == "stdout":
        yield partial(_write_jsonl, lambda line: sys.stdout.write(escaped(line)))
        sys.stdout.flush()
        return
    with replacing(Path(target)) as temporary, ExitStack() as stack:
        if kind == ".jsonl":
            yield partial(_write_jsonl, stack.enter_context(temporary.open("w", encoding="utf-8")).write)
        elif kind == ".parquet":
            yield stack.enter_context(parquet_writer(temporary, plan))
        else:
            handle = stack.enter_context(temporary.open("wb"))
            yield npy_writer(handle, plan) if kind == ".npy" else safetensors_writer(handle, plan)


def npy_writer(handle: IO[bytes], plan: OutputPlan) -> Write:
    """Begin an ``.npy`` file."""
    dtype = np.dtype(plan.dtype).newbyteorder("<")
    header = {"descr": dtype.str, "fortran_order": False, "shape": (plan.rows, plan.dimension)}
    np.lib.format.write_array_header_1_0(handle, header)
    return partial(_write_raw, handle, dtype)


def safetensors_writer(handle: IO[bytes], plan: OutputPlan) -> Write:
    """Begin a file with one tensor ``embeddings``, and the settings in the metadata of its header.

    The safetensors library can only write whole arrays from memory. Its format, an 8-byte length, a JSON header and raw
    row-major data, can be streamed.
    """
    dtype = np.dtype(plan.dtype).newbyteorder("<")
    size = plan.rows * plan.dimension * dtype.itemsize
    tensor = {"dtype": DTYPES[plan.dtype], "shape": [plan.rows, plan.dimension], "data_offsets": [0, size]}
    metadata = {"settings": json.dumps(plan.settings, ensure_ascii=False)}
    header = json.dumps({"__metadata__": metadata, "embeddings": tensor}).encode()
    header += b" " * (-len(header) % 8)
    handle.write(struct.pack("<Q", len(header)) + header)
    return partial(_write_raw, handle, dtype)


def _write_raw(handle: IO[bytes], dtype: np.dtype[Any], _: Block, vectors: Vectors) -> None:
    """Append the vectors row by row."""
    handle.write(np.ascontiguousarray(vectors, dtype=dtype).data)


def _write_jsonl(write: Callable[[str], object], block: Block, vectors: Vectors) -> None:
    """Append an object with ``id``, ``text``, the other columns and ``embedding`` for each row."""
    for i, vector in enumerate(vectors):
        row = {"id": block.ids[i], "text": block.texts[i]}
        row.update((name, values[i]) for name, values in block.columns.items())
        numbers = ",".join(vector.astype("U"))  # the shortest text of each float32 that gives the same bits again
        write(f'{_json(row)[:-1]}, "embedding": [{numbers}]}}\n')


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
    schema = pa.schema(fields, metadata={"sentcli": json.dumps(plan.settings, ensure_ascii=False)})
    with pq.ParquetWriter(path, schema) as writer:

        def write(block: Block, vectors: Vectors) -> None:
            arrays = [pa.array(block.ids, pa.string()), pa.array(block.texts, pa.string())]
            arrays += [arrow_column(block.columns[name], kind) for name, kind in plan.column_types.items()]
            if with_vectors:
                flat = pa.array(np.ascontiguousarray(vectors).reshape(-1), element)
                arrays.append(pa.FixedSizeListArray.from_arrays(flat, plan.dimension))
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

        yield write


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:  # NaN and the infinities, which JSON does not have, become null
        plain = json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)
        return json.dumps(plain, ensure_ascii=False)


def arrow_column(values: Sequence[Any], kind: Any) -> pa.Array:
    """Return the values of a column as an array of an Arrow type; text holds other values as JSON."""
    import pyarrow as pa

    return pa.array(map(as_text, values) if pa.types.is_string(kind) else values, kind)


def as_text(value: Any) -> str | None:
    """Return a value of a column of texts: as it is, or as JSON."""
    if value is None or isinstance(value, str):
        return value
    return _json(value) if isinstance(value, (bool, int, float, list, dict)) else str(value)


@dataclass(frozen=True)
class ShardPlace:
    """Where a shard is written: the folder of its dataset, its number in it, and the number of its first row."""

    folder: Path
    number: int
    first_row: int


class ShardWriter:
    """Writes the two files of one shard, which get their names when it is complete."""

    def __init__(self, place: ShardPlace, plan: OutputPlan) -> None:
        """Open the files.

        Args:
            place: where they are.
            plan: the output for the rows of the shard.
        """
        self.place, self.plan, self.counts = place, plan, Counts()
        self.names = dataset.shard_names(place.number)
        self.stack = ExitStack()
        vectors_path, rows_path = (self.stack.enter_context(replacing(place.folder / name)) for name in self.names)
        handle = self.stack.enter_context(vectors_path.open("wb"))
        write_rows = self.stack.enter_context(parquet_writer(rows_path, plan, with_vectors=False))
        self.open_files = npy_writer(handle, plan), write_rows

    @property
    def full(self) -> bool:
        """Whether all rows of the plan have been written."""
        return self.counts.rows >= self.plan.rows

    def write(self, block: Block, vectors: Vectors, counts: Counts) -> None:
        """Append rows."""
        for write in self.open_files:
            write(block, vectors)
        self.counts += counts

    def publish(self) -> Shard:
        """Give the files their names, and return the shard as the manifest lists it."""
        self.stack.close()
        vectors, rows = self.names
        digests = {name: file_digest(self.place.folder / name) for name in self.names}
        facts = asdict(self.counts)
        count = facts.pop("rows")
        return Shard(self.place.number, vectors, rows, self.place.first_row, count, **facts, sha256=digests)

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self.stack.__exit__(*error)


class DatasetWriter:
    """Writes the missing shards of a dataset, or of one machine's share of it.

    The manifest is written anew after each shard, so that a run that is killed at any moment can be resumed.
    """

    def __init__(
        self,
        place: Path | Folder,
        plan: OutputPlan,
        shard_rows: int,
        inputs: InputGroup,
        *,
        part: ShardShare | None = None,
        resume: bool = False,
        append: bool = False,
    ) -> None:
        """Find out which shards are missing.

        Args:
            place: the folder of the dataset, or where it lies.
            plan: the output for the rows of `inputs`.
            shard_rows: the number of rows in a shard.
            inputs: the inputs of this run.
            part: this machine's share of the shards.
            resume: keep finished shards of the same inputs and settings.
            append: add the inputs after the existing ones, unless they are the last of these already; the parts of
                several machines become one dataset.

        Raises:
            InputError: if the existing dataset was made from other inputs or with other settings.
        """
        self.place = place if isinstance(place, Folder) else Folder(place)
        self.folder, self.plan, self.part = self.place.path, plan, part or ShardShare()
        self.damaged: list[str] = []
        """What is wrong with each shard that was finished and is damaged now."""
        self.manifest = Manifest(
            dimension=plan.dimension,
            dtype=plan.dtype,
            shard_rows=shard_rows,
            part=self.part,
            groups=[inputs],
            columns={name: str(kind) for name, kind in plan.column_types.items()},
            settings=plan.settings,
        ).with_shards([])
        if resume or append:
            self._continue(inputs, append=append)
        earlier = self.manifest.groups[:-1]
        self.first_row = sum(group.rows for group in earlier)
        self.first_number = sum(group.read for group in earlier)
        self.first_shard = self.manifest.shards_before(earlier)
        finished = {shard.number - self.first_shard for shard in self.manifest.shards}
        self.share = self.part.shards(-(-plan.rows // shard_rows))
        """The numbers of this machine's shards, counted from the first shard of these inputs."""
        self.missing = [number for number in self.share if number not in finished]
        """The numbers of the shards in `share` that are missing."""
        self.expected = sum(map(self._size, self.missing))
        self.rows_before = sum(map(self._size, self.share)) - self.expected
        self.current: ShardWriter | None = None
        """The shard that is being written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        dataset.refuse_links(self.folder)

    def _continue(self, inputs: InputGroup, *, append: bool) -> None:
        """Take over the finished shards of the existing dataset, if it was made from the same inputs and settings."""
        path = self.folder / self.part.manifest
        files = self.folder.iterdir() if append and self.folder.is_dir() else ()
        if not path.exists() and not any(dataset.PART.fullmatch(file.name) for file in files):
            if append:
                raise InputError(f"{self.folder} holds no dataset to append to; leave --append out to start one")
            return
        old = dataset.load_manifest(path) if path.exists() else dataset.read_manifest(self.folder)
        self._require_same(old, "settings", "shard_rows")
        same = old.groups[-1].inputs == inputs.inputs
        if not same and not append:
            changed = _inputs_difference(old.groups[-1].inputs, inputs.inputs)
            raise InputError(f"{self.folder} cannot be resumed, inputs differ: {changed}; use --overwrite")
        self._require_same(old, "columns")
        if not same and old.rows_done != old.rows_total:
            raise InputError(
                f"{self.folder} is unfinished ({old.rows_done} of {old.rows_total} rows): finish it with the command "
                "that began it and --resume, then append"
            )
        problems = {shard.number: problem for shard in old.shards if (problem := self.place.damage(shard, old))}
        last = old.shards_before(old.groups[:-1])
        for number, problem in problems.items():
            if not same or number < last:
                raise InputError(
                    f"{self.folder}: {problem}; it was made from earlier inputs, encode all with --overwrite"
                )
        self.damaged = list(problems.values())
        groups = old.groups if same else [*old.groups, inputs]
        whole = [shard for shard in old.shards if shard.number not in problems]
        self.manifest = replace(self.manifest, groups=groups).with_shards(whole)

    def _require_same(self, old: Manifest, *keys: str) -> None:
        """Refuse to continue a dataset whose manifest has other values of these keys."""
        settings = self.plan.settings
        if "model_fingerprint" in settings and old.settings.get("model_fingerprint") == settings["model_fingerprint"]:
            old = replace(old, settings={**old.settings, "model": settings["model"]})  # its path may be another one
        for key in keys:
            before, now = getattr(old, key), getattr(self.manifest, key)
            if before != now:
                changed = dataset.difference(before, now)
                raise InputError(f"{self.folder} cannot be resumed, {key} differ: {changed}; use --overwrite")

    def clear(self) -> None:
        """Delete files that an interrupted or replaced run of this share has left, and manifests that were joined."""
        share = {self.first_shard + number for number in self.share}
        finished = {shard.number for shard in self.manifest.shards}
        whole = self.part.of == 1
        for file in self.place.names():
            partial = dataset.PARTIAL.fullmatch(file)
            name = partial[1] if partial else file
            shard = dataset.SHARD_FILE.fullmatch(name)
            number = int(shard[1] or shard[2]) if shard else None
            own = number in share or (whole and number is not None) or name == self.part.manifest
            stale = whole and dataset.PART.fullmatch(name) is not None
            if stale or (own and (partial or (number is not None and number not in finished))):
                self.place.remove(file)

    def write(self, block: Block, vectors: Vectors, counts: Counts) -> None:
        """Append rows to their shard, and finish the shard when it is full."""
        if self.current is None:
            self.current = ShardWriter(self.shard_place(block.shard), self.shard_plan(block.shard))
        self.current.write(block, vectors, counts)
        if self.current.full:
            shard, self.current = self.current.publish(), None
            self.add(shard)

    def shard_place(self, number: int) -> ShardPlace:
        """Return where one of the shards of these inputs is written."""
        return ShardPlace(self.folder, self.first_shard + number, self.first_row + number * self.manifest.shard_rows)

    def shard_plan(self, number: int) -> OutputPlan:
        """Return the output for the rows of one of the shards of these inputs."""
        return replace(self.plan, rows=self._size(number))

    def add(self, shard: Shard) -> None:
        """Put the finished files of a shard where the dataset lies, and enter it into the manifest."""
        self.place.publish(shard.vectors, shard.rows)
        self.manifest = self.manifest.with_shards([*self.manifest.shards, shard])
        self._write_manifest()

    def _size(self, number: int) -> int:
        return min(self.manifest.shard_rows, self.plan.rows - number * self.manifest.shard_rows)

    def _write_manifest(self) -> None:
        write_json(self.folder / self.part.manifest, asdict(self.manifest))
        self.place.publish(self.part.manifest)

    def __enter__(self) -> DatasetWriter:
        if self.missing or not (self.folder / self.part.manifest).exists():
            self._write_manifest()
        self.clear()  # only after the new manifest is written: it may delete the only other ones
        return self

    def __exit__(self, *error: Any) -> None:
        if self.current is not None:
            self.current.__exit__(*error)


def _inputs_difference(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> str:
    for before, now in zip(old, new, strict=False):
        if before != now:
            return f"{now.get('name')}: {dataset.difference(before, now)}"
    return f"{', '.join(i['name'] for i in old)} there, {', '.join(i['name'] for i in new)} now"
