"""Code that the tests give to another process as text imports names that there are: no other tool reads it."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
IMPORT = re.compile(r"^\s*from (sentcli[\w.]*) import (\w+(?:, \w+)*)", re.MULTILINE)


def texts_of(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ""


def imports_in_strings() -> Iterator[tuple[str, str, str]]:
    for file in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            for module, names in IMPORT.findall(texts_of(node)):
                for name in names.split(", "):
                    yield file.name, module, name


@pytest.mark.slow
def test_the_names_are_there():
    found = sorted(set(imports_in_strings()))  # not while tests are collected, which each process does
    assert len(found) > 5
    for file, module, name in found:
        imported = importlib.import_module(module)
        if not hasattr(imported, name):
            try:
                importlib.import_module(f"{module}.{name}")
            except ImportError:
                pytest.fail(f"{file} gives another process code that imports {name} of {module}")
