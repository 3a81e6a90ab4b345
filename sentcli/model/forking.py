"""Processes that were forked: a child has none of its parent's threads, and the libraries that wait for theirs hang.

Web servers and the loaders of PyTorch fork. Where a library can do without its threads it is told so before it works in
such a child, and where it cannot, an error says how to start the child.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from sentcli.errors import SentcliError


@dataclass
class _Process:
    """Whether and how this process was forked."""

    lost: frozenset[str] = frozenset()
    """The libraries that had been loaded when it was forked, from a process with several threads."""
    adapted: bool = True
    threads: int = 1
    """How many threads there were before the last fork."""


_process = _Process()
LIBRARIES = ("torch", "openvino", "faiss")
"""Libraries with threads of their own."""


def _note_threads() -> None:
    try:
        _process.threads = len(list(Path("/proc/self/task").iterdir()))
    except OSError:  # nothing is known
        _process.threads = 2


def _note_loss() -> None:
    if _process.threads > 1:
        _process.lost = frozenset(name for name in LIBRARIES if name in sys.modules)
        _process.adapted = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_threads, after_in_child=_note_loss)


def drop_lost_threads() -> None:
    """Let torch, faiss and the tokenizers compute in the calling thread alone, if this process lost their threads."""
    if _process.adapted:
        return
    _process.adapted = True
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if "torch" in _process.lost:
        import torch

        torch.set_num_threads(1)
    if "faiss" in _process.lost:
        import faiss

        faiss.omp_set_num_threads(1)


def refuse_lost(library: str, advice: str = "") -> None:
    """Refuse to use a library that waits for threads that this process has lost.

    Raises:
        SentcliError: which names ``spawn``.
    """
    if library in _process.lost:
        raise forked(library, advice)


def forked(library: str, advice: str = "") -> SentcliError:
    """Return the error for a library that does not work in a forked process."""
    return SentcliError(
        f"{library} does not work in a process that was forked from one that used it: start it with "
        f"multiprocessing.get_context('spawn'){advice}"
    )
