"""Types of NumPy arrays, by the type of their numbers, under which every module of the package names them."""

from typing import Any

import numpy as np
import numpy.typing as npt

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
