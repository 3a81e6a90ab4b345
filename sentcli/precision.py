"""Half precision: which devices compute in it, and how training uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from sentcli.errors import InputError

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def check_precision(device: torch.device, precision: str) -> None:
    """Check that a device computes in a precision.

    Raises:
        InputError: if the precision is unknown, or the device has no instructions for it.
    """
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}; one of: {', '.join(PRECISIONS)}")
    if precision != "fp32" and not half_precision_supported(device, precision):
        raise InputError(f"{device} has no instructions for {precision}, it would run many times slower: use fp32")


def half_precision_supported(device: torch.device, precision: str) -> bool:
    """Tell whether the hardware computes in that half precision (without it, it is slower than fp32)."""
    if device.type == "cuda":
        return precision == "fp16" or torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "mps":
        return precision == "fp16"
    bf16 = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    probes = bf16 if precision == "bf16" else ("_is_amx_fp16_supported",)
    return any(getattr(torch.cpu, probe, lambda: False)() for probe in probes)


@contextmanager
def computing_in(precision: str, device: torch.device) -> Iterator[None]:
    """Run matrix products in a half precision, with the weights kept in fp32; fp32 changes nothing."""
    # torch's fused attention for CPUs takes several times as long backwards in bf16 as the plain one
    attention = sdpa_kernel(SDPBackend.MATH) if device.type == "cpu" and precision != "fp32" else nullcontext()
    with attention, torch.autocast(device.type, PRECISIONS[precision], enabled=precision != "fp32"):
        yield


def widened(tensor: Tensor) -> Tensor:
    """Return half precision as float32, for sums and similarities; anything else as it is."""
    if tensor.dtype in (torch.float16, torch.bfloat16):
        return tensor.float()
    return tensor
