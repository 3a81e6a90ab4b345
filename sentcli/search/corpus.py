"""A corpus of one's own: its rows, and the ways to find some of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError
from sentcli.io.json_files import finite
from sentcli.io.readers import ReadOptions, blocks, survey
from sentcli.io.sources import open_source
from sentcli.search.bm25 import BM25
from sentcli.search.neighbours import Neighbours
from sentcli.search.rows import Document, Rows, RowsInMemory
from sentcli.search.searcher import Searcher
from sentcli.search.ways import Way, depth, fuse


@dataclass(frozen=True)
class Hit:
    """One document that was found."""

    rank: int
    score: float
    row: Document

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        found = {"rank": self.rank, "id": self.row.id, "score": self.score, "text": self.row.text}
        columns = {name: _plain(value) for name, value in self.row.columns.items()}
        return {**found, "columns": columns} if columns else found


@dataclass(frozen=True)
class Corpus:
    """Documents, and what finds them.

    A way that is not asked for needs no searcher, or no BM25.
    """

    rows: Rows
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
        found = self._search(way, queries, vectors, k, dense_weight)
        there = found.positions >= 0
        wanted = np.unique(found.positions[there]).tolist()
        rows = dict(zip(wanted, self.rows.take(wanted), strict=True))  # one row may be a hit of many queries
        return [
            [
                Hit(rank, float(s), rows[int(p)])
                for rank, (s, p) in enumerate(zip(scores[mine], some[mine], strict=True), 1)
            ]
            for scores, some, mine in zip(found.scores, found.positions, there, strict=True)
        ]

    def _search(
        self,
        way: Way,
        queries: Sequence[str],
        vectors: npt.NDArray[np.generic] | None,
        k: int,
        dense_weight: float,
    ) -> Neighbours:
        wanted = depth([way], k)
        dense = by_words = Neighbours.none(len(queries))
        if way != "bm25":
            assert self.searcher is not None and vectors is not None
            dense = self.searcher.search(vectors, wanted)
        if way != "dense":
            assert self.bm25 is not None
            by_words = self.bm25.search(queries, wanted)
        if way == "dense":
            return dense
        return by_words if way == "bm25" else fuse(way, dense, by_words, k, dense_weight)


def _plain(value: Any) -> Any:
    """Return a value of a column as JSON can hold it."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return json.loads(json.dumps(finite(value), default=str))


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
