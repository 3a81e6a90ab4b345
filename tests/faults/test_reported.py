"""Whatever JSON a command writes, `report` shows its scores as a page, or says by name that it has none."""

import json
from pathlib import Path

import pytest

from sentcli.cli.app import Sentcli
from sentcli.evaluation.score_files import SCORING

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

NOUNS = "cat dog bird fish man woman child river house tree mat".split()
COMMANDS = {
    "encode": ["encode texts.txt -m M -o v"],
    "index": ["index texts.txt -m M -o v --type flat"],
    "migrate": ["encode texts.txt -m M -o v", "migrate v -m M --max-length 12 --anyway"],
    "retrieve, hits": ["retrieve --corpus texts.txt -m M --query cat"],
    "retrieve, a set": ["retrieve --beir beir -m M"],
    "retrieve, ways": ["retrieve --beir beir -m M --search dense,bm25,rrf"],
    "retrieve, in domain": ["retrieve --in-domain scored.tsv -m M"],
    "evaluate, tables": ["evaluate binary.tsv scored.tsv pairs.tsv triplets.tsv labels.tsv beir -m M"],
    "evaluate, two models": ["evaluate binary.tsv -m M -m N"],
    "evaluate, a threshold": ["evaluate binary.tsv -m M --threshold 0.8"],
    "evaluate, none reached": ["evaluate noise.tsv -m M --threshold 0.99"],
    "evaluate, slices": ["evaluate beir -m M --by language"],
    "evaluate, variants": ["evaluate beir -m M --variants"],
    "evaluate, a gate": ["evaluate beir -m M --save-baseline b.json", "evaluate beir -m N --baseline b.json"],
    "analyze": ["analyze duplicates texts.txt -m M -o a"],
    "data": ["data check pairs.tsv"],
    "data make-set": ["data make-set docs.jsonl -o set"],
    "data mine": ["data mine beir -m M -o mined.jsonl --ranks 1-60 --below 1 --negatives 1 --search bm25"],
    "report": ["evaluate scored.tsv -m M --json first.json", "report first.json -o first.md"],
    "doctor": ["doctor"],
    "export": ["export -m M -o e"],
    "train": ["train --method simcse -m M --data texts.txt -o run --max-steps 2 --batch-size 8"],
    "adapt": ["adapt docs.jsonl -m M -o adapted --budget 10m"],
    "sts-eval": ["sts-eval -m M --data DATA --tasks STSBenchmark"],
    "senteval": ["senteval -m M --data DATA --tasks MRPC --protocol fast"],
}
"""By verb, and what of it: the commands, of which the last one writes JSON."""
SLOW = {"adapt", "export", "senteval", "evaluate, variants"}


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Small data of each kind."""
    monkeypatch.chdir(tmp_path)

    def table(name, head, rows):
        (tmp_path / name).write_text("\n".join("\t".join(map(str, row)) for row in [head, *rows]) + "\n")

    def lines(name, rows):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    numbers = range(120)
    nouns = [NOUNS[number % len(NOUNS)] for number in numbers]
    firsts = [f"the {nouns[n]} number {n} sat on a mat" for n in numbers]
    seconds = [f"a {nouns[n - n % 2]} sat near the river {n}" for n in numbers]
    table("binary.tsv", ["sentence1", "sentence2", "label"], [(firsts[n], seconds[n], n % 2) for n in numbers])
    table("noise.tsv", ["sentence1", "sentence2", "label"], [(firsts[n], seconds[n], n // 2 % 2) for n in numbers])
    table("scored.tsv", ["sentence1", "sentence2", "score"], [(firsts[n], seconds[n], n % 6) for n in numbers])
    table("pairs.tsv", ["anchor", "positive"], zip(firsts, seconds, strict=True))
    thirds = [f"a tree {n}" for n in numbers]
    table("triplets.tsv", ["anchor", "positive", "negative"], zip(firsts, seconds, thirds, strict=True))
    table("labels.tsv", ["text", "label"], [(firsts[n], "xy"[n % 2]) for n in numbers])
    (tmp_path / "texts.txt").write_text("\n".join(firsts) + "\n")
    lines("docs.jsonl", [{"id": f"d{n}", "title": firsts[n], "text": seconds[n] + " " + thirds[n]} for n in numbers])
    lines("beir/corpus.jsonl", [{"_id": f"d{n}", "text": seconds[n]} for n in numbers])
    lines("beir/queries.jsonl", [{"_id": f"q{n}", "text": firsts[n], "language": "ab"[n % 2]} for n in range(60)])
    (tmp_path / "beir" / "qrels").mkdir()
    table("beir/qrels/test.tsv", ["query-id", "corpus-id", "score"], [(f"q{n}", f"d{n}", 1) for n in range(60)])


def test_each_verb_is_tried():
    assert {name.split(",")[0].split()[0] for name in COMMANDS} == set(Sentcli.verbs)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in COMMANDS])
def test_what_a_command_writes_is_shown_or_refused_by_name(name, inputs, tiny_bert, tiny_roberta, invoke, request):
    names = {"M": tiny_bert, "N": tiny_roberta}
    if any("DATA" in command for command in COMMANDS[name]):
        names["DATA"] = request.getfixturevalue("data") / "senteval"
    *before, last = COMMANDS[name]
    for command in before:
        invoke(*[names.get(word, word) for word in command.split()], check=0)
    done = invoke(*[names.get(word, word) for word in last.split()], "--json", "r.json")
    assert done.exit_code in (0, 3), done.stderr
    shown = invoke("report", "r.json", "-o", "r.md", "-o", "r.html")
    if "hits" in name or name.split(",")[0] not in SCORING:
        assert shown.exit_code == 2 and "r.json" in shown.stderr
        return
    assert shown.exit_code == 0, shown.stderr
    text = Path("r.md").read_text("utf-8")
    assert "{'" not in text and "[{" not in text
    assert ("are right" in text) == ("threshold" in last)
