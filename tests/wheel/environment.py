"""A virtual environment outside of the checkout, with pip and programs that know nothing of the surroundings."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
KEPT = ("LANG", "LC_", "TMPDIR", "OMP_", "OPENBLAS_", "PIP_", "SSL_", "REQUESTS_", "http_", "https_", "no_proxy")
"""What a variable begins with that says where packages come from, or what this machine computes with."""

Done = subprocess.CompletedProcess[str]
"""A command that has ended, with what it said."""


class Environment:
    """A virtual environment with a folder in which its programs run.

    Args:
        folder: of the environment, which is made.
        work: the folder in which programs run; it is their home, too, so that no cache of the user is read.
        below: another environment, whose packages are there as well.
    """

    def __init__(self, folder: Path, work: Path, below: Environment | None = None) -> None:
        self.folder, self.work = folder, work
        self.python = folder / "bin" / "python"
        self.packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
        command: list[str | Path] = [sys.executable, "-m", "venv", folder]
        if below is not None:
            command.append("--without-pip")  # the other one has it
        subprocess.run(command, check=True)
        if below is not None:
            added = f"import site; site.addsitedir({str(below.packages)!r})\n"
            (self.packages / "below.pth").write_text(added, "utf-8")

    def install(self, *wanted: str | Path) -> float:
        """Install by pip, in the versions of constraints.txt; returns the seconds.

        Raises:
            SystemExit: with the last words of pip, if it fails.
        """
        return self.install_as(shlex.join(["python", "-m", "pip", "install", *map(str, wanted)]))

    def install_as(self, command: str) -> float:
        """Run a command line of pip as `install` does."""
        began = time.perf_counter()
        packages = {"HOME": str(Path.home()), "PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_QUIET": "1"}
        done = self._run(command, packages)
        if done.returncode != 0:
            raise SystemExit(f"{command} failed:\n{done.stderr[-2000:]}")
        return time.perf_counter() - began

    def run(self, command: str) -> Done:
        """Run a command line of a program of this environment, without the hub; returns what it said."""
        return self._run(command, {"HOME": str(self.work), "HF_HUB_OFFLINE": "1"})

    def megabytes(self) -> float:
        """Return the size of what is installed here, without what is below."""
        return sum(file.lstat().st_size for file in self.packages.rglob("*") if file.is_file()) / 1e6

    def _run(self, command: str, more: dict[str, str]) -> Done:
        """Run a command line in the folder, and print its seconds."""
        surroundings = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
        surroundings |= {"PATH": f"{self.python.parent}:{os.defpath}", **more}
        began = time.perf_counter()
        done = subprocess.run(["sh", "-c", command], cwd=self.work, env=surroundings, capture_output=True, text=True)
        print(f"{time.perf_counter() - began:6.1f} s, exit code {done.returncode}: {command}", flush=True)
        return done


def build(folder: Path) -> Path:
    """Build the sdist, and out of that the wheel; returns the wheel.

    Raises:
        SystemExit: with what uv said, if it fails.
    """
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--out-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"uv build failed:\n{done.stderr}")
    (wheel,) = folder.glob("*.whl")
    return wheel
