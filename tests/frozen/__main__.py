"""What the commands write, before and after a change that must not change it.

``python -m tests.frozen record FOLDER [--tree TREE]`` runs the lines of commands.txt with the package of a tree (a
checkout of the project; default: this one) on small real data, and keeps exit codes, what is printed and all files.
``python -m tests.frozen compare BEFORE AFTER`` tells which of two such folders' values differ, times left out.
With ``--again`` and a second record of the tree of BEFORE, what moves from run to run is left out as well.

Both have to be recorded on the same machine with the same environment: their numbers are compared to the last digit.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from filelock import FileLock

from tests.frozen.differences import differences
from tests.frozen.inputs import write_inputs

HERE = Path(__file__).parent
WORK = Path(tempfile.gettempdir()) / "sentcli-frozen"
"""Where commands run, always at the same address, since files and pages name it."""


def main() -> None:
    """Record, or compare two records; the exit code is 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--tree", type=Path, default=HERE.parent.parent)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument(
        "--again", type=Path, help="a second record of BEFORE's tree: what moves by itself is left out"
    )
    options = parser.parse_args()
    if options.command == "record":
        record(options.folder, options.tree.resolve())
        return
    lines = differences(options.before, options.after, options.again)
    for line in lines:
        print(line)
    print(f"{len(lines)} differences")
    sys.exit(1 if lines else 0)


def record(folder: Path, tree: Path) -> None:
    """Run all commands with the package of a tree, and move what they wrote to a folder."""
    if folder.exists():
        sys.exit(f"{folder} exists")
    with FileLock(f"{WORK}.lock"):  # another record runs at the same address
        _record(folder, tree)


def _record(folder: Path, tree: Path) -> None:
    data = Path(os.environ["SENTCLI_DATA"])
    shutil.rmtree(WORK, ignore_errors=True)
    inputs = WORK / "work"
    inputs.mkdir(parents=True)
    write_inputs(data, inputs)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "SENTCLI_CACHE": str(WORK / "cache"),
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "120",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": "1700000000",
    }
    said = WORK / "said"
    said.mkdir()
    for number, line in enumerate(command_lines()):
        began = time.perf_counter()
        words = shlex.split(line)
        command = [sys.executable, "-m", "sentcli", *words]
        done = subprocess.run(command, cwd=inputs, env=environment, capture_output=True, text=True, check=False)
        text = f"{line}\nexit code {done.returncode}\n--- out\n{done.stdout}\n--- err\n{done.stderr}"
        (said / f"{number:03d}-{words[0]}.txt").write_text(text, "utf-8")
        print(f"{time.perf_counter() - began:5.1f} s  {done.returncode}  {line[:100]}", flush=True)
    shutil.rmtree(WORK / "cache", ignore_errors=True)
    shutil.move(WORK, folder)


def command_lines() -> list[str]:
    """Return the lines of commands.txt that are commands."""
    lines = (HERE / "commands.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


if __name__ == "__main__":
    main()
