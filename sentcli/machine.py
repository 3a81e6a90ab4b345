"""This machine and what is installed on it: versions, processor, threads."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from pathlib import Path
from typing import Any

from sentcli.bounds import whole_number
from sentcli.version import __version__

LIBRARIES = (
    "torch", "transformers", "tokenizers", "onnxruntime", "onnxruntime-gpu", "openvino", "numpy", "scipy",
    "scikit-learn", "faiss-cpu", "faiss-gpu", "beir", "bm25s", "pystemmer",
)  # fmt: skip


@cache
def library_version(name: str) -> str | None:
    """Return the installed version of a package, or None."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def environment(device: str | None, precision: str | None, seed: int | None = None) -> dict[str, Any]:
    """Return versions, hardware, device, precision and seed; None stands for one that was not used."""
    return {
        "sentcli": __version__,
        "python": platform.python_version(),
        **{name: installed for name in LIBRARIES if (installed := library_version(name))},
        "platform": platform.platform(),
        "processor": processor(),
        "cpu_count": os.cpu_count(),
        "threads": threads(),
        "device": device,
        "precision": precision,
        "seed": seed,
    }


def bytes_depend_on(device: str) -> dict[str, Any]:
    """Return the part of `environment` on which the last bits of a computation depend."""
    names = ("sentcli", "torch", "transformers", "tokenizers", "numpy", "processor", "threads")
    facts = environment(device, "")
    gpu = sys.modules["torch"].cuda.get_device_name(device) if device.startswith("cuda") else None
    return {**{name: facts.get(name) for name in names}, **({"gpu": gpu} if gpu else {})}


def threads() -> int:
    """Return the number of threads that compute: torch's if it is loaded, else those of onnxruntime."""
    torch = sys.modules.get("torch")
    return usable_cores() if torch is None else int(torch.get_num_threads())


def usable_cores() -> int:
    """Return how many cores this process may use; ``OMP_NUM_THREADS`` limits them."""
    if limit := whole_number(os.environ.get("OMP_NUM_THREADS", "")):
        return limit
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1


def processor() -> str:
    """Return the name of the processor, or of its architecture if the system does not tell it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(key: str) -> str | None:
    """Return an entry of the first processor in Linux's ``/proc/cpuinfo``; None on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), None)


def accelerator_in_sight() -> bool:
    """Tell whether there may be a GPU, without the seconds that importing torch takes."""
    if sys.platform == "darwin":
        return True
    devices = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
    return sys.platform != "linux" or any(Path(device).exists() for device in devices)


def sums_saturate() -> bool:
    """Tell whether this processor adds products of 8-bit numbers in 16 bits, which overflow (x86 without VNNI)."""
    flags = _cpuinfo("flags")
    if flags is None:  # ARM adds in 32 bits; elsewhere nothing is known, so be careful
        return platform.machine() not in ("arm64", "aarch64")
    return not any(name in flags.split() for name in ("avx512_vnni", "avx_vnni", "amx_int8"))
