"""`index --to milvus:` and `retrieve --corpus milvus:`, on Milvus Lite: the hits of a directory, in a database."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.conftest import clustered, write_directory
from tests.search.test_conditions import CONDITIONS, TYPES, VALUES
from tests.verbs.test_retrieve_corpus import ROWS

pytest.importorskip("pymilvus", reason="Milvus comes with the extra sentcli[milvus]")
pytest.importorskip("milvus_lite", reason="Milvus comes with the extra sentcli[milvus]")
pytest.importorskip("milvus_lite.adapter.grpc.server", reason="Milvus comes with the extra sentcli[milvus]")
pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
from sentcli.io.blocks import Block
from sentcli.search.condition_reader import parse_condition
from sentcli.stores.milvus import client as milvus_client
from sentcli.stores.milvus import collection as milvus
from sentcli.stores.milvus.rows import filter_of
from sentcli.stores.record import CollectionRecord, fields_of
from tests.examples import examples
from tests.tolerance import rounding

pytestmark = pytest.mark.usefixtures("soon_indexed")


@pytest.fixture
def place(tmp_path):
    """The options that name a collection."""
    return f"milvus:{tmp_path / 'rows.db'}", "--collection", "rows"


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [
        {**row, "rating": number % 5, "unit price": number / 2, "added": f"2024-01-{number + 1:02d}"}
        for number, row in enumerate(ROWS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def write(invoke, place):
    """A function that writes a corpus into the collection and returns the results."""

    def call(corpus, *options, check=0):
        done = invoke("index", corpus, "--to", *place, *options, "--json", "-", check=check)
        return json.loads(done.stdout)["results"] if check == 0 else done.stderr

    return call


def hits(done):
    return [[(hit["id"], hit["text"]) for hit in result["hits"]] for result in json.loads(done.stdout)["results"]]


def scores(done):
    return [[hit["score"] for hit in result["hits"]] for result in json.loads(done.stdout)["results"]]


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("source", ["texts", "directory", "corpus.parquet"])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_dense_hits_are_those_of_the_directory(invoke, write, corpus, place, tiny_bert, tmp_path, source, similarity):
    path, model = corpus, ("-m", tiny_bert)
    if source != "texts":
        path, model = tmp_path / source, ()
        invoke("encode", corpus, "-o", path, "-m", tiny_bert, check=0)
    assert write(path, *model, "--similarity", similarity)["written"] == len(ROWS)
    asked = ("--query", "the cat", "--query", "red fish", "--top-k", 4, "--json", "-", "--similarity", similarity)
    expected = invoke("retrieve", "--corpus", corpus, *asked, "-m", tiny_bert, check=0)
    found = invoke("retrieve", "--corpus", *place, *asked, check=0)
    assert hits(found) == hits(expected)
    assert np.allclose(scores(found), scores(expected), atol=1e-5)
    columns = json.loads(found.stdout)["results"][0]["hits"][0]["columns"]
    assert set(columns) == {"rating", "unit price", "added"}


def test_vectors_that_were_cut_are_searched_by_cut_queries(invoke, write, corpus, place, tiny_bert, tmp_path):
    invoke("encode", corpus, "-o", tmp_path / "cut", "-m", tiny_bert, "--truncate-dim", 8, check=0)
    write(tmp_path / "cut")
    asked = ("--query", "the cat", "--top-k", 4, "--json", "-")
    expected = invoke("retrieve", "--corpus", tmp_path / "cut", *asked, check=0)
    found = invoke("retrieve", "--corpus", *place, *asked, check=0)
    assert hits(found) == hits(expected)
    assert np.allclose(scores(found), scores(expected), atol=1e-5)


@pytest.mark.slow
def test_words_and_fusion(invoke, write, corpus, place, tiny_bert):
    write(corpus, "-m", tiny_bert)
    asked = ("--query", ROWS[0]["text"], "--json", "-")
    by_words = invoke("retrieve", "--corpus", *place, *asked, "--search", "bm25", check=0)
    assert hits(by_words)[0][0][0] == ROWS[0]["_id"] and scores(by_words)[0][0] > 0
    dense = invoke("retrieve", "--corpus", *place, *asked, check=0)
    fused = invoke("retrieve", "--corpus", *place, *asked, "--search", "rrf", check=0)
    ranks = [{key: rank for rank, (key, _) in enumerate(hits(done)[0], 1)} for done in (dense, by_words)]
    expected = {key: sum(1 / (60 + rank[key]) for rank in ranks if key in rank) for key in ranks[0]}
    found = dict(zip([key for key, _ in hits(fused)[0]], scores(fused)[0], strict=True))
    assert found == pytest.approx(expected, abs=rounding(32))


@pytest.mark.slow
def test_only_what_changed_is_written_and_prune_deletes(invoke, write, corpus, place, tiny_bert):
    write(corpus, "-m", tiny_bert)
    again = write(corpus, "-m", tiny_bert)
    assert (again["written"], again["unchanged"]) == (0, len(ROWS))
    lines = corpus.read_text().splitlines()
    changed = json.loads(lines[1]) | {"rating": 99}
    corpus.write_text(
        "\n".join(
            [
                lines[0],
                json.dumps(changed),
                '{"_id": "new", "text": "a new cat", "rating": 1, "unit price": 1.5, "added": "2024-02-01"}',
            ]
        )
    )
    kept = write(corpus, "-m", tiny_bert)
    assert (kept["written"], kept["unchanged"], kept["deleted"], kept["rows"]) == (2, 1, 0, len(ROWS) + 1)
    pruned = write(corpus, "-m", tiny_bert, "--prune")
    assert (pruned["written"], pruned["deleted"], pruned["rows"]) == (0, len(ROWS) - 2, 3)
    where = ("--where", "rating = 99", "--query", "cat", "--json", "-")
    assert [key for key, _ in hits(invoke("retrieve", "--corpus", *place, *where, check=0))[0]] == [changed["_id"]]


@pytest.mark.slow
def test_conditions_and_counts(invoke, write, corpus, place, tiny_bert):
    write(corpus, "-m", tiny_bert)
    for condition in (
        'rating >= 2 and "unit price" < 2.5',
        "added between '2024-01-02' and '2024-01-03'",
        "id in ('d1', 'd9')",
    ):
        asked = ("--query", "cat", "--json", "-", "--where", condition)
        expected = invoke("retrieve", "--corpus", corpus, *asked, "-m", tiny_bert, check=0)
        found = invoke("retrieve", "--corpus", *place, *asked, check=0)
        assert hits(found) == hits(expected) != [[]]
    asked = ("--count-by", "added", "--where", "rating <> 0", "--json", "-")
    counts = [
        json.loads(invoke("retrieve", "--corpus", where, *name, *asked, check=0).stdout)["counts"]
        for where, name in ((corpus, ()), (place[0], place[1:]))
    ]
    assert counts[0] == counts[1] and len(counts[0]["values"]) > 2
    failed = invoke("retrieve", "--corpus", *place, "--query", "x", "--where", "ratng > 3", check=2)
    assert re.search("'ratng'.*'rating'", failed.stderr)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A collection of rows with all kinds of values, and the same rows as a table."""
    random, rows = np.random.default_rng(0), 300
    examples = {
        "n": [None, *range(-3, 4)], "x": [None, -1.5, -0.0, 0.0, 0.5, 2.0], "ok": [None, True, False],
        "t": [None, "", "a", "b", "A", "ab", "it's", "é", "a\nb", "a.+ #b", "x\\", '"', "a\tb", "日本", "%", "_"],
        "day": [None, *map(np.datetime64, ["2023-12-31", "2024-01-01", "2024-02-29"])],
    }  # fmt: skip
    columns = {name: [values[i] for i in random.integers(0, len(values), rows)] for name, values in examples.items()}
    columns["day"] = [None if day is None else day.item() for day in columns["day"]]
    address = f"milvus:{tmp_path_factory.mktemp('many') / 'm.db'}"
    kinds = {"n": "int", "x": "float", "t": "text", "ok": "bool", "day": "date"}
    record = CollectionRecord(settings={"model": "m"}, dimension=4, similarity="cosine", columns=fields_of(kinds))
    ids = [f"r{i:03d}" for i in range(rows)]
    block = Block(ids, [f"text {i}" for i in range(rows)], columns)
    table = pa.table({"id": ids, **{name: pa.array(columns[name], TYPES[name]) for name in kinds}})
    with milvus_client.connect(address, to_write=True) as client:
        collection = milvus.MilvusCollection.create(client, address, "many", record, rows)
        collection.upsert(block, random.normal(size=(rows, 4)), ids, np.arange(rows))
        yield collection, table


@examples(200)
@given(
    condition=CONDITIONS
    | st.sampled_from(
        [
            "t = '\"'",
            "t = 'x\\'",
            "t like '%日%'",
            "t = '%'",
            "t in ('a\tb', '_')",
            "id is null",
            "id like 'r00%'",
            "id is not null and ok",
        ]
    )
)
def test_a_condition_means_the_same_in_milvus_and_in_arrow(many, condition):
    collection, table = many
    parsed = parse_condition(condition, {"id": pa.string(), **TYPES}, "c")
    met = set(np.array(table["id"].to_pylist())[parsed.matches(table)].tolist())
    written = filter_of(parsed.tree, collection.record.columns)
    assert {row["id"] for batch in collection.rows([], written) for row in batch} == met, written
    assert collection.count(written) == len(met)
    assert set(VALUES) <= set(collection.record.columns)


ODD = [
    "\x01 \x1b[0m",
    "\x7f\ttab\r",
    "it's",
    'say "no"',
    "C:\\temp\\new",
    "'] or id not in ['",
    "two\nlines",
    "{0}",
    "plain",
]


@pytest.mark.slow
def test_ids_may_hold_any_sign(invoke, write, place, tiny_bert, tmp_path):
    path = tmp_path / "odd.jsonl"
    rows = [json.dumps({"id": key, "text": f"the cat {i}"}) + "\n" for i, key in enumerate(ODD)]
    path.write_text("".join(rows))
    assert write(path, "-m", tiny_bert)["written"] == len(ODD)
    assert write(path, "-m", tiny_bert)["unchanged"] == len(ODD)
    found = invoke("retrieve", "--corpus", *place, "--query", "the cat", "-m", tiny_bert, "--json", "-", check=0)
    assert {key for key, _ in hits(found)[0]} == set(ODD)
    where = f"text = 'the cat 0' and id <> '{ODD[1]}'"
    named = invoke("retrieve", "--corpus", *place, "--count-by", "id", "--where", where, "--json", "-", check=0)
    assert json.loads(named.stdout)["counts"]["values"] == [{"value": ODD[0], "rows": 1}]
    path.write_text("".join(rows[4:]))
    pruned = write(path, "-m", tiny_bert, "--prune")
    assert (pruned["deleted"], pruned["rows"]) == (4, len(ODD) - 4)


def test_two_files_may_be_served_at_one_port(invoke, corpus, tiny_bert, tmp_path, monkeypatch):
    from milvus_lite.adapter.grpc import server

    real, ports = server.start_server_in_thread, []

    def started(data_dir, host, port):
        if ports:
            port = ports[0]
        done = real(data_dir=data_dir, host=host, port=port)
        ports.append(done[2])
        return done

    monkeypatch.setattr(server, "start_server_in_thread", started)
    plain = tmp_path / "plain.jsonl"
    plain.write_text('{"id": "a", "text": "the cat"}\n')
    for path, rows in ((corpus, len(ROWS)), (plain, 1)):
        place = (f"milvus:{tmp_path / path.stem}.db", "--collection", "rows")
        done = invoke("index", path, "--to", *place, "-m", tiny_bert, "--json", "-", check=0)
        assert json.loads(done.stdout)["results"]["rows"] == rows
    assert len(ports) > 1 and len(set(ports)) == 1


@pytest.mark.slow
def test_any_of_several_equal_vectors_counts_as_found(write, tmp_path):
    """By clusters, whose greatest effort compares all rows; a graph of copies may fall apart and find fewer."""
    write_directory(tmp_path / "d", np.repeat(clustered(60, 16), 50, axis=0))
    results = write(tmp_path / "d", "--type", "ivf", "--recall", "1")
    assert results["recall"]["chosen"]["recall"] == 1, (
        "all rows are compared, and which of fifty copies is found is all one"
    )
    again = write(tmp_path / "d", "--type", "ivf", "--recall", "1")
    assert again["written"] == 0 and again["recall"] == results["recall"], "it is not measured again"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hnsw", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("ivf", "sq8"))])
def test_an_index_is_measured_and_its_effort_kept(invoke, write, place, tmp_path, kind):
    write_directory(tmp_path / "d", clustered(3000, 16))
    results = write(tmp_path / "d", "--type", kind)
    recall = results["recall"]
    assert recall["k"] == 10 and recall["queries"] == 1000 and recall["measured_rows"] == 3000
    assert 0.5 < recall["chosen"]["recall"] <= 1
    with milvus_client.connect(place[0]) as client:
        record = milvus.MilvusCollection.open(client, place[0], "rows").record
    assert record.efforts == {recall["parameter"]: recall["chosen"]["effort"]}


def test_a_run_that_ends_before_it_writes_leaves_a_collection_that_answers(invoke, write, place, tmp_path, monkeypatch):
    write_directory(tmp_path / "d", clustered(30, 16))
    write(tmp_path / "d")
    shutil.rmtree(tmp_path / "d")
    write_directory(tmp_path / "d", clustered(40, 16)[::-1])

    def stopped(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("sentcli.stores.milvus.store.MilvusStore.lacking", stopped)
        assert invoke("index", tmp_path / "d", "--to", *place).exit_code == 130
    counted = invoke("retrieve", "--corpus", *place, "--count-by", "id", "--json", "-", check=0)
    assert len(json.loads(counted.stdout)["counts"]["values"]) == 30


@pytest.mark.slow
def test_a_killed_run_goes_on(invoke, write, place, tmp_path):
    vectors = clustered(20_000, 16)
    write_directory(tmp_path / "d", vectors, shard_rows=5000)
    command = [sys.executable, "-m", "sentcli", "index", str(tmp_path / "d"), "--to", *place, "-q"]
    running = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    wal = tmp_path / "rows.db"
    while time.monotonic() < deadline and sum(f.stat().st_size for f in wal.rglob("*") if f.is_file()) < 300_000:
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    for asked in (["--query", "x", "--search", "bm25"], ["--count-by", "id"]):
        said = invoke("retrieve", "--corpus", *place, *asked, check=2).stderr
        assert "unfinished" in said and "sentcli index" in said
    results = write(tmp_path / "d")
    assert results["rows"] == 20_000
    assert 0 < results["unchanged"] < 20_000 and results["written"] == 20_000 - results["unchanged"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "number"), [("upsert", 1), ("rename_collection", 1), ("rename_collection", 2), ("drop_collection", 1)]
)
def test_the_old_rows_answer_until_the_new_ones_are_complete(
    invoke, write, corpus, place, tiny_bert, monkeypatch, tmp_path, call, number
):
    """An error, which stands for a kill, at each step of --overwrite; then the same command again."""
    from pymilvus import MilvusClient

    write(corpus, "-m", tiny_bert)
    new = tmp_path / "new.jsonl"
    new.write_text("".join(json.dumps({"id": f"new{i}", "text": f"the new cat {i}"}) + "\n" for i in range(9)))
    old_ids, new_ids = {row["_id"] for row in ROWS}, {f"new{i}" for i in range(9)}
    calls, real = [], getattr(MilvusClient, call)

    def stopped(*arguments, **options):
        calls.append(arguments)
        if len(calls) == number:
            raise RuntimeError("stopped")
        return real(*arguments, **options)

    def ids():
        found = invoke("retrieve", "--corpus", *place, "--query", "cat", "-m", tiny_bert, "--json", "-", check=0)
        return {key for key, _ in hits(found)[0]}

    with monkeypatch.context() as patch:
        patch.setattr(MilvusClient, call, stopped)
        invoke("index", new, "--to", *place, "-m", tiny_bert, "--overwrite", check=1)
    assert 0 < len(ids() & (new_ids if call == "drop_collection" else old_ids)) == len(ids())
    assert write(new, "-m", tiny_bert, "--overwrite")["rows"] == 9
    assert ids() <= new_ids
    with milvus_client.connect(place[0]) as client:
        assert client.list_collections() == ["rows"]


@pytest.mark.parametrize("lost", ["manifest.json", "data"])
def test_a_file_that_has_lost_rows_does_not_answer(invoke, write, corpus, place, tiny_bert, tmp_path, lost):
    write(corpus, "-m", tiny_bert)
    (folder,) = (tmp_path / "rows.db" / "collections").iterdir()
    for file in folder.rglob("*"):
        if (file.name == lost or file.parent.name == lost) and file.is_file():
            file.unlink()
    for asked in (
        ["--query", "x", "-m", tiny_bert],
        ["--count-by", "rating"],
        ["--query", "x", "--where", "rating > 1"],
    ):
        invoke("retrieve", "--corpus", *place, *asked, check=2)
    assert write(corpus, "-m", tiny_bert)["rows"] == len(ROWS)
    invoke("retrieve", "--corpus", *place, "--query", "x", "-m", tiny_bert, check=0)


def test_an_id_beyond_the_limit_is_refused_before_anything_is_written(
    invoke, write, place, corpus, tiny_bert, tmp_path
):
    write(corpus, "-m", tiny_bert)
    long = tmp_path / "long.jsonl"
    long.write_text("".join(json.dumps({"id": key, "text": "the cat"}) + "\n" for key in ("a", "b" * 65_536)))
    assert "row 2" in write(long, "-m", tiny_bert, "--overwrite", check=2)
    invoke("retrieve", "--corpus", *place, "--query", "x", "-m", tiny_bert, check=0)


@pytest.mark.slow
def test_what_does_not_fit_the_collection_is_refused(invoke, write, corpus, place, tiny_bert, tiny_roberta, tmp_path):
    write(corpus, "-m", tiny_bert)
    message = write(corpus, "-m", tiny_roberta, check=2)
    assert re.search("model_fingerprint '.*' .*--overwrite", message)
    assert re.search("similarity 'cosine' .*'dot'", write(corpus, "-m", tiny_bert, "--similarity", "dot", check=2))
    assert re.search("kind 'flat' .*'hnsw'", write(corpus, "-m", tiny_bert, "--type", "hnsw", check=2))
    write_directory(tmp_path / "other", clustered(50, 8))
    assert re.search("dimension 32 .* 8 ", write(tmp_path / "other", check=2))
    failed = invoke("retrieve", "--corpus", *place, "--query", "x", "-m", tiny_roberta, check=2)
    assert re.search(f"rows.* {tiny_bert} .* {tiny_roberta}", failed.stderr)
    assert write(corpus, "-m", tiny_roberta, "--overwrite")["written"] == len(ROWS)


def test_wrong_usage_is_refused(invoke, corpus, place, tiny_bert, tmp_path):
    def said(*arguments):
        return invoke(*arguments, check=2).stderr

    index = ("index", corpus, "-m", tiny_bert)
    assert re.search("--to.*--collection", said(*index, "--to", place[0]))
    assert re.search("--to qdrant:x.*milvus:", said(*index, "--to", "qdrant:x", "--collection", "a"))
    assert re.search(rf"{tmp_path}/x.*\.db", said(*index, "--to", f"milvus:{tmp_path}/x", "--collection", "a"))
    assert "--collection a-b: " in said(*index, "--to", place[0], "--collection", "a-b")
    assert re.search("--prune.*--to", said("index", tmp_path, "--prune"))
    assert re.search("--to.*--output", said(*index, "--to", *place, "-o", tmp_path / "d"))
    for kind in ("IVF4,Flat", "ivfpq"):
        message = said(*index, "--to", *place, "--type", kind)
        assert re.search(f"--type .*'{kind}'.*flat, hnsw, ivf, sq8", message)
    assert "http://127.0.0.1:1" in said(*index, "--to", "milvus:http://127.0.0.1:1", "--collection", "a")
    secret = said(*index, "--to", "milvus:http://user:secret@127.0.0.1:1", "--collection", "a")
    assert "MILVUS_TOKEN" in secret and "secret" not in secret
    assert f"{tmp_path}/rows.db" in said("retrieve", "--corpus", *place, "--query", "x")
    assert re.search("--corpus.*--collection", said("retrieve", "--corpus", place[0], "--query", "x"))
    said("index", _repeated(tmp_path), "-m", tiny_bert, "--to", *place)
    invoke(*index, "--to", *place, check=0)
    message = said("retrieve", "--corpus", place[0], "--collection", "row", "--query", "x")
    assert re.search("'row'.*'rows'", message)
    assert "16,384" in said("retrieve", "--corpus", *place, "--query", "x", "--top-k", 20_000)
    message = said("retrieve", "--corpus", *place, "--query", "x", "--index", "hnsw")
    assert re.search("--collection.*--index", message)
    message = said("retrieve", "--in-domain", corpus, "--collection", "a")
    assert re.search("--collection.*--corpus", message)


def _repeated(folder):
    path = folder / "twice.jsonl"
    path.write_text('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n')
    return path


def test_long_texts_are_cut_and_said(invoke, place, tiny_bert, tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_text(
        json.dumps({"id": "long", "text": "é cat " * 20_000}) + "\n" + json.dumps({"id": "empty", "text": ""})
    )
    done = invoke("index", path, "-m", tiny_bert, "--to", *place, check=0)
    assert re.search("1 .*65,535", done.stderr)
    found = invoke("retrieve", "--corpus", *place, "--query", "cat", "--json", "-", check=0)
    assert {key for key, _ in hits(found)[0]} == {"long", "empty"}


@pytest.mark.slow
def test_an_open_file_is_refused(invoke, write, corpus, place, tiny_bert):
    write(corpus, "-m", tiny_bert)
    program = (
        "import sys, pymilvus; c = pymilvus.MilvusClient(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, place[0].removeprefix("milvus:")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout.readline() == b"open\n"
        failed = subprocess.run(
            [sys.executable, "-m", "sentcli", "retrieve", "--corpus", *place, "--count-by", "id"],
            capture_output=True,
            text=True,
        )
        assert failed.returncode == 2 and place[0] in failed.stderr
        assert "Traceback" not in failed.stderr
    finally:
        other.kill()
        other.wait()
    shutil.rmtree(place[0].removeprefix("milvus:"))


@pytest.mark.slow
def test_a_file_is_opened_behind_a_proxy_and_a_server_names_it(invoke, write, corpus, tiny_bert, tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://someone:hidden@127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert write(corpus, "-m", tiny_bert)["written"] == len(ROWS)
    monkeypatch.setattr(milvus_client, "CONNECT_SECONDS", 1)
    server = ("milvus:http://localhost:9", "--collection", "rows")
    said = invoke("retrieve", "--corpus", *server, "--query", "x", "--search", "bm25", check=2).stderr
    assert "https_proxy" in said and "no_proxy=localhost" in said and "hidden" not in said


@pytest.mark.slow
def test_the_home_is_where_it_is_and_a_place_is_absolute(invoke, corpus, tiny_bert, tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    place = ("milvus:~/new/kb.db", "--collection", "rows")
    invoke("index", corpus, "--to", *place, "-m", tiny_bert, check=0)
    assert (tmp_path / "home" / "new" / "kb.db").exists() and not list((tmp_path / "work").iterdir())
    found = invoke("retrieve", "--corpus", *place, "--count-by", "rating", "--json", "-", check=0)
    assert json.loads(found.stdout)["counts"]["values"]


def test_a_file_that_is_called_like_an_address_is_named_by_its_path(invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("retrieve", "--search", "bm25", "--query", "cat", "--corpus")
    (tmp_path / "milvus:rows.jsonl").write_text('{"_id": "a", "text": "a cat"}\n')
    refused = invoke(*words, "milvus:rows.jsonl", check=2)
    assert "--collection" in refused.stderr and " ./milvus:rows.jsonl" in " ".join(refused.stderr.split())
    invoke(*words, "./milvus:rows.jsonl", check=0)
