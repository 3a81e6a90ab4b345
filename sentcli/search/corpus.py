"""A corpus of one's own: its rows, in memory or read from disk when they are shown, and what finds them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError
from sentcli.io.dataset import Shard
from sentcli.io.json_files import finite
from sentcli.io.readers import ReadOptions, blocks, survey
from sentcli.io.sources import open_source
from sentcli.search.bm25 import BM25
from sentcli.search.exact import Neighbours
from sentcli.search.fusion import Way, depth, fuse
from sentcli.search.searcher import Searcher


@dataclass(frozen=True)
class Document:
    """One document."""

    id: str
    text: str
    columns: dict[str, Any] = field(default_factory=dict)
    """The other columns of the input."""


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

    def __init__(self, folder: Path, shards: Sequence[Shard]) -> None:
        self.paths = [folder / shard.rows for shard in shards]
        self._groups: list[tuple[Path, int]] = []
        """Of each row group: its file, and its number there."""
        sizes = []
        for path, shard in zip(self.paths, shards, strict=True):
            with _reading(path):
                metadata = _parquet().read_metadata(path)
            if metadata.num_rows != shard.count:
                raise DataError(
                    path, f"holds {metadata.num_rows} rows, not {shard.count}; encode again with --overwrite"
                )
            for group in range(metadata.num_row_groups):
                sizes.append(metadata.row_group(group).num_rows)
                self._groups.append((path, group))
        self._firsts = np.cumsum([0, *sizes])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def take(self, positions: Sequence[int]) -> list[Document]:
        """Return some rows, in the order that is asked for.

        Raises:
            DataError: if the file is damaged.
        """
        numbers = np.asarray(positions, np.int64)
        owners = np.searchsorted(self._firsts, numbers, side="right") - 1
        documents: dict[int, Document] = {}
        for owner in np.unique(owners):
            mine = np.flatnonzero(owners == owner)
            path, group = self._groups[owner]
            with _reading(path):
                table = _parquet().ParquetFile(path).read_row_group(group)
            for place, record in zip(mine, table.take(numbers[mine] - self._firsts[owner]).to_pylist(), strict=True):
                documents[int(place)] = Document(record.pop("id"), record.pop("text"), record)
        return [documents[place] for place in range(len(numbers))]

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


def read_rows(name: str, options: ReadOptions) -> RowsInMemory:
    """Read a file of documents, with all its columns.

    Raises:
        DataError: as the readers; also an empty file.
    """
    source = open_source(name)
    columns = list(survey([source], options).column_types)
    rows = [
        Document(block.ids[i], block.texts[i], {column: block.columns[column][i] for column in columns})
        for block in blocks([source], options, columns=columns)
        for i in range(len(block))
    ]
    if not rows:
        raise DataError(name, "the file is empty: there is nothing to search")
    return RowsInMemory(rows)


@dataclass(frozen=True)
class Hit:
    """One document that was found."""

    rank: int
    score: float
    row: Document

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        hit = {"rank": self.rank, "id": self.row.id, "score": self.score, "text": self.row.text}
        columns = {"columns": json.loads(json.dumps(finite(self.row.columns), default=str))}
        return {**hit, **columns} if self.row.columns else hit


@dataclass(frozen=True)
class Corpus:
    """Documents, and what finds them.

    A way that is not asked for needs no searcher, or no BM25.
    """

    rows: RowsInMemory | RowsOnDisk
    searcher: Searcher | None = None
    bm25: BM25 | None = None

    def search(
        self,
        way: Way,
        queries: Sequence[str],
        vectors: npt.NDArray[np.generic] | None,
        k: int,
        dense_weight: float = 0.5,
    ) -> list[list[Hit]]:
        """Return the `k` best hits of each query, or fewer.

        Args:
            way: one of `ways.WAYS`.
            queries: their texts.
            vectors: of the queries ``[queries, dim]``; not needed for ``bm25``.
            k: hits of each.
            dense_weight: share of the dense score in ``weighted``.
        """
        candidates = depth([way], k)
        hits = dense = by_words = Neighbours.none(len(queries))
        if way != "bm25":
            assert self.searcher is not None and vectors is not None
            hits = dense = self.searcher.search(vectors, candidates)
        if way != "dense":
            assert self.bm25 is not None
            hits = by_words = self.bm25.search(queries, candidates)
        if way in ("rrf", "weighted"):
            hits = fuse(way, dense, by_words, k, dense_weight)
        there = hits.positions >= 0
        positions = np.unique(hits.positions[there]).tolist()
        rows = dict(zip(positions, self.rows.take(positions), strict=True))  # one row may be a hit of many queries
        return [
            [Hit(rank, float(s), rows[int(p)]) for rank, (s, p) in enumerate(zip(scores[t], places[t], strict=True), 1)]
            for scores, places, t in zip(hits.scores, hits.positions, there, strict=True)
        ]
