"""The rows behind the vectors: id, text and the other columns, in memory or read from disk when they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sentcli.errors import DataError


@dataclass(frozen=True)
class Document:
    """One document."""

    id: str
    text: str
    columns: dict[str, Any] = field(default_factory=dict)
    """The other columns of the input."""


class Rows(Protocol):
    """Documents by number."""

    def __len__(self) -> int: ...

    def take(self, positions: Sequence[int]) -> list[Document]:
        """Return some rows, in the order that is asked for."""

    def texts(self) -> Iterator[str]:
        """Yield every text, in order."""


@dataclass(frozen=True)
class RowsInMemory:
    """Documents of a file that was just read."""

    rows: list[Document]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: Sequence[int]) -> list[Document]:
        """Return some rows, in the order that is asked for."""
        return [self.rows[position] for position in positions]

    def texts(self) -> Iterator[str]:
        """Yield every text, in order."""
        return (row.text for row in self.rows)


class RowsOnDisk:
    """Documents of a directory that `encode` wrote; a row group of Parquet is read when one of its rows is wanted.

    Args:
        folder: the directory.
        shards: as its manifest lists them.

    Raises:
        DataError: if a file is missing or torn, or has other rows than the manifest says.
    """

    def __init__(self, folder: Path, shards: Sequence[dict[str, Any]]) -> None:
        self.paths = [folder / shard["rows"] for shard in shards]
        self._groups: list[tuple[int, int]] = []
        """Of each row group: its file, and its number there."""
        ends, total = [], 0
        for number, (path, shard) in enumerate(zip(self.paths, shards, strict=True)):
            with _reading(path):
                metadata = _parquet().read_metadata(path)
            if metadata.num_rows != shard["count"]:
                raise DataError(
                    path, f"holds {metadata.num_rows} rows, not {shard['count']}; encode again with --overwrite"
                )
            for group in range(metadata.num_row_groups):
                total += metadata.row_group(group).num_rows
                ends.append(total)
                self._groups.append((number, group))
        self._ends = np.array(ends, np.int64)
        self._total = total

    def __len__(self) -> int:
        return self._total

    def take(self, positions: Sequence[int]) -> list[Document]:
        """Return some rows, in the order that is asked for.

        Raises:
            DataError: if the file is damaged.
        """
        wanted = np.asarray(positions, np.int64)
        owners = np.searchsorted(self._ends, wanted, side="right")
        found: list[Document | None] = [None] * len(wanted)
        for owner in np.unique(owners):
            mine = np.flatnonzero(owners == owner)
            number, group = self._groups[owner]
            first = int(self._ends[owner - 1]) if owner else 0
            with _reading(self.paths[number]):
                table = _parquet().ParquetFile(self.paths[number]).read_row_group(group)
            for place, record in zip(mine, table.take(wanted[mine] - first).to_pylist(), strict=True):
                found[place] = Document(record.pop("id"), record.pop("text"), record)
        return [row for row in found if row is not None]

    def texts(self) -> Iterator[str]:
        """Yield every text, in order.

        Raises:
            DataError: if a file is damaged.
        """
        return self._column("text")

    def repeated_ids(self) -> int:
        """Count the rows whose id stands in an earlier row, too.

        Raises:
            DataError: if a file is damaged.
        """
        hashes = np.fromiter(map(hash, self._column("id")), np.int64, len(self))
        return len(self) - len(np.unique(hashes))

    def _column(self, name: str) -> Iterator[str]:
        for path in self.paths:
            with _reading(path):
                for batch in _parquet().ParquetFile(path).iter_batches(columns=[name]):
                    yield from batch[name].to_pylist()


def _parquet() -> Any:
    import pyarrow.parquet as pq

    return pq


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Say which file is damaged."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(path, f"damaged ({error}); encode again with --overwrite") from error
