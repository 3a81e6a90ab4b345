"""The programs of docs/elsewhere.md, as they stand there, where the tools that they import are installed."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sentcli

PAGE = (Path(__file__).parent.parent / "docs" / "elsewhere.md").read_text("utf-8")
PROGRAMS = [
    pytest.param(program, id=f"{section.partition(chr(10))[0]}{number or ''}")
    for section in PAGE.split("\n## ")[1:]
    for number, program in enumerate(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
]


@pytest.fixture(scope="module")
def folder(minilm, tmp_path_factory):
    """What the page starts from: a model folder, vectors of a corpus with titles, an export."""
    folder = tmp_path_factory.mktemp("elsewhere")
    rows = [
        {"_id": "resume", "title": "Reproducibility: Resume", "text": "A killed job goes on where it was."},
        {"_id": "table", "title": "Encode: Tables", "text": "Blank cells of a spreadsheet are empty texts."},
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    sentcli.SentenceEncoder.load(minilm).save(folder / "my-model")
    sentcli.encode(folder / "corpus.jsonl", output=folder / "corpus.parquet", model=folder / "my-model")
    sentcli.export(folder / "my-model", output=folder / "my-model-onnx", verify=False)
    return folder


def modules(program):
    """The names of the packages that a program imports."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_for_another_tool_runs(program, request):
    packages = set(modules(program))
    if missing := {name for name in packages if importlib.util.find_spec(name) is None}:
        pytest.skip(f"not installed: {', '.join(sorted(missing))}")
    for name, reason in {"mteb": "fetches its data", "openai": "asks the running service"}.items():
        if name in packages:
            pytest.skip(reason)
    if "psycopg" in packages and "PGHOST" not in os.environ:
        pytest.skip("no database: PGHOST is not set")
    folder = request.getfixturevalue("folder")
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if "corpus.parquet" in program:
        assert "resume" in done.stdout.splitlines()[0]
    elif "print" in program:
        assert "My parcel never arrived." in done.stdout or "1.0000" in done.stdout
