"""Every command on every kind of spoiled input: one message, nothing left behind, the old output intact.

The slow tests try some hundred cases; SENTCLI_SPOILED=10000 tries all, which takes some ten minutes on two cores.
"""

import hashlib
import os
import random
import shutil
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.faults.scenes import OPTIONAL, SCENES
from tests.faults.spoilings import spoilings

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and links of POSIX")

SECONDS = 20
SAMPLE, SLOW_SAMPLE = 100, int(os.environ.get("SENTCLI_SPOILED", "400"))
"""Cases that run with the quick tests, and further ones with the slow tests."""


CASES = [
    (scene, file, spoiling)
    for scene in SCENES
    for file in scene.files
    for spoiling in spoilings(file)
    if not (spoiling.name == "a pipe" and "/" not in file)  # a text of the user's may be one, as <(command) is
]
ORDER = random.Random(0).sample(range(len(CASES)), len(CASES))
QUICK, TRIED = set(ORDER[:SAMPLE]), sorted(ORDER[: SAMPLE + SLOW_SAMPLE])


@contextmanager
def limited(seconds, pipe):
    """Fail if the work inside takes longer; a pipe for which native code waits is closed then."""

    def late(number, frame):
        raise TimeoutError(f"took more than {seconds} s")

    def release():
        while not over.wait(0.2):
            with suppress(OSError):
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))

    before = signal.signal(signal.SIGALRM, late)
    over = threading.Event()
    releasing = threading.Timer(seconds, release)
    if pipe.is_fifo():
        releasing.start()
    signal.alarm(seconds)
    try:
        yield
    finally:
        releasing.cancel()
        over.set()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tree(folder):
    """Return what is in a folder, without what is in the places that a command may write to."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "other"
        for path in sorted(folder.rglob("*"))
    }


def check(scene, file, spoiling, good, folder, invoke):
    shutil.copytree(good, folder, symlinks=True, dirs_exist_ok=True)
    spoiling.spoil(folder / file)
    before = tree(folder)
    with limited(SECONDS, folder / file):
        result = invoke(*scene.command.split())
    assert not isinstance(result.exception, (TimeoutError, RecursionError)), result.exception
    assert "Traceback" not in result.stderr and "a defect of sentcli" not in result.stderr, result.stderr
    after = tree(folder)
    optional = [name for end, names in OPTIONAL.items() if file.endswith(end) for name in names]
    may_pass = scene.repairs or spoiling.may_pass or spoiling.name in (*scene.passes, *optional)
    kept = {name for name in {*before, *after} if not (scene.makes and name.startswith(scene.makes))}
    if result.exit_code == 0:
        assert may_pass, f"succeeded: {result.stderr}"
    else:
        assert result.exit_code in (1, 2), (result.exit_code, result.stderr, result.exception)
        errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, result.stderr
        path = Path(file)
        assert may_pass or any(name in errors[0] for name in (path.name, path.parent.name or path.name)), errors[0]
        assert {name: after.get(name) for name in kept} == {name: before.get(name) for name in kept}
    partial = [name for name in after if ".partial" in name or ".tmp" in name or ".building" in name]
    assert not partial


def names(case):
    scene, file, spoiling = case
    return f"{scene.name}: {file}: {spoiling.name}"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(CASES[number], id=names(CASES[number]), marks=[] if number in QUICK else [pytest.mark.slow])
        for number in TRIED
    ],
)
def test_spoiled_input(case, good, tmp_path, invoke, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    check(*case, good, tmp_path / "here", invoke)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_the_scenes_succeed_on_good_input(scene, good, tmp_path, invoke, monkeypatch):
    shutil.copytree(good, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    invoke(*scene.command.split(), check=0)
