"""A file of vectors that `encode` wrote, as a corpus: Parquet, or safetensors and npy with their texts beside."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.errors import DataError, InputError, library_errors, one_line
from sentcli.io.atomic import regular
from sentcli.io.digests import file_digest
from sentcli.io.folder import local_place
from sentcli.io.forms import decode
from sentcli.io.packed import PACKED
from sentcli.io.places import Place
from sentcli.io.readers import ReadOptions
from sentcli.io.sources import FORMATS
from sentcli.io.writers import mapped_array
from sentcli.search.exact import BLOCK, Blocks
from sentcli.search.origin import Origin
from sentcli.search.rows import EMBEDDING, Rows, RowsInMemory, RowsOnDisk, read_rows, reading
from sentcli.search.store import Store

Array = npt.NDArray[Any]
TENSOR = "embeddings"
"""The tensor of the vectors in a safetensors file."""
RECORD_KEY = b"sentcli"
"""The key of the settings in the metadata of a Parquet file."""
ALONE = (".npy", ".safetensors")
"""The suffixes of files that hold vectors alone, without their texts."""
LARGEST_COMPONENT = 1e15
"""The largest component of a vector whose inner products float32 holds, whatever the dimension."""


@dataclass(frozen=True)
class VectorFile:
    """The vectors of a file, and their rows."""

    place: Place
    blocks: Blocks
    origin: Origin
    texts: str | None
    """The file of the rows of vectors that stand alone; None looks for it beside them."""
    options: ReadOptions
    """The columns of a file of texts that says nothing else."""

    @classmethod
    def open(cls, place: Place, texts: str | None = None, options: ReadOptions | None = None) -> VectorFile:
        """Read the vectors of a ``.npy``, ``.safetensors`` or ``.parquet`` file and what it says about them.

        Args:
            place: of a file for which `holds_vectors` is true.
            texts: the file of the texts; None looks for it beside vectors that stand alone.
            options: the columns of a file of texts that says nothing else.

        Raises:
            InputError: if `texts` goes with vectors that have their texts.
            DataError: if the file is damaged or holds something else.
        """
        suffix = place.path.suffix.lower()
        if texts is not None and suffix not in ALONE:
            raise InputError(f"{place} holds its texts itself; --texts goes with vectors alone (.npy, .safetensors)")
        arrays, settings = {".npy": _read_npy, ".safetensors": _read_safetensors, ".parquet": _read_parquet}[suffix](
            place
        )
        for array in arrays:
            if array.ndim != 2 or array.dtype.kind not in "fiu":
                shape = f"an array {array.shape} of {array.dtype}"
                raise DataError(place.name, f"{shape}; vectors are numbers [rows, dimensions]")
            if not array.shape[1] and (len(array) or suffix != ".parquet"):
                raise DataError(place.name, f"an array {array.shape}: its vectors have no columns")
            for start in range(0, len(array), BLOCK):
                part = array[start : start + BLOCK]
                if not np.isfinite(part).all():
                    raise DataError(place.name, "some numbers are not finite")
                if part.size and max(part.max(), -float(part.min())) > LARGEST_COMPONENT:
                    raise DataError(
                        place.name, f"some numbers are beyond {LARGEST_COMPONENT:g}: their products would overflow"
                    )
        if not settings and arrays[0].dtype in (np.uint8, np.int8):  # encode writes these types for no other
            settings = {"output_dtype": "binary" if arrays[0].dtype == np.uint8 else "int8"}
        origin = Origin.named(place.name, settings)
        if origin.bits and arrays[0].dtype != np.uint8:
            raise DataError(
                place.name, f"an array of {arrays[0].dtype}, which holds no bits; encode again with --overwrite"
            )
        blocks = Blocks(arrays, signs=origin.signs(arrays[0].shape[1]))
        return cls(place, blocks, origin, texts, options or ReadOptions())

    @cached_property
    def rows(self) -> Rows:
        """The rows of the vectors.

        Raises:
            InputError: if no texts are found, or they are not those of the vectors.
            DataError: if a file is damaged.
        """
        if self.place.path.suffix.lower() in ALONE:
            return _rows_beside(self)
        if self.origin.known:
            return RowsOnDisk([self.place.path], [len(self.blocks)])
        return read_rows([str(self.place.path)], self.options)


def open_stored(
    name: str, texts: str | None, options: ReadOptions, *, to_search: bool = True
) -> Store | VectorFile | None:
    """Return the vectors in a directory or a file that `encode` wrote; None if it is a file of texts.

    Args:
        name: the directory or file, also in an object store.
        texts: see `VectorFile.open`.
        options: see `VectorFile.open`.
        to_search: whether the vectors have to be comparable with those of queries.

    Raises:
        InputError: if the vectors cannot be used, or `texts` goes with none.
    """
    place = local_place(name) if name != "-" else Place(name, Path(name))
    if not place.path.is_dir() and holds_vectors(place):
        vectors = VectorFile.open(place, texts, options)
        vectors.origin.check_numbers(to_search=to_search)
        console.detail(f"{name}: {len(vectors.rows):,} rows")
        return vectors
    stored = Store.open(place.path, place.name, to_search=to_search) if place.path.is_dir() else None
    if texts is not None:
        raise InputError(f"{name} holds its texts itself; --texts goes with vectors alone (.npy, .safetensors)")
    return stored


def open_vectors(name: str) -> Store | VectorFile:
    """Return the vectors in a directory or a file that `encode` wrote, whose rows are not needed.

    Raises:
        InputError: if there are none.
    """
    place = local_place(name)
    if place.path.is_dir():
        return Store.open(place.path, place.name)
    if not holds_vectors(place):
        raise InputError(
            f"{name} holds no vectors: give what encode wrote, a directory, .npy, .parquet or .safetensors"
        )
    return VectorFile.open(place)


def holds_vectors(name: str | Place) -> bool:
    """Tell whether a file holds vectors: by its suffix, or a Parquet file by its column of vectors."""
    place = name if isinstance(name, Place) else Place(name, Path(name))
    path = place.path
    if path.suffix.lower() in ALONE:
        return True
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(place, "not a readable Parquet file"):
        schema = pq.read_schema(path)
    kind = schema.field(EMBEDDING).type if EMBEDDING in schema.names else pa.null()
    is_list = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return is_list and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


def _read_npy(place: Place) -> tuple[list[Array], dict[str, Any]]:
    try:
        return [mapped_array(place)], {}
    except FileNotFoundError as error:
        raise InputError(f"no such file: {place}") from error


def _read_safetensors(place: Place) -> tuple[list[Array], dict[str, Any]]:
    from safetensors import safe_open

    try:
        with library_errors(
            lambda why: DataError(place.name, f"not a readable safetensors file: {why}"), FileNotFoundError
        ):
            regular(place.path)
            with safe_open(place.path, "numpy") as file:
                names, metadata = list(file.keys()), file.metadata() or {}
                array = file.get_tensor(TENSOR) if TENSOR in names else None
    except FileNotFoundError as error:
        raise InputError(f"no such file: {place}") from error
    if array is None:
        has = ", ".join(names[:5]) or "none"
        raise DataError(place.name, f"no tensor {TENSOR!r} of vectors; it has: {has}")
    return [array], _settings(place, metadata.get("settings"))


def _read_parquet(place: Place) -> tuple[list[Array], dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with reading(place, "not a readable Parquet file"):
        file = pq.ParquetFile(place.path)
        record = (file.schema_arrow.metadata or {}).get(RECORD_KEY)
        column = file.read(columns=[EMBEDDING]).column(0)
    arrays: list[Array] = []
    first = 0
    for chunk in column.chunks:
        if chunk.null_count:
            row = first + pc.index(chunk.is_null(), True).as_py() + 1
            raise DataError(place.name, f"{EMBEDDING!r} is null", line=row, unit="row")
        sizes = pc.unique(pc.list_value_length(chunk)).to_pylist()
        widths = {*sizes, *(array.shape[1] for array in arrays)}
        numbers = pc.list_flatten(chunk)
        if len(widths) > 1 or numbers.null_count:
            raise DataError(place.name, f"{EMBEDDING!r} holds lists of {sorted(widths)} numbers, or nulls, not vectors")
        if len(chunk):
            arrays.append(numbers.to_numpy(zero_copy_only=False).reshape(len(chunk), -1))
        first += len(chunk)
    width = column.type.list_size if pa.types.is_fixed_size_list(column.type) else 0
    return arrays or [np.empty((0, width), np.float32)], _settings(place, record)


def _settings(place: Place, record: str | bytes | None) -> dict[str, Any]:
    """Return the settings of `encode` in the metadata of a file; an empty dict if there are none."""
    try:
        settings = decode(record) if record else {}
    except ValueError as error:
        raise DataError(place.name, f"damaged settings ({one_line(error)}); encode again with --overwrite") from error
    if not isinstance(settings, dict):
        raise DataError(place.name, "damaged settings (they are no JSON object); encode again with --overwrite")
    return settings


def _rows_beside(vectors: VectorFile) -> RowsInMemory:
    """Read the texts of vectors that stand alone; see `VectorFile.rows`."""
    origin, count, options = vectors.origin, len(vectors.blocks), vectors.options
    names = [vectors.texts] if vectors.texts is not None else _beside(vectors)
    if origin.inputs:
        paths = [path for path in (local_place(name).path for name in names) if path.is_file()]
        if list(map(file_digest, paths)) != [file.sha256 for file in origin.inputs]:
            was = " and ".join(file.name for file in origin.inputs)
            raise InputError(
                f"{origin.name} was encoded from {was}, and {' and '.join(names)} does not hold the same bytes "
                "(SHA-256): encode again, or give the file that was encoded with --texts"
            )
    if origin.known:
        options = ReadOptions(origin.text_field, origin.id_field, origin.on_null)
    rows = read_rows(names, options)
    if len(rows) != count:
        files = " and ".join(names)
        raise InputError(f"{vectors.place} has {count:,} vectors, {files} has {len(rows):,} texts: not the same texts")
    return rows


def _beside(vectors: VectorFile) -> list[str]:
    """Return the files of the texts beside a file of vectors: those that it names, or the one of the same name.

    Raises:
        InputError: if there are none, or several of the same name.
    """
    path = vectors.place.path
    named = [path.parent / file.name for file in vectors.origin.inputs]
    if named and all(file.is_file() for file in named):
        return [str(file) for file in named]
    same = [path.with_suffix(f"{suffix}{end}") for suffix in FORMATS for end in ("", *PACKED)]
    found = [str(file) for file in same if file.is_file() and not holds_vectors(str(file))]
    if len(found) == 1:
        return found
    if found:
        raise InputError(f"{path}: {' and '.join(found)} may both be its texts: name one with --texts")
    raise InputError(
        f"{path} holds vectors without their texts: put the file that was encoded beside it as {path.stem}.jsonl (or "
        ".txt, .csv, ...), or name it with --texts"
    )
