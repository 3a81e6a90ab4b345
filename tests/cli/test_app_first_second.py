"""The first second of `encode -` from an export: few modules of sentcli, and no library that it does not use."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

from sentcli import SentenceEncoder
from sentcli.onnx_export import publish

MOST = 66
"""The most modules of sentcli on this path."""
NOT_NEEDED = {
    "pydantic", "pydantic_core", "tomllib", "filelock", "torch", "transformers", "pandas", "pyarrow", "scipy",
    "sklearn", "safetensors", "huggingface_hub", "fsspec", "aiohttp", "yaml", "ruamel", "jinja2", "matplotlib",
    "rich.progress", "rich.table", "multiprocessing",
}  # fmt: skip
RUN = """
import atexit, json, os, sys

def leave_names():
    with open(os.environ["NAMES"], "w") as file:
        json.dump(sorted(sys.modules), file)

atexit.register(leave_names)
from sentcli.cli import main

main()
"""


@pytest.fixture(scope="module")
def export(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("first") / "export"
    loaded = SentenceEncoder.load(tiny_bert, backend="torch").loaded
    publish.export_model(loaded, folder, "fp32", verify=False, weights=False)
    return folder


@pytest.fixture
def modules_of(tmp_path):
    """Run the command line in a process of its own; return what it printed, and the names of all that it imported."""

    def run(*words, folder=tmp_path):
        names = tmp_path / "names.json"
        environment = {**os.environ, "NAMES": str(names), "SENTCLI_CACHE": str(tmp_path / "cache")}
        command = [sys.executable, "-c", RUN, *map(str, words)]
        done = subprocess.run(
            command, input="the cat\n", capture_output=True, text=True, check=True, env=environment, cwd=folder
        )
        return done.stdout, json.loads(names.read_text())

    return run


@pytest.mark.parametrize("options", [[], ["--quiet"], ["--prompt", "the "]], ids=str)
def test_encoding_a_line_from_an_export_imports_little(modules_of, export, options):
    # the second time, the runtime has been compared with the model; a bare name may be one of the known models
    for model in (export, export.name):
        printed, names = modules_of("encode", "-", "-o", "-", "--model", model, *options, folder=export.parent)
        assert len(json.loads(printed)["embedding"]) == 32
        assert sorted(NOT_NEEDED & set(names)) == []
        own = [name for name in names if name.startswith("sentcli")]
        assert len(own) <= MOST, own


def test_an_option_that_has_to_be_converted_is_converted(modules_of, export):
    command = ["encode", "-", "-o", "-", "-m", export, "--max-length", "8", "--on-long", "error"]
    printed, names = modules_of(*command)
    assert len(json.loads(printed)["embedding"]) == 32
    assert "pydantic" in names  # so that the test above can fail


def test_a_verb_imports_no_other_verb(modules_of, export):
    _, names = modules_of("encode", "--help")
    assert [name for name in names if name.startswith("sentcli.verbs.")] == ["sentcli.verbs.encode"]
    assert sorted((NOT_NEEDED - {"rich.table"}) & set(names)) == []


@pytest.mark.parametrize("package", ["sentcli.model.modules"])
def test_what_a_package_imports_on_demand_has_the_name_of_none_of_its_files(package):
    offering = import_module(package)
    for file in iter_modules(offering.__path__):
        import_module(f"{package}.{file.name}")
    for name in offering.__all__:
        assert not isinstance(getattr(offering, name), ModuleType), name
