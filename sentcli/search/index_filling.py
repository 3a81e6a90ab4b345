"""Filling the files of an index with rows: which rows come into which file, here or by workers of a cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sentcli.arrays import AnyArray, Int64Array
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import replacing
from sentcli.io.dataset import PARTIAL
from sentcli.io.digests import file_digest
from sentcli.search.faiss_border import require_faiss
from sentcli.search.faiss_index import FaissIndex
from sentcli.search.index_files import INDEX_FILE, NODES_FILE, TRAINED, IndexFile, IndexManifest, read_part
from sentcli.search.node_rows import NodeRows
from sentcli.search.vector_directory import VectorDirectory

ADDED_ROWS = 16_384
"""How many rows are added to an index at a time."""


@dataclass(frozen=True)
class FileSpan:
    """One file of an index, and the rows that are to be added to it."""

    first: int
    """The first row in the file, or its first node where the rows are named."""
    begin: int
    """The first row, or node, that is added."""
    end: int
    """The row, or node, behind the last one."""
    grown: IndexFile | None = None
    """The file that has the rows before `begin`, and is replaced."""
    rows: Int64Array | None = None
    """The rows that are added ``[end - begin]``; None if they follow on those before."""

    def vectors(self, store: VectorDirectory) -> Iterator[AnyArray]:
        """Yield the vectors of the rows that are added, block by block ``[n, dim]``."""
        missing = self.end - self.begin
        if self.rows is not None:
            for start in range(0, missing, ADDED_ROWS):
                yield store.blocks.take(self.rows[start : start + ADDED_ROWS])
            return
        for block in store.blocks.since(self.begin, ADDED_ROWS):
            yield block[:missing]
            missing -= len(block)
            if missing <= 0:
                return


def spans(place: Path, manifest: IndexManifest, rows: int, size: int) -> list[FileSpan]:
    """Return the files of `size` rows, or nodes, that an index lacks; the last of its own may grow.

    Args:
        place: the folder of the index.
        manifest: of the index.
        rows: the number of rows that it will have.
        size: of a file.
    """
    grown = missing = None
    first = begin = 0
    if manifest.files:
        last = manifest.files[-1]
        first = begin = last.first + last.rows + last.dead
        if begin < last.first + size:
            grown, first = last, last.first
    end = rows
    if manifest.has_nodes:
        missing = _missing_rows(place, manifest, rows)
        end = begin + len(missing)
    found = []
    start = begin
    while start < end:
        behind = min(first + size, end)
        named = None
        if missing is not None:
            named = missing[start - begin : behind - begin]
        found.append(FileSpan(first, start, behind, grown, named))
        first = start = behind
        grown = None
    return found


def _missing_rows(place: Path, manifest: IndexManifest, rows: int) -> Int64Array:
    """Return which of so many rows no node of a graph stands for."""
    is_missing = np.ones(rows, bool)
    for file in manifest.files:
        nodes = NodeRows.read(place / file.nodes_name, file.rows, file.dead)
        is_missing[nodes.rows[nodes.is_alive]] = False
    return np.flatnonzero(is_missing)


def fill_file(
    store: VectorDirectory,
    place: Path,
    manifest: IndexManifest,
    span: FileSpan,
    progress: Callable[[int], None],
    device: str = "cpu",
) -> IndexFile:
    """Build one file of an index and write it beside the others.

    Args:
        store: the store of the vectors.
        place: the folder of the index, which has the trained index without rows.
        manifest: of the index.
        span: the rows of the file.
        progress: called with the number of rows that were added.
        device: where rows are added, if faiss can do it there.
    """
    if span.grown is not None:
        index = read_part(place, span.grown, manifest, mapped=False)
    else:
        index = FaissIndex.read(place / TRAINED, manifest.similarity, mapped=False)
    with index.built_on(device) as built:
        for block in span.vectors(store):
            built.add(block)
            progress(len(block))
    path = place / f"rows-{span.first:010d}-{span.end:010d}.faiss"
    with replacing(path) as temporary:
        index.write(temporary)
    file = IndexFile(path.name, span.first, len(index), path.stat().st_size, file_digest(path))
    if span.rows is None:
        return file
    before = index.nodes or NodeRows(np.empty(0, np.int64))
    return with_nodes(place, file, before.with_added(span.rows))


def with_nodes(place: Path, file: IndexFile, nodes: NodeRows) -> IndexFile:
    """Write which rows the nodes of a file stand for beside it, and return what is said of the file then."""
    path = place / file.nodes_name
    nodes.write(path)
    return replace(file, rows=nodes.living, nodes=file_digest(path), dead=nodes.dead)


def fill_in_worker(_: None, span: FileSpan, folder: Path, place: Path, manifest: IndexManifest) -> IndexFile:
    """Build one file in a worker of a cluster, which has to see the folder of the vectors."""
    require_faiss().omp_set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    try:
        return fill_file(VectorDirectory.open(folder), place, manifest, span, lambda rows: None)
    except OSError as error:
        shared = "all nodes have to see the vectors under the same path"
        raise SentcliError(f"node {socket.gethostname()}: {error}; {shared}") from None


def clear(place: Path, manifest: IndexManifest) -> None:
    """Delete files of rows that the manifest does not name, which an interrupted run left or a longer file replaced.

    Raises:
        InputError: if a file that the manifest names is missing: then none is deleted.
    """
    named = manifest.digests
    missing = sorted(name for name in named if not (place / name).is_file())
    if missing:
        raise InputError(f"{place / missing[0]} is missing; build the index again with --overwrite")
    for path in place.iterdir():
        if path.name in named:
            continue
        if INDEX_FILE.fullmatch(path.name) or NODES_FILE.fullmatch(path.name) or PARTIAL.fullmatch(path.name):
            path.unlink()
