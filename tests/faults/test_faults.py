"""What a user finds after a kill, Ctrl-C, a full disk or a closed pipe: whole files, one message, no traceback."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import heed_ctrl_c

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and limits")

ROWS, SHARD_ROWS = 2500, 25
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads that wait for each other are slow on a busy machine


def distinct_rows(path, rows):
    path.write_text("".join(f"the cat {i} sat on {i * 7} red mats\n" for i in range(rows)))
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """So many shards that an encode can be stopped in the middle."""
    return distinct_rows(tmp_path_factory.mktemp("faults") / "rows.txt", ROWS)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Few rows, whose vectors take more than 20,000 bytes."""
    return distinct_rows(tmp_path_factory.mktemp("faults") / "short.txt", 400)


def command(text, out, model):
    shards = ["--shard-rows", str(SHARD_ROWS)]
    return [sys.executable, "-m", "sentcli", "encode", str(text), "-o", str(out), "-m", str(model), *shards]


@contextlib.contextmanager
def started(arguments):
    """Run a command in the background."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(arguments, **pipes, text=True, env=ONE_THREAD, preexec_fn=heed_ctrl_c) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition, process, what):
    """Poll until `condition` holds while the process runs."""
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, f"ended before {what}: {process.communicate()}"
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.01)


def rows_done(out):
    manifest = out / "manifest.json"
    return json.loads(manifest.read_text())["rows_done"] if manifest.exists() else 0


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(text, tiny_bert, tmp_path_factory):
    """The files of a run that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "out"
    subprocess.run(command(text, out, tiny_bert), check=True, capture_output=True, env=ONE_THREAD)
    return contents(out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_resumes_to_the_same_bytes(text, tiny_bert, tmp_path, whole, run, kind):
    out = tmp_path / "out"
    with started(command(text, out, tiny_bert)) as process:
        wait_for(lambda: rows_done(out) >= 3 * SHARD_ROWS, process, "three shards")
        process.send_signal(kind)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if kind == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in errors
    done = rows_done(out)
    assert 0 < done < ROWS
    if kind == signal.SIGINT:
        assert errors.splitlines()[-1] == "error: interrupted"
        assert not list(out.glob(".*")), "a partial file was left"
    for name in (s["vectors"] for s in json.loads((out / "manifest.json").read_text())["shards"]):
        assert (out / name).read_bytes() == whole[name]
    resumed = run(*command(text, out, tiny_bert)[3:], "--resume", check=0, env=ONE_THREAD)
    assert f"{ROWS - done} rows, {done} " in resumed.stderr
    assert contents(out) == whole


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_of_a_file(tiny_bert, tmp_path):
    out = tmp_path / "out" / "v.npy"
    many = distinct_rows(tmp_path / "many.txt", 30_000)
    with started(command(many, out, tiny_bert)) as process:
        wait_for(lambda: list(out.parent.glob(".v.npy.*")), process, "the first bytes")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "error: interrupted"
    assert "Traceback" not in errors
    assert list(out.parent.iterdir()) == []


@contextlib.contextmanager
def file_size_limit(size):
    """Let writes beyond `size` bytes of a file fail, as a full disk does (Python ignores SIGXFSZ)."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes_none = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # Python would keep half of what it makes of a module
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_none
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def only_error(result):
    """Return the one error line of a failed run."""
    told = ("warning: ", "exporting ")
    lines = [line for line in result.stderr.splitlines() if not line.startswith(told)]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v.npy", "v.parquet", "v.jsonl", "v.safetensors"])
@pytest.mark.parametrize("existing", [False, True])
def test_a_full_disk_leaves_no_half_file(short, tiny_bert, tmp_path, invoke, name, existing):
    out = tmp_path / "out" / name
    if existing:
        out.parent.mkdir()
        out.write_bytes(b"old")
    with file_size_limit(20_000):
        failed = invoke("encode", short, "-o", out, "-m", tiny_bert, "--overwrite", check=1)
    message = only_error(failed)
    assert str(out) in message
    assert "File too large" in message
    assert [(p.name, p.read_bytes()) for p in out.parent.iterdir()] == ([(name, b"old")] if existing else [])


@pytest.mark.parametrize("size", [3000, 8000, 20_000])
def test_a_full_disk_leaves_no_half_model(tiny_bert, tmp_path, invoke, size):
    out = tmp_path / "out" / "model"
    with file_size_limit(size):
        failed = invoke("export", "-m", tiny_bert, "-o", out, "--no-verify", check=1)
    assert str(out) in failed.stderr.rpartition("error: ")[2]
    assert "defect" not in failed.stderr
    assert list(out.parent.iterdir()) == []


@pytest.mark.slow
def test_a_disk_that_fills_keeps_the_shards_that_are_whole(short, tiny_bert, tmp_path, invoke):
    out, whole = tmp_path / "out", tmp_path / "whole"
    with file_size_limit(10_000):  # the manifest grows past that
        message = only_error(invoke(*command(short, out, tiny_bert)[3:], "--shard-rows", 10, check=1))
    assert str(out) in message
    assert "File too large" in message
    assert 0 < rows_done(out) < 400
    assert not list(out.glob(".*")), "a partial file was left"
    invoke(*command(short, out, tiny_bert)[3:], "--shard-rows", 10, "--resume", check=0)
    invoke(*command(short, whole, tiny_bert)[3:], "--shard-rows", 10, check=0)
    assert contents(out) == contents(whole)


@pytest.mark.slow
def test_a_really_full_disk(short, tiny_bert, tmp_path, invoke):
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", mount], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount a small disk: {made.stderr.decode().strip()}")
    try:
        for name in ("v.npy", "v.parquet"):
            message = only_error(invoke("encode", short, "-o", mount / name, "-m", tiny_bert, check=1))
            assert str(mount / name) in message
            assert list(mount.iterdir()) == []
        train = ["train", "--data", short, "-m", tiny_bert, "--method", "simcse", "--max-steps", 2, "-o"]
        message = invoke(*train, mount / "run", check=1).stderr
        assert str(mount / "run") in message
        assert (mount / "run" / "metrics.jsonl").read_text() == ""  # it was refused before the first step
    finally:
        subprocess.run(["umount", mount], check=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_standard_output_is_one_message(short, tiny_bert):
    with Path("/dev/full").open("w") as full:
        arguments = command(short, "-", tiny_bert)
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=ONE_THREAD)
    assert done.returncode == 1
    assert "No space left on device" in only_error(done)


def test_a_folder_that_is_a_file_is_refused_before_any_work(short, tiny_bert, tmp_path, invoke):
    (tmp_path / "file").write_text("mine")
    failed = invoke("encode", short, "-o", tmp_path / "file" / "deep" / "v.npy", "-m", tiny_bert, check=2)
    assert str(tmp_path / "file" / "deep") in only_error(failed)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused_before_any_work(short, tiny_bert, tmp_path, invoke):
    (tmp_path / "locked").mkdir(mode=0o500)
    failed = invoke("encode", short, "-o", tmp_path / "locked" / "v.npy", "-m", tiny_bert, check=2)
    assert only_error(failed) == f"error: cannot write to {tmp_path / 'locked'}: Permission denied"


def test_a_reader_that_goes_away_is_no_traceback(short, tiny_bert):
    pipe = f"{shlex.join(command(short, '-', tiny_bert))} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=True, env=ONE_THREAD)
    first, status = done.stdout.splitlines()
    assert len(np.array(json.loads(first)["embedding"], np.float32)) == 32
    assert status == "1"
    assert [line for line in done.stderr.splitlines() if not line.startswith("warning: ")] == []
