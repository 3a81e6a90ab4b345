"""Every verb is a function of the package: same keywords as the flags, same JSON, errors as exceptions."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

import sentcli
from sentcli.cli.app import Sentcli, app
from sentcli.errors import InputError


@pytest.mark.parametrize("name", sentcli.VERBS)
def test_the_keywords_are_the_long_names_of_the_flags(name):
    command = get_command(app).get_command(None, name.replace("_", "-"))
    flags = {max(p.opts, key=len).lstrip("-").replace("-", "_") for p in command.params if p.opts[0].startswith("-")}
    keywords = set(inspect.signature(getattr(sentcli, name)).parameters)
    assert flags - {"debug", "help", "help_all"} <= keywords


def test_every_verb_is_a_command():
    assert {name.replace("_", "-") for name in sentcli.VERBS} <= set(Sentcli.places)


def test_no_module_takes_the_name_of_a_verb():
    import importlib
    import pkgutil

    for module in pkgutil.iter_modules(sentcli.__path__):
        assert module.name not in sentcli.VERBS
    for name in sentcli.VERBS:
        importlib.import_module(f"sentcli.verbs.{name}")
        assert callable(getattr(sentcli, name))


def test_importing_the_package_is_light():
    code = "import sys, sentcli; print(sorted({'numpy', 'torch', 'typer', 'rich', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_function_gives_the_json_of_its_command(tiny_bert, tmp_path, invoke):
    words = ["the cat sat", "a dog ran", "the river is big", "a fish swam", "the old tree", "a small house"]
    rows = [f"{words[i]}\t{words[-i - 1]}\t{i}" for i in range(6)]
    pairs = tmp_path / "mine.tsv"
    pairs.write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n")
    ours = sentcli.sts_eval(tiny_bert, pairs=pairs, quiet=True)
    theirs = json.loads(invoke("sts-eval", "-m", tiny_bert, "--pairs", pairs, "--json", "-", check=0).stdout)
    for key in ("command", "model", "protocol", "results", "average"):
        assert json.loads(json.dumps(ours.to_dict()[key])) == theirs[key]
    frame = ours.to_frame()
    assert set(frame.columns) == {"model", "seed", "task", "metric", "value", "low", "high"}
    assert frame.query("metric == 'spearman'")["value"].item() == theirs["results"]["mine"]["spearman"]
    assert "mine" in ours._repr_html_()


def test_one_value_or_a_list_and_paths_or_names(tiny_bert, tmp_path, text):
    one = sentcli.encode(text, output=tmp_path / "a.npy", model=tiny_bert, quiet=True)
    two = sentcli.encode([str(text), text], output=str(tmp_path / "b.npy"), model=str(tiny_bert), quiet=True)
    assert two.to_dict()["results"]["rows"] == 2 * one.to_dict()["results"]["rows"]
    hits = sentcli.retrieve(model=tiny_bert, corpus=text, query="the cat", top_k=3, quiet=True)
    assert len(hits.to_dict()["results"][0]["hits"]) == 3
    assert list(hits.to_frame()["rank"]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"split": "tests"}, "'test', 'dev' or 'train'"),
        ({"max_length": 2}, "greater than or equal to 3"),
        ({"backend": "tensorflow"}, "'auto', 'torch', 'onnx' or 'openvino'"),
        ({"data": 7}, "data=7"),
        ({}, "give --data"),
    ],
)
def test_what_the_command_refuses_is_an_exception(tiny_bert, keywords, words):
    with pytest.raises(InputError) as caught:
        sentcli.sts_eval(tiny_bert, **keywords)
    assert words in str(caught.value)


def test_an_unknown_keyword_is_pythons_own_error(tiny_bert):
    with pytest.raises(TypeError, match="poling"):
        sentcli.sts_eval(tiny_bert, poling="cls")


def test_the_result_is_written_where_the_keywords_say(tiny_bert, tmp_path, text):
    sentcli.encode(text, output=tmp_path / "a.npy", model=tiny_bert, json=tmp_path / "a.json", quiet=True)
    assert json.loads((tmp_path / "a.json").read_text())["command"] == "encode"
    with pytest.raises(InputError, match="would replace"):
        sentcli.encode(text, output=tmp_path / "b.npy", model=tiny_bert, json=tmp_path / "b.npy")


def test_verbs_are_quiet_when_asked_and_leave_the_console_as_it_was(tiny_bert, tmp_path, text, capsys):
    from sentcli import console

    sentcli.encode(text, output=tmp_path / "a.npy", model=tiny_bert, quiet=True)
    assert capsys.readouterr() == ("", "")
    assert console.state.quiet is False
    sentcli.encode(text, output=tmp_path / "b.npy", model=tiny_bert)
    assert "rows" in capsys.readouterr().err


def test_the_stub_is_what_the_verbs_declare():
    done = subprocess.run([sys.executable, "docs/make_stub.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    compile(Path(sentcli.__file__).with_suffix(".pyi").read_text(), "stub", "exec")
