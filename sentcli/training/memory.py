"""The memory that steps free: kept for the next step, and given back when the training is over."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def keep_freed_memory() -> None:
    """Let glibc keep what is freed instead of giving it back: a step frees and takes the same blocks again.

    Without it every large tensor is mapped anew, and the kernel fills it with zeros page by page: a third of a step's
    time on a CPU. MALLOC_TRIM_THRESHOLD_ in the environment wins.
    """
    library = _glibc()
    if library is None or "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return
    mmap_threshold, trim_threshold, largest = -3, -1, 2**28
    library.mallopt(mmap_threshold, largest)
    library.mallopt(trim_threshold, 2**31 - 1)


@contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Keep what is freed inside; afterwards the system gets it back, before the scores or the next run of a sweep."""
    keep_freed_memory()
    try:
        yield
    finally:
        if (library := _glibc()) is not None:
            library.malloc_trim(0)


def _glibc() -> Any:
    """Return the C library, None if it is another one."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL("libc.so.6")
        return library if library.mallopt and library.malloc_trim else None
    except (OSError, AttributeError):
        return None
