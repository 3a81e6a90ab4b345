"""A user's program has no error of types by pyright in its strict mode; mypy's are sought by tests.wheel."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text("utf-8")

pytestmark = pytest.mark.slow


def public_names():
    """Return the names of the Python reference, with their modules."""
    names = []
    for name, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", PAGE, re.MULTILINE):
        members = re.findall(r"^ +- (\w+)", options, re.MULTILINE)
        for listed in re.findall(r"members: \[(.*)\]", options):
            members += listed.split(", ")
        names += [name, *(f"{name}.{member}" for member in members)]
    return names


def module_of(name):
    """Return the module that a name is imported from."""
    module = name.rpartition(".")[0]
    return module if module[module.rfind(".") + 1].islower() and find_spec(module) else module_of(module)


def test_every_public_name_has_a_known_type(pyright):
    names = public_names()
    assert {"sentcli.encode", "sentcli.SentenceEncoder.similarity", "sentcli.objectives.info_nce"} <= {*names}
    imports = sorted({module_of(name) for name in names})
    lines = [*(f"import {module}" for module in imports), *(f"reveal_type({name})" for name in names)]
    said = pyright("every_name.py", "\n".join(lines) + "\n")
    assert [entry["message"] for entry in said if entry["severity"] == "error"] == []
    types = [entry["message"] for entry in said if entry["severity"] == "information"]
    assert len(types) == len(names)
    assert [message for message in types if "Unknown" in message] == []


def test_a_users_program_has_no_error(pyright):
    program = (ROOT / "tests" / "wheel" / "project.py").read_text("utf-8")
    assert pyright("project.py", program) == []
    assert pyright("wrong.py", program.replace("top_k=3", 'top_k="3"')) != []
