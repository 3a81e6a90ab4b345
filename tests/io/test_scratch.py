"""The temporary folder of a process: on disks without locks, beside other processes, and in forked ones."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sentcli.io import scratch

fcntl = pytest.importorskip("fcntl", reason="Windows has no fcntl")


@pytest.fixture(autouse=True)
def disk(tmp_path, monkeypatch):
    """A folder of temporary files, in which this process has none."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_scratch", [])
    yield tmp_path
    scratch.remove_scratch()


@pytest.fixture(params=["locks", "ENOSYS", "ENOLCK", "EOPNOTSUPP"])
def locks(request, monkeypatch):
    """Whether the disk has locks, or what it says in place of one."""

    def flock(handle, operation):
        raise OSError(getattr(errno, request.param), "no locks here")

    if request.param != "locks":
        monkeypatch.setattr(fcntl, "flock", flock)


def test_every_disk_has_temporary_folders_that_stay_while_their_process_runs(disk, locks):
    folder = scratch.scratch()
    lock = folder.parent / ".lock"
    os.utime(lock, (time.time() - 600,) * 2)
    with pytest.raises(OSError):
        scratch._held(lock)
    scratch._clear_abandoned()
    assert folder.is_dir() and scratch.is_scratch(folder / "file")
    scratch.remove_scratch()
    assert not list(disk.iterdir())


def test_the_folder_of_a_process_that_was_killed_is_deleted(disk):
    words = (
        "import os, sys, tempfile",
        "tempfile.tempdir = sys.argv[1]",
        "from sentcli.io.scratch import scratch",
        "print(scratch().parent, flush=True)",
        "os._exit(1)",
    )
    program = "; ".join(words)
    killed = subprocess.run([sys.executable, "-c", program, str(disk)], stdout=subprocess.PIPE, text=True)
    left = Path(killed.stdout.strip())
    assert left.is_dir() and left.parent == disk
    os.utime(left / ".lock", (time.time() - 600,) * 2)
    folder = scratch.scratch()
    assert list(disk.iterdir()) == [folder.parent]


@pytest.mark.parametrize("end", ["sys.exit()", "remove_scratch()"])
def test_a_forked_process_leaves_the_folder_of_its_parent(end, disk):
    program = f"""
import os, sys, tempfile
tempfile.tempdir = sys.argv[1]
from sentcli.io.scratch import remove_scratch, scratch
folder = scratch()
child = os.fork()
if not child:
    {end}
    sys.exit()
os.waitpid(child, 0)
assert folder.is_dir()
"""
    subprocess.run([sys.executable, "-c", program, str(disk)], check=True)
    assert not list(disk.iterdir())
