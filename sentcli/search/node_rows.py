"""Which row of a corpus each node of a graph stands for, after rows of the corpus have changed.

A graph takes rows in and none out: a row that is gone leaves a dead node, over which a search goes on to others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from sentcli.arrays import AnyArray, BoolArray, Digests, Int64Array
from sentcli.errors import DataError
from sentcli.io.atomic import replacing
from sentcli.io.digests import vector_digests
from sentcli.io.writers import mapped_array
from sentcli.search.neighbours import Neighbours

DEAD = -1
"""The row of a node whose row is gone."""


@dataclass(frozen=True, eq=False)
class NodeRows:
    """The row of the corpus that each node stands for, or `DEAD` ``[nodes]``."""

    rows: Int64Array

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def is_alive(self) -> BoolArray:
        """Which nodes stand for a row ``[nodes]``."""
        alive: BoolArray = self.rows >= 0
        return alive

    @cached_property
    def living(self) -> int:
        """The number of nodes that stand for a row."""
        return int(np.count_nonzero(self.is_alive))

    @property
    def dead(self) -> int:
        """The number of nodes whose row is gone."""
        return len(self.rows) - self.living

    def that_may_be_found(self, mask: BoolArray | None) -> BoolArray | None:
        """Return the nodes of the rows that may be found ``[nodes]``, or None for all nodes.

        Args:
            mask: the rows of the corpus that may be found ``[n]``; None stands for all.
        """
        if mask is not None:
            of_rows: BoolArray = mask[self.rows]  # of a dead node it is that of the last row
            return of_rows & self.is_alive
        if self.dead:
            return self.is_alive
        return None

    def in_corpus(self, nodes: Neighbours) -> Neighbours:
        """Return the rows of nodes that were found; -1 stays where none was."""
        positions = np.where(nodes.positions < 0, DEAD, self.rows[nodes.positions])
        return Neighbours(positions, nodes.scores)

    def with_added(self, rows: Int64Array) -> NodeRows:
        """Return the rows of these nodes and of new ones behind them."""
        return NodeRows(np.concatenate([self.rows, rows]))

    def write(self, path: Path) -> None:
        """Write the rows of the nodes to an ``.npy`` file."""
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, self.rows)

    @classmethod
    def read(cls, path: Path, living: int, dead: int) -> NodeRows:
        """Read a file that `write` wrote.

        Args:
            path: the file.
            living: the number of nodes that stand for a row.
            dead: the number of the others.

        Raises:
            DataError: if it is missing or damaged, or has other numbers of nodes.
        """
        try:
            rows = mapped_array(path)
        except FileNotFoundError as error:
            raise DataError(path, "is missing") from error
        if rows.ndim != 1 or rows.dtype != np.int64:
            raise DataError(path, f"holds {list(rows.shape)} in {rows.dtype}, not the row of each node")
        nodes = cls(np.array(rows, np.int64))
        if (nodes.living, nodes.dead) != (living, dead):
            raise DataError(path, f"has {nodes.living} living and {nodes.dead} dead nodes, not {living} and {dead}")
        return nodes


def rows_of_nodes(nodes: Iterable[AnyArray], rows: Iterable[AnyArray]) -> Int64Array:
    """Return the row that has the vector of each node to the bit, or `DEAD` ``[nodes]``; no row has two nodes.

    Args:
        nodes: the vectors of the nodes, as blocks ``[n, dim]`` in order.
        rows: the vectors of the rows, as blocks ``[n, dim]`` in order, in the same type of numbers.
    """
    node_digests = _digests(nodes)
    row_digests = _digests(rows)
    _, groups = np.unique(np.concatenate([node_digests, row_digests]), return_inverse=True)
    is_node = np.arange(len(groups)) < len(node_digests)
    # of equal vectors, the first node is that of the first row, and so on
    of_nodes = _numbered(groups[is_node])
    of_rows = _numbered(groups[~is_node])
    found = np.full(len(of_nodes), DEAD, np.int64)
    _, same_nodes, same_rows = np.intersect1d(of_nodes, of_rows, assume_unique=True, return_indices=True)
    found[same_nodes] = same_rows
    return found


def _digests(blocks: Iterable[AnyArray]) -> Digests:
    """Return the digest of each vector ``[n]``."""
    contiguous = map(np.ascontiguousarray, blocks)
    return vector_digests(chain.from_iterable(contiguous))


def _numbered(groups: Int64Array) -> Int64Array:
    """Return a number for each member of a group that says its group and how many of it come before ``[n]``."""
    order = np.argsort(groups, kind="stable")
    in_order = groups[order]
    first = np.searchsorted(in_order, in_order)
    numbers = np.empty(len(groups), np.int64)
    numbers[order] = in_order * 2**32 + np.arange(len(groups)) - first
    return numbers
