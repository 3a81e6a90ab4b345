"""Every command of the README and of the first steps runs: make targets in CI, pip's by tests.wheel, others here."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.wheel.inputs import first_commands

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.strip().replace("\\\n", " ").splitlines()]
FIRST_STEPS = [
    ROOT / "docs" / "start" / f"{name}.md"
    for name in ("install", "choose", "search", "train", "own-data", "evaluate", "ship")
]


def a_part_of(data, folder):
    """Write a tenth of STS-B's pairs and of TIME's documents, in the folders that the commands name."""
    sts, judged = Path("senteval", "STS", "STSBenchmark"), Path("retrieval", "time")
    (folder / sts).mkdir(parents=True)
    for path in (data / sts).glob("*.csv"):
        (folder / sts / path.name).write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[::10]), "utf-8")
    shutil.copytree(data / judged, folder / judged, copy_function=shutil.copyfile)
    corpus = folder / judged / "corpus.jsonl"
    corpus.write_text("".join(corpus.read_text("utf-8").splitlines(keepends=True)[::10]), "utf-8")


def prepared(folder, name):
    """Write the text of the demo, of which some sentences and the beginnings of the judged sections are left."""
    subprocess.run([sys.executable, ROOT / "demo" / "prepare.py", name], cwd=folder, check=True)
    text, corpus = (folder / name / part for part in ("stdlib.txt", "docs/corpus.jsonl"))
    text.write_text("".join(text.read_text("utf-8").splitlines(keepends=True)[:256]), "utf-8")
    judged = {line.split("\t")[1] for line in (corpus.parent / "qrels" / "test.tsv").read_text("utf-8").splitlines()}
    rows = [json.loads(row) for row in corpus.read_text("utf-8").splitlines()]
    short = [row | {"text": row["text"][:400]} for row in rows if row["_id"] in judged]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in short), "utf-8")


def shorter(command):
    """A command of ``train`` with so few and small steps that a test has the time for it."""
    is_compared = "--dev" in command or "--eval-data" in command
    fewer = {"max-steps": 6, "eval-every": 3} if is_compared else {"max-steps": 2}
    if "--dev" in command:
        fewer["batch-size"] = 8
    for option, value in fewer.items():
        command = re.sub(rf"--{option} \d+", f"--{option} {value}", command)
    return command


def is_better_than_its_start(folder):
    """Whether a trained model is better on its own dev set than what it began with."""
    results = json.loads((folder / "sentcli.json").read_text("utf-8"))["results"]
    dev = results.get("dev") or {key: results[f"{key}_dev_spearman"] for key in ("start", "best")}
    return dev["best"] > dev["start"]


def test_every_command_is_known():
    programs = {shlex.split(command)[0] for command in COMMANDS}
    assert programs == {"make", "pip", "sentcli", "."}


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_make_targets_are_run_by_ci(command):
    program, target = command.split()
    calls = [line.split() for line in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()]
    assert any(call[:1] == [program] and target in call for call in calls)


def test_the_first_commands_need_no_checkout():
    """`make test-wheel` runs them."""
    installation, *commands = first_commands()
    assert installation.startswith("pip install dist/")
    assert {"data", "evaluate", "encode", "retrieve"} <= {shlex.split(command)[1] for command in commands}


def test_activation_script_is_where_make_installs():
    assert ". .venv/bin/activate" in COMMANDS
    assert "VENV ?= .venv" in (ROOT / "Makefile").read_text("utf-8")


@pytest.mark.slow
def test_the_commands_run_in_order(minilm, tmp_path, invoke, monkeypatch):
    """As a user would: one after the other in one folder; the first commands are run by `make test-wheel`."""
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path, "demo-output")
    shutil.copytree(ROOT / "docs" / "start", tmp_path / "docs")
    shutil.copy(ROOT / "docs" / "encode.md", tmp_path / "docs")
    if has_data := "SENTCLI_DATA" in os.environ:
        a_part_of(Path(os.environ["SENTCLI_DATA"]).resolve(), tmp_path / "data")
        monkeypatch.setenv("SENTCLI_DATA", str(tmp_path / "data"))
    ran, first = 0, first_commands()
    for command in COMMANDS:
        if not command.startswith("sentcli ") or command in first or ("$SENTCLI_DATA" in command and not has_data):
            continue
        invoke(*shlex.split(os.path.expandvars(shorter(command)))[1:], check=0)
        ran += 1
    assert ran >= 5
    assert is_better_than_its_start(tmp_path / "my-model")
    assert (tmp_path / "corpus" / "manifest.json").exists()


@pytest.mark.slow
def test_the_python_example_runs(minilm):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(2, 384) 0.")


def test_the_pictures_are_those_of_the_commands(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    script = import_module("make_pictures")
    pictures = {ROOT / name for name in re.findall(r"docs/pictures/[\w.-]+", README)}
    assert pictures == set(script.TARGET.iterdir())
    assert all(picture.stat().st_size < 200_000 for picture in pictures)
    assert {shlex.join(["sentcli", *command]) for command in (script.EVALUATE, script.MAP)} <= set(COMMANDS)


@pytest.mark.parametrize("page", FIRST_STEPS, ids=lambda page: page.stem)
def test_a_page_of_the_first_steps_is_short(page):
    assert len(page.read_text("utf-8").split()) <= 400


def test_the_first_steps_are_listed_in_order():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert re.findall(r"^\d\. .*\((start/.*)\)", index, re.MULTILINE) == [f"start/{page.name}" for page in FIRST_STEPS]
    assert sorted((ROOT / "docs" / "start").iterdir()) == sorted(FIRST_STEPS)


@pytest.mark.deep
def test_the_first_steps_run_in_order(minilm, tmp_path, invoke, monkeypatch):
    """As they are written, with fewer steps and on a few rows of their text and pairs, without a network."""
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path, "first-steps")
    if has_data := "SENTCLI_DATA" in os.environ:
        (tmp_path / "data").mkdir()
        data = Path(os.environ["SENTCLI_DATA"]).resolve()
        (tmp_path / "data" / "senteval").symlink_to(data / "senteval")
        a_part_of(data, tmp_path / "part")
        monkeypatch.setenv("SENTCLI_DATA_DIR", str(tmp_path / "data"))
    pages = [page.read_text("utf-8") for page in FIRST_STEPS]
    blocks = [block for page in pages for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL)]
    commands = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    commands = [shorter(command) for command in commands]
    commands = [re.sub(r"data sts\b", "data part/senteval", command) for command in commands]
    needs_data = re.compile(r"data part|data get")
    for command in commands:
        if not command.startswith("sentcli ") or (needs_data.search(command) and not has_data):
            continue
        invoke(*shlex.split(command)[1:], check=0)
    trained = [tmp_path / name for name in (("docs-model", "tuned") if has_data else ("docs-model",))]
    assert all(is_better_than_its_start(folder) for folder in trained)
    (example,) = re.findall(r"```python\n(.*?)```", pages[-1], re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(2, 384) 0.")
