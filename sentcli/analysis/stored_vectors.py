"""Vectors on disk that `encode` wrote, or NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError, one_line


def read_vectors(path: Path, least: int = 2) -> npt.NDArray[Any]:
    """Return the vectors of a ``.npy`` file or of a directory of shards ``[n, d]``.

    Raises:
        InputError: if there are none, or fewer than `least`; DataError if a file is damaged.
    """
    if path.is_dir():
        vectors = _directory(path)
    elif path.suffix == ".npy" and path.exists():
        vectors = _array(path)
    elif not path.exists():
        raise InputError(f"there is no {path}")
    else:
        raise InputError(f"{path} holds no vectors: give a .npy file, a directory of encode, or a training run")
    if len(vectors) < least:
        raise InputError(f"{path}: {len(vectors)} vectors; an analysis needs at least {least}")
    return vectors


def _array(path: Path) -> npt.NDArray[Any]:
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(path, f"not a NumPy array: {one_line(error)}") from error
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu":
        raise DataError(path, f"an array {vectors.shape} of {vectors.dtype}; vectors are numbers [rows, dimensions]")
    if not all(np.isfinite(vectors[i : i + 65536]).all() for i in range(0, len(vectors), 65536)):
        raise DataError(path, "some numbers are not finite")
    array: npt.NDArray[Any] = vectors
    return array


def _directory(path: Path) -> npt.NDArray[Any]:
    from sentcli.search.store import Store

    if not (path / "manifest.json").exists():
        raise InputError(f"{path} is neither a training run (metrics.jsonl) nor a directory of encode (manifest.json)")
    blocks = Store.open(path, to_search=False).blocks
    return blocks.take(np.arange(len(blocks)))
