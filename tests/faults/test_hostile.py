"""A small part of the hostile sample: no command ends badly, whatever is done to it.

`python -m tests.faults.hostile` draws and runs larger ones.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
pytest.importorskip("lancedb", reason="needs the extra sentcli[lance]")
pytest.importorskip("milvus_lite", reason="needs the extra sentcli[milvus]")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names, links and limits of Linux")

CASES = int(os.environ.get("SENTCLI_HOSTILE", "300"))


@pytest.mark.deep
def test_no_command_ends_badly(tmp_path):
    # in a process of its own, since the hub stand-in is told by variables before libraries are imported
    seed = random.SystemRandom().randrange(10**6)
    words = [sys.executable, "-m", "tests.faults.hostile", "--seed", str(seed), "--cases", str(CASES)]
    done = subprocess.run(
        words, cwd=Path(__file__).parents[2], capture_output=True, text=True, errors="backslashreplace"
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
