"""The devices of torch: which one a name means, why there is none, and what is said when one fails."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sentcli.errors import DeviceMemoryError, InputError, SentcliError, lacks_memory, one_line
from sentcli.machine import VISIBLE

FAILED = re.compile(r"CUDA|cuDNN|CUBLAS|NCCL|MPS|device-side assert", re.IGNORECASE)
"""What stands in an error of a device that fails, such as one that was taken away."""


def choose_device(device: str) -> torch.device:
    """Return the torch device of a name; ``auto`` takes CUDA, else Apple's GPU, else the CPU.

    Raises:
        InputError: if this machine does not have the device; there is no silent fallback to the CPU.
    """
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        if torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")
    try:
        torch_device = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"unknown device {device!r}; for example auto, cpu, cuda, cuda:1, mps") from error
    if torch_device.type == "cuda":
        if (torch_device.index or 0) >= _cuda_count():
            raise InputError(f"device {device!r} is not there: {why_no_cuda()}")
    elif torch_device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("device 'mps' is not there")
    elif torch_device.type not in ("cpu", "mps"):
        raise InputError(f"device {device!r} is not supported; cpu, cuda or mps")
    return torch_device


def _cuda_count() -> int:
    """Return the number of CUDA devices that can be used."""
    if not torch.cuda.is_available():
        return 0
    return torch.cuda.device_count()


def why_no_cuda() -> str:
    """Return how many CUDA devices torch sees, and the cause where it is known."""
    seen = f"torch {torch.__version__} sees {_cuda_count()} CUDA devices"
    if torch.version.cuda is None:
        return f"{seen}, because it is a build without CUDA"
    visible = os.environ.get(VISIBLE)
    if visible is not None:
        return f"{seen}, and {VISIBLE} is {visible!r}"
    return seen


@contextmanager
def device_errors(device: torch.device, what: str, size: int = 0, *, advice: str = "") -> Iterator[None]:
    """Turn errors of a device inside the block into one message.

    Args:
        device: what computes.
        what: the work, such as ``a batch of 20 texts``.
        size: the bytes that it wants, where they are known.
        advice: what else the user may do, at the end of the message.

    Raises:
        DeviceMemoryError: if the device has too little memory, which says how much of it is free.
        SentcliError: if it fails, or torch was built without it.
    """
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        if lacks_memory(error):
            give_memory_back(device)
            raise DeviceMemoryError(too_little(device, what, size) + advice) from error
        if not FAILED.search(str(error)):
            raise
        why = f"{one_line(error)} (nvidia-smi shows whether it is still there)"
        raise SentcliError(f"{device} failed at {what}: {why}{advice}") from error


def give_memory_back(device: torch.device) -> None:
    """Let a device have the memory that torch keeps of earlier work for later, which may lie in pieces."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def too_little(device: torch.device, what: str, size: int = 0) -> str:
    """Return the message that a device has too little memory for some work, what is wanted and what is free."""
    message = f"{device} has too little memory for {what}"
    if size:
        message += f", which wants {size / 1e6:,.0f} MB"
    return message + what_is_free(device)


def what_is_free(device: torch.device) -> str:
    """Return how much memory of a CUDA device is free as the end of a sentence; an empty string where nobody knows."""
    try:
        free, total = torch.cuda.mem_get_info(device)
    except (RuntimeError, AssertionError, ValueError):  # of a device that is gone, or is no CUDA device
        return ""
    return f": {free / 1e9:.1f} of its {total / 1e9:.1f} GB are free (nvidia-smi shows which processes hold the rest)"
