"""Several processes on one machine: the same bytes as one, and a clean end however they are stopped."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import heed_ctrl_c
from tests.stores.outputs import contents, manifest_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

ROWS, SHARDS = 1503, ["--shard-rows", "20"]
LONG = "the " * 60


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Rows with duplicates, empty and long ones, in many small shards."""
    path = tmp_path_factory.mktemp("devices") / "rows.txt"
    texts = [f"the cat {n % 900} sat on {n % 7} mats" if n % 50 else LONG for n in range(1500)]
    path.write_text("".join(f"{text}\n" for text in [*texts, "", "a dog", ""]))
    return path


@pytest.fixture(scope="module")
def whole(source, tiny_bert, tmp_path_factory):
    """A directory that one process wrote; the export that all of them run is in the cache from then on."""
    from typer.testing import CliRunner

    from sentcli.cli.app import app

    out = tmp_path_factory.mktemp("whole") / "out"
    result = CliRunner().invoke(app, command(source, out, tiny_bert, *SHARDS)[3:])
    assert result.exit_code == 0, result.stderr
    return out


def command(source, out, model, *options):
    words = [sys.executable, "-m", "sentcli", "encode", source, "-o", out, "-m", model, "--pooling", "mean", *options]
    return [str(word) for word in words]


@contextlib.contextmanager
def started(source, out, model, *options):
    """Run with two processes, in a group of its own as a shell would."""
    call = command(source, out, model, *SHARDS, "--devices", "cpu,cpu", *options)
    pipe = subprocess.PIPE
    with subprocess.Popen(call, stderr=pipe, text=True, start_new_session=True, preexec_fn=heed_ctrl_c) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def workers_of(process):
    """The encoding processes that a process has started."""
    found = []
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return [pid for pid in found if b"spawn_main" in command_of(pid)]


def command_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def wait_for(condition, what, process=None):
    deadline = time.monotonic() + 120
    while not condition():
        assert process is None or process.poll() is None, f"ended before {what}: {process.communicate()}"
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.01)


def wait_until_at_work(process, out):
    """Both processes run and shards are written."""
    wait_for(lambda: len(workers_of(process)) == 2 and (out / "vectors-00001.npy").exists(), "two workers", process)


def complaint_of(process):
    """The one line on standard error of a failed run."""
    errors = process.communicate(timeout=60)[1]
    lines = [line for line in errors.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1, errors
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.slow
def test_a_directory_has_the_bytes_of_one_process(source, whole, tiny_bert, tmp_path):
    with started(source, tmp_path / "out", tiny_bert) as process:
        assert process.wait(120) == 0, process.stderr.read()
    assert contents(tmp_path / "out") == contents(whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v.npy", "v.jsonl"])
def test_a_file_has_the_bytes_of_one_process(source, tiny_bert, tmp_path, run, name):
    call = ["encode", source, "-m", tiny_bert, *SHARDS, "-o"]
    run(*call, tmp_path / "one" / name, check=0)
    run(*call, tmp_path / "two" / name, "--devices", "cpu,cpu", check=0)
    assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_the_run_with_one_message(source, whole, tiny_bert, tmp_path, invoke):
    out = tmp_path / "out"
    with started(source, out, tiny_bert) as process:
        wait_until_at_work(process, out)
        workers = workers_of(process)
        os.kill(workers[0], signal.SIGKILL)
        assert "process" in complaint_of(process)
    assert process.returncode == 1
    wait_for(lambda: not any(b"spawn_main" in command_of(pid) for pid in workers), "the end of the other worker")
    assert not list(out.glob(".*")), "a partial file was left"
    done = manifest_of(out)["rows_done"]
    assert 0 < done < ROWS
    resumed = invoke(*command(source, out, tiny_bert, *SHARDS)[3:], "--resume", check=0)
    assert f"{ROWS - done} rows, {done} " in resumed.stderr
    assert contents(out) == contents(whole)


@pytest.mark.slow
def test_workers_end_when_the_process_that_started_them_is_killed(source, whole, tiny_bert, tmp_path):
    with started(source, tmp_path / "out", tiny_bert) as process:
        wait_until_at_work(process, tmp_path / "out")
        workers = workers_of(process)
        process.kill()
        process.wait(60)
        wait_for(lambda: not any(b"spawn_main" in command_of(pid) for pid in workers), "the end of the workers")


@pytest.mark.slow
def test_ctrl_c_is_left_to_the_process_that_started_the_workers(source, whole, tiny_bert, tmp_path):
    """In a terminal it reaches all of them."""
    out = tmp_path / "out"
    with started(source, out, tiny_bert) as process:
        wait_until_at_work(process, out)
        for worker in workers_of(process):
            os.kill(worker, signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert "Traceback" not in errors
    assert process.returncode == 0, errors
    assert contents(out) == contents(whole)


@pytest.mark.slow
def test_ctrl_c_does_not_reach_workers_that_are_still_starting(source, whole, tiny_bert, tmp_path):
    out = tmp_path / "out"
    with started(source, out, tiny_bert) as process:
        wait_for(lambda: len(workers_of(process)) == 2, "two workers", process)
        for worker in workers_of(process):
            os.kill(worker, signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert "Traceback" not in errors
    assert process.returncode == 0, errors
    assert contents(out) == contents(whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_is_no_traceback(source, whole, tiny_bert, tmp_path, kind):
    out = tmp_path / "out"
    with started(source, out, tiny_bert) as process:
        wait_until_at_work(process, out)
        workers = workers_of(process)
        os.killpg(process.pid, kind)
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == (130 if kind == signal.SIGINT else 128 + kind)
    assert "Traceback" not in errors
    assert re.search(f"{out} .*--resume", errors)
    wait_for(lambda: not any(b"spawn_main" in command_of(pid) for pid in workers), "the end of the workers")


@pytest.mark.slow
def test_a_device_that_is_not_there_is_one_message(source, whole, tiny_bert, tmp_path, run):
    call = command(source, tmp_path / "out", tiny_bert, *SHARDS, "--backend", "onnx", "--devices", "cpu,cuda:7")
    failed = run(*call[3:])
    assert failed.returncode in (1, 2)
    lines = [line for line in failed.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1, failed.stderr
    assert lines[0].startswith("error: ")
    assert "cuda:7" in lines[0]


def test_a_long_row_is_named_by_whichever_process_finds_it(source, tiny_bert, tmp_path, run):
    call = command(source, tmp_path / "v.npy", tiny_bert, *SHARDS, "--on-long", "error", "--devices", "cpu,cpu")
    failed = run(*call[3:], check=2)
    assert re.search(rf"error: {source}, row 1 \(id 0\): .*62 tokens.*32", failed.stderr)


@pytest.mark.slow
def test_one_device_needs_no_process_of_its_own(source, whole, tiny_bert, tmp_path, invoke):
    invoke(*command(source, tmp_path / "out", tiny_bert, *SHARDS, "--devices", "cpu")[3:], check=0)
    assert contents(tmp_path / "out") == contents(whole)


@pytest.mark.parametrize("devices", ["", "cpu,", "cpu,gpu0", "cuda:x"])
def test_what_is_no_device_is_said_before_anything_is_loaded(source, tmp_path, invoke, devices):
    failed = invoke("encode", source, "-o", tmp_path / "out", "-m", "no-such-model", "--devices", devices, check=2)
    assert f"--devices {devices!r}: " in failed.stderr


def test_device_and_devices_are_not_given_together(source, tmp_path, invoke):
    call = ["encode", source, "-o", tmp_path / "out", "-m", "no-such-model", "--devices", "cpu,cpu", "--device", "cpu"]
    assert re.search("--devices .*--device", invoke(*call, check=2).stderr)


def test_static_embeddings_run_in_several_processes(source, tmp_path, run):
    table = tmp_path / "table.txt"
    table.write_text("the 1.0 0 0\ncat 0 2.0 0\ndog 0 0 3.0\n", "utf-8")
    run("encode", source, "-o", tmp_path / "one.npy", "-m", table)
    run("encode", source, "-o", tmp_path / "two.npy", "-m", table, "--devices", "cpu,cpu")
    assert (tmp_path / "one.npy").read_bytes() == (tmp_path / "two.npy").read_bytes()
