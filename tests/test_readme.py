"""Every command of the README runs: make targets in CI, the others here."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.strip().splitlines()]


def test_every_command_is_known():
    programs = {shlex.split(command)[0] for command in COMMANDS}
    assert programs == {"make", "sentcli", "."}


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_make_targets_are_run_by_ci(command):
    assert command in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()


def test_activation_script_is_where_make_installs():
    assert ". .venv/bin/activate" in COMMANDS
    assert "VENV ?= .venv" in (ROOT / "Makefile").read_text("utf-8")


def test_the_commands_run_in_order(minilm, tmp_path, sentences):
    """As a user would: one after the other in one folder."""
    sentences = [s for s in sentences if s.strip()]
    (tmp_path / "sentences.txt").write_text("\n".join(sentences[:128]) + "\n", "utf-8")
    rows = ({"_id": f"d{i}", "text": text} for i, text in enumerate(sentences[:24]))
    (tmp_path / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    ran = 0
    for command in COMMANDS:
        needs_data = "$SENTCLI_DATA" in command
        if not command.startswith("sentcli ") or (needs_data and "SENTCLI_DATA" not in os.environ):
            continue
        words = shlex.split(os.path.expandvars(command))[1:]
        done = subprocess.run([sys.executable, "-m", "sentcli", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stderr)
        ran += 1
    assert ran >= 5
    assert (tmp_path / "vectors.npy").exists()
    assert (tmp_path / "corpus" / "manifest.json").exists()


def test_the_python_example_runs(minilm):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(2, 384) 0.")
