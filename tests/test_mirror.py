"""The tests mirror the package: a file is named after the module that it pins, with what of it behind the name.

``tests/search/test_graph_update.py`` pins ``sentcli/search/graph_update.py``, and
``tests/stores/directory/test_indexes_histories.py`` pins ``sentcli/stores/directory/indexes.py`` over long histories.
Files that are of no module are in a folder of `ACROSS`, or are named here.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "sentcli"
ACROSS = {
    "cluster": "commands on Ray, with the cluster that they share",
    "consumers": "programs of others, which open what sentcli writes",
    "faults": "every command while something fails",
    "frozen": "what commands write, before and after a change of structure",
    "gpu": "what needs a GPU",
    "kept": "what earlier versions wrote and promised, before this one",
    "reference": "golden values of the papers' code",
    "remote": "commands on stores and web servers, which they share",
    "versions": "the oldest and newest releases of the dependencies",
    "wheel": "what a user installs, without the checkout",
}
OF_THE_PROJECT = {
    *("benchmarks", "code_in_strings", "demo", "density", "docs", "elsewhere", "mirror", "names", "numbers"),
    *("publish", "readme", "release", "screenshots", "studies", "versions"),
}
"""Files at the top that pin the project's own documentation, scripts and tests."""
FILES = sorted(path for path in TESTS.rglob("test_*.py") if path.relative_to(TESTS).parts[0] not in ACROSS)


def module_of(path):
    """Return the module of the package that a test file is named after; None if there is none."""
    folder = PACKAGE / path.parent.relative_to(TESTS)
    if path.stem == f"test_{folder.name}":
        return folder  # of the whole package
    words = path.stem.removeprefix("test_").split("_")
    for count in range(len(words), 0, -1):
        name = "_".join(words[:count])
        if (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists():
            return folder / name
    return None


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_file_is_named_after_a_module_and_says_what_it_pins(path):
    of_the_project = path.parent == TESTS and path.stem.removeprefix("test_") in OF_THE_PROJECT
    assert of_the_project or module_of(path), "named after no module of the package"
    assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), "does not say what it pins"
