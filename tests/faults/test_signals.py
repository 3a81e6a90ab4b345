"""SIGTERM and Ctrl-C end every long command within two seconds, wherever it stands, and leave nothing half-written."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import heed_ctrl_c
from tests.faults.test_faults import ONE_THREAD

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals"),
]

LONGEST_WAIT = 2.0  # seconds between the signal and the end of the process; both are longer on a slow machine
MOMENTS = {2.0: signal.SIGTERM, 5.0: signal.SIGINT}  # seconds after the start: while it reads, and in the loop

COMMANDS = {
    "encode": "encode many.txt -m {model} -o out/v",
    "train": "train --method simcse -m {model} --data many.txt --max-steps 1000000 --batch-size 32 -o out/m",
    "train on scored pairs": "train --method sts-regression -m {model} --data pairs.csv --max-steps 1000000 -o out/m",
    "whitening": "train --method whitening -m {model} --data many.txt -o out/m",
    "index": "index many.txt -o out/v -m {model} --type hnsw",
    "retrieve": "retrieve -m {model} --corpus many.txt --queries queries.txt --hits out/hits.jsonl",
    "retrieve by words": "retrieve --search bm25 --corpus many.txt --queries queries.txt --hits out/hits.jsonl",
    "retrieve --beir": "retrieve -m {model} --beir beir --search dense,bm25,rrf --json out/scores.json",
    "retrieve --in-domain": "retrieve -m {model} --in-domain pairs.csv --json out/scores.json",
    "sts-eval": "sts-eval -m {model} --pairs pairs.csv --json out/scores.json",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Inputs that keep every command busy for longer than the last of the moments."""
    folder = tmp_path_factory.mktemp("signals")
    generator = random.Random(0)
    words = [f"w{i}" for i in range(20_000)] + ["the", "cat", "sat", "on", "mats"] * 300

    def lines(count):
        return [" ".join(generator.choices(words, k=12)) for _ in range(count)]

    many, queries = lines(300_000), lines(20_000)
    (folder / "many.txt").write_text("\n".join(many))
    (folder / "queries.txt").write_text("\n".join(queries))
    pairs = (f"{one},{two},{i % 6}\n" for i, (one, two) in enumerate(zip(many, reversed(many), strict=True)))
    (folder / "pairs.csv").write_text("sentence1,sentence2,score\n" + "".join(pairs))
    (folder / "beir" / "qrels").mkdir(parents=True)
    texts = {"corpus.jsonl": many[:100_000], "queries.jsonl": queries[:5000]}
    for name, rows in texts.items():
        records = (json.dumps({"_id": str(i), "text": text}) for i, text in enumerate(rows))
        (folder / "beir" / name).write_text("\n".join(records))
    judged = "".join(f"{i}\t{i}\t1\n" for i in range(5000))
    (folder / "beir" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    (folder / "out").mkdir()
    return folder


IN_CI = ("encode", "train", "index", "retrieve by words")
"""The others before a release: each takes some ten seconds."""
MARKS = {name: () if name in IN_CI else pytest.mark.deep for name in COMMANDS}


@pytest.mark.parametrize("command", [pytest.param(COMMANDS[name], id=name, marks=MARKS[name]) for name in COMMANDS])
def test_a_signal_ends_a_command_within_two_seconds(command, folder, tiny_bert, slowness):
    arguments = [sys.executable, "-m", "sentcli", *command.format(model=tiny_bert).split(), "--overwrite"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    if "retrieve" in command or "sts-eval" in command:
        arguments.remove("--overwrite")
    for moment, kind in MOMENTS.items():
        with subprocess.Popen(arguments, **pipes, cwd=folder, env=ONE_THREAD, preexec_fn=heed_ctrl_c) as process:
            time.sleep(moment * slowness)
            assert process.poll() is None, f"done within {moment} s: {process.communicate()[1]}"
            sent = time.monotonic()
            process.send_signal(kind)
            _, errors = process.communicate(timeout=60 * slowness)
        assert time.monotonic() - sent < LONGEST_WAIT * slowness, f"signal after {moment} s: {errors}"
        code = process.returncode
        assert (code if code > 0 else 128 - code) == 128 + kind, errors  # as a shell gives the code of a signal
        assert "Traceback" not in errors
    hidden = [path.name for path in (folder / "out").rglob(".*")]
    assert not [name for name in hidden if "partial" in name], hidden


@pytest.mark.parametrize(("signalled", "code"), [("SystemExit(143)", 143), ("KeyboardInterrupt()", 130)])
def test_a_signal_while_a_library_loads_ends_the_command(signalled, code, tmp_path, tiny_bert):
    # a module in C makes an ImportError of what a signal's handler raises while it is loaded, and names it as the cause
    (tmp_path / "onnxruntime.py").write_text(f"raise ImportError('initialization failed') from {signalled}\n")
    (tmp_path / "texts.txt").write_text("one text\n")
    arguments = ["encode", "texts.txt", "-m", str(tiny_bert), "-o", "out"]
    environment = ONE_THREAD | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])}
    process = subprocess.run(
        [sys.executable, "-m", "sentcli", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert process.returncode == code, process.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_in_a_finalizer_ends_the_command(kind, tmp_path, tiny_bert):
    # Python drops what is raised while an object is finalized, also what the handler of a signal raises
    lines = [
        "import os, time",
        "class Finalized:",
        "    def __del__(self):",
        f"        os.kill(os.getpid(), {int(kind)})",
        "        time.sleep(0)",
        "Finalized()",
        "time.sleep(60)",
    ]
    (tmp_path / "onnxruntime.py").write_text("\n".join(lines))
    (tmp_path / "texts.txt").write_text("one text\n")
    arguments = ["encode", "texts.txt", "-m", str(tiny_bert), "-o", "out"]
    environment = ONE_THREAD | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])}
    command = [sys.executable, "-m", "sentcli", *arguments]
    process = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50, preexec_fn=heed_ctrl_c
    )
    assert process.returncode == 128 + kind, process.stderr
    assert "Traceback" not in process.stderr and not (tmp_path / "out").exists()
