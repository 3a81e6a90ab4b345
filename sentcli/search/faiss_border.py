"""What stands between sentcli and faiss: its errors as one message, and the memory that it takes, estimated before.

Where memory ends inside of its threads, faiss ends the process without a word.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sentcli.errors import InputError, MissingExtraError, SentcliError, library_errors, one_line, required
from sentcli.machine import memory_left, require_memory
from sentcli.search.blas import CORETYPE, kernels_of, kernels_that_fit, multiplies_rightly

WORKING = 2**28
"""The bytes that a search and its threads take besides an index."""
GROWING = 2
"""While rows are added to it, an index has two copies of itself."""
CUDA_PACKAGES = ("nvidia-cuda-runtime-cu12", "nvidia-cublas-cu12", "nvidia-curand-cu12")
"""What faiss-gpu 1.15 looks for when it is imported, and does not bring."""
OF_CUDA = r"libcu(dart|blas|rand)|nvidia[-_](cuda|cublas|curand)"
"""How an import names a library of CUDA that is missing: by its file, or by its package."""


def require_faiss() -> Any:
    """Return the faiss module.

    Raises:
        MissingExtraError: if it is not installed, or does not load.
        SentcliError: if there is not enough memory to load it, it lacks libraries of CUDA, or it multiplies wrongly.
    """
    if "faiss" in sys.modules:
        return required("faiss", "faiss", "cpu", "search")
    require_memory(2 * WORKING, "faiss")
    with kernels_that_fit():
        faiss = _imported()
    if not multiplies_rightly(faiss):
        raise SentcliError(
            f"faiss {faiss.__version__} has wrong products on this processor (OpenBLAS's kernels "
            f"{kernels_of('faiss')}): set {CORETYPE}=Haswell, or install another version of faiss"
        )
    return faiss


def _imported() -> Any:
    """Import faiss, whose build for GPUs looks for libraries that its package does not bring."""
    try:
        return required("faiss", "faiss", "cpu", "search")
    except MissingExtraError as error:
        cause = error.__cause__
        if not re.search(OF_CUDA, str(cause), re.IGNORECASE):
            raise
        raise SentcliError(
            f"faiss-gpu does not load without libraries of CUDA 12: pip install {' '.join(CUDA_PACKAGES)} "
            f"({one_line(cause or error)}); exact search (--index flat) needs no faiss"
        ) from cause


@contextmanager
def faiss_errors(message: str, kind: Callable[[str], SentcliError] = InputError) -> Iterator[None]:
    """Turn whatever faiss raises inside the block into one error.

    Args:
        message: with ``{why}`` for the words of faiss.
        kind: makes the error.

    Raises:
        SentcliError: if there is not enough memory; else the error of the `kind`.
    """
    place = r"^Error in .*? at \S+:\d+: (Error: )?"  # in the source of faiss
    try:
        with library_errors(lambda why: kind(message.replace("{why}", re.sub(place, "", why)[:200]))):
            yield
    except SentcliError as error:
        if isinstance(error.__cause__, MemoryError):
            raise SentcliError(str(error)) from error
        raise


def check_factory(factory: str, dimension: int, rows: int) -> None:
    """Refuse a factory string whose numbers need more memory than there is, before faiss makes room for them.

    A number is one of clusters, links, dimensions or codes, which takes some bytes for each dimension or row; a number
    behind an x is one of bits, and stands for as many codes as they can tell apart.

    Args:
        factory: of faiss.
        dimension: of the vectors.
        rows: that come into the index; 0 where that is not known.

    Raises:
        InputError: if it needs more memory than there is, or has more clusters than rows.
    """
    left = memory_left()
    for kind, number, bits in re.findall(r"([A-Za-z]+|_)(\d+)(?:x(\d+))?", factory):
        count = int(number[:18])
        each = 4 * max(dimension, 1)
        if kind == "IVF" and count > rows > 0 and count * each > WORKING:
            raise InputError(f"{factory}: {count:,} clusters are more than the {rows:,} rows; flat needs none")
        if kind in ("HNSW", "NSG"):
            each = max(8 * rows, each)
        elif kind in ("RR", "_"):  # a square matrix
            each = max(4 * count, each)
        elif bits:
            each *= 2 ** min(int(bits), 62)
        needed = each if kind == "PQ" else count * each
        if left is not None and needed > left:
            sizes = f"{needed / 1e6:,.0f} MB of memory, and {left / 1e6:,.0f} MB are left"
            part = kind.strip("_") or "dimension"
            raise InputError(f"{factory}: {part} {number} takes about {sizes}; choose less")


def check_room(rows: int, row_bytes: int) -> None:
    """Refuse to add rows to an index for which there is not enough memory.

    Args:
        rows: how many.
        row_bytes: what each takes in the index.

    Raises:
        SentcliError: which says how much they need.
    """
    require_memory(GROWING * rows * row_bytes + WORKING, f"an index over {rows:,} rows of {row_bytes:,} bytes")
