"""`retrieve --corpus`: a directory answers as its file does, and what is shown cannot touch the terminal."""

import io
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from sentcli.errors import InputError
from sentcli.pages.hits import HitsGrid
from sentcli.search.corpus import Hit
from sentcli.search.exact import unit_length
from sentcli.search.rows import Document
from sentcli.search.searcher import searcher_over
from tests.search.conftest import clustered
from tests.tolerance import Near

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")


ROWS = [
    {"_id": "d1", "text": "the cat sat on the mat"},
    {"_id": "d2", "text": "a red fish swam"},
    {"_id": "d3", "text": "the old man sees a bird"},
    {"_id": "d4", "text": ""},
    {"_id": "d5", "text": "blue river and tree"},
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def folder(corpus, tmp_path, invoke, tiny_bert):
    """`corpus`, encoded in shards of two."""
    invoke("encode", corpus, "-o", tmp_path / "vectors", "-m", tiny_bert, "--shard-rows", 2, check=0)
    return tmp_path / "vectors"


def hits(result):
    """The hits of every query in --json -, scores rounded."""
    return [
        [(hit["rank"], hit["id"], Near(hit["score"]), hit["text"]) for hit in answer["hits"]]
        for answer in json.loads(result.stdout)["results"]
    ]


def test_a_directory_gives_the_hits_of_its_file(invoke, corpus, folder, tiny_bert):
    options = ("--query", "the cat", "--query", "red fish", "--top-k", 3, "-m", tiny_bert, "--json", "-")
    from_file = hits(invoke("retrieve", "--corpus", corpus, *options, check=0))
    assert hits(invoke("retrieve", "--corpus", folder, *options, check=0)) == from_file
    assert [[hit[0] for hit in answer] for answer in from_file] == [[1, 2, 3]] * 2


@pytest.mark.slow
def test_several_ways_stand_side_by_side(invoke, corpus, folder, tiny_bert):
    options = ("--query", "the cat", "--query", "red fish", "--top-k", 3, "-m", tiny_bert)
    ways = ["dense", "bm25", "rrf"]
    for place in (corpus, folder):
        together = invoke("retrieve", "--corpus", place, *options, "--search", ",".join(ways), "--json", "-", check=0)
        results = json.loads(together.stdout)["results"]
        assert [(result["query"], result["search"]) for result in results] == [
            (query, way) for query in ("the cat", "red fish") for way in ways
        ]
        for number, way in enumerate(ways):
            of_way = options[:-2] if way == "bm25" else options
            alone = invoke("retrieve", "--corpus", place, *of_way, "--search", way, "--json", "-", check=0)
            assert hits(together)[number :: len(ways)] == hits(alone)
        shown = invoke("retrieve", "--corpus", place, *options, "--search", "dense,bm25", check=0).stdout
        assert shown.count("dense: id") == shown.count("bm25: id") == 2


def test_rows_like_a_row(invoke, corpus, folder, tiny_bert):
    text = ROWS[0]["text"]
    asked = ("-m", tiny_bert, "--top-k", 2, "--json", "-")
    by_text = json.loads(
        invoke("retrieve", "--corpus", corpus, "--query", text, *asked[:-3], 3, *asked[-2:], check=0).stdout
    )
    expected = [hit["id"] for hit in by_text["results"][0]["hits"] if hit["id"] != "d1"][:2]
    for place in (corpus, folder):
        (result,) = json.loads(invoke("retrieve", "--corpus", place, "--like", "d1", *asked, check=0).stdout)["results"]
        assert (result["id"], result["query"]) == ("d1", text)
        assert [(hit["rank"], hit["id"]) for hit in result["hits"]] == [*enumerate(expected, 1)]
        assert "d9" in invoke("retrieve", "--corpus", place, "--like", "d9", *asked, check=2).stderr


def test_a_file_under_a_condition_encodes_only_the_rows_that_meet_it(invoke, tmp_path, tiny_bert, monkeypatch):
    from sentcli.encoder.sentence_encoder import SentenceEncoder

    path = tmp_path / "rows.jsonl"
    rows = [{**row, "number": number, "text": f"{row['text']} {tmp_path.name}"} for number, row in enumerate(ROWS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    encoded, original = [], SentenceEncoder.encode_distinct

    def recorded(encoder, texts, *arguments, **options):
        encoded.extend(texts)
        return original(encoder, texts, *arguments, **options)

    monkeypatch.setattr(SentenceEncoder, "encode_distinct", recorded)
    asked = ("retrieve", "--corpus", path, "-m", tiny_bert, "--query", "cat", "--json", "-")
    found = hits(invoke(*asked, "--where", "number in (1, 4)", check=0))
    assert {text for text in encoded if tmp_path.name in text} == {rows[1]["text"], rows[4]["text"]}
    assert {hit[1] for hit in found[0]} == {"d2", "d5"}
    encoded.clear()
    everything = hits(invoke(*asked, check=0))  # vectors that the cache has are not made again
    assert {text for text in encoded if tmp_path.name in text} == {rows[i]["text"] for i in (0, 2, 3)}
    scores = {hit[1]: hit[2] for hit in everything[0]}
    assert all(scores[hit[1]] == hit[2] for hit in found[0])


@pytest.mark.slow
def test_at_a_terminal_queries_are_asked_for(folder, tiny_bert):
    import pty

    here, there = pty.openpty()
    command = [sys.executable, "-m", "sentcli", "retrieve", "--corpus", str(folder), "-m", str(tiny_bert)]
    running = subprocess.Popen([*command, "--top-k", "1"], stdin=there, stderr=there, stdout=subprocess.PIPE, text=True)
    os.write(here, b"the cat sat on the mat\na red fish swam\n\n")
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 0
    assert "d1" in said and "d2" in said


def test_hits_are_those_of_the_vectors(invoke, corpus, tiny_bert):
    from sentcli import SentenceEncoder

    encoder = SentenceEncoder.load(tiny_bert)
    query = encoder.encode(["the cat sat"])
    cosines = (unit_length(query) @ unit_length(encoder.encode([row["text"] for row in ROWS])).T)[0]
    options = ("--query", "the cat sat", "--top-k", 100, "-m", tiny_bert, "--json", "-")
    answer = json.loads(invoke("retrieve", "--corpus", corpus, *options, check=0).stdout)["results"][0]["hits"]
    assert [hit["id"] for hit in answer] == [ROWS[i]["_id"] for i in np.argsort(-cosines)]
    assert [hit["score"] for hit in answer] == pytest.approx(sorted(cosines.tolist(), reverse=True), abs=1e-5)
    assert [hit["rank"] for hit in answer] == [1, 2, 3, 4, 5]


def test_a_query_that_is_a_document_finds_it_first(invoke, corpus, tiny_bert):
    done = invoke("retrieve", "--corpus", corpus, "--query", ROWS[2]["text"], "-m", tiny_bert, "--json", "-", check=0)
    assert hits(done)[0][0] == (1, "d3", 1.0, ROWS[2]["text"])
    assert len(hits(done)[0]) == 5, "fewer documents than the ten asked for: all of them"


@pytest.mark.slow
@pytest.mark.parametrize("change", [["--pooling", "cls"], ["--max-length", "10"], "another model"])
def test_a_directory_of_another_model_is_refused(invoke, folder, tiny_bert, tiny_roberta, change):
    model = tiny_roberta if change == "another model" else tiny_bert
    options = [] if change == "another model" else change
    failed = invoke("retrieve", "--corpus", folder, "--query", "x", "-m", model, *options, check=2)
    assert re.search(f"{folder} .*{tiny_bert} .*mean.*32.* {model}", failed.stderr)


def test_an_unfinished_directory_is_refused(invoke, folder, tiny_bert):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["rows_done"] -= manifest["shards"].pop()["count"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    failed = invoke("retrieve", "--corpus", folder, "--query", "x", "-m", tiny_bert, check=2)
    assert re.search(f"{folder} .*4 .*5 .*--resume", failed.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vectors-00001.npy", "rows-00001.parquet"])
@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_damaged_shard_is_named(invoke, folder, tiny_bert, name, damage):
    path = folder / name
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:60])
    else:
        path.unlink()
    failed = invoke("retrieve", "--corpus", folder, "--query", "x", "-m", tiny_bert, check=2)
    assert f"{path}: " in failed.stderr
    assert f"sentcli encode --check {folder}" in failed.stderr and "--overwrite" not in failed.stderr


def test_shards_that_do_not_belong_together_are_refused(folder):
    from sentcli.search.vector_directory import VectorDirectory

    shutil.copy(folder / "vectors-00002.npy", folder / "vectors-00001.npy")
    with pytest.raises(InputError, match=r"vectors-00001.npy.*1.*32.*2"):
        _ = VectorDirectory.open(folder).blocks
    shutil.copy(folder / "rows-00002.parquet", folder / "rows-00001.parquet")
    with pytest.raises(InputError, match=r"rows-00001\.parquet.*1.*2"):
        _ = VectorDirectory.open(folder).rows


def test_a_directory_without_rows_finds_nothing(invoke, tmp_path, tiny_bert):
    (tmp_path / "a.jsonl").write_text('{"text": null}\n')
    invoke("encode", tmp_path / "a.jsonl", "-o", tmp_path / "v", "-m", tiny_bert, "--on-null", "skip", check=0)
    done = invoke("retrieve", "--corpus", tmp_path / "v", "--query", "x", "-m", tiny_bert, "--json", "-", check=0)
    assert hits(done) == [[]]


@pytest.mark.parametrize(
    ("content", "words"),
    [("", ""), ('{"body": "x"}\n', ", line 1: .*'text'.*body.*--text-field")],
)
def test_a_corpus_without_texts_is_refused(invoke, tmp_path, tiny_bert, content, words):
    (tmp_path / "c.jsonl").write_text(content)
    failed = invoke("retrieve", "--corpus", tmp_path / "c.jsonl", "--query", "x", "-m", tiny_bert, check=2)
    assert re.search(f"{tmp_path / 'c.jsonl'}.*{words}", failed.stderr)


def test_a_folder_that_encode_did_not_write_is_refused(invoke, tmp_path, tiny_bert):
    failed = invoke("retrieve", "--corpus", tmp_path, "--query", "x", "-m", tiny_bert, check=2)
    assert re.search(rf"{tmp_path} .*'sentcli encode'.*manifest\.json", failed.stderr)


@pytest.mark.slow
def test_what_a_document_says_is_shown_and_not_obeyed(run, tmp_path, tiny_bert):
    text = "[bold]cat[/bold] \x1b[2J\x1b[31mred \x07[link=http://x]\u202e[/nothing]"
    (tmp_path / "c.jsonl").write_text(json.dumps({"id": "[i]1\x1b[0m", "text": text}) + "\n")
    arguments = ("retrieve", "--corpus", tmp_path / "c.jsonl", "--query", "[red]q\x1b[2J", "-m", tiny_bert)
    done = run(*arguments, check=0, env={"FORCE_COLOR": "1"})
    for shown in ("[bold]cat[/bold]", "\N{REPLACEMENT CHARACTER}[2J", "[link=http://x]", "[i]1", "[red]q"):
        assert shown in done.stdout
    for obeyed in ("\x1b[2J", "\x1b[31m", "\x07", "\u202e"):
        assert obeyed not in done.stdout
    found = json.loads(run(*arguments, "--json", "-", check=0).stdout)
    assert found["results"][0]["query"] == "[red]q\x1b[2J"
    assert found["results"][0]["hits"][0]["text"] == text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--beir.*--in-domain.*--corpus"),
        (["--corpus", "c"], "--corpus .*--query.*--queries"),
        (["--corpus", "c", "--beir", "b", "--query", "x"], "--beir.*--corpus"),
        (["--beir", "b", "--query", "x"], "--query.*--corpus"),
    ],
)
def test_wrong_combinations_are_told(invoke, tiny_bert, arguments, words):
    assert re.search(words, invoke("retrieve", "-m", tiny_bert, *arguments, check=2).stderr)


def test_a_long_text_is_shortened_in_the_table_and_whole_in_the_json(run, tiny_bert, tmp_path):
    import json

    text = "the cat sat " * 60
    (tmp_path / "a.txt").write_text(text + "\n")
    call = ["retrieve", "-m", tiny_bert, "--corpus", tmp_path / "a.txt", "--query", "cat"]
    done = run(*call, "--json", tmp_path / "hits.json", check=0)
    assert "[...]" in done.stdout
    hit = json.loads((tmp_path / "hits.json").read_text())["results"][0]["hits"][0]
    assert hit["text"] == text


def test_an_index_that_finds_fewer_rows_than_asked_for_says_so(capsys):
    from sentcli.search.local_corpus import LocalCorpus
    from sentcli.search.rows import Document, RowsInMemory

    vectors = clustered(2000, 16)
    found = searcher_over("ivf", vectors)
    found.set({"nprobe": 1})
    rows = RowsInMemory([Document(str(number), "text", {}) for number in range(2000)], False, {})
    corpus = LocalCorpus("corpus", rows, searcher=found)
    assert (corpus.nearest(vectors[:3], 5).positions >= 0).all() and capsys.readouterr().err == ""
    assert (corpus.nearest(vectors[:3], 1000).positions < 0).any()
    said = capsys.readouterr().err
    assert "ivf" in said and "nprobe 1" in said and "fewer than 1,000 rows for 3 of 3 queries" in said


def test_a_text_that_several_hits_share_is_shown_once_with_all_their_ids(invoke, tiny_bert, tmp_path):
    texts = ["the big cat", "the big cat", "a small dog"]
    rows = ({"id": f"key{i}", "text": text} for i, text in enumerate(texts))
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call = ["retrieve", "-m", tiny_bert, "--corpus", tmp_path / "c.jsonl", "--query", "cats"]
    shown = invoke(*call, check=0).stdout
    assert shown.count(texts[0]) == 1 and all(f"key{i}" in shown for i in range(3))
    (found,) = json.loads(invoke(*call, "--json", "-", check=0).stdout)["results"]
    assert sorted(hit["text"] for hit in found["hits"]) == sorted(texts)


def test_hits_of_a_frame_have_its_labels_and_the_values_of_its_columns(tiny_bert):
    import pandas as pd

    import sentcli

    days = pd.to_datetime(["2024-01-05", "2024-02-06", "2024-03-07"])
    frame = pd.DataFrame({"text": ["the cat sat", "a red fish", "an old man"], "day": days}, index=["x", "y", "z"])
    found = sentcli.retrieve(corpus=frame, query="a red fish", model=str(tiny_bert), quiet=True).to_frame()
    assert sorted(found["id"]) == ["x", "y", "z"] and found["id"][0] == "y"
    assert pd.Timestamp(found["columns"][0]["day"]) == days[1] and not isinstance(found["columns"][0]["day"], str)
    named = sentcli.retrieve(corpus=frame.assign(id=["1", "2", "0"]), query="a red fish", model=str(tiny_bert))
    assert named.to_frame()["id"][0] == "2"


@pytest.mark.parametrize(("width", "grids"), [(70, 3), (200, 1)])
def test_ways_stand_one_below_the_other_on_a_narrow_screen(width, grids):
    row = Document("d" * 20, "the cat sat on the mat beside the river", {})
    hits = {mode: [Hit(1, 0.5, row)] for mode in ("dense", "bm25", "rrf")}
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(HitsGrid("cat", hits))
    shown = console.export_text()
    assert shown.count("rank") == grids and shown.count("the cat sat on the") == 3
