"""Run a command again and again while its n-th call that changes a file fails, for n = 1, 2, ... to the last.

Started with `failing_calls.c` in LD_PRELOAD. Each run is a fork of this process, which has imported what takes long.
Reads a JSON object with `folder`, `start` (what `folder` holds before each run), `command`, `resume` (or null),
`output`, `kills` and `most`, how many n are tried (0: all; else some and the last ones); writes a JSON list with an
object for each n.
"""

import ctypes
import hashlib
import json
import os
import shutil
import signal
import sys
from pathlib import Path

LAST = 3
"""How many of the last calls are tried in any case: those that put the output in its place."""


def state(output: Path) -> dict[str, str]:
    """The digest of each file of an output that a user sees."""
    if output.suffix == ".db":  # a collection: the ids that it answers with
        found = output.with_suffix(".json")
        asked = ["retrieve", "--corpus", f"milvus:{output}", "--collection", "rows", "--count-by", "id"]
        code, _ = run([*asked, "--json", str(found)], "", 0, False, output.with_suffix(".log"))
        ids = json.loads(found.read_text())["counts"]["values"] if code == 0 else []
        for path in (found, output.with_suffix(".log")):
            path.unlink(missing_ok=True)
        return {"code": str(code), "ids": " ".join(sorted(entry["value"] for entry in ids))}
    if output.is_file():
        return {output.name: hashlib.sha256(output.read_bytes()).hexdigest()}
    files = [path for path in sorted(output.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def run(command: list[str], folder: str, n: int, kills: bool, log: Path) -> tuple[int, int]:
    """The exit code (minus the signal that ended it) and the number of calls."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        code = 70
        try:
            from typer.testing import CliRunner

            from sentcli.cli.app import app

            libc, made = ctypes.CDLL(None), 0
            if n:
                libc.fail_call(folder.encode(), ctypes.c_long(n), int(kills))
            result = CliRunner().invoke(app, command)
            if n:
                made = int(libc.calls_made())
                libc.fail_call(b"", ctypes.c_long(0), 0)
            log.write_text(result.output + repr(result.exception))
            os.write(writer, str(made).encode())
            code = result.exit_code
        finally:
            os._exit(code)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    made = os.read(reader, 100)
    os.close(reader)
    return os.waitstatus_to_exitcode(status), int(made or b"0")


def restore(folder: Path, start: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(start, folder)


def main() -> None:
    case = json.load(sys.stdin)
    folder, start, output = Path(case["folder"]), Path(case["start"]), Path(case["folder"]) / case["output"]
    log = Path(case["start"] + ".log")
    import torch  # noqa: F401
    import transformers  # noqa: F401

    import sentcli.cli.app  # noqa: F401

    restore(folder, start)
    _, count = run(case["command"], case["folder"], 10**9, False, log)
    step = max(count // case["most"], 1) if case["most"] else 1
    rows = []
    for n in sorted({*range(1, count + 1, step), *range(max(count - LAST + 1, 1), count + 1)}):
        restore(folder, start)
        code, _ = run(case["command"], case["folder"], n, case["kills"], log)
        row = {"n": n, "code": code, "state": state(output), "said": log.read_text() if code != -signal.SIGKILL else ""}
        if code != 0 and case["resume"] is not None:
            row["resumed"], _ = run(case["resume"], case["folder"], 0, False, log)
            row["after"], row["said_after"] = state(output), log.read_text()
            row["left"] = sorted(path.name for path in folder.iterdir())
        rows.append(row)
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
