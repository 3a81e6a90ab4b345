"""Keep the memory that a training step frees for the next step, and give it back when the training is over."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def keep_freed_memory() -> None:
    """Let glibc keep freed memory, because a step frees and allocates the same blocks again and again.

    Without this, every large tensor is mapped anew and the kernel fills it with zeros page by page, which is a third of
    a step's time on a CPU. MALLOC_TRIM_THRESHOLD_ in the environment takes precedence.
    """
    library = _glibc()
    if library is None or "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return
    mmap_threshold, trim_threshold, largest = -3, -1, 2**28
    library.mallopt(mmap_threshold, largest)
    library.mallopt(trim_threshold, 2**31 - 1)


@contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Keep freed memory inside the block, and give it back to the system at its end."""
    keep_freed_memory()
    try:
        yield
    finally:
        if (library := _glibc()) is not None:
            library.malloc_trim(0)


def _glibc() -> Any:
    """Return glibc, or None if this system has another C library."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL("libc.so.6")
        return library if library.mallopt and library.malloc_trim else None
    except (OSError, AttributeError):
        return None
