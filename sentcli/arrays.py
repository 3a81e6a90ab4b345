"""Types of NumPy arrays, by the type of their numbers, and looking values up in rising ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

Float32Array = npt.NDArray[np.float32]
"""Numbers in single precision, such as scores."""
Float64Array = npt.NDArray[np.float64]
"""Numbers in double precision, such as metrics."""
FloatArray = npt.NDArray[np.floating[Any]]
"""Numbers in any precision."""
Int64Array = npt.NDArray[np.int64]
"""Whole numbers, such as positions of rows."""
UInt64Array = npt.NDArray[np.uint64]
"""Whole numbers from 0, such as hashes."""
BoolArray = npt.NDArray[np.bool_]
"""Truth values, such as a mask of rows."""
AnyArray = npt.NDArray[Any]
"""Values of any type."""
Vectors = npt.NDArray[np.float32]
"""Embeddings in single precision ``[rows, dim]``."""
Digests = npt.NDArray[np.bytes_]
"""A digest of each text or row, as bytes of one length ``[rows]``."""


def sorted_distinct(numbers: Int64Array) -> Int64Array:
    """Return the different ones of some numbers, rising; they are sorted where they stand, without a copy.

    Args:
        numbers: in any order ``[n]``; their order is lost.
    """
    numbers.sort()
    repeats = numbers[1:] == numbers[:-1]
    if not repeats.any():
        return numbers
    return numbers[np.append(True, ~repeats)]


def components(firsts: Sequence[int] | Int64Array, seconds: Sequence[int] | Int64Array, count: int) -> Int64Array:
    """Return the group of each of some things, those that a chain of links connects in one, by its number ``[count]``.

    Args:
        firsts: one end of each link ``[links]``.
        seconds: the other ends ``[links]``.
        count: of the things.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(firsts), np.int8), (firsts, seconds)), shape=(count, count))
    _, group_of = connected_components(links, directed=False)
    return np.asarray(group_of, np.int64)


def looked_up(values: AnyArray, rising: AnyArray, numbers: Int64Array | None = None) -> Int64Array:
    """Return the number of each value that is among rising ones, -1 for the others ``[values]``.

    Args:
        values: ``[values]``.
        rising: what they are looked up in ``[n]``.
        numbers: of the rising ones ``[n]``; None takes their places.
    """
    if not len(rising):
        return np.full(len(values), -1, np.int64)
    places = np.minimum(np.searchsorted(rising, values), len(rising) - 1)
    found = places
    if numbers is not None:
        found = numbers[places]
    return np.where(rising[places] == values, found, -1)
