"""Run commands again and again while their n-th call that changes a file fails, for n = 1, 2, ... to the last.

Started once with `failing_calls.c` in LD_PRELOAD. Each run is a fork of this process, which imports what a command has
imported in its first run. Reads a JSON object in each line, with the `folder` that commands run in, `first` (commands
that make the old output), `command` (which makes the new one), `resume`, `output`, and `most`, how many n are tried (0:
all; else some and the last ones). Answers each with a line of JSON: the states of the undisturbed outputs, and an
object for each n, once with an error and once with a kill.
"""

import ctypes
import hashlib
import importlib
import json
import os
import re
import shutil
import sys
import traceback
from contextlib import suppress
from pathlib import Path

LAST = 3
"""How many of the last calls are tried in any case: those that put the output in its place."""
TIMES = (
    *("metrics.jsonl", "sentcli.json", "README.md", "index.json", "analysis.json", "run.json", "results.jsonl"),
    *("scores.json", "page.md", "page.html"),
)
"""Files in which times or speeds stand, so that two undisturbed runs differ in numbers."""


def digest(content: bytes, name: str) -> str:
    """The SHA-256 of a file of this name, without its numbers if times are among them."""
    return hashlib.sha256(re.sub(rb"\d[\d.,:eE+-]*", b"#", content) if name in TIMES else content).hexdigest()


def state(output: Path) -> dict[str, str]:
    """The digest of each file of an output that a user sees."""
    if output.suffix == ".db":  # a collection: the ids that it answers with
        found = output.with_suffix(".json")
        asked = ["retrieve", "--corpus", f"milvus:{output}", "--collection", "rows", "--count-by", "id"]
        code = run([*asked, "--json", str(found)], output.parent)["code"]
        ids = json.loads(found.read_text())["counts"]["values"] if code == 0 else []
        found.unlink(missing_ok=True)
        return {"code": str(code), "ids": " ".join(sorted(entry["value"] for entry in ids))}
    files = [output] if output.is_file() else sorted(path for path in output.rglob("*") if path.is_file())
    names = {path: str(path.relative_to(output.parent)) for path in files}
    seen = {name: path for path, name in names.items() if not is_hidden(name)}
    digests = {name: digest(path.read_bytes(), path.name) for name, path in seen.items()}
    for name, path in seen.items():
        if path.name == "results.jsonl":  # it grows by lines, each of which is whole
            del digests[name]
            digests |= {f"{name}/{line}": line for line in (digest(line, path.name) for line in path.open("rb"))}
    return digests


def is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in Path(name).parts)


def left(folder: Path) -> list[str]:
    """The names in a folder, and all hidden ones below it."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return sorted(name for name in names if is_hidden(name) or "/" not in name)


def run(command: list[str], folder: Path, n: int = 0, *, kills: bool = False) -> dict:
    """The exit code (minus the signal that ended it), the number of calls and the modules that were imported."""
    reader, writer = os.pipe()
    log = folder.with_suffix(".log")
    if (child := os.fork()) == 0:
        code = 70
        try:
            from typer.testing import CliRunner

            from sentcli.cli.app import app

            libc, made, before = ctypes.CDLL(None), 0, {*sys.modules}
            os.chdir(folder)
            if n:
                libc.fail_call(bytes(folder), ctypes.c_long(n), int(kills))
            result = CliRunner().invoke(app, command)
            if n:
                made = int(libc.calls_made())
                libc.fail_call(b"", ctypes.c_long(0), 0)
            log.write_text(result.output + repr(result.exception))
            os.write(writer, json.dumps({"calls": made, "modules": sorted({*sys.modules} - before)}).encode())
            code = result.exit_code
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as answer:
        facts = json.loads(answer.read() or "{}")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return {"calls": 0, "modules": [], **facts, "code": code, "said": "" if code < 0 else log.read_text()}


def tried(case: dict) -> dict:
    """The outcome of each n."""
    folder, output = Path(case["folder"]), Path(case["folder"], case["output"])
    start = folder.with_name("start")

    def restore() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)

    for command in case["first"]:
        first = run(command, folder)
        assert first["code"] == 0, first["said"]
        for name in first["modules"]:
            with suppress(Exception):  # some are made by others, and cannot be imported alone
                importlib.import_module(name)
    shutil.copytree(folder, start)
    old = state(output)
    new = run(case["command"], folder, 10**9)
    assert new["code"] == 0, new["said"]
    undisturbed = {"old": old, "new": state(output), "left": left(folder)}
    count = new["calls"]
    step = max(count // case["most"], 1) if case["most"] else 1
    rows = []
    for n in sorted({*range(1, count + 1, step), *range(max(count - LAST + 1, 1), count + 1)}):
        for kills in (False, True):
            restore()
            done = run(case["command"], folder, n, kills=kills)
            row = {"n": n, "kills": kills, "code": done["code"], "said": done["said"], "state": state(output)}
            if done["code"] != 0:
                resumed = run(case["resume"], folder)
                row |= {"resumed": resumed["code"], "said_after": resumed["said"], "after": state(output)}
            rows.append({**row, "left": left(folder)})
    return {**undisturbed, "rows": rows}


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # where libraries may print
    import torch  # noqa: F401
    import transformers  # noqa: F401

    import sentcli.cli.app  # noqa: F401

    for line in sys.stdin:
        try:
            answer = tried(json.loads(line))
        except Exception:  # it is the test's to show, and other cases follow
            answer = {"problem": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
