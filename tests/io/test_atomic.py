"""Outputs are written whole or not at all, and no command deletes what it has not written."""

import json
import re

import pytest

from sentcli.errors import InputError
from sentcli.io.atomic import OwnFiles, check_output

NOUNS = "cat dog bird fish tree house river mat man woman child".split()
LINES = [f"the {noun} sat on the mat near the {noun}" for noun in NOUNS]
TITLES = [f"where the {noun} of the {NOUNS[number - 1]} sat" for number, noun in enumerate(NOUNS)]
ROWS = [{"id": title, "title": title, "text": line} for title, line in zip(TITLES, LINES, strict=True)]
COMMANDS = {
    "train": "train -m M --data texts.txt --method simcse --max-steps 1 --batch-size 4 --max-length 16",
    "train, two seeds": "train -m M --data texts.txt --method simcse --max-steps 1 --batch-size 4 --seeds 1,2",
    "encode": "encode texts.txt -m M",
    "index": "index texts.txt -m M --type flat",
    "export": "export -m M --no-verify",
    "adapt": "adapt rows.jsonl -m M",
    "data make-set": "data make-set rows.jsonl",
    "analyze": "analyze duplicates texts.txt -m M --least 0.99",
}
NOT_RUN = ("adapt",)
"""Commands that take minutes: they are tried on folders that hold the files of their outputs alone."""


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(LINES))
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return tmp_path


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def call(invoke, name, model):
    words = [str(model) if word == "M" else word for word in COMMANDS[name].split()]
    return invoke(*words, "-o", "out", "--overwrite")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_of_others_is_not_replaced(name, work, tiny_bert, invoke):
    (work / "out").mkdir()
    (work / "out" / "letter.txt").write_text("to a friend")
    done = call(invoke, name, tiny_bert)
    assert (work / "out" / "letter.txt").read_text() == "to a friend"
    if done.exit_code:
        assert done.exit_code == 2 and "out holds" in done.stderr
        assert set(files(work / "out")) == {"letter.txt"}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_of_others_among_those_of_a_command_stays(name, work, tiny_bert, invoke):
    out = work / "out"
    if name in NOT_RUN:
        out.mkdir()
        (out / "adapt.json").write_text("{}")
    else:
        assert call(invoke, name, tiny_bert).exit_code == 0
    for stranger in ("letter.txt", "letters/config.json", ".git/config"):
        (out / stranger).parent.mkdir(exist_ok=True)
        (out / stranger).write_text("to a friend")
        before = files(out)
        done = call(invoke, name, tiny_bert)
        assert (out / stranger).read_text() == "to a friend"
        if done.exit_code:
            assert done.exit_code == 2 and stranger in re.sub(r"\s+", "", done.stderr)
            assert files(out) == before
        (out / stranger).unlink()
    if name not in NOT_RUN:
        assert call(invoke, name, tiny_bert).exit_code == 0  # its own output it replaces


def test_what_belongs_to_an_output(tmp_path):
    own = OwnFiles(("corpus.jsonl", "qrels/test.tsv", "[0-9]_*"), markers=("corpus.jsonl",))
    for name in ("corpus.jsonl", "qrels/test.tsv", "1_Pooling/config.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    own.refuse_others(tmp_path)
    (tmp_path / "qrels" / "dev.tsv").touch()
    with pytest.raises(InputError, match=r"qrels.dev\.tsv"):
        check_output(tmp_path, overwrite=True, folder=True, own=own)
    (tmp_path / "qrels" / "dev.tsv").unlink()
    (tmp_path / "corpus.jsonl").unlink()
    with pytest.raises(InputError, match=r"corpus\.jsonl"):
        check_output(tmp_path, overwrite=True, folder=True, own=own)
