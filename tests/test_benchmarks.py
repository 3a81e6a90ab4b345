"""The scripts in benchmarks/ take minutes: what they import of the package has to be there.

The one for GPUs is run small on the CPU, a part at a time, because machines with a GPU are lent for minutes.
"""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sentcli.precision import half_precision_supported

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "benchmarks").rglob("*.py"))


def imported(script):
    """Return the modules of sentcli that a script imports from, each with a name."""
    nodes = ast.walk(ast.parse(script.read_text("utf-8")))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sentcli")]
    return [(node.module, alias.name) for node in froms for alias in node.names]


def test_the_scripts_use_the_package():
    assert sum(bool(imported(script)) for script in SCRIPTS) > 8


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_what_a_script_imports_is_there(script):
    for module, name in imported(script):
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("part", "rows", "cell"),
    [
        pytest.param(
            "encode",
            [
                "products fp32", "tokenizers alone", "MiniLM fp32, batches on the card alone", "MiniLM fp32, sentcli",
                "BERT-base fp32, batches on the card alone", "BERT-base fp32, sentcli",
                "BERT-base, 16 to 512 tokens fp32, sentcli", "MiniLM fp32, sentcli on onnxruntime", "profile",
            ],
            "encode fp32, x sentence-transformers",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "files",
            ["encode one line, the whole command", "encode 40 lines to .npy, fp32"],
            "file to directory, x in memory",
            marks=pytest.mark.slow,
        ),
        (
            "search",
            [
                "exact search, 1 query, k 10", "exact search, faiss", "exact search, 40 queries, k 1,000, sentcli",
                "exact search, 40 queries, k 1,000, torch", "exact search by a scan in bf16", "IVF of 600 rows, k 10",
            ],
            None,
        ),
        pytest.param(
            "train",
            ["train informin-cl, batch 8"],
            "train bf16, 64, x sentence-transformers" if half_precision_supported(CPU, "bf16") else None,
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_a_part_of_the_benchmark_of_gpus_prints_its_rows(tiny_bert, part, rows, cell):
    options = ["--part", part, "--device", "cpu", "--small", "--runs", "1", "--model", str(tiny_bert)]
    environment = {name: value for name, value in os.environ.items() if name != "SENTCLI_DATA"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *options], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()]
    of_table = {line[0]: line[1] for line in lines if len(line) == 5}
    assert set(rows) <= of_table.keys()
    missing = {name for name in rows if of_table[name].startswith("not run")}
    assert missing <= {"profile", "exact search, faiss", "exact search by a scan in bf16"}
    columns, values = (line for line in lines[-3:] if line[0] != "---")
    of_card = dict(zip(columns, values, strict=True))
    assert of_card["card"].startswith("no GPU")
    assert cell is None or of_card[cell][0].isdigit()
