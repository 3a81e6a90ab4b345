"""The JSON Lines of FlagEmbedding and tevatron: a query with lists of positives and of negatives."""

import json
import re

import pytest

from sentcli.errors import DataError
from sentcli.io.labelled import read_table
from sentcli.io.sources import open_source
from sentcli.io.table_layout import infer_layout


@pytest.fixture
def lines(tmp_path):
    def write(*rows):
        path = tmp_path / "t.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


def flag(number, positives=1, negatives=2, **more):
    return {
        "query": f"q{number}",
        "pos": [f"p{number} {i}" for i in range(positives)],
        "neg": [f"n{number} {i}" for i in range(negatives)],
        **more,
    }


def test_each_positive_is_a_row_with_all_negatives(lines, capsys):
    path = lines(flag(0), flag(1, positives=2, pos_scores=[1, 2]), flag(2))
    table = read_table(path)
    assert (table.kind, table.columns) == ("triplets", ("query", "pos", "neg_1", "neg_2"))
    assert list(zip(*table.texts, strict=True))[1:3] == [("q1", "p1 0", "n1 0", "n1 1"), ("q1", "p1 1", "n1 0", "n1 1")]
    assert table.lines == [1, 2, 2, 3] and capsys.readouterr().err == ""
    assert read_table(path, fields="query,pos,neg").texts == table.texts


@pytest.mark.parametrize("row", [flag(0, negatives=0), {"query": "q0", "pos": ["p0 0"]}])
def test_without_negatives_they_are_pairs(lines, row):
    table = read_table(lines(row, {**row, "query": "q1", "pos": ["p1 0", "p1 1"]}))
    assert (table.kind, table.texts) == ("pairs", (["q0", "q1", "q1"], ["p0 0", "p1 0", "p1 1"]))


def test_passages_of_tevatron_have_their_titles(lines):
    row = {
        "query_id": "1",
        "query": "q",
        "positive_passages": [{"docid": "1", "title": "T", "text": "p"}, {"docid": "2", "text": "r"}],
        "negative_passages": [{"docid": "3", "title": "", "text": "n"}],
    }
    table = read_table(lines(row))
    assert table.kind == "triplets" and table.texts == (["q", "q"], ["T p", "r"], ["n", "n"])


def test_what_is_not_used_is_said(lines, capsys):
    infer_layout(open_source(lines(flag(0, pos_scores=[0.5], prompt="Represent this"))))
    assert re.search("pos_scores, prompt .*not used", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([flag(0), flag(1, positives=0)], r"line 2: pos is \[\]"),
        ([flag(0), {**flag(1), "pos": "p"}], "line 2: pos is 'p'"),
        ([flag(0), {**flag(1), "pos": [{"title": "T"}]}], "line 2: pos is {'title': 'T'}, an object"),
        ([flag(0), {**flag(1), "neg": [None, "n"]}], "line 2: neg_1 is null"),
    ],
)
def test_what_is_missing_is_named(lines, rows, words):
    with pytest.raises(DataError, match=words):
        read_table(lines(*rows))


@pytest.mark.slow
def test_they_are_checked_scored_and_trained_on(lines, tmp_path, tiny_bert, invoke):
    path = lines(*(flag(number, positives=1 + number % 2) for number in range(16)))
    assert "triplets" in invoke("data", "check", path, check=0).stdout
    scores = json.loads(invoke("evaluate", path, "-m", tiny_bert, "--json", "-", check=0).stdout)["results"]
    assert (scores["t.jsonl"]["kind"], scores["t.jsonl"]["items"]) == ("triplets", 24)
    options = ("--batch-size", 4, "--max-steps", 1, "--json", "-")
    done = invoke(
        "train", "--method", "simcse", "-m", tiny_bert, "--data", path, "-o", tmp_path / "m", *options, check=0
    )
    assert json.loads(done.stdout)["protocol"]["data"][0]["sentences"] == 24
