"""The rows of a corpus, in memory or read from disk: their documents, conditions and counts."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sentcli.arrays import BoolArray, sorted_distinct
from sentcli.errors import DataError, InputError, library_errors
from sentcli.io.atomic import check_output, regular, replacing
from sentcli.io.blocks import blocks, survey
from sentcli.io.dataset import check_rows, remedy
from sentcli.io.places import Place
from sentcli.io.readers import ReadOptions
from sentcli.io.text_inputs import text_sources
from sentcli.io.vector_columns import EMBEDDING
from sentcli.io.writers import arrow_column, as_json, text_cell
from sentcli.search.conditions import Condition

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_DOCUMENTS = 50_000
"""Documents whose texts are in memory at the same time where a corpus may be larger than the memory."""


@dataclass(frozen=True)
class Document:
    """One document."""

    id: str
    text: str
    columns: dict[str, Any] = field(default_factory=dict)
    """The other columns of the input."""


class Rows(Protocol):
    """The documents of a corpus; a position is the number of a document from 0."""

    @property
    def schema(self) -> dict[str, Any]:
        """The Arrow types of all columns by name, with id and text."""

    def __len__(self) -> int: ...

    def take(self, positions: Sequence[int]) -> list[Document]:
        """Return the documents at these positions, in the order of the positions."""

    def texts(self) -> Iterator[str]:
        """Yield every text, in order."""

    def tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows with some columns, as tables of Arrow."""


@dataclass(frozen=True)
class RowsInMemory:
    """Documents that are held in memory."""

    rows: list[Document]
    had_vectors: bool = False
    """Whether the file has a column of vectors, which was left out."""
    column_types: dict[str, Any] = field(default_factory=dict)
    """The Arrow type of each column besides id and text."""

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: Sequence[int]) -> list[Document]:
        """Return the documents at these positions, in the order of the positions."""
        return [self.rows[position] for position in positions]

    def texts(self) -> Iterator[str]:
        """Yield every text, in order."""
        return (row.text for row in self.rows)

    @property
    def schema(self) -> dict[str, Any]:
        """The Arrow types of all columns by name."""
        import pyarrow as pa

        return {"id": pa.string(), "text": pa.string(), **self.column_types}

    def tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows with some columns, as tables of Arrow."""
        import pyarrow as pa

        columns = {}
        for name in names:
            columns[name] = arrow_column(self._column(name), self.schema[name])
        yield pa.table(columns)

    def _column(self, name: str) -> list[Any]:
        if name in ("id", "text"):
            return [getattr(row, name) for row in self.rows]
        return [row.columns.get(name) for row in self.rows]


class RowsOnDisk:
    """Documents in Parquet files that `encode` wrote; a row group is read when one of its rows is needed.

    Args:
        paths: the files, which may also hold vectors.
        counts: the number of rows in each.

    Raises:
        DataError: if a file is missing or damaged, or has another number of rows.
    """

    def __init__(self, paths: Sequence[Path], counts: Sequence[int]) -> None:
        self.paths = paths
        self._groups: list[tuple[Path, int]] = []
        """The file of each row group, and the number of the group in that file."""
        sizes = []
        for path, count in zip(paths, counts, strict=True):
            with parquet_errors(path):
                metadata = _parquet().read_metadata(path)
                check_rows(path, metadata)
            if metadata.num_rows != count:
                raise DataError(path, f"holds {metadata.num_rows} rows, not {count}; {remedy(path.parent)}")
            for group in range(metadata.num_row_groups):
                sizes.append(metadata.row_group(group).num_rows)
                self._groups.append((path, group))
        self._firsts = np.cumsum([0, *sizes])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def take(self, positions: Sequence[int]) -> list[Document]:
        """Return the documents at these positions, in the order of the positions.

        Raises:
            DataError: if a file is damaged.
        """
        rows = np.asarray(positions, np.int64)
        groups = np.searchsorted(self._firsts, rows, side="right") - 1
        documents = {}
        for group in np.unique(groups):
            in_group = np.flatnonzero(groups == group)
            path, number = self._groups[group]
            with parquet_errors(path):
                file = _parquet().ParquetFile(path)
                columns = [name for name in file.schema_arrow.names if name != EMBEDDING]
                table = file.read_row_group(number, columns=columns)
            rows_of_group = rows[in_group] - self._firsts[group]
            chosen = table.take(rows_of_group)
            for place, record in zip(in_group.tolist(), chosen.to_pylist(), strict=True):
                documents[place] = Document(record.pop("id"), record.pop("text"), record)
        return [documents[place] for place in range(len(rows))]

    def texts(self) -> Iterator[str]:
        """Yield every text, in order.

        Raises:
            DataError: if a file is damaged.
        """
        return self._column("text")

    def repeated_ids(self) -> int:
        """Count the rows whose id an earlier row has already.

        Raises:
            DataError: if a file is damaged.
        """
        count = len(self)
        hashes = np.fromiter(map(hash, self._column("id")), np.int64, count)
        return count - len(sorted_distinct(hashes))

    def _column(self, name: str) -> Iterator[str]:
        for table in self.tables([name]):
            yield from table[name].to_pylist()

    @property
    def schema(self) -> dict[str, Any]:
        """The Arrow types of all columns by name, without the vectors; of no rows none is known but id and text."""
        if not self.paths:
            return RowsInMemory([]).schema
        with parquet_errors(self.paths[0]):
            schema = _parquet().read_schema(self.paths[0])
        return {field.name: field.type for field in schema if field.name != EMBEDDING}

    def tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows with some columns, as tables of Arrow.

        Raises:
            DataError: if a file is damaged.
        """
        import pyarrow as pa

        for path in self.paths:
            with parquet_errors(path):
                for batch in _parquet().ParquetFile(path).iter_batches(columns=list(names)):
                    yield pa.Table.from_batches([batch])


ROW_SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet", ".txt")
"""The suffixes of files that `write_chosen` writes."""


def check_written(file: str, *, overwrite: bool) -> None:
    """Refuse a file that `write_chosen` cannot write.

    Raises:
        InputError: for another suffix, or if the file exists and `overwrite` is not set.
    """
    if Path(file).suffix not in ROW_SUFFIXES:
        raise InputError(f"--write {file}: the rows are written as {', '.join(ROW_SUFFIXES)}")
    check_output(Path(file), overwrite=overwrite)


def write_chosen(rows: Rows, positions: Sequence[int], path: Path) -> None:
    """Write rows with their ids and columns; plain text holds the texts alone, each on a line.

    Args:
        rows: of a corpus.
        positions: the rows that are written.
        path: a file with one of the suffixes in `ROW_SUFFIXES`.
    """
    documents = rows.take(positions)
    names = list(rows.schema)
    suffix = path.suffix
    with replacing(path) as temporary:
        if suffix == ".parquet":
            (table,) = RowsInMemory(documents, column_types=rows.schema).tables(names)
            _parquet().write_table(table, temporary)
            return
        records = [{"id": row.id, "text": row.text, **row.columns} for row in documents]
        with temporary.open("w", encoding="utf-8", newline="") as file:
            if suffix == ".jsonl":
                file.writelines(f"{as_json(record)}\n" for record in records)
            elif suffix == ".txt":
                file.writelines(" ".join(record["text"].split()) + "\n" for record in records)
            else:
                delimiter = "\t" if suffix == ".tsv" else ","
                writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
                writer.writerow(names)
                for record in records:
                    values = map(record.get, names)
                    writer.writerow(map(text_cell, values))


def positions_of(rows: Rows, ids: Sequence[str]) -> dict[str, int]:
    """Return the position of the first row with each of these ids that is there."""
    positions: dict[str, int] = {}
    asked = set(ids)
    first = 0
    for table in rows.tables(["id"]):
        for position, key in enumerate(table["id"].to_pylist(), first):
            if key in asked:
                positions.setdefault(key, position)
        first += len(table)
    return positions


def matching(rows: Rows, condition: Condition) -> BoolArray:
    """Tell which rows of a corpus meet a condition ``[n]``."""
    masks = [condition.matches(table) for table in rows.tables(condition.columns)]
    if not masks:
        return np.zeros(0, np.bool_)
    return np.concatenate(masks)


def counted(rows: Rows, column: str, mask: BoolArray | None) -> list[tuple[Any, int]]:
    """Count the rows with each value of a column, the most frequent value first.

    Args:
        rows: of a corpus.
        column: its name.
        mask: the rows that are counted ``[n]``; None stands for all.
    """
    counts: Counter[Any] = Counter()
    first = 0
    for table in rows.tables([column]):
        values = table[column]
        end = first + len(table)
        if mask is not None:
            values = values.filter(mask[first:end])
        first = end
        for entry in values.value_counts().to_pylist():
            value = entry["values"]
            if value != value:  # NaN is a missing value, too
                value = None
            counts[value] += entry["counts"]
    return by_frequency(counts)


def by_frequency(counts: Counter[Any]) -> list[tuple[Any, int]]:
    """Return values with their numbers, the most frequent first; of equally frequent ones the missing value is last."""
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0] is None, str(entry[0])))


def _parquet() -> Any:
    import pyarrow.parquet as pq

    return pq


@contextmanager
def parquet_errors(file: Path | Place, advice: str | None = None) -> Iterator[None]:
    """Turn errors of Parquet inside the block into one message that names the file and gives advice.

    Without `advice`, the file is one of a directory of shards.
    """
    place = Place.of(file)
    if advice is None:
        advice = remedy(place.path.parent)
    with library_errors(lambda why: DataError(place.name, f"damaged ({why}); {advice}")):
        regular(place.path)
        yield


def read_documents_of(names: Sequence[str], options: ReadOptions, *, without: str | None = None) -> RowsInMemory:
    """Read files of documents as one, with all their columns but vectors.

    Args:
        names: of the files.
        options: the columns of ids and texts.
        without: the column of vectors, besides ``embedding``.

    Raises:
        DataError: for a broken row, or an empty file.
    """
    vectors = {EMBEDDING}
    if without is not None:
        vectors.add(without)
    sources = [replace(source, without=tuple(vectors)) for source in text_sources(names)]
    surveyed = survey(sources, options)
    types = {name: kind for name, kind in surveyed.column_types.items() if name not in vectors}
    documents = []
    for block in blocks(sources, options, columns=list(types), casts=surveyed.casts):
        for row, (key, text) in enumerate(zip(block.ids, block.texts, strict=True)):
            values = {name: column[row] for name, column in block.columns.items()}
            documents.append(Document(key, text, values))
    if not documents:
        raise DataError(names[0], "the file is empty: there is nothing to search")
    return RowsInMemory(documents, EMBEDDING in surveyed.column_types, types)
