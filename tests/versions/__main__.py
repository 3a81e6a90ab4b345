"""``python -m tests.versions oldest|newest``: the ranges of pyproject.toml, tried at their ends.

oldest: every lower bound that can be reached together with all others has to be what uv chooses, and the versions at
the bounds, and numpy alone at its bound, have to give the vectors, hits and counts of those of constraints.txt. newest:
the same for what pip would install today. torch stays the one that is installed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.versions.resolving import CUDA, ROOT, Versions, above_bounds, declared, resolve, run_uv

TOLERANCE = 1e-4
"""The most by which numbers may differ, relative to the greater of them and 1."""
INT8_TOLERANCE = 0.01
"""The most that the cosine of a vector in int8 may be below 1: its rounding depends on the kernels."""
PINNED = "pinned"


def main() -> None:
    """Try the oldest or the newest versions; the exit code is 1 if they are not what pyproject.toml says."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("end", choices=("oldest", "newest"))
    given = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="sentcli-versions-") as folder:
        failures = _try(given.end, Path(folder))
    for line in failures:
        print(line)
    print(f"{given.end} versions: {'failed' if failures else 'all as pinned'}, {time.perf_counter() - began:.0f} s")
    sys.exit(1 if failures else 0)


def _try(end: str, work: Path) -> list[str]:
    """Return what is wrong with the versions at one end of the ranges."""
    pinned_run = _start(Path(sys.executable), work, PINNED)
    extras = [name for name in declared() if name not in ("", "dev", "docs", "gpu")]  # dev has what docs has
    failures = []
    if end == "oldest":
        resolved = resolve(work, extras, "lowest-direct")
        failures = above_bounds(resolved, ["", *extras])
        failures += above_bounds(resolve(work, [*extras, "dev"], "lowest-direct"), ["dev"])
        failures += above_bounds(resolve(work, ["gpu"], "lowest-direct"), ["gpu"])
        numpy: Versions = {"numpy": resolved["numpy"]}
        pythons = {"oldest": whole(work / "oldest-env", resolved), "numpy alone": laid_over(work / "numpy-env", numpy)}
    else:
        pythons = {"newest": whole(work / "newest-env", resolve(work, extras, "highest"))}
    results = {PINNED: _finish(pinned_run, work, PINNED)}
    runs = {name: _start(python, work, name) for name, python in pythons.items()}
    results |= {name: _finish(run, work, name) for name, run in runs.items()}
    return failures + _compared(results)


def whole(folder: Path, versions: Versions) -> Path:
    """Make an environment of these versions and of the installed torch; returns its Python."""
    python = _environment(folder, versions)
    packages = _packages(folder)
    torch = metadata.distribution("torch")
    for name in {file.parts[0] for file in torch.files or []} - {".."}:
        (packages / name).symlink_to(torch.locate_file(name))
    run_uv("install", "--no-deps", "--quiet", "--python", python, "--editable", ROOT)  # backends are entry points
    return python


def laid_over(folder: Path, versions: Versions) -> Path:
    """Make an environment of these versions over all others that are installed; returns its Python."""
    python = _environment(folder, versions)
    below = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
    (_packages(folder) / "below.pth").write_text(f"{below}\n", "utf-8")
    return python


def _environment(folder: Path, versions: Versions) -> Path:
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    wanted = folder / "wanted.txt"
    names = [name for name in versions if name != "torch" and not name.startswith(CUDA)]
    wanted.write_text("".join(f"{name}=={versions[name]}\n" for name in names), "utf-8")
    run_uv("install", "--no-deps", "--no-build", "--quiet", "--python", python, "--requirements", wanted)
    return python


def _packages(folder: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))


def _start(python: Path, work: Path, name: str) -> subprocess.Popen[str]:
    """Start the smoke in an environment; the pinned one first makes the models that all open."""
    warnings = ["-W", "error::UserWarning", "-W", "ignore::DeprecationWarning"]
    command = [python, *warnings, "-m", "tests.versions.smoke", work / "models", work / name]
    if name == PINNED:
        command.append("--write-models")
    threads = str(max(1, (os.cpu_count() or 1) // 2))
    env = {
        **os.environ,
        "SENTCLI_CACHE": str(work / f"{name} cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": threads,
    }
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=env, **streams)


def _finish(run: subprocess.Popen[str], work: Path, name: str) -> dict[str, Any]:
    """Wait for a smoke, and return its results."""
    said, _ = run.communicate()
    if run.returncode != 0:
        raise SystemExit(f"{name}: the smoke ended with code {run.returncode}:\n{said}")
    results: dict[str, Any] = json.loads((work / name / "results.json").read_text("utf-8"))
    return results


def _compared(results: dict[str, dict[str, Any]]) -> list[str]:
    """Print the differences and the seconds of every part, and return what is wrong."""
    failures = []
    for part, expected in results[PINNED].items():
        shown = []
        for name, found in results.items():
            seconds = f"{found[part]['seconds']:.1f} s"
            if "error" in found[part]:
                failures.append(f"{name}, {part}: {found[part]['error']}")
                shown.append(f"{name} failed ({seconds})")
                continue
            in_int8 = part == "onnx, earlier export in int8"
            apart = (turned if in_int8 else difference)(expected.get("found"), found[part]["found"])
            if apart > (INT8_TOLERANCE if in_int8 else TOLERANCE):
                failures.append(f"{name}, {part}: differs by {apart:.2g} from what the pinned versions give")
            shown.append(f"{name} {apart:.0e} ({seconds})")
        print(f"{part:30}", "  ".join(shown))
    return failures


def difference(first: Any, second: Any) -> float:
    """Return the greatest relative difference of the numbers in two values of JSON; infinity if others differ."""
    if isinstance(first, float) and isinstance(second, float):
        return abs(first - second) / max(abs(first), abs(second), 1)
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        first, second = list(first.values()), [second[key] for key in first]
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return max(map(difference, first, second), default=0.0)
    return 0.0 if first == second else math.inf


def turned(first: Any, second: Any) -> float:
    """Return by how much the least cosine of two lists of unit vectors is below 1."""
    return max(1 - sum(a * b for a, b in zip(*pair, strict=True)) for pair in zip(first, second, strict=True))


if __name__ == "__main__":
    main()
