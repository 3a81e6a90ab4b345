"""What users type and import is still there: commands, flags, functions, classes, and their defaults."""

import re
from pathlib import Path

import griffe
import pytest

import sentcli
from tests.kept.surface import surface
from tests.kept.test_artefacts import VERSIONS

KEPT = Path(__file__).parent


def breakages(before, after):
    modules = [griffe.visit("surface", Path("surface.py"), code) for code in (before, after)]
    return [found.explain(griffe.ExplanationStyle.ONE_LINE) for found in griffe.find_breaking_changes(*modules)]


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_of_a_version_is_broken(version):
    assert breakages((KEPT / version / "surface.txt").read_text(), surface()) == []


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("on_null='error', ", ""),  # an option is gone
        ("def command_data_list(", "def command_data_ls("),  # a command is renamed
        ("on_long='truncate'", "on_long='error'"),  # a default is another
        ("def sentcli_mine(source, *, model, output,", "def sentcli_mine(source, *, model, output, corpus_of,"),
        ("is_DataError = None\n    is_InputError = None", "is_DataError = None"),
    ],
)
def test_what_breaks_a_program_is_found(was, now):
    before = surface()
    assert was in before
    assert breakages(before, before.replace(was, now))


def test_docs_list_exactly_the_public_names():
    listed = set(re.findall(r"^(?:def|class) sentcli_(\w+)", surface(), re.MULTILINE))
    of_modules = {name for name in listed if name.startswith(("objectives_", "analysis_", "evaluation_", "errors_"))}
    assert listed - of_modules == set(sentcli.__all__) - {"__version__"}
