"""`index --to lance:` and `retrieve --corpus lance:`: the hits of a directory, in a table that changes all day."""

import datetime
import json
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.conftest import clustered, write_directory
from tests.search.test_conditions import CONDITIONS, TYPES, VALUES
from tests.verbs.test_retrieve_corpus import ROWS

pytest.importorskip("lancedb", reason="LanceDB comes with the extra sentcli[lance]")
pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
import lancedb

from sentcli.io.writers import arrow_column
from sentcli.search.condition_reader import parse_condition
from sentcli.stores.lance.filter import filter_of
from sentcli.stores.lance.table import LanceCollection, schema_of
from sentcli.stores.record import CollectionRecord, fields_of
from tests.examples import examples
from tests.tolerance import Near

IDS = [row["_id"] for row in ROWS]


@pytest.fixture
def place(tmp_path):
    return f"lance:{tmp_path / 'rows'}"


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
    """A function that writes a corpus into the table and returns the results, or the message of an error."""

    def call(corpus, *options, check=0):
        done = invoke("index", corpus, "--to", place, *options, "--json", "-", check=check)
        return json.loads(done.stdout)["results"] if check == 0 else done.stderr

    return call


@pytest.fixture
def find(invoke, place, tiny_bert):
    """A function that searches a corpus, the table unless another is named, and returns ids and scores."""

    def call(*options, corpus=None, queries=("the cat",), model=True):
        asked = [part for query in queries for part in ("--query", query)]
        asked += ["-m", tiny_bert] if model else []
        done = invoke("retrieve", "--corpus", corpus or place, *asked, *options, "--json", "-", check=0)
        results = json.loads(done.stdout)["results"]
        return [[(hit["id"], Near(hit["score"])) for hit in result["hits"]] for result in results]

    return call


def ids(hits):
    return {key for key, _ in hits[0]}


def rows_of(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table_of(place, name="corpus"):
    return lancedb.connect(place.removeprefix("lance:")).open_table(name)


def approximately(found, expected):
    assert [[key for key, _ in hits] for hits in found] == [[key for key, _ in hits] for hits in expected]
    np.testing.assert_allclose(
        *[[score for hits in lists for _, score in hits] for lists in (found, expected)], atol=2e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "similarity"), [("texts", "dot"), ("directory", "dot"), ("corpus.parquet", "cosine")]
)
def test_hits_are_those_of_the_directory(invoke, write, find, corpus, tiny_bert, tmp_path, source, similarity):
    path, model = corpus, ("-m", tiny_bert)
    if source != "texts":
        path, model = tmp_path / source, ()
        invoke("encode", corpus, "-o", path, "-m", tiny_bert, check=0)
    assert write(path, *model, "--similarity", similarity)["written"] == len(ROWS)
    for way in ("dense", "bm25", "rrf", "weighted"):
        how = ("--top-k", 4, "--search", way)
        how += () if way == "bm25" else ("--similarity", similarity)
        asked = {"queries": ("the cat", "red fish", "the blue dog is here"), "model": way != "bm25"}
        approximately(find(*how, **asked), find(*how, corpus=corpus, **asked))


@pytest.mark.slow
def test_equal_rows_stand_in_the_order_in_which_they_came(write, find, tiny_bert, tmp_path, place):
    rows = [{"id": f"e{number:02d}", "text": "the cat sat", "n": number} for number in range(60)]
    write(rows_of(tmp_path / "equal.jsonl", rows), "-m", tiny_bert)
    expected = [f"e{number:02d}" for number in range(60)]
    assert [key for key, _ in find("--top-k", 7)[0]] == expected[:7]
    rows[2]["n"] = 99
    write(rows_of(tmp_path / "equal.jsonl", rows), "-m", tiny_bert, "--compact", "--keep-days", 0)
    for way in ("dense", "bm25", "rrf"):
        assert [key for key, _ in find("--top-k", 40, "--search", way, model=way != "bm25")[0]] == expected[:40]


@pytest.mark.slow
def test_vectors_that_were_cut_are_searched_by_cut_queries(invoke, write, find, corpus, tiny_bert, tmp_path):
    invoke("encode", corpus, "-o", tmp_path / "cut", "-m", tiny_bert, "--truncate-dim", 8, check=0)
    write(tmp_path / "cut")
    approximately(find("--top-k", 4), find("--top-k", 4, corpus=tmp_path / "cut"))


def test_only_what_changed_is_written_and_versions_stay(write, find, corpus, tiny_bert, place):
    first = write(corpus, "-m", tiny_bert)
    again = write(corpus, "-m", tiny_bert)
    assert (again["written"], again["unchanged"], again["version"]) == (0, len(ROWS), first["version"])
    lines = corpus.read_text().splitlines()
    changed = json.loads(lines[1]) | {"rating": 99}
    new = '{"_id": "new", "text": "a new cat", "rating": 1, "unit price": 1.5, "added": "2024-02-01"}'
    corpus.write_text("\n".join([lines[0], json.dumps(changed), new]))
    kept = write(corpus, "-m", tiny_bert)
    assert (kept["written"], kept["unchanged"], kept["deleted"], kept["rows"]) == (2, 1, 0, len(ROWS) + 1)
    assert kept["version"] == first["version"] + 1, "one commit brings all"
    pruned = write(corpus, "-m", tiny_bert, "--prune")
    assert (pruned["written"], pruned["deleted"], pruned["rows"]) == (0, len(ROWS) - 2, 3)
    assert pruned["version"] == kept["version"] + 1
    where = ("--where", "rating = 99")
    assert ids(find(*where)) == {changed["_id"]}
    assert ids(find(*where, "--at", first["version"])) == set()
    assert ids(find("--at", first["version"], "--top-k", 99)) == set(IDS)
    assert ids(find("--at", kept["version"], "--top-k", 99)) == {*IDS, "new"}
    assert ids(find("--top-k", 99)) == {json.loads(lines[0])["_id"], changed["_id"], "new"}
    assert len(ids(find("--at", kept["version"], "--search", "bm25", "--top-k", 99, model=False))) > 1


def test_rows_are_changed_added_and_pruned_in_one_commit(write, corpus, tiny_bert, tmp_path, place):
    write(corpus, "-m", tiny_bert)
    before = table_of(place).version
    lines = corpus.read_text().splitlines()
    moved = json.loads(lines[3]) | {"text": "another text"}
    new = json.loads(lines[0]) | {"_id": "new"}
    rows_of(corpus, [new, moved])
    done = write(corpus, "-m", tiny_bert, "--prune")
    assert (done["written"], done["deleted"], done["rows"]) == (2, len(ROWS) - 1, 2)
    table = table_of(place)
    assert table.version == before + 1
    assert sorted(table.to_arrow()["id"].to_pylist()) == sorted([moved["_id"], "new"])


@pytest.mark.slow
def test_compact_removes_versions_and_says_which_are_left(invoke, write, find, corpus, tiny_bert, place):
    first = write(corpus, "-m", tiny_bert)["version"]
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    rows[0]["rating"] = 77
    write(rows_of(corpus, rows), "-m", tiny_bert, "--compact")
    assert ids(find("--at", first, "--top-k", 99)) == set(IDS), "it is younger than a week"
    rows[0]["rating"] = 78
    newest = write(rows_of(corpus, rows), "-m", tiny_bert, "--compact", "--keep-days", 0)["version"]
    asked = ("retrieve", "--corpus", place, "--query", "x", "-m", tiny_bert)
    gone = invoke(*asked, "--at", first, check=2).stderr
    assert re.search(rf"--at {first}.*has .*\b{newest}\b", gone)
    assert re.search(r"--at 999.*has", invoke(*asked, "--at", 999, check=2).stderr)
    assert ids(find("--at", newest, "--top-k", 99)) == set(IDS)
    assert len(table_of(place).list_versions()) <= 2


@pytest.mark.slow
def test_conditions_and_counts(invoke, write, find, corpus, tiny_bert, place):
    write(corpus, "-m", tiny_bert)
    for condition in (
        'rating >= 2 and "unit price" < 2.5',
        "added between '2024-01-02' and '2024-01-03'",
        "id in ('d1', 'd9')",
        "not (rating = 1 or added = '2024-01-03') and text like '%cat%'",
    ):
        for way in ("dense", "bm25"):
            asked = ("--where", condition, "--search", way)
            model = way != "bm25"
            assert find(*asked, model=model) == find(*asked, corpus=corpus, model=model)
    asked = ("--count-by", "added", "--where", "rating <> 0", "--json", "-")
    counts = [
        json.loads(invoke("retrieve", "--corpus", where, *asked, check=0).stdout)["counts"] for where in (corpus, place)
    ]
    assert counts[0] == counts[1] and len(counts[0]["values"]) > 2
    failed = invoke("retrieve", "--corpus", place, "--query", "x", "--where", "ratng > 3", check=2)
    assert re.search("'ratng'.*'rating'", failed.stderr)


def test_a_condition_is_nested_as_deeply_as_lancedb_reads(invoke, write, find, corpus, tiny_bert, place):
    write(corpus, "-m", tiny_bert)

    def nested(levels):
        before = "rating in (1, 2, 3) and (text like '%dog%' and added is not null or "
        return before * levels + "rating not in (2, 3)" + ")" * levels

    assert find("--where", nested(12)) == find("--where", nested(12), corpus=corpus)
    deeper = invoke("retrieve", "--corpus", place, "--query", "x", "--where", nested(13), check=2).stderr
    assert "--where" in deeper and "12" in deeper


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A table of rows with all kinds of values, and the same rows as a table of Arrow."""
    random, rows = np.random.default_rng(0), 300
    hours = [datetime.datetime(2024, 1, 1, hour, 0, 0, hour) for hour in range(6)]
    examples = {
        "n": [None, *range(-3, 4), 2**24 + 1, 2**53 + 1, 1 - 2**63], "x": [None, -1.5, -0.0, 0.0, 0.5, 2.0, 1e18],
        "ok": [None, True, False],
        "t": [
            None, "", "a", "b", "A", "ab", "it's", "é", "a\nb", "a.+ #b", "x\\", '"', "a\tb", "日本", "%", "_", "\x01",
        ],
        "day": [None, *map(np.datetime64, ["2023-12-31", "2024-01-01", "2024-02-29", "1066-10-14"])],
        "at": [None, *hours], "utc": [None, *(hour.replace(tzinfo=datetime.UTC) for hour in hours)],
    }  # fmt: skip
    columns = {name: [values[i] for i in random.integers(0, len(values), rows)] for name, values in examples.items()}
    columns["day"] = [None if day is None else day.item() for day in columns["day"]]
    kinds = {"n": "int", "x": "float", "t": "text", "ok": "bool", "day": "date", "at": "timestamp"}
    kinds["utc"] = "timestamp-utc"
    record = CollectionRecord(settings={"model": "m"}, dimension=4, similarity="cosine", columns=fields_of(kinds))
    keys = [f"r{i:03d}" for i in range(rows)]
    types = {**TYPES, "at": pa.timestamp("us"), "utc": pa.timestamp("us", "UTC")}
    arrays = {name: arrow_column(columns[name], types[name]) for name in kinds}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(random.normal(size=rows * 4).astype("f4")), 4)
    fixed = {"id": keys, "text": [f"text {key}" for key in keys], "embedding": vectors, "sentcli_hash": keys}
    table = pa.table({**fixed, "sentcli_order": pa.array(range(rows), pa.int64()), **arrays}, schema=schema_of(record))
    folder = tmp_path_factory.mktemp("many") / "l"
    made = lancedb.connect(folder).create_table("many", table)
    return LanceCollection.of(made, f"lance:{folder}", "many"), pa.table({"id": keys, **arrays}), types


@examples(200)
@given(
    condition=CONDITIONS
    | st.sampled_from(
        [
            "t = '\"'", "t = 'x\\'", "t like '%日%'", "t = '%'", "t in ('a\tb', '_')", "id is null", "id like 'r00%'",
            "id is not null and ok", "at >= '2024-01-01 03:00:00.000003'", "utc < '2024-01-01T05:00+01:00'",
            "not (utc = '2024-01-01 01:00:00.000001' or at is null)", "n in (3.5)", "n not in (3.5)", "x > 1000000000",
            "day < '1100-01-01'", "n not in (0) or n not in (1)",
            "n = -9223372036854775807", "t not like '%'", "x < 0", "x >= -0.0",
        ]
    )
)  # fmt: skip
def test_a_condition_means_the_same_in_lancedb_and_in_arrow(many, condition):
    collection, table, types = many
    parsed = parse_condition(condition, {"id": pa.string(), **types}, "c")
    met = set(np.array(table["id"].to_pylist())[parsed.matches(table)].tolist())
    written = filter_of(parsed.tree, collection.record.columns)
    assert {key for batch in collection.scan(["id"], written) for key in batch["id"].to_pylist()} == met, written
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
def test_ids_may_hold_any_sign_and_have_any_length(write, find, tiny_bert, tmp_path):
    keys = [*ODD, "b" * 70_000]
    path = rows_of(tmp_path / "odd.jsonl", [{"id": key, "text": f"the cat {i}"} for i, key in enumerate(keys)])
    assert write(path, "-m", tiny_bert)["written"] == len(keys)
    assert write(path, "-m", tiny_bert)["unchanged"] == len(keys)
    assert ids(find()) == set(keys)
    assert ids(find("--where", f"text = 'the cat 0' and id <> '{ODD[1]}'")) == {ODD[0]}
    rows_of(path, [{"id": key, "text": f"the cat {i}"} for i, key in enumerate(keys[4:])])
    pruned = write(path, "-m", tiny_bert, "--prune")
    assert (pruned["deleted"], pruned["rows"]) == (4, len(keys) - 4)


OTHERS = [pytest.param(kind, marks=pytest.mark.deep) for kind in ("hnsw", "ivfpq", "sq8")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ivf", *OTHERS])
def test_an_index_is_measured_its_effort_kept_and_new_rows_are_found(write, place, tmp_path, kind):
    vectors = clustered(3000, 16)
    write_directory(tmp_path / "d", vectors)
    results = write(tmp_path / "d", "--type", kind)
    recall = results["recall"]
    assert recall["k"] == 10 and recall["queries"] == 1000 and recall["measured_rows"] == 3000
    assert 0.5 < recall["chosen"]["recall"] <= 1
    collection = LanceCollection.open(place, None)
    assert collection.record.efforts == {recall["parameter"]: recall["chosen"]["effort"]}
    (index,) = collection.table.list_indices()
    assert index.num_indexed_rows == 3000
    again = write(tmp_path / "d", "--type", kind)
    assert again["written"] == 0 and again["recall"] == recall, "it is not measured again"
    write_directory(tmp_path / "d", clustered(50, 16, seed=3), append=True)
    assert write(tmp_path / "d", "--type", kind)["written"] == 50
    more = LanceCollection.open(place, None)
    (hits,) = more.nearest(clustered(50, 16, seed=3)[:1], 1)
    assert hits.scores[0] == pytest.approx(1, abs=1e-5), "rows that no index covers are compared as well"
    assert hits.places[0] > collection.table.to_arrow()["sentcli_order"].to_numpy().max()
    (hits,) = more.nearest(clustered(1, 16, seed=4), 400, "`id` like 'first1%'")
    assert len(hits.places) == 400, "more of the index is searched where too few rows meet a condition"
    compacted = write(tmp_path / "d", "--type", kind, "--compact")
    assert compacted["recall"]["measured_rows"] == 3050
    (index,) = LanceCollection.open(place, None).table.list_indices()
    assert (index.num_indexed_rows, index.num_unindexed_rows) == (3050, 0)


def test_what_does_not_fit_the_table_is_refused(invoke, write, find, corpus, place, tiny_bert, tiny_roberta, tmp_path):
    write(corpus, "-m", tiny_bert)
    assert re.search("model_fingerprint '.*' .*--overwrite", write(corpus, "-m", tiny_roberta, check=2))
    assert re.search("similarity 'cosine' .*'dot'", write(corpus, "-m", tiny_bert, "--similarity", "dot", check=2))
    assert re.search("kind 'flat' .*'hnsw'", write(corpus, "-m", tiny_bert, "--type", "hnsw", check=2))
    write_directory(tmp_path / "other", clustered(50, 8))
    assert re.search("dimension 32 .* 8 ", write(tmp_path / "other", check=2))
    failed = invoke("retrieve", "--corpus", place, "--query", "x", "-m", tiny_roberta, check=2)
    assert re.search(f"rows.* {tiny_bert} .* {tiny_roberta}", failed.stderr)
    before = table_of(place).version
    assert write(corpus, "-m", tiny_roberta, "--overwrite")["written"] == len(ROWS)
    assert table_of(place).version == before + 1
    assert ids(find("--at", before, "--top-k", 99)) == set(IDS), "the old version has its own record"


def test_wrong_usage_is_refused(invoke, write, corpus, place, tiny_bert, tmp_path):
    def said(*arguments):
        return invoke(*arguments, check=2).stderr

    index = ("index", corpus, "-m", tiny_bert, "--to")
    assert re.search("--to qdrant:x.*lance.*milvus", said(*index, "qdrant:x"))
    assert "lance:s3://team/reviews" in said(*index, "lance:")
    assert re.search("https", said(*index, "lance:https://host/x"))
    assert "--collection a/b: " in said(*index, place, "--collection", "a/b")
    for kind in ("IVF4,Flat", "bm25"):
        assert re.search(f"--type .*'{kind}'.*flat, hnsw, ivf, ivfpq, sq8", said(*index, place, "--type", kind))
    assert re.search("--keep-days.*--compact", said(*index, place, "--keep-days", 3))
    assert re.search("--compact.*lance:", said(*index, f"milvus:{tmp_path}/m.db", "--collection", "a", "--compact"))
    asked = ("retrieve", "--query", "x", "-m", tiny_bert, "--corpus")
    assert re.search("rows.*sentcli index", said(*asked, place))
    for other in (corpus, f"milvus:{tmp_path}/m.db"):
        assert re.search(
            r"--at 1\b.*lance:", said(*asked, other, "--at", 1, *(("--collection", "a") if other != corpus else ()))
        )
    invoke(*index, place, check=0)
    assert re.search("'corpos'.*'corpus'", said(*asked, place, "--collection", "corpos"))
    assert "--collection corpus" in said(*asked, f"{place}/corpus.lance")
    assert "--index hnsw" in said(*asked, place, "--index", "hnsw")
    assert "--id-field" in said(*asked, place, "--id-field", "x")
    invoke(*index, place, "--collection", "other", check=0)
    assert re.search("corpus, other.*--collection", said(*asked, place))
    lancedb.connect(place.removeprefix("lance:")).create_table("foreign", [{"id": "a"}])
    assert re.search("foreign was not made by sentcli", said(*asked, place, "--collection", "foreign"))
    assert "foreign was not made by sentcli" in said(*index, place, "--collection", "foreign", "--overwrite")


def test_a_vector_without_a_direction_is_refused_for_the_cosine(write, tmp_path):
    vectors = clustered(20, 8)
    vectors[7] = 0
    write_directory(tmp_path / "d", vectors)
    assert "'first7'" in write(tmp_path / "d", check=2)
    assert write(tmp_path / "d", "--similarity", "dot")["rows"] == 20


def test_a_reader_keeps_its_version_while_the_table_is_written(write, corpus, tiny_bert, place, tmp_path):
    write(corpus, "-m", tiny_bert)
    reader = LanceCollection.open(place, None)
    before = reader.count()
    write(rows_of(tmp_path / "new.jsonl", [{"id": "n", "text": "x"}]), "-m", tiny_bert, "--overwrite")
    assert (reader.count(), LanceCollection.open(place, None).count()) == (before, 1)


@pytest.mark.slow
def test_the_second_of_two_writers_says_so(write, corpus, place, tiny_bert, monkeypatch):
    from sentcli.stores.lance import waiting

    real, second = waiting.WaitingRows.add, []

    def meanwhile(self, *arguments):
        command = [sys.executable, "-m", "sentcli", "index", str(corpus), "--to", place, "-m", str(tiny_bert)]
        second.append(subprocess.run(command, capture_output=True, text=True, check=False))
        return real(self, *arguments)

    monkeypatch.setattr(waiting.WaitingRows, "add", meanwhile)
    assert write(corpus, "-m", tiny_bert)["rows"] == len(ROWS)
    assert second[0].returncode == 2 and "another process" in second[0].stderr


@pytest.mark.parametrize("when", ["while rows wait", "before the commit"])
def test_what_another_writer_did_meanwhile_is_noticed(write, corpus, place, tiny_bert, monkeypatch, when):
    """As in a bucket, where no lock is held."""
    from sentcli.stores.lance import store, waiting

    write(corpus, "-m", tiny_bert)
    rows = [json.loads(line) | {"rating": 50} for line in corpus.read_text().splitlines()]
    rows_of(corpus, rows)
    real = waiting.WaitingRows.add

    def disturbed(self, *arguments):
        real(self, *arguments)
        if when == "while rows wait":
            other = table_of(place, "corpus_sentcli_next")
            other.add(other.to_arrow())
            real(self, *arguments)
        else:
            table_of(place).delete("id = 'd1'")

    with monkeypatch.context() as patch:
        patch.setattr(store.WaitingRows, "add", disturbed)
        assert "another process" in write(corpus, "-m", tiny_bert, check=2)
    assert write(corpus, "-m", tiny_bert)["rows"] == len(ROWS)
    assert set(table_of(place).to_arrow()["rating"].to_pylist()) == {50}


def test_the_home_is_where_it_is_and_a_place_is_absolute(invoke, corpus, tiny_bert, tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    invoke("index", corpus, "--to", "lance:~/kb", "-m", tiny_bert, check=0)
    assert (tmp_path / "home" / "kb").is_dir() and not list((tmp_path / "work").iterdir())
    found = invoke("retrieve", "--corpus", "lance:~/kb", "--count-by", "id", "--json", "-", check=0)
    assert json.loads(found.stdout)["counts"]["values"]


def test_a_table_without_rows_has_the_vectors_of_no_model(tmp_path, tiny_bert, invoke):
    import lancedb

    (tmp_path / "rows.txt").write_text("a cat\n")
    to = f"lance:{tmp_path / 'tables'}"
    invoke("index", tmp_path / "rows.txt", "--to", to, "-m", tiny_bert, "--backend", "torch", check=0)
    lancedb.connect(tmp_path / "tables").open_table("corpus").delete("true")
    found = json.loads(invoke("index", to, "--check", "--json", "-", check=0).stdout)["results"]
    assert (found["rows"], found["vectors_of"]) == (0, None)
