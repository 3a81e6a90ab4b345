"""Whatever ends a command with --overwrite, and wherever: the old output is whole, or the new one is.

A few calls of each command are tried, with SENTCLI_CALLS=0 all, which takes hours. A file named in SENTCLI_CALLS_TABLE
gets a line for each case: command, error or kill, calls tried, commands that did not end well.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OLD = "".join(f"the {word} sat on the old mat near the {word}\n" for word in ("cat", "dog", "bird", "fish", "tree") * 3)
NEW = "".join(f"a big {word} ran over the new river\n" for word in ("man", "woman", "child", "house", "cat") * 4)
TIMES = ("metrics.jsonl", "sentcli.json", "README.md", "index.json", "analysis.json", "report.html", "run.json")
"""Files in which times or speeds stand, so that two undisturbed runs differ."""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    if shutil.which("gcc") is None or sys.platform != "linux":
        pytest.skip("needs gcc on Linux")
    made = tmp_path_factory.mktemp("shim") / "failing_calls.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, HERE / "failing_calls.c", "-ldl"], check=True)
    return made


TRAIN = ["--batch-size", "4", "--max-steps", "4", "--save-every", "2", "--max-length", "16", "--overwrite"]
CASES = {  # the first command makes the old output, the second the new one; what resumes; the output
    "encode DIR": (
        ["encode", "old.txt", "-m", "M", "-o", "out", "--shard-rows", "8"],
        ["encode", "new.txt", "-m", "M", "-o", "out", "--shard-rows", "8", "--overwrite"],
        ["--resume"],
    ),
    "encode FILE": (
        ["encode", "old.txt", "-m", "M", "-o", "out.parquet"],
        ["encode", "new.txt", "-m", "M", "-o", "out.parquet", "--overwrite"],
        [],
    ),
    "train": (
        ["train", "--method", "simcse", "-m", "M", "--data", "old.txt", "-o", "out", *TRAIN],
        ["train", "--method", "simcse", "-m", "M", "--data", "new.txt", "-o", "out", *TRAIN],
        ["--resume"],
    ),
    "index FILES": (
        ["index", "old.txt", "-m", "M", "-o", "out", "--type", "hnsw"],
        ["index", "new.txt", "-m", "M", "-o", "out", "--type", "hnsw", "--overwrite"],
        [],
    ),
    "export": (
        ["export", "-m", "M", "-o", "out"],
        ["export", "-m", "M", "-o", "out", "--precision", "int8", "--overwrite"],
        [],
    ),
    "analyze": (
        ["analyze", "duplicates", "old.txt", "-m", "M", "-o", "out", "--least", "0.99"],
        ["analyze", "duplicates", "new.txt", "-m", "M", "-o", "out", "--least", "0.98", "--overwrite"],
        [],
    ),
    "index --to": (
        ["index", "old.txt", "-m", "M", "--to", "milvus:out.db", "--collection", "rows"],
        ["index", "new.txt", "-m", "M", "--to", "milvus:out.db", "--collection", "rows", "--overwrite"],
        [],
    ),
    "retrieve --hits": (
        ["retrieve", "-m", "M", "--corpus", "old.txt", "--query", "cat", "--hits", "out.jsonl"],
        ["retrieve", "-m", "M", "--corpus", "new.txt", "--query", "cat", "--hits", "out.jsonl", "--overwrite"],
        [],
    ),
}


ONLY_FAILS = ("train", "index FILES")


def known(state):
    """The digests that two undisturbed runs share, and the names of the other files."""
    return {name: None if Path(name).name in TIMES else digest for name, digest in state.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kills"),
    [(name, kills) for name in CASES for kills in (False, True) if not (kills and name in ONLY_FAILS)],
)
def test_the_old_or_the_new_output_is_whole(name, kills, shim, tiny_bert, tmp_path, invoke, monkeypatch):
    old_command, new_command, resume = CASES[name]
    folder, start = tmp_path / "work", tmp_path / "start"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "old.txt").write_text(OLD)
    (folder / "new.txt").write_text(NEW)

    def placed(command):
        places = {"M": str(tiny_bert), "old.txt": str(folder / "old.txt"), "new.txt": str(folder / "new.txt")}
        paths = {word: str(folder / word) for word in command if word.startswith("out")}
        return [(places | paths).get(word, word.replace("milvus:", f"milvus:{folder}/")) for word in command]

    from tests.faults.nth_call import state

    output = folder / next(word for word in new_command if word.startswith(("out", "milvus:"))).removeprefix("milvus:")
    invoke(*placed(old_command), check=0)
    shutil.copytree(folder, start)
    old = state(output)
    invoke(*placed(new_command), check=0)
    new = state(output)
    assert known(new) != known(old)
    case = {
        "folder": str(folder),
        "start": str(start),
        "output": output.name,
        "command": placed(new_command),
        "resume": placed([*new_command, *resume]),
        "kills": kills,
        "most": int(os.environ.get("SENTCLI_CALLS", "3")),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.nth_call"],
        input=json.dumps(case),
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE.parent.parent,
        env={**os.environ, "LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) > 3
    if record := os.environ.get("SENTCLI_CALLS_TABLE"):
        failed = sum(row["code"] != 0 for row in rows)
        with Path(record).open("a") as table:
            table.write(f"{name} | {'kills' if kills else 'fails'} | {len(rows)} | {failed}\n")
    for row in rows:
        n, whole = row["n"], known(row["state"])
        assert whole in (known(old), known(new)), (n, row)
        if row["code"] == 0:
            assert whole == known(new), (n, row)
            continue
        assert row["code"] == (-signal.SIGKILL if kills else 1), (n, row)
        assert row["resumed"] == 0, (n, row)
        assert known(row["after"]) == known(new), (n, row)
        assert row["left"] == sorted(path.name for path in start.iterdir()), (n, row)
