"""This machine and what is installed on it: versions, processor, threads."""

from __future__ import annotations

import os
import platform
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from sentcli import __version__
from sentcli.bounds import whole_number
from sentcli.errors import SentcliError

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


def library_versions() -> dict[str, str]:
    """Return the versions of those of `LIBRARIES` that are installed."""
    versions = {}
    for name in LIBRARIES:
        version = library_version(name)
        if version:
            versions[name] = version
    return versions


def environment(
    device: str | None, precision: str | None, seed: int | None = None, revision: str | None = None
) -> dict[str, Any]:
    """Return versions, hardware, device, precision, seed and the commit of a model of the hub.

    None stands for one that was not used.
    """
    return {
        "sentcli": __version__,
        "python": platform.python_version(),
        **library_versions(),
        "platform": platform.platform(),
        "processor": processor(),
        "cpu_count": os.cpu_count(),
        "threads": threads(),
        "device": device,
        "precision": precision,
        "seed": seed,
        "revision": revision,
    }


def bytes_depend_on(device: str) -> dict[str, Any]:
    """Return the part of `environment` on which the last bits of a computation depend."""
    names = ("sentcli", "torch", "transformers", "tokenizers", "numpy", "processor", "threads")
    facts = environment(device, "")
    parts = {name: facts.get(name) for name in names}
    if device.startswith("cuda"):
        parts["gpu"] = sys.modules["torch"].cuda.get_device_name(device)
    return parts


def threads() -> int:
    """Return the number of threads that compute: torch's if it is loaded, else those of onnxruntime."""
    torch = sys.modules.get("torch")
    if torch is None:
        return usable_cores()
    return int(torch.get_num_threads())


def usable_cores() -> int:
    """Return how many cores this process may use; ``OMP_NUM_THREADS`` limits them."""
    limit = whole_number(os.environ.get("OMP_NUM_THREADS", ""))
    if limit:
        return limit
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def memory_left() -> int | None:
    """Return how many bytes this process may still take, by the system, its group and its limits.

    It is None where none of these tells it. A limit of a shell (``ulimit -v``) counts as much as what the machine has.
    """
    left = _left_of_limits()
    for value in (_available(), _left_in_group()):
        if value is not None:
            left.append(value)
    if not left:
        return None
    return max(min(left), 0)


def require_memory(size: int, what: str) -> None:
    """Check that this process may take so many bytes more.

    Raises:
        SentcliError: if it may not; the message says what needs them.
    """
    left = memory_left()
    if left is not None and left < size:
        needs = f"{what} needs about {size / 1e6:,.0f} MB of memory"
        raise SentcliError(f"{needs}, and {left / 1e6:,.0f} MB are left to this process (see free -m and ulimit -v)")


def _available() -> int | None:
    """Return the memory that Linux can give without swapping."""
    return _kilobytes("/proc/meminfo", "MemAvailable:")


def _left_in_group() -> int | None:
    """Return what the control group of a container has left, apart from files that it only keeps in memory."""
    try:
        folder = Path("/sys/fs/cgroup")
        most = int((folder / "memory.max").read_text("ascii"))
        held = int((folder / "memory.current").read_text("ascii"))
        kept = re.search(r"^inactive_file (\d+)$", (folder / "memory.stat").read_text("ascii"), re.MULTILINE)
    except (OSError, ValueError):  # there is no group, or it has no limit
        return None
    if kept is None:
        return most - held
    return most - held + int(kept[1])


def _left_of_limits() -> list[int]:
    """Return what each limit of the shell on memory leaves, in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return []
    taken = {resource.RLIMIT_AS: "VmSize:", resource.RLIMIT_DATA: "VmData:"}
    left = []
    for name, entry in taken.items():
        limit, _ = resource.getrlimit(name)
        if limit != resource.RLIM_INFINITY:
            left.append(limit - (_kilobytes("/proc/self/status", entry) or 0))
    return left


def _kilobytes(file: str, name: str) -> int | None:
    """Return an entry of a table of Linux, in bytes."""
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return None


def processor() -> str:
    """Return the name of the processor, or of its architecture if the system does not tell it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(key: str) -> str | None:
    """Return an entry of the first processor in Linux's ``/proc/cpuinfo``; None on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(key):
            return line.split(":", 1)[1].strip()
    return None


def instructions() -> frozenset[str]:
    """Return the instructions of this processor by their names in Linux; none for another one than x86 or system."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return frozenset()
    return frozenset((_cpuinfo("flags") or "").split())


VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable of the environment that names the GPUs which a process may use."""
DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""The files of the drivers of GPUs on Linux."""
ONEDNN_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""The variables of the environment that limit the instructions which oneDNN uses."""
ISAS_WITHOUT_VNNI = ("SSE41", "AVX", "AVX2", "AVX512_CORE")
"""Their values that leave out VNNI, which adds products of 8-bit numbers in 32 bits."""


def accelerator_in_sight() -> bool:
    """Tell whether there may be a GPU, without the seconds that importing torch takes."""
    if sys.platform == "darwin":
        return True
    if sys.platform != "linux":
        return True
    return any(Path(device).exists() for device in DRIVERS) and not hides_gpus()


def hides_gpus() -> bool:
    """Tell whether ``CUDA_VISIBLE_DEVICES`` hides every GPU of this machine, which must have one."""
    hides = os.environ.get(VISIBLE) in ("", "-1")
    return hides and any(Path(device).exists() for device in DRIVERS)


def sums_saturate(runtime: str = "onnx") -> bool:
    """Tell whether products of 8-bit numbers are added in 16 bits here, which overflow: on x86 without VNNI.

    Args:
        runtime: ``onnx``, or ``openvino``, which heeds the limit that the environment sets for oneDNN.
    """
    known = instructions()
    if not known:  # ARM adds in 32 bits; elsewhere nothing is known, so be careful
        return platform.machine() not in ("arm64", "aarch64")
    if runtime == "openvino":
        limits = [os.environ.get(name, "").upper() for name in ONEDNN_LIMITS]
        if any(limit in ISAS_WITHOUT_VNNI for limit in limits):
            return True
    return known.isdisjoint(("avx512_vnni", "avx_vnni", "amx_int8"))
