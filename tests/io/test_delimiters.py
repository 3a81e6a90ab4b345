"""What separates csv is told from the whole file, or typed."""

import json

import pytest

from sentcli.io.formats import record_batches, records
from sentcli.io.sources import Cursor, open_source

SEPARATED = {
    "hint": ("sep=;\nid;text\n1;the cat\n", [(3, {"id": "1", "text": "the cat"})]),
    "hint of another sign": ("sep=#\r\nid#text\r\n1#a;b\r\n", [(3, {"id": "1", "text": "a;b"})]),
    "bars": ("id|text\n1|the cat, it sat\n", [(2, {"id": "1", "text": "the cat, it sat"})]),
    "bars in a header with commas": (
        "id|a, b\n1|x\n2|y, z\n", [(2, {"id": "1", "a, b": "x"}), (3, {"id": "2", "a, b": "y, z"})]),
    "commas in a header with bars": (
        "id,a|b\n1,x\n\n2,y|z\n", [(2, {"id": "1", "a|b": "x"}), (4, {"id": "2", "a|b": "y|z"})]),
    "semicolons in a header with a quoted comma": ('id;"a,b"\n1;x\n', [(2, {"id": "1", "a,b": "x"})]),
    "one column": ("text\nthe cat; it sat\n", [(2, {"text": "the cat; it sat"})]),
}  # fmt: skip


@pytest.mark.parametrize("name", SEPARATED)
def test_what_separates_csv_is_what_all_rows_agree_on(tmp_path, name):
    content, expected = SEPARATED[name]
    file = tmp_path / "a.csv"
    file.write_text(content, newline="")
    assert list(records(open_source(str(file)))) == expected
    cursor = Cursor()
    for _ in record_batches(open_source(str(file)), cursor):
        pass
    assert list(record_batches(open_source(str(file)), cursor)) == []


@pytest.mark.parametrize("content", ["id,text;x\n1,a;b\n", "id,text;x\n1\n1;b\n"], ids=["both", "neither"])
def test_csv_whose_rows_do_not_tell_what_separates_them_is_refused_with_what_to_type(
    tmp_path, content, invoke, tiny_bert
):
    file = tmp_path / "a.csv"
    file.write_text(content)
    call = ("encode", file, "-m", tiny_bert, "-o", tmp_path / "out.jsonl")
    failed = invoke(*call, check=2)
    assert "a.csv, line 1" in failed.stderr and "--delimiter ';'" in failed.stderr and "sep=;" in failed.stderr
    if "1,a" in content:
        invoke(*call, "--delimiter", ";", "--text-field", "x", check=0)
        assert json.loads((tmp_path / "out.jsonl").read_text())["text"] == "b"
        file.write_text("sep=;\n" + content)
        assert [record["x"] for _, record in records(open_source(str(file)))] == ["b"]


def test_a_delimiter_is_one_sign_and_goes_with_csv(tmp_path, invoke, tiny_bert):
    pytest.importorskip("faiss")
    (tmp_path / "a.csv").write_text("id\ttext, all\n1\tthe cat\n")
    call = ("index", tmp_path / "a.csv", "-m", tiny_bert, "-o", tmp_path / "i", "--type", "flat")
    invoke(*call, "--delimiter", "tab", "--text-field", "text, all", check=0)
    for sign in ("", ";;", '"'):
        assert "--delimiter" in invoke(*call, "--overwrite", "--delimiter", sign, check=2).stderr
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    failed = invoke("encode", tmp_path / "a.jsonl", "-m", tiny_bert, "-o", "-", "--delimiter", ";", check=2)
    assert "--delimiter" in failed.stderr
