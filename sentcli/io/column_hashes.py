"""A number for each value of a column, by which many rows are compared with many others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import UInt64Array

if TYPE_CHECKING:
    import pyarrow as pa


_MISSING_HASH = np.uint64(0x9E3779B97F4A7C15)
"""The number of a value that is missing."""
FACTOR = np.uint64(0x100000001B3)
"""By what the number of a row is multiplied before that of another column is added."""


def row_hashes(columns: Mapping[str, pa.Array]) -> UInt64Array:
    """Return a number for each row ``[n]``, which is another one for other values, names or types of its columns.

    Args:
        columns: the values by name, in any order ``[n]``.
    """
    names = sorted(columns)
    heads = [f"{name} {columns[name].type}" for name in names]
    numbers = np.zeros(len(columns[names[0]]), np.uint64)
    for name, head in zip(names, _of_objects(heads), strict=True):
        numbers = (numbers * FACTOR + head) * FACTOR + value_hashes(columns[name])
    return numbers


def value_hashes(array: pa.Array) -> UInt64Array:
    """Return a number for each value of a column ``[n]``: of numbers and times by their bits, of others by their text.

    Two different values have the same number with a probability of about 2^-64.
    """
    import pyarrow as pa
    from pandas.util import hash_array

    kind = array.type
    is_missing = array.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        numbers = _of_objects(array.fill_null("").to_numpy(zero_copy_only=False))
    elif _has_bits(kind):
        bits = array.view(getattr(pa, f"uint{kind.bit_width}")())
        numbers = hash_array(bits.fill_null(0).to_numpy().astype(np.uint64))
    else:
        numbers = _of_objects(list(map(repr, array.to_pylist())))
    return np.where(is_missing, _MISSING_HASH, numbers)


def _has_bits(kind: pa.DataType) -> bool:
    """Tell whether the values of a type are 8 to 64 bits each."""
    import pyarrow as pa

    return bool(pa.types.is_primitive(kind)) and kind.bit_width in (8, 16, 32, 64)


def _of_objects(texts: Any) -> UInt64Array:
    """Return a number for each text ``[n]``."""
    from pandas.util import hash_array

    objects = np.empty(len(texts), np.object_)
    objects[:] = texts
    numbers: UInt64Array = hash_array(objects, categorize=False)
    return numbers
