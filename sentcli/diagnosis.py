"""The facts that `sentcli doctor` shows: versions, devices, extras, known models, and which library runs what."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from sentcli import __version__
from sentcli.errors import SentcliError
from sentcli.hub import HubModel, models_in_cache
from sentcli.io.digests import cache_folder, folder_bytes
from sentcli.machine import library_version, library_versions, processor, usable_cores
from sentcli.model.identity import joined_digest, weight_paths
from sentcli.model.spec import EncoderSpec
from sentcli.model.spec_files import read_spec
from sentcli.zoo import ZooEntry, own_folder, zoo

NOT_INSTALLED = "not possible: pip install 'sentcli[cpu]'"


def examine() -> dict[str, Any]:
    """Examine this machine without downloading anything.

    Returns:
        The results of ``doctor --json`` by name: versions, those out of their ranges, devices, extras, models, hub,
        plan and device.
    """
    import torch

    from sentcli.devices import choose_device

    device = choose_device("auto")
    extras = {name: _extra_state(packages) for name, packages in extra_packages().items()}
    versions = {"sentcli": __version__, "python": platform.python_version()}
    versions |= library_versions()
    encoding = f"torch on {device}, fp32, {torch.get_num_threads()} threads"
    runtime = library_version("onnxruntime") or library_version("onnxruntime-gpu")
    if runtime and device.type == "cpu":
        encoding = f"onnxruntime {runtime}, fp32, {usable_cores()} batches at a time; torch for what is not exported"
    bm25s = library_version("bm25s")
    word_search = f"bm25s {bm25s}" if bm25s else NOT_INSTALLED
    exact_search = "exact by NumPy's products unless there is an index"
    if device.type != "cpu":
        exact_search = f"exact by torch on {device}, whose memory keeps the rows, unless there is an index"
    cache = cache_folder("")
    plan = {
        "encode, retrieve, sts-eval, senteval": encoding,
        "the cache (exports, vectors, scores, data)": f"{cache}, {folder_bytes(cache) / 1e6:,.0f} MB",
        "train": f"torch on {device}, fp32",
        "search": exact_search,
        "search by words": word_search,
    }
    models = [
        {"name": e.name, "source": e.source, "pooling": e.pooling, "licence": e.licence, "where": at_hand(e)}
        for e in zoo().values()
    ]
    return {
        "versions": versions,
        "devices": _devices(),
        "out_of_range": [asdict(line) for line in out_of_range()],
        "extras": extras,
        "models": models,
        "hub": [of_hub(model, folder) for model, folder in models_in_cache()],
        "plan": plan,
        "device": str(device),
    }


def extra_packages() -> dict[str, list[str]]:
    """Return the packages of each extra by its name, as the installed distribution declares them."""
    extras: dict[str, list[str]] = {}
    for extra, requirement in _requirements(metadata.requires("sentcli")):
        if extra:
            extras.setdefault(extra, []).append(requirement.name)
    return extras


@dataclass(frozen=True)
class OutOfRange:
    """A library that is installed in a version outside of the range that sentcli declares."""

    library: str
    installed: str
    range: str
    moved_by: list[str]
    """Installed distributions that allow this version and exclude the range: ``model2vec[distill] 0.10 (<5.4)``."""


def out_of_range() -> list[OutOfRange]:
    """Compare what is installed with the ranges that sentcli declares for it and its extras, but for ``dev``."""
    libraries: dict[str, OutOfRange] = {}
    for extra, requirement in _requirements(metadata.requires("sentcli")):
        installed = library_version(requirement.name)
        if installed is None or extra == "dev" or requirement.specifier.contains(installed, prereleases=True):
            continue
        moved_by = _movers(canonicalize_name(requirement.name), installed, requirement.specifier)
        libraries[requirement.name] = OutOfRange(requirement.name, installed, str(requirement.specifier), moved_by)
    return sorted(libraries.values(), key=lambda entry: entry.library)


def _movers(library: str, installed: str, declared: SpecifierSet) -> list[str]:
    """Return the distributions that allow the installed version of a library, and no end of the declared range."""
    ends = []
    for part in declared:
        if part.operator in (">=", "==", "~="):
            ends.append(Version(part.version))
        elif part.operator == "<":
            ends.append(_just_below(Version(part.version)))
    movers: set[str] = set()
    for distribution in metadata.distributions():
        for extra, requirement in _requirements(distribution.requires):
            if canonicalize_name(requirement.name) != library:
                continue
            allowed = requirement.specifier
            keeps_range = any(allowed.contains(end) for end in ends)
            if allowed.contains(installed, prereleases=True) and not keeps_range:
                name = distribution.name
                if extra:
                    name += f"[{extra}]"
                movers.add(f"{name} {distribution.version} ({allowed})")
    return sorted(movers)


def _just_below(version: Version) -> Version:
    """Return a version below another one that hardly any release lies between."""
    *first, last = version.release
    return Version(".".join(map(str, [*first, last - 1, 999999])))


def _requirements(lines: Iterable[str] | None) -> Iterator[tuple[str, Requirement]]:
    """Yield the requirements of a distribution that hold for this Python and system, each with its extra or "".

    What has no valid form, as in old distributions, is left out.
    """
    for line in lines or []:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        extra = re.search(r"extra == ['\"]([\w.-]+)['\"]", line)
        name_of_extra = extra[1] if extra else ""
        if requirement.marker is None or requirement.marker.evaluate({"extra": name_of_extra}):
            yield name_of_extra, requirement


def _devices() -> dict[str, str]:
    import torch

    from sentcli.precision import half_precision_supported

    def precisions(device: torch.device) -> str:
        halves = [precision for precision in ("bf16", "fp16") if half_precision_supported(device, precision)]
        return ", ".join(["fp32", *halves])

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
    missing, installed = [], []
    for name in packages:
        version = library_version(name)
        if version is None:
            missing.append(name)
        else:
            installed.append(f"{name} {version}")
    if missing:
        return f"missing {', '.join(missing)}"
    return ", ".join(installed)


def of_hub(model: HubModel, folder: Path) -> dict[str, Any]:
    """Return the name of a model in the hub's cache, its commit and the digest of its weights, as in protocols."""
    weights = None
    with suppress(SentcliError):  # it is no model of sentences
        weights = _named_weights(read_spec(folder, native=True))
    return {"model": str(model), "revision": folder.name, "weights": weights}


def _named_weights(spec: EncoderSpec) -> str | None:
    """Return the digest of a model's weights by the names of its files; None if one is not named by its digest."""
    digests: list[str] = []
    for path in weight_paths(spec):
        digest = _named_digest(path)
        if digest is None:
            return None
        digests.append(digest)
    return joined_digest(digests)


def _named_digest(path: Path) -> str | None:
    """Return the SHA-256 by which the hub's cache names a large file, which need not be read for it."""
    name = path.resolve().name
    if re.fullmatch("[0-9a-f]{64}", name):
        return name
    return None


def at_hand(entry: ZooEntry) -> str | None:
    """Return where the weights of a known model are: a package, sentcli itself, the hub's cache, or nowhere (None)."""
    if own_folder(entry) is not None:
        if entry.package:
            return f"package {entry.package}"
        return "sentcli itself"
    if HubModel(entry.source).cached() is not None:
        return "hub cache"
    return None
