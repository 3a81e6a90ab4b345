"""Results as JSON and tables: one shape for every command."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sentcli import __version__
from sentcli.io.atomic import replacing

LIBRARIES = (
    "torch",
    "transformers",
    "tokenizers",
    "onnxruntime",
    "onnxruntime-gpu",
    "openvino",
    "numpy",
    "scipy",
    "scikit-learn",
    "faiss-cpu",
    "faiss-gpu",
    "beir",
    "bm25s",
    "pystemmer",
)


@dataclass
class Report:
    """What a command found, with every choice that moved it. Made when the command starts, filled as it goes."""

    command: str
    model: str
    protocol: dict[str, Any] = field(default_factory=dict)
    results: Any = None
    environment: dict[str, Any] = field(default_factory=dict)
    average: float | None = None
    average_pearson: float | None = None
    average_interval: tuple[float, float] | None = None
    """95 %."""
    compared: dict[str, Any] | None = None
    """What sets this model apart from the first one of the run."""
    cached: list[str] = field(default_factory=list)
    """Tasks whose scores were kept from an earlier run."""
    started: float = field(default_factory=time.perf_counter)
    seconds: float | None = None
    """From `started` to `finish`."""

    def finish(self) -> None:
        """Stop the clock: what follows belongs to another model."""
        self.seconds = time.perf_counter() - self.started

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object; `average`, `average_interval`, `compared` and `cached` only where there are."""
        found = {
            "command": self.command,
            "model": self.model,
            "protocol": self.protocol,
            "results": self.results,
            "environment": self.environment,
            "elapsed_seconds": round(time.perf_counter() - self.started if self.seconds is None else self.seconds, 3),
        }
        more = {
            "average": self.average,
            "average_pearson": self.average_pearson,
            "average_interval": self.average_interval,
            "compared": self.compared,
            "cached": self.cached or None,
        }
        return found | {name: value for name, value in more.items() if value is not None}


def write_report(value: Any, target: str) -> None:
    """Write JSON to a file, atomically, or to standard output (``-``)."""
    text = json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, "utf-8")


def finite(value: Any) -> Any:
    """Replace numbers that JSON cannot hold by null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def library_version(name: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def environment(device: str | None, precision: str | None, seed: int | None = None) -> dict[str, Any]:
    """Return versions, hardware, device, precision and seed; None is what had no part in it."""
    versions = {name: found for name in LIBRARIES if (found := library_version(name))}
    return {
        "sentcli": __version__,
        "python": platform.python_version(),
        **versions,
        "platform": platform.platform(),
        "processor": processor(),
        "cpu_count": os.cpu_count(),
        "threads": threads(),
        "device": device,
        "precision": precision,
        "seed": seed,
    }


def bytes_depend_on(device: str) -> dict[str, Any]:
    """Return the part of `environment` that moves the last bits of a computation."""
    names = ("sentcli", "torch", "transformers", "tokenizers", "numpy", "processor", "threads")
    found = environment(device, "")
    gpu = sys.modules["torch"].cuda.get_device_name(device) if device.startswith("cuda") else None
    return {**{name: found.get(name) for name in names}, **({"gpu": gpu} if gpu else {})}


def threads() -> int:
    """Return how many threads compute: torch's, on which the last bits of sums depend, else those of the exports."""
    torch = sys.modules.get("torch")
    return usable_cores() if torch is None else int(torch.get_num_threads())


def usable_cores() -> int:
    """Return how many cores this process may use; ``OMP_NUM_THREADS`` limits them."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    if named.isdigit() and int(named) > 0:
        return int(named)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1


def processor() -> str:
    """Return the processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
