"""Scores keep the command that measured them, and that command measures them again."""

import json
import shlex

import pytest

import sentcli

WORDS = ["the cat sat", "a dog ran", "the river is big", "a fish swam", "the old tree", "a small house"]


@pytest.fixture
def pairs(tmp_path):
    file = tmp_path / "my pairs -x.tsv"
    rows = [f"{first}\t{second}\t{i}" for i, (first, second) in enumerate(zip(WORDS, WORDS[::-1], strict=True))]
    file.write_text("one\ttwo\tscore\n" + "\n".join(rows) + "\n")
    return file


def measured(text):
    objects = json.loads(text)
    return objects if isinstance(objects, list) else [objects]


def test_the_command_that_a_result_names_gives_the_same_result(pairs, tiny_bert, tiny_roberta, invoke):
    options = ["--pair-fields", "one,two,score", "--no-intervals", "--pooling", "cls", "--max-length", 9]
    call = ["sts-eval", "-m", tiny_bert, "-m", tiny_roberta, "--pairs", pairs, *options]
    first = measured(invoke(*call, "--json", "-", check=0).stdout)
    (line,) = {result["command_line"] for result in first}
    words = shlex.split(line)
    assert words[0] == "sentcli"
    again = measured(invoke(*words[1:], "--rerun", "--json", "-", check=0).stdout)
    assert [result["results"] for result in again] == [result["results"] for result in first]
    assert [result["protocol"] for result in again] == [result["protocol"] for result in first]


def test_a_report_of_files_shows_the_commands_of_the_files(pairs, tiny_bert, invoke, tmp_path):
    file, page = tmp_path / "scores.json", tmp_path / "page.md"
    call = ["sts-eval", "-m", tiny_bert, "--pairs", pairs, "--pair-fields", "one,two,score"]
    invoke(*call, "--json", file, check=0)
    (result,) = measured(file.read_text())
    invoke("report", file, "-o", page, check=0)
    assert result["command_line"] in page.read_text()
    assert "sentcli report" not in page.read_text()


def test_tables_in_memory_have_no_command(pairs, tiny_bert):
    by_name = sentcli.sts_eval(tiny_bert, pairs=pairs, pair_fields="one,two,score").to_dict()
    assert shlex.split(by_name["command_line"])[:4] == ["sentcli", "sts-eval", "-m", str(tiny_bert)]
    rows = [{"sentence1": words, "sentence2": words[::-1], "score": i} for i, words in enumerate(WORDS)]
    assert "command_line" not in sentcli.sts_eval(tiny_bert, pairs=[rows]).to_dict()


def test_a_secret_is_no_part_of_the_command(pairs, tiny_bert, invoke, monkeypatch):
    key = "f00dfacecafebeef"
    monkeypatch.setenv("SOME_API_KEY", key)
    renamed = pairs.rename(pairs.with_name(f"{key}.tsv"))
    call = ["sts-eval", "-m", tiny_bert, "--pairs", renamed, "--pair-fields", "one,two,score", "--json", "-"]
    (result,) = measured(invoke(*call, check=0).stdout)
    assert key not in result["command_line"]
