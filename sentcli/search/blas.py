"""The kernels with which faiss multiplies matrices, for clusters and codes: those that fit this processor.

The wheel of faiss 1.15 carries OpenBLAS 0.3.15 of 2021, which takes a processor that is newer than it for an old one
and multiplies at a sixth to an eighth of its rate (OpenMathLib/OpenBLAS#4267). A variable names the kernels, and is
read once, when the library is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sentcli.machine import instructions

CORETYPE = "OPENBLAS_CORETYPE"
KERNELS = {"SkylakeX": {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}, "Haswell": {"avx2", "fma"}}
"""The instructions that kernels need, by their names in OpenBLAS, the fastest first."""
OLD = ("Prescott", "Katmai", "Core2", "Generic", "generic")
"""The kernels that a library falls back to for a processor that it does not know."""
CHECKED = (330, 64)
"""The rows and dimensions of the product that is compared with NumPy's."""


def fitting(instructions: frozenset[str]) -> str | None:
    """Return the name of the fastest kernels whose instructions a processor has; None if it has none of them."""
    for name, needed in KERNELS.items():
        if needed <= instructions:
            return name
    return None


@contextmanager
def kernels_that_fit() -> Iterator[None]:
    """Let a library that is loaded inside take the kernels that fit, unless the user has named some.

    NumPy has to be loaded before: it knows the processor itself. The variable is gone afterwards, so that no process
    that is started later inherits it.
    """
    name = fitting(instructions())
    if name is None or CORETYPE in os.environ:
        yield
        return
    os.environ[CORETYPE] = name
    try:
        yield
    finally:
        del os.environ[CORETYPE]


def multiplies_rightly(faiss: Any) -> bool:
    """Tell whether faiss has the inner products of NumPy: kernels of old releases have had wrong ones."""
    rows, width = CHECKED
    vectors = (np.arange(rows * width, dtype=np.float32).reshape(rows, width) * 7919) % 61 - 30
    exact = vectors @ vectors.T  # whole numbers, so that no sum is rounded
    nearest, _ = faiss.knn(vectors, vectors, 1, metric=faiss.METRIC_INNER_PRODUCT)
    return bool((nearest[:, 0] == exact.max(axis=1)).all())


def kernels_of(library: str) -> str | None:
    """Return the name of the kernels of the OpenBLAS that a package carries; None if it carries none that is loaded."""
    from threadpoolctl import threadpool_info

    for pool in threadpool_info():
        name: str | None = pool.get("architecture")
        if name and f"{os.sep}{library}" in str(pool["filepath"]):
            return name
    return None
