"""A corpus of one's own: its rows, and the ways to find some of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError, nearest
from sentcli.io.json_files import finite
from sentcli.io.readers import ReadOptions, blocks, survey
from sentcli.io.sources import open_source
from sentcli.search import ann, index, words
from sentcli.search.bm25 import BM25
from sentcli.search.index_manifest import IndexManifest
from sentcli.search.neighbours import Neighbours, Similarity
from sentcli.search.rows import Row, Rows, RowsInMemory
from sentcli.search.searcher import Searcher
from sentcli.search.stored import INDEXES, Stored
from sentcli.search.ways import Way, depth, fuse


@dataclass(frozen=True)
class Hit:
    """One document that was found."""

    rank: int
    score: float
    row: Row

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
        Row(block.ids[i], block.texts[i], {column: block.columns[column][i] for column in columns})
        for block in blocks([source], options, columns=columns)
        for i in range(len(block))
    ]
    if not rows:
        raise DataError(name, "the file is empty: there is nothing to search")
    return RowsInMemory(rows)


@dataclass(frozen=True)
class Opened:
    """The index of a directory that is searched, and what the user should know about it."""

    searcher: Searcher
    recall: float | None = None
    """That was measured, or None if search is exact."""
    k: int = 10
    unindexed: int = 0
    """Rows that the index lacks: they are searched exactly."""
    query_prompt: str | None = None
    """That the index was built for; None is the model's own."""


def open_index(
    stored: Stored,
    name: str | None,
    similarity: Similarity | None,
    query_prompt: str | None,
    device: str,
    own_prompt: str = "",
) -> Opened:
    """Open one of the indexes of a directory, or search its vectors exactly.

    Args:
        stored: the directory.
        name: of the index; None takes the only one there is, or none.
        similarity: that is wanted; None is that of the index, or cosine.
        query_prompt: that is wanted; None is that of the index, or the model's own.
        device: where exact search runs.
        own_prompt: the model's own prompt of queries.

    Raises:
        InputError: if there is no such index, several to choose from, or one for other similarities or prompts.
        DataError: if it is torn.
    """
    built = [each for each in stored.indexes if each not in (words.NAME, ann.FLAT)]
    if name is None and len(built) > 1:
        raise InputError(f"{stored.folder} has the indexes {', '.join(built)}: choose one with --index, or flat")
    name = name or (built[0] if built else ann.FLAT)
    folder = name if name in built else ann.Recipe(name, name).name
    if folder == ann.FLAT:
        return _flat(stored, similarity, device)
    if folder not in built:
        raise InputError(_no_index(stored, name, folder, built))
    place = stored.folder / INDEXES / folder
    manifest = IndexManifest.read(place)
    manifest.check_vectors(stored, folder)
    if similarity not in (None, manifest.similarity):
        raise InputError(f"{place} was built for similarity {manifest.similarity!r}, not {similarity!r}")
    pinned = own_prompt if manifest.query_prompt is None else manifest.query_prompt
    if query_prompt not in (None, pinned):
        raise InputError(
            f"{place} was built for the query prompt {pinned!r}, not {query_prompt!r}: leave --query-prompt out, or "
            "build the index again with it"
        )
    measured = manifest.recall or {}
    return Opened(
        index.open_searcher(place, manifest, stored, device),
        recall=measured["chosen"]["recall"] if measured else None,
        k=measured.get("k", 10),
        unindexed=len(stored.rows) - manifest.rows,
        query_prompt=manifest.query_prompt,
    )


def _flat(stored: Stored, similarity: Similarity | None, device: str) -> Opened:
    """Search exactly, with similarity and query prompt as the indexes have them, if they agree."""
    there = [each for each in stored.indexes if each != words.NAME]
    manifests = [IndexManifest.read(stored.folder / INDEXES / each) for each in there]
    similarities, prompts = {each.similarity for each in manifests}, {each.query_prompt for each in manifests}
    chosen = similarity or (similarities.pop() if len(similarities) == 1 else "cosine")
    index.check_lengths(stored, chosen)
    searcher = Searcher([], ann.Recipe(ann.FLAT, "Flat"), stored.blocks, chosen, device)
    return Opened(searcher, query_prompt=prompts.pop() if len(prompts) == 1 else None)


def _no_index(stored: Stored, name: str, folder: str, built: list[str]) -> str:
    if name == words.NAME:
        return f"--index {name}: words are searched with --search {name}"
    has = f"it has {', '.join(built)}" if built else "it has none"
    return (
        f"{stored.folder} has no index {name!r}{nearest(folder, built)}; {has}: "
        f"sentcli index {stored.folder} --type {name} builds it"
    )
