"""The ranges that pyproject.toml declares, and the versions that uv chooses within them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent.parent
LOWER = (">=", "==", "~=")
CUDA = ("nvidia-", "cuda-", "triton")
"""What only torch's build for GPUs needs begins with one of these names."""
Versions = dict[str, Version]


def declared() -> dict[str, list[Requirement]]:
    """Return the requirements of pyproject.toml by extra; those of every installation are under an empty name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {name: [Requirement(line) for line in lines] for name, lines in groups.items()}


def lower_bound(requirement: Requirement) -> Version | None:
    """Return the least version of a range, or None."""
    bounds = [Version(part.version) for part in requirement.specifier if part.operator in LOWER]
    return max(bounds, default=None)


def pinned() -> Versions:
    """Return the versions of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): Version(next(iter(pin.specifier)).version) for pin in pins}


def resolve(work: Path, extras: list[str], resolution: str) -> Versions:
    """Return the versions that uv chooses for sentcli with some extras; torch stays what is installed.

    With ``lowest-direct``, what pyproject.toml does not name is as in constraints.txt where that is possible, so that
    no release of today changes the result.

    Raises:
        SystemExit: with the words of uv, if there are no such versions.
    """
    torch, chosen = work / "torch.txt", work / "chosen.txt"
    torch.write_text(f"torch=={Version(metadata.version('torch')).public}\n", "utf-8")
    direct = {canonicalize_name(line.name) for lines in declared().values() for line in lines}
    kept = pinned() if resolution == "lowest-direct" else {}
    preferred = [f"{name}=={version}\n" for name, version in kept.items() if name not in direct]
    chosen.write_text("".join(preferred), "utf-8")
    command = ["compile", "--resolution", resolution, "--no-build", "--no-header", "--no-annotate", "--quiet"]
    for extra in extras:
        command += ["--extra", extra]
    run_uv(*command, "--constraints", torch, "--output-file", chosen, ROOT / "pyproject.toml")
    found = [Requirement(line) for line in chosen.read_text("utf-8").splitlines()]
    return {canonicalize_name(pin.name): Version(next(iter(pin.specifier)).version) for pin in found}


def run_uv(action: str, *options: str | Path) -> None:
    """Run ``uv pip ACTION`` for this Python.

    Raises:
        SystemExit: with what uv said, if it fails.
    """
    command = [sys.executable, "-m", "uv", "pip", action, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"uv pip {action} failed:\n{done.stderr}")


def above_bounds(resolved: Versions, groups: list[str]) -> list[str]:
    """Return a line for each requirement whose lower bound is not the version that was chosen for it.

    Args:
        resolved: the lowest versions that go together.
        groups: the extras whose requirements are looked at.
    """
    lines = []
    for group in groups:
        for requirement in declared()[group]:
            found, bound = resolved.get(canonicalize_name(requirement.name)), lower_bound(requirement)
            if requirement.name != "torch" and bound is not None and found != bound:
                lines.append(f"{requirement} of {group or 'every installation'}: the lowest that goes is {found}")
    return sorted(set(lines))
