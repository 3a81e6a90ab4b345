"""The facts that `sentcli doctor` shows: versions, devices, extras, known models, and which library runs what."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from typing import Any

from sentcli import __version__
from sentcli.io.digests import cache_folder, folder_bytes
from sentcli.machine import LIBRARIES, library_version, processor, usable_cores
from sentcli.zoo import ZooEntry, own_folder, zoo

NOT_INSTALLED = "not possible: pip install 'sentcli[cpu]'"


def examine() -> dict[str, Any]:
    """Examine this machine without downloading anything.

    Returns:
        The results of ``doctor --json``: versions, devices, extras, models, plan and device by name.
    """
    import torch

    from sentcli.model.torch_backend import choose_device

    device = choose_device("auto")
    extras = {name: _extra_state(packages) for name, packages in extra_packages().items()}
    versions = {"sentcli": __version__, "python": platform.python_version()}
    versions |= {name: version for name in LIBRARIES if (version := library_version(name))}
    faiss = library_version("faiss-gpu") or library_version("faiss-cpu")
    torch_runs = f"torch on {device}, fp32, {torch.get_num_threads()} threads"
    runtime = library_version("onnxruntime") or library_version("onnxruntime-gpu")
    exports = f"onnxruntime {runtime}, fp32, {usable_cores()} batches at a time; torch for what is not exported"
    cache = cache_folder("")
    plan = {
        "encode, retrieve, sts-eval, senteval": exports if runtime and device.type == "cpu" else torch_runs,
        "the cache (exports, vectors, scores, data)": f"{cache}, {folder_bytes(cache) / 1e6:,.0f} MB",
        "train": f"torch on {device}, fp32",
        "search": f"faiss {faiss}; exact unless there is an index" if faiss else NOT_INSTALLED,
        "search by words": f"bm25s {words}" if (words := library_version("bm25s")) else NOT_INSTALLED,
    }
    models = [
        {"name": e.name, "source": e.source, "pooling": e.pooling, "licence": e.licence, "where": at_hand(e)}
        for e in zoo().values()
    ]
    return {
        "versions": versions,
        "devices": _devices(),
        "extras": extras,
        "models": models,
        "plan": plan,
        "device": str(device),
    }


def extra_packages() -> dict[str, list[str]]:
    """Return the packages of each extra by its name, as the installed distribution declares them."""
    extras: dict[str, list[str]] = {}
    for requirement in metadata.requires("sentcli") or []:
        if extra := re.search(r"extra == ['\"]([\w-]+)['\"]", requirement):
            extras.setdefault(extra[1], []).append(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    return extras


def _devices() -> dict[str, str]:
    import torch

    from sentcli.precision import half_precision_supported

    def precisions(device: torch.device) -> str:
        return ", ".join(["fp32", *(p for p in ("bf16", "fp16") if half_precision_supported(device, p))])

    cpu = torch.device("cpu")
    instructions = torch.backends.cpu.get_cpu_capability()
    devices = {"cpu": f"{processor()}, {os.cpu_count()} cores, {instructions}, {precisions(cpu)}"}
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        memory = properties.total_memory / 2**30
        devices[f"cuda:{i}"] = f"{properties.name}, {memory:.0f} GiB, {precisions(torch.device('cuda', i))}"
    if torch.backends.mps.is_available():
        devices["mps"] = f"Apple GPU, {precisions(torch.device('mps'))}"
    return devices


def _extra_state(packages: list[str]) -> str:
    states = {name: library_version(name) for name in packages}
    missing = [name for name, version in states.items() if version is None]
    if missing:
        return f"missing {', '.join(missing)}"
    return ", ".join(f"{name} {version}" for name, version in states.items())


def at_hand(entry: ZooEntry) -> str | None:
    """Return where the weights of a known model are: a package, sentcli itself, the hub's cache, or nowhere (None)."""
    from huggingface_hub import try_to_load_from_cache

    if own_folder(entry) is not None:
        return f"package {entry.package}" if entry.package else "sentcli itself"
    files = ("model.safetensors", "pytorch_model.bin")
    cached = any(isinstance(try_to_load_from_cache(entry.source, name), str) for name in files)
    return "hub cache" if cached else None
