"""`sentcli encode --ray local` with one worker against `sentcli encode`: speed, and the memory of driver and worker.

    python benchmarks/ray_speed.py [--model minilm] [--rows 100000 [1000000]] [--shard-rows 20000]
    python benchmarks/ray_speed.py --model tiny --rows 100000 1000000 --only ray

Claims: at 100,000 rows, all included from the start of the command to its end, at least 0.95 of the rows a second, and
the same bytes; the memory of both processes does not grow with the rows (``tiny`` is the 1-layer model of
`encode_memory.py`). Linux only.
"""

import argparse
import filecmp
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import machine
from encode_memory import lines, one_layer_model


def own_memory(process: str) -> int:
    """Return the memory of a process in bytes that no file and no other process shares; 0 if it is gone."""
    try:
        status = Path("/proc", process, "status").read_text("utf-8")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0)


def workers() -> list[str]:
    """Return the numbers of the workers on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::Worker"):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def run(command: list[str]) -> tuple[float, int, int]:
    """Run a command, and return its seconds and the largest memory of its process and of a worker, in bytes."""
    began = time.perf_counter()
    process = subprocess.Popen(command)
    mine = theirs = 0
    while process.poll() is None:
        mine = max(mine, own_memory(str(process.pid)))
        theirs = max([theirs, *map(own_memory, workers())])
        time.sleep(0.25)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return time.perf_counter() - began, mine, theirs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000])
    parser.add_argument("--shard-rows", type=int, default=20_000)
    parser.add_argument("--only", choices=["plain", "ray"])
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SENTCLI_CACHE"] = str(folder / "cache")
        model = options.model
        if model == "tiny":
            model = str(folder / "model")
            one_layer_model(folder / "model")
        lines(folder / "few.txt", 10)
        start = [sys.executable, "-m", "sentcli", "encode"]
        rest = ["-m", model, "--pooling", "mean", "-q", "--shard-rows", str(options.shard_rows)]
        run([*start, str(folder / "few.txt"), "-o", str(folder / "few"), *rest])  # makes the export
        for rows in options.rows:
            lines(folder / "lines.txt", rows)
            seconds = {}
            for side in [options.only] if options.only else ["plain", "ray"]:
                out = folder / f"{side}-{rows}"
                more = ["--ray", "local"] if side == "ray" else []
                seconds[side], mine, theirs = run([*start, str(folder / "lines.txt"), "-o", str(out), *rest, *more])
                print(
                    f"{rows:,} rows, {side}: {rows / seconds[side]:,.0f} rows/s; own memory of the command "
                    f"{mine / 1e6:,.0f} MB, of its worker {theirs / 1e6:,.0f} MB",
                    flush=True,
                )
            if len(seconds) == 2:
                names = sorted(path.name for path in (folder / f"plain-{rows}").iterdir())
                same = filecmp.cmpfiles(folder / f"plain-{rows}", folder / f"ray-{rows}", names, shallow=False)[0]
                print(
                    f"  ratio {seconds['plain'] / seconds['ray']:.3f}; {len(same)} of {len(names)} files are the same"
                )


if __name__ == "__main__":
    main()
