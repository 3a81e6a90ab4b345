"""Every verb is a function of the package: same keywords as the flags, same JSON, errors as exceptions."""

import ast
import inspect
import json
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

import sentcli
from sentcli import SentenceEncoder
from sentcli.cli.app import DataVerbs, Sentcli, app
from sentcli.errors import InputError
from tests.tolerance import VECTORS


@pytest.mark.parametrize("name", sentcli.VERBS)
def test_the_keywords_are_the_long_names_of_the_flags(name):
    typed = name.replace("_", "-")
    commands = get_command(app)
    if typed not in Sentcli.verbs:
        commands = commands.get_command(None, "data")
    command = commands.get_command(None, typed)
    flags = {max(p.opts, key=len).lstrip("-").replace("-", "_") for p in command.params if p.opts[0].startswith("-")}
    keywords = set(inspect.signature(getattr(sentcli, name)).parameters)
    assert flags - {"debug", "help", "help_all"} <= keywords


def test_every_verb_is_a_command():
    assert {name.replace("_", "-") for name in sentcli.VERBS} <= {*Sentcli.verbs, *DataVerbs.verbs}


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
        ({"max_length": 2}, "max_length=2.*3"),
        ({"backend": "tensorflow"}, "'auto', 'torch', 'onnx' or 'openvino'"),
        ({"data": 7}, "data=7"),
        ({}, "data="),
    ],
)
def test_what_the_command_refuses_is_an_exception(tiny_bert, keywords, words):
    with pytest.raises(InputError, match=words):
        sentcli.sts_eval(tiny_bert, **keywords)


def test_an_unknown_keyword_is_pythons_own_error(tiny_bert):
    with pytest.raises(TypeError, match="poling"):
        sentcli.sts_eval(tiny_bert, poling="cls")


def test_the_result_is_written_where_the_keywords_say(tiny_bert, tmp_path, text):
    sentcli.encode(text, output=tmp_path / "a.npy", model=tiny_bert, json=tmp_path / "a.json", quiet=True)
    assert json.loads((tmp_path / "a.json").read_text())["command"] == "encode"
    with pytest.raises(InputError, match=f"json={tmp_path}/b.npy"):
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


# Help, and what is in memory


@pytest.mark.parametrize("name", [name for name in sentcli.VERBS if name != "analyze"])
def test_help_describes_every_argument_and_its_examples_are_python(name):
    verb = getattr(sentcli, name)
    text = pydoc.render_doc(verb, renderer=pydoc.plaintext)
    for parameter in inspect.signature(verb).parameters:
        assert re.search(rf"^ +{parameter}: \S", text, re.MULTILINE), parameter
    examples = [line.strip() for line in text.partition("Examples:")[2].splitlines() if line.strip()]
    assert examples
    for example in examples:
        call = ast.parse(example, mode="eval").body
        assert ast.unparse(call.func) == f"sentcli.{name}"
        values = [ast.literal_eval(value) for value in call.args]
        inspect.signature(verb).bind(*values, **{k.arg: ast.literal_eval(k.value) for k in call.keywords})


@pytest.mark.parametrize(
    ("function", "keywords", "words"),
    [
        ("evaluate", {"modle": "x"}, r"evaluate\(\) .*'modle'.*'model'"),
        ("train", {"learning_rat": 1}, r"train\(\) .*'learning_rat'.*'learning_rate'"),
        ("evaluate", {}, r"evaluate\(\) .*'files'"),
    ],
)
def test_wrong_keywords_are_named(function, keywords, words):
    with pytest.raises(TypeError, match=words):
        getattr(sentcli, function)(**keywords)
    if "modle" in keywords:
        with pytest.raises(TypeError, match="'modle'"):
            sentcli.analyze("duplicates", "x.txt", modle="x")


def test_a_list_of_numbers_is_no_file():
    with pytest.raises(InputError, match="corpus"):
        sentcli.analyze("duplicates", [1, 2] * 2000, model="x", output="y")


def test_encode_of_words_in_memory_says_how_they_are_texts(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"\[\[\.\.\.\]\]"):
        sentcli.encode(["a"], output="x.npy", model="tiny")


ROWS = [{"q1": f"the cat sat on mat {i}", "q2": f"a dog ran off {i % 7}", "same": i % 2} for i in range(20)]


@pytest.mark.slow
def test_frames_and_lists_of_dicts_are_tables(tiny_bert, tmp_path):
    import pandas as pd

    frame = pd.DataFrame(ROWS)
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = {"model": tiny_bert, "pair_fields": "q1,q2,same", "quiet": True}
    theirs = sentcli.evaluate(tmp_path / "t.csv", **options).to_dict()["results"]["t.csv"]
    for given in (frame, ROWS, [frame], [ROWS]):
        (ours,) = sentcli.evaluate(given, **options).to_dict()["results"].values()
        assert {k: v for k, v in ours.items() if k not in ("draws", "interval")} == {
            k: v for k, v in theirs.items() if k not in ("draws", "interval")
        }
    two = sentcli.evaluate([frame, tmp_path / "t.csv", ROWS], **options).to_dict()["results"]
    assert len(two) == 3
    gap = frame.astype({"same": object})
    gap.loc[3, "same"] = None
    with pytest.raises(InputError, match="line 4"):
        sentcli.evaluate(gap, **options)
    (left,) = sentcli.evaluate(gap, skip_empty=True, **options).to_dict()["results"].values()
    assert (left["items"], left["skipped_empty"]) == (19, 1)


def test_lists_of_texts_are_files_of_texts(tiny_bert, tmp_path):
    import numpy as np
    import pandas as pd

    texts = [f"the cat sat on mat {i}" for i in range(12)]
    for number, given in enumerate((texts, [texts], pd.Series(texts), np.array(texts), pd.DataFrame({"text": texts}))):
        sentcli.encode(given, output=tmp_path / f"{number}.npy", model=tiny_bert, quiet=True)
        found = np.load(tmp_path / f"{number}.npy")
        assert np.array_equal(found, np.load(tmp_path / "0.npy")) and len(found) == 12
    (one,) = sentcli.retrieve(model=tiny_bert, corpus=texts, queries=texts[:1], quiet=True).to_dict()["results"]
    assert one["hits"][0]["text"] == texts[0]
    run = sentcli.train(
        tmp_path / "m", method="simcse", model=tiny_bert, data=texts, batch_size=4, max_steps=1, quiet=True
    )
    assert run.to_dict()["results"]["steps"] == 1


def test_names_of_files_are_never_taken_for_texts(tiny_bert, tmp_path, text):
    spaced = tmp_path / "my notes.txt"
    spaced.write_text("the cat sat\n")
    result = sentcli.encode([spaced], output=tmp_path / "a.npy", model=tiny_bert, quiet=True)
    assert result.to_dict()["results"]["rows"] == 1
    for missing in (["none.txt"], ["none"], [str(spaced), "not there.txt"]):
        with pytest.raises(InputError, match=missing[-1]):
            sentcli.encode(missing, output=tmp_path / "b.npy", model=tiny_bert)


TABLE = {"text": ["the big cat", "a small dog", "the big cat"], "year": [1, 2, 3]}


def test_encode_without_an_output_has_the_rows_and_their_vectors_in_its_frame(tiny_bert):
    pandas = pytest.importorskip("pandas")
    result = sentcli.encode(pandas.DataFrame(TABLE), model=str(tiny_bert), quiet=True)
    assert list(result.frame["year"]) == TABLE["year"] and list(result.frame["text"]) == TABLE["text"]
    expected = SentenceEncoder.load(str(tiny_bert)).encode(TABLE["text"])
    np.testing.assert_allclose(np.stack(result.frame["embedding"]), expected, atol=VECTORS)
    assert result.to_dict()["results"]["output"] is None


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_an_encoder_takes_the_column_text_of_a_table_or_names_the_others(tiny_bert, package):
    module = pytest.importorskip(package)
    make = module.table if package == "pyarrow" else module.DataFrame
    encoder = SentenceEncoder.load(str(tiny_bert))
    np.testing.assert_array_equal(encoder.encode(make(TABLE)), encoder.encode(TABLE["text"]))
    with pytest.raises(InputError, match=r"body.*year"):
        encoder.encode(make({"body": TABLE["text"], "year": TABLE["year"]}))


def test_results_are_tables_in_a_notebook_and_fit_on_a_screen(tiny_bert, tmp_path):
    run = sentcli.train(
        tmp_path / "m", method="simcse", model=str(tiny_bert), data=[[f"the cat {n} sat" for n in range(16)]],
        max_steps=2, batch_size=4, quiet=True,
    )  # fmt: skip
    export = sentcli.export(str(tiny_bert), output=tmp_path / "onnx", pooling="mean", quiet=True)
    for result in (run, export):
        assert "<table>" in result._repr_html_() and len(repr(result).splitlines()) <= 20
    assert "<img" in run._repr_html_() and "<img" not in export._repr_html_()


def test_a_map_of_kept_vectors_encodes_nothing_and_has_every_text_in_its_frame(tiny_bert, tmp_path, monkeypatch):
    texts = [f"the {a} {b} {c} sat" for a in "abcde" for b in "fghij" for c in "kl"]
    sentcli.encode([texts], output=tmp_path / "v.parquet", model=str(tiny_bert), quiet=True)

    def refuse(self, *arguments, **options):
        raise AssertionError("a text was encoded again")

    monkeypatch.setattr(SentenceEncoder, "encode_distinct", refuse)
    call = {"model": str(tiny_bert), "output": tmp_path / "map", "clusters": 3, "quiet": True}
    result = sentcli.analyze("map", str(tmp_path / "v.parquet"), **call)
    assert sorted(result.frame["text"]) == sorted(texts) and set(result.frame["cluster"]) == {1, 2, 3}


def test_messages_to_python_name_keywords_and_those_of_the_command_line_options(
    text, tiny_bert, tmp_path, invoke, capsys
):
    out = tmp_path / "out.npy"
    sentcli.encode(text, output=out, model=tiny_bert)
    with pytest.raises(InputError, match="overwrite=True") as refused:
        sentcli.encode(text, output=out, model=tiny_bert)
    assert "--" not in str(refused.value)
    assert "--overwrite" in invoke("encode", text, "-o", out, "-m", tiny_bert, check=2).stderr
    with pytest.raises(InputError, match="text_field"):
        sentcli.encode([{"text": "a"}], output=out, model=tiny_bert, text_field="body", overwrite=True)
    with pytest.raises(InputError, match=r"sentcli evaluate .*-m .*--keep-threshold"):  # a command of a shell
        sentcli.retrieve(corpus=text, query="cat", model=tiny_bert, least="0.9p")
    capsys.readouterr()
    sentcli.encode(["the " * 60], model=tiny_bert)
    warned = capsys.readouterr().err
    assert "max_length=" in warned and "--" not in warned


@pytest.mark.parametrize("command", [("encode", "", "-o", "out.npy"), ("retrieve", "--corpus", "x", "--queries", "")])
def test_an_empty_name_of_a_file_is_no_folder_here(invoke, tiny_bert, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    named = "--queries" if command[0] == "retrieve" else "INPUTS"
    assert named in invoke(*command, "-m", tiny_bert, check=2).stderr
