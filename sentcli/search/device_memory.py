"""The memory of a device of torch: how much is free, what is said where it ends, and copies beside the work."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sentcli.arrays import AnyArray
from sentcli.devices import device_errors, give_memory_back
from sentcli.machine import memory_left
from sentcli.model.spec import Similarity
from sentcli.search.products import UNIT_ERROR

COPIED = 2**27
"""About how many bytes are copied at a time: 128 MiB take 2 to 3 ms on a bus of 50 GB/s, many times what starting
a copy takes."""
TRANSFERRED = (np.float32, np.float16, np.int8)
"""The types of numbers that are copied as they are; others become float32 before."""


def free_memory(device: torch.device) -> int | None:
    """Return how many bytes are free on a device; None where nothing tells it."""
    give_memory_back(device)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory()) - int(torch.mps.driver_allocated_memory())
    return memory_left()


def search_errors(device: torch.device, what: str, size: int) -> AbstractContextManager[None]:
    """Name a search in the errors of a device inside the block; see `device_errors`."""
    return device_errors(device, what, size, advice="; --device cpu does without it")


def as_tensor(rows: AnyArray) -> Tensor:
    """Return rows ``[n, dim]`` as a tensor over the same memory, which is not to be written.

    Rows of a type that is not `TRANSFERRED` are copied to float32.
    """
    if rows.dtype not in TRANSFERRED:
        rows = rows.astype(np.float32)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(rows))


def prepared_there(rows: Tensor, similarity: Similarity) -> Tensor:
    """Return float32 vectors ``[n, dim]`` whose inner products are the similarity, as `exact.prepared` does.

    Nothing waits for the device: a row whose length is 1 already is divided by 1.
    """
    wide = rows.float()
    if similarity == "dot":
        return wide
    lengths = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    are_unit = (lengths * lengths - 1).abs() <= UNIT_ERROR
    return wide / torch.where(are_unit | (lengths == 0), 1.0, lengths)


@dataclass
class _Place:
    """Memory of the host from which the device copies by itself, and as much on the device."""

    pinned: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    there: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    copied: Any = field(default_factory=lambda: torch.cuda.Event())  # type: ignore[no-untyped-call]
    """The event of the device that the copy has ended."""
    used: Any = field(default_factory=lambda: torch.cuda.Event())  # type: ignore[no-untyped-call]
    """The event of the device that the rows in this place have been compared, so that it may be filled again."""


class StagedCopies:
    """Copies blocks of rows to a device, one after the other.

    On CUDA a block is copied by a stream of its own while the one before it is compared, and the host fills the memory
    of the next one meanwhile: there are two places, and the host waits only for the copy of the last block but one.
    Elsewhere a block is there when `put` returns.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: Any = None
        self._places: tuple[_Place, _Place] | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._places = _Place(), _Place()

    def put(self, rows: AnyArray) -> Tensor:
        """Return rows ``[n, dim]`` on the device, in the type that they have; the next but one takes their place."""
        block = as_tensor(rows)
        if self._places is None:
            return block.to(self.device)
        last, place = self._places
        self._places = place, last
        current = torch.cuda.current_stream(self.device)
        last.used.record(current)  # by now the caller has asked for all that it does with the rows before
        place.copied.synchronize()
        self._make_room(place, block.nbytes)
        pinned = place.pinned
        there = place.there
        pinned = pinned[: block.nbytes].view(block.dtype).view(block.shape)
        there = there[: block.nbytes].view(block.dtype).view(block.shape)
        pinned.copy_(block)  # by all threads of torch, unlike a copy of NumPy
        self._stream.wait_event(place.used)
        with torch.cuda.stream(self._stream):
            there.copy_(pinned, non_blocking=True)
            place.copied.record(self._stream)
        current.wait_event(place.copied)
        return there

    def _make_room(self, place: _Place, size: int) -> None:
        """Give a place at least so many bytes."""
        if len(place.pinned) >= size:
            return
        place.pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        place.there = torch.empty(size, dtype=torch.uint8, device=self.device)
        # The memory may be that of a tensor which earlier work still reads, and a copy has to wait for it
        place.used.record(torch.cuda.current_stream(self.device))


def rows_copied(dimension: int) -> int:
    """Return how many rows of float32 are about `COPIED` bytes."""
    return max(COPIED // (4 * max(dimension, 1)), 1)
