"""A program that runs ahead of its GPU: tensors go there, and numbers come back, without a wait for queued work.

A GPU computes what the program has queued. Each wait for it leaves it idle for as long as the program takes to queue
the next operations, which in training with small batches is most of a step.
"""

from __future__ import annotations

import torch
from torch import Tensor


def runs_ahead(device: torch.device) -> bool:
    """Tell whether a device has a queue that the program runs ahead of, so that looking at a value there is a wait."""
    return device.type == "cuda"


def answers_at_once(device: torch.device) -> bool:
    """Tell whether a value on a device can be looked at without a wait for work that was given to it before."""
    return device.type == "cpu"


def queued_to(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the CPU on a device; a copy to a GPU is queued from pinned memory, and nothing waits for it.

    torch keeps the pinned memory until the copy has been made.
    """
    if tensor.device.type == "cpu" and runs_ahead(device):
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class PendingCopy:
    """Numbers of a device that are read after further work has been queued.

    Args:
        numbers: a tensor of the device. Its copy to the CPU is queued at once: `read` waits for what was queued before
            it, and for nothing that is queued after it.
    """

    def __init__(self, numbers: Tensor) -> None:
        ahead = runs_ahead(numbers.device)
        self._numbers = numbers.to("cpu", non_blocking=ahead)  # into pinned memory
        # the thread sleeps until then, so that others may tokenise and read
        self._copied = torch.cuda.Event(blocking=True) if ahead else None  # type: ignore[no-untyped-call]
        if self._copied is not None:
            self._copied.record(torch.cuda.current_stream(numbers.device))

    def read(self) -> Tensor:
        """Return the numbers in the memory of the CPU."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._numbers
