"""Keeping the graph of an index whose rows have changed: what is gone leaves dead nodes, what is new is added.

Which row a node stands for is found by the vectors themselves, which are in the graph: they are compared to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from sentcli import console
from sentcli.arrays import Vectors
from sentcli.errors import InputError
from sentcli.io.atomic import link
from sentcli.search.exact import Blocks, prepared
from sentcli.search.faiss_index import NODES_AT_A_TIME, FaissIndex
from sentcli.search.index_files import IndexManifest, read_part
from sentcli.search.index_filling import with_nodes
from sentcli.search.node_rows import NodeRows, rows_of_nodes

LEAST_ALIVE = 0.7
"""The share of the nodes that have to stand for a row for a graph to stay; else it is built anew.

10,000 rows among so many nodes were found with a recall@10 within 0.002 of that of a graph built anew, also where all
rows of one region were gone, but a search took 1.5 times as long. For each three rows that went it adds seven anew."""


def with_kept_graph(manifest: IndexManifest, place: Path, earlier: Path, blocks: Blocks) -> IndexManifest:
    """Put the files of a graph into the folder of an index of rows that have changed since.

    Args:
        manifest: of the index, without files.
        place: its folder.
        earlier: the folder of the graph.
        blocks: the vectors of the rows.

    Returns:
        The manifest with the files; without any if the graph is not kept, because it is no graph over whole vectors, is
        damaged, or has too few nodes of these rows.
    """
    graph = IndexManifest.read(earlier)
    if (graph.factory, graph.similarity, graph.settings) != (manifest.factory, manifest.similarity, manifest.settings):
        return manifest
    parts = []
    try:
        for file in graph.files:
            part = read_part(earlier, file, graph, mapped=True)
            if not part.is_graph:
                return manifest
            parts.append(part)
    except InputError as error:
        console.warn(f"{error}: it is built anew")
        return manifest
    of_nodes = chain.from_iterable(map(FaissIndex.stored_vectors, parts))
    rows = rows_of_nodes(of_nodes, _compared(blocks, manifest))
    if not parts or np.count_nonzero(rows >= 0) < LEAST_ALIVE * len(rows):
        return manifest
    in_order = np.array_equal(rows, np.arange(len(rows)))
    needs_nodes = graph.has_nodes or not in_order
    files = []
    first = 0
    for file, part in zip(graph.files, parts, strict=True):
        nodes = NodeRows(rows[first : first + len(part)])
        first += len(part)
        if not nodes.living:
            continue
        link(earlier / file.name, place / file.name)
        if needs_nodes:
            file = with_nodes(place, file, nodes)
        files.append(file)
    return replace(manifest, files=files, format=2 if needs_nodes else 1)


def _compared(blocks: Blocks, manifest: IndexManifest) -> Iterator[Vectors]:
    """Yield the vectors of rows as a graph compares them.

    Rows that are added together are brought to length 1 if one of them is not; should that make another bit of a row,
    it is taken for a new one.
    """
    for block in blocks.since(0, NODES_AT_A_TIME):
        yield prepared(block, manifest.similarity)
