"""A file of vectors as a corpus: a table with a column of them, or safetensors and npy with their texts beside."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.arrays import AnyArray
from sentcli.errors import DataError, InputError, one_line
from sentcli.io.dataset import holds_manifest
from sentcli.io.digests import file_digest
from sentcli.io.folder import local_place
from sentcli.io.forms import decode
from sentcli.io.packed import PACKED
from sentcli.io.places import Place, is_remote
from sentcli.io.readers import ReadOptions
from sentcli.io.sources import FORMATS, open_source
from sentcli.io.table_folders import is_table as is_table_folder
from sentcli.io.vector_columns import EMBEDDING, RECORD, metadata_of, read_vectors, vector_column
from sentcli.io.writers import FILES
from sentcli.search.exact import BLOCK, Blocks
from sentcli.search.provenance import Provenance
from sentcli.search.rows import Rows, RowsInMemory, RowsOnDisk, read_documents_of
from sentcli.search.searcher import Searcher, searcher_over
from sentcli.search.stored_vectors import SearchRequest, StoredVectors
from sentcli.search.vector_directory import VectorDirectory

if TYPE_CHECKING:
    pass

JSON_LINES = (".jsonl", ".ndjson")
TABLES = (".parquet", ".arrow", ".feather", *JSON_LINES)
"""The suffixes of tables whose columns may hold vectors."""
ALONE = {suffix: form.read for suffix, form in FILES.items() if form.read is not None}
"""The function that reads a file of vectors alone, without their texts, by the suffix of the file."""
LARGEST_COMPONENT = 1e15
"""The largest component of a vector whose inner products float32 holds, whatever the dimension."""


@dataclass(frozen=True)
class VectorFile(StoredVectors):
    """The vectors of a file, and their rows."""

    place: Place
    arrays: Blocks
    origin: Provenance
    texts: str | None
    """The file of the rows of vectors that stand alone; None looks for it beside them."""
    options: ReadOptions
    """The columns of a file of texts that says nothing else."""
    column: str | None = None
    """The column of the vectors in a table."""

    @classmethod
    def open(
        cls,
        place: Place,
        texts: str | None = None,
        options: ReadOptions | None = None,
        column: str | None = None,
    ) -> VectorFile:
        """Read the vectors of a ``.npy`` or ``.safetensors`` file or of a table, and what it says about them.

        Args:
            place: of a file or table of which `vectors_in` returned vectors.
            texts: the file of the texts; None looks for it beside vectors that stand alone.
            options: the columns of a file of texts that says nothing else.
            column: the column of the vectors in a table; None takes ``embedding``.

        Raises:
            InputError: if `texts` goes with vectors that have their texts.
            DataError: if the file is damaged or holds something else.
        """
        suffix = place.path.suffix.lower()
        if suffix not in ALONE:
            if texts is not None:
                raise _holds_texts(place.name)
            column = column or EMBEDDING
        if column is not None:
            arrays, settings = _read_table(place, column)
            if not settings:  # whole numbers of a table are numbers, and bits are what encode says of its own
                arrays = list(map(_in_float, arrays))
        else:
            array, record = ALONE[suffix](place)
            arrays = [array]
            settings = _settings(place, record)
        _check_vectors(place, arrays, may_be_empty=column is not None)
        first = arrays[0]
        dtype = first.dtype
        if not settings and dtype == np.uint8:  # encode writes this type and the next to .npy for no other vectors
            settings = {"output_dtype": "binary"}
        elif not settings and dtype == np.int8:
            settings = {"output_dtype": "int8"}
        origin = Provenance.named(place.name, settings)
        if origin.bits and dtype != np.uint8:
            raise DataError(place.name, f"an array of {dtype}, which holds no bits; encode again with --overwrite")
        blocks = Blocks(arrays, signs=origin.signs(first.shape[1]))
        return cls(place, blocks, origin, texts, options or ReadOptions(), column)

    @property
    def blocks(self) -> Blocks:
        """The vectors."""
        return self.arrays

    @cached_property
    def rows(self) -> Rows:
        """The rows of the vectors.

        Raises:
            InputError: if no texts are found, or they are not those of the vectors.
            DataError: if a file is damaged.
        """
        place = self.place
        path = place.path
        if path.suffix.lower() in ALONE:
            return _rows_beside(self)
        if self.origin.known:
            return RowsOnDisk([path], [len(self.blocks)])
        return read_documents_of([place.name], self.options, without=self.column)

    def open_index(self, request: SearchRequest) -> tuple[Searcher, str | None]:
        """Search the vectors exactly, or build an index over them in memory; see `StoredVectors.open_index`."""
        similarity = request.similarity or request.own_similarity
        self.origin.check_similarity(similarity)
        return searcher_over(request.index or "flat", self.blocks, similarity, request.device), None

    @property
    def vector_columns(self) -> tuple[str, ...]:
        """The columns of a table that hold vectors, which are no columns of its rows."""
        if self.column is None:
            return ()
        return (self.column, EMBEDDING)

    @property
    def identity(self) -> str:
        """What tells these vectors from others of the same texts: their column, or the digest of their file."""
        return self.column or file_digest(self.place.path)

    def text_files(self) -> list[str]:
        """Return the files of the rows: the table itself, or what lies beside vectors that stand alone.

        Raises:
            InputError: if none are found.
        """
        if self.place.path.suffix.lower() not in ALONE:
            return [self.place.name]
        if self.texts is not None:
            return [self.texts]
        return _text_files_beside(self)


def _in_float(array: AnyArray) -> AnyArray:
    """Return an array, in float32 if it has whole numbers."""
    if array.dtype.kind in "iu":
        return array.astype(np.float32)
    return array


def _check_vectors(place: Place, arrays: list[AnyArray], *, may_be_empty: bool) -> None:
    """Refuse arrays that are no vectors ``[rows, dimensions]`` of finite numbers.

    Raises:
        DataError: which says what they are.
    """
    name = place.name
    for array in arrays:
        shape = array.shape
        dtype = array.dtype
        if array.ndim != 2 or dtype.kind not in "fiu":
            raise DataError(name, f"an array {shape} of {dtype}; vectors are numbers [rows, dimensions]")
        if not shape[1] and (len(array) or not may_be_empty):
            raise DataError(name, f"an array {shape}: its vectors have no columns")
        for start in range(0, len(array), BLOCK):
            part = array[start : start + BLOCK]
            if not np.isfinite(part).all():
                raise DataError(name, "some numbers are not finite")
            if not part.size:
                continue
            largest = max(part.max(), -float(part.min()))
            if largest > LARGEST_COMPONENT:
                raise DataError(name, f"some numbers are beyond {LARGEST_COMPONENT:g}: their products would overflow")


def open_stored(
    name: str, texts: str | None, options: ReadOptions, *, to_search: bool = True, field: str | None = None
) -> StoredVectors | None:
    """Return the vectors in a directory, a file or a table; None if it is a file of texts.

    Args:
        name: the directory, file or table, also in an object store.
        texts: see `VectorFile.open`.
        options: see `VectorFile.open`.
        to_search: whether the vectors have to be comparable with those of queries.
        field: the column of the vectors of a table; None takes the usual one.

    Raises:
        InputError: if the vectors cannot be used, or `texts` goes with none.
    """
    if name == "-":
        place = Place(name, Path(name))
    else:
        place = local_place(name)
        location = vectors_in(place, field)
        if location is not None:
            vectors = VectorFile.open(place, texts, options, location.column)
            vectors.origin.check_numbers(to_search=to_search)
            console.detail(f"{name}: {len(vectors.rows):,} rows")
            return vectors
    stored = None
    folder = place.path
    if folder.is_dir() and holds_manifest(path.name for path in folder.iterdir()):
        stored = VectorDirectory.open(folder, place.name, to_search=to_search)
    if stored is None and not folder.is_dir() and (texts, field) != (None, None):
        open_source(name)  # which says what holds no texts, or is not there
    if texts is not None:
        raise _holds_texts(name)
    if field is not None:
        raise InputError(f"--vector-field names a column of a table; {name} is none")
    return stored


def _holds_texts(name: str) -> InputError:
    return InputError(f"{name} holds its texts itself; --texts goes with vectors alone (.npy, .safetensors)")


def open_vectors(name: str) -> StoredVectors:
    """Return the vectors in a directory or a file that `encode` wrote, whose rows are not needed.

    Raises:
        InputError: if there are none.
    """
    place = local_place(name)
    if place.path.is_dir():
        return VectorDirectory.open(place.path, place.name)
    location = vectors_in(place)
    if location is None:
        raise InputError(
            f"{name} holds no vectors: give what encode wrote, a directory, .npy, .parquet or .safetensors"
        )
    return VectorFile.open(place, column=location.column)


@dataclass(frozen=True)
class VectorPlace:
    """Where in a file vectors are."""

    column: str | None
    """The column of a table; None for a file of vectors alone."""


def vectors_in(place: Place, field: str | None = None) -> VectorPlace | None:
    """Return where a file or table has vectors; None if it holds none, is a directory of shards, or is not there.

    Args:
        place: of the file or table.
        field: the column that the user names.

    Raises:
        InputError: if the table has no such column, or is damaged.
    """
    path = place.path
    suffix = path.suffix.lower()
    if suffix in ALONE:
        if field is not None:
            raise InputError(f"{place} has no columns, of which --vector-field names one")
        return VectorPlace(None)
    is_table = is_table_folder(path) or (path.is_file() and suffix in TABLES)
    if not is_table or (field is None and suffix in JSON_LINES):
        return None
    column = vector_column(open_source(place.name), field)
    if column is None:
        return None
    return VectorPlace(column)


def holds_vectors(name: str | Place) -> bool:
    """Tell whether a file or table holds vectors; see `vectors_in`."""
    place = name if isinstance(name, Place) else Place(name, Path(name))
    return vectors_in(place) is not None


def _read_table(place: Place, column: str) -> tuple[list[AnyArray], dict[str, Any]]:
    """Return the vectors in a column of a table, and the settings of `encode` if it wrote the column."""
    source = open_source(place.name)
    record = None
    if source.format == "parquet" and column == EMBEDDING:  # other columns are not encode's
        record = metadata_of(source).get(RECORD)
    return read_vectors(source, column), _settings(place, record)


def _settings(place: Place, record: str | bytes | None) -> dict[str, Any]:
    """Return the settings of `encode` in the metadata of a file; an empty dict if there are none."""
    if not record:
        return {}
    try:
        settings = decode(record)
    except ValueError as error:
        raise DataError(place.name, f"damaged settings ({one_line(error)}); encode again with --overwrite") from error
    if not isinstance(settings, dict):
        raise DataError(place.name, "damaged settings (they are no JSON object); encode again with --overwrite")
    return settings


def _rows_beside(vectors: VectorFile) -> RowsInMemory:
    """Read the texts of vectors that stand alone; see `VectorFile.rows`."""
    origin = vectors.origin
    options = vectors.options
    inputs = origin.inputs
    names = vectors.text_files()
    files = " and ".join(names)
    if inputs:
        paths = [local_place(name).path for name in names]
        digests = [file_digest(path) for path in paths if path.is_file()]
        if digests != [file.sha256 for file in inputs]:
            encoded = " and ".join(file.name for file in inputs)
            raise InputError(
                f"{origin.name} was encoded from {encoded}, and {files} does not hold the same bytes (SHA-256): "
                "encode again, or give the file that was encoded with --texts"
            )
    if origin.known:
        options = ReadOptions(origin.text_field, origin.id_field, origin.on_null)
    rows = read_documents_of(names, options)
    count = len(vectors.blocks)
    if len(rows) != count:
        raise InputError(f"{vectors.place} has {count:,} vectors, {files} has {len(rows):,} texts: not the same texts")
    return rows


def _text_files_beside(vectors: VectorFile) -> list[str]:
    """Return the files of the texts beside a file of vectors: those that it names, or the one of the same name.

    Raises:
        InputError: if there are none, or several of the same name.
    """
    path = vectors.place.path
    named = [path.parent / file.name for file in vectors.origin.inputs]
    if named and all(file.is_file() for file in named):
        return [str(file) for file in named]
    files = []
    for suffix, end in product(FORMATS, ("", *PACKED)):
        file = path.with_suffix(f"{suffix}{end}")
        if file.is_file() and not holds_vectors(str(file)):
            files.append(str(file))
    if len(files) == 1:
        return files
    name = vectors.place.name
    if files:
        raise InputError(f"{name}: {' and '.join(files)} may both be its texts: name one with --texts of retrieve")
    if is_remote(name):
        raise InputError(f"{name} holds vectors without their texts: name them with --texts of retrieve")
    raise InputError(
        f"{name} holds vectors without their texts: put the file that was encoded beside it as {path.stem}.jsonl (or "
        ".txt, .csv, ...), or name it with --texts of retrieve"
    )
