"""The scripts in benchmarks/ take minutes, so no test runs them; what they import of the package has to be there."""

import ast
import importlib
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


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
