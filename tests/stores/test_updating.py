"""``index --to --update`` leaves what INPUT has, and ``--dry-run`` says what that takes and writes nothing."""

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentcli import SentenceEncoder

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")


@pytest.fixture(params=["lance", "milvus", "postgres"])
def to(request, tmp_path, soon_indexed):
    if request.param == "postgres":
        return ("--to", request.getfixturevalue("postgres"))
    if request.param == "lance":
        pytest.importorskip("lancedb", reason="needs the extra sentcli[lance]")
        return ("--to", f"lance:{tmp_path / 'tables'}")
    pytest.importorskip("milvus_lite", reason="needs the extra sentcli[milvus]")
    return ("--to", f"milvus:{tmp_path / 'rows.db'}", "--collection", "rows")


CHANGES = {"kept": 23, "changed": 2, "new": 1, "gone": 5, "encoded": 2}


def test_an_update_is_said_before_and_done(to, tiny_bert, tmp_path, invoke):
    corpus = tmp_path / "rows.jsonl"
    rows = [{"id": f"d{number}", "text": f"the cat sat on mat {number}"} for number in range(30)]

    def index(*options, check=0):
        corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = ("index", corpus, *to, "-m", tiny_bert, "--backend", "torch", "--json", "-", *options)
        done = invoke(*command, check=check)
        return json.loads(done.stdout)["results"] if not check else None

    index("--update", "--dry-run", check=2)  # there is nothing to compare with
    index()
    rows = [{**row, "text": "a dog"} if row["id"] in ("d1", "d2") else row for row in rows[:25]]
    rows.append({"id": "new", "text": "the bird flew"})
    said = index("--update", "--dry-run")
    assert (said["written"], said["unchanged"], said["deleted"]) == (3, 23, 5)
    assert {key: said[key] for key in CHANGES} == CHANGES
    assert said["seconds_estimated"] > 0
    done = index("--update")
    assert (done["written"], done["unchanged"], done["deleted"], done["rows"]) == (3, 23, 5, 26)
    assert {key: done[key] for key in CHANGES} == CHANGES
    again = index("--update", "--dry-run")
    assert (again["written"], again["unchanged"], again["deleted"]) == (0, 26, 0)


def test_what_is_said_before_takes_a_fraction_of_the_time(to, tiny_bert, tmp_path, invoke, monkeypatch):
    corpus = tmp_path / "rows.jsonl"
    corpus.write_text(json.dumps({"id": "d", "text": "the cat"}) + "\n")
    command = ("index", corpus, *to, "-m", tiny_bert, "--backend", "torch")
    invoke(*command, check=0)
    texts = []
    encode = SentenceEncoder.encode_distinct

    def counted(self, given, *arguments, **options):
        texts.extend(given)
        return encode(self, given, *arguments, **options)

    monkeypatch.setattr(SentenceEncoder, "encode_distinct", counted)
    rows = [{"id": f"d{number}", "text": f"the cat sat on mat {number}"} for number in range(300)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = json.loads(invoke(*command, "--dry-run", "--update", "--json", "-", check=0).stdout)["results"]
    assert results["encoded"] == 300 and results["seconds_estimated"] > 0
    assert 32 <= len(texts) <= 64
    assert texts[-1] in {row["text"] for row in rows[-16:]}, "the sample is of the first rows alone"


@pytest.fixture
def index(to, tiny_bert, tmp_path, invoke):
    """A function that writes rows into the collection and returns the results, or what is said of them."""

    def call(rows, *options, check=0):
        corpus = tmp_path / "rows.jsonl"
        corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
        done = invoke("index", corpus, *to, "-m", tiny_bert, "--backend", "torch", "--json", "-", *options, check=check)
        return json.loads(done.stdout)["results"] if not check else done.stderr

    return call


@pytest.mark.slow
def test_columns_that_are_null_or_absent_this_time_fit(to, index, invoke):
    rows = [{"id": str(number), "text": f"the cat {number}", "rating": number, "share": 0.5} for number in range(5)]
    assert index(rows)["written"] == 5
    null = [{**row, "rating": None} for row in rows]
    found = index(null, "--update")
    assert (found["written"], found["encoded"]) == (5, 0)
    absent = [{key: value for key, value in row.items() if key != "rating"} for row in rows]
    assert index(absent, "--update")["unchanged"] == 5
    whole = [{**row, "share": 1, "rating": number} for number, row in enumerate(rows)]
    assert index(whole, "--update")["written"] == 5
    assert index([{**row, "share": 1.0} for row in whole], "--update")["unchanged"] == 5
    place = (to[1], *to[2:])
    counted = invoke(
        "retrieve", "--corpus", *place, "--where", "rating > 2", "--count-by", "share", "--json", "-", check=0
    )
    assert json.loads(counted.stdout)["counts"]["values"] == [{"value": 1.0, "rows": 2}]


def test_rows_are_the_same_from_texts_and_from_a_directory_of_them(to, index, invoke, tiny_bert, tmp_path):
    rows = [{"id": str(n), "text": f"the cat {n}", "mixed": value} for n, value in enumerate([1, "a", 2.5, None, True])]
    rows = [{**row, "share": n / 2, "at": f"2024-01-0{n + 1}T10:00:00+02:00"} for n, row in enumerate(rows)]
    index(rows)
    folder = tmp_path / "d"
    invoke("encode", tmp_path / "rows.jsonl", "-o", folder, "-m", tiny_bert, "--backend", "torch", check=0)
    done = invoke("index", folder, *to, "--json", "-", check=0)
    assert json.loads(done.stdout)["results"]["unchanged"] == 5


def test_a_changed_vector_of_a_table_is_a_changed_row(to, tiny_bert, tmp_path, invoke):
    """A table that does not say how its vectors were made: its texts are as they were, and one vector is another."""
    words = ["cat", "dog", "bird", "mat"]
    texts = [f"the {words[number % 4]} sat on the {words[number // 4 % 4]}" for number in range(40)]
    vectors = SentenceEncoder.load(tiny_bert, backend="torch").encode(texts)

    def written():
        found = pa.array(list(vectors), pa.list_(pa.float32(), vectors.shape[1]))
        columns = {"id": [f"d{number}" for number in range(40)], "text": texts, "vector": found}
        pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
        command = ("index", tmp_path / "rows.parquet", *to, "-m", tiny_bert, "--backend", "torch", "--update")
        return json.loads(invoke(*command, "--json", "-", check=0).stdout)["results"]

    assert written()["new"] == 40
    assert written()["kept"] == 40
    vectors[1] = vectors[30]  # none of the sixteen that are compared with the model's
    results = written()
    counts = [results[key] for key in ("kept", "changed", "new", "gone", "encoded")]
    assert counts == [39, 1, 0, 0, 0]
    query = ("retrieve", "--corpus", *to[1:], "-m", tiny_bert, "--backend", "torch", "--query", texts[30])
    hits = json.loads(invoke(*query, "--top-k", 40, "--hits", "-", check=0).stdout)["hits"]
    scores = {hit["id"]: hit["score"] for hit in hits}
    assert scores["d1"] == scores["d30"] > scores["d0"]


def test_a_new_column_is_added_or_named_with_its_type(to, index, invoke):
    rows = [{"id": str(number), "text": f"the cat {number}", "rating": number} for number in range(5)]
    index(rows)
    more = [{**row, "made by": f"m{row['rating'] % 2}"} for row in rows]
    if to[1].startswith("milvus:"):
        for options in ((), ("--dry-run",)):
            assert "made by (text)" in index(more, "--update", *options, check=2)
        assert index(rows, "--update")["unchanged"] == 5, "the collection is as it was"
        return
    assert index(more[:3])["written"] == 3
    found = invoke("retrieve", "--corpus", to[1], "--count-by", "made by", "--json", "-", check=0)
    values = {entry["value"]: entry["rows"] for entry in json.loads(found.stdout)["counts"]["values"]}
    assert values == {"m0": 2, "m1": 1, None: 2}


def test_a_column_of_another_type_is_named_with_both_types(index):
    rows = [{"id": str(number), "text": f"the cat {number}", "rating": number} for number in range(5)]
    index(rows)
    said = index([{**row, "rating": "good"} for row in rows], "--update", check=2)
    assert "rating 'int' there, 'text' here" in said


def first_format(to, record, rows):
    """Make a collection as the first versions did: one hash of a row, places from 0, in Milvus none but words."""
    record = {**record, "format": 1}
    for row in rows:
        content = json.dumps([row["text"], row["n"]], ensure_ascii=False)
        row["sentcli_hash"] = hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
    if to[1].startswith("lance:"):
        import lancedb
        import pyarrow as pa

        table = lancedb.connect(to[1].removeprefix("lance:")).open_table("corpus")
        schema = table.schema
        place = schema.names.index("embedding")
        field = schema.field(place).with_metadata({"sentcli": json.dumps(record)})
        for number, row in enumerate(rows):
            row["sentcli_order"] = number
        made = pa.Table.from_pylist(rows, schema=schema.set(place, field))
        lancedb.connect(to[1].removeprefix("lance:")).create_table("corpus", made, mode="overwrite")
        return
    from pymilvus import DataType, Function, FunctionType

    from sentcli.stores.milvus.client import connect

    with connect(to[1]) as client:
        client.drop_collection("rows")
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.VARCHAR, max_length=65_535, is_primary=True)
        schema.add_field("text", DataType.VARCHAR, max_length=65_535, enable_analyzer=True)
        schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=record["dimension"])
        schema.add_field("sentcli_words", DataType.SPARSE_FLOAT_VECTOR)
        schema.add_field("sentcli_hash", DataType.VARCHAR, max_length=32)
        schema.add_field("n", DataType.INT64, nullable=True)
        schema.add_function(Function("sentcli_words", FunctionType.BM25, ["text"], ["sentcli_words"]))
        indexes = client.prepare_index_params()
        indexes.add_index("embedding", index_type="FLAT", metric_type="COSINE")
        indexes.add_index("sentcli_words", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
        properties = {"sentcli": json.dumps(record)}
        client.create_collection("rows", schema=schema, index_params=indexes, properties=properties)
        names = ("id", "text", "embedding", "n", "sentcli_hash")
        client.upsert("rows", [{name: row[name] for name in names} for row in rows])
        client.flush("rows")


def contents(to):
    """The record and the rows of a collection."""
    if to[1].startswith("lance:"):
        import lancedb

        table = lancedb.connect(to[1].removeprefix("lance:")).open_table("corpus")
        return json.loads(table.schema.field("embedding").metadata[b"sentcli"]), table.to_arrow().to_pylist()
    from sentcli.stores.milvus.client import connect
    from sentcli.stores.milvus.collection import MilvusCollection

    with connect(to[1]) as client:
        record = json.loads(client.describe_collection("rows")["properties"]["sentcli"])
        names = ["text", "embedding", "n", "sentcli_hash"]
        return record, [row for batch in MilvusCollection.open(client, to[1], "rows").rows(names) for row in batch]


@pytest.mark.slow
def test_a_collection_of_the_first_format_is_read_and_updated_as_it_was_made(to, index, invoke):
    if to[1].startswith("postgresql:"):
        pytest.skip("the first format is older than tables of PostgreSQL")
    texts = ["the connections are welded", "he walked along the river", "of the and", "the café"]
    rows = [{"id": f"d{number}", "n": number, "text": text} for number, text in enumerate(texts * 3)]
    index(rows)
    first_format(to, *contents(to))

    def found(*options):
        command = (
            "retrieve",
            "--corpus",
            *to[1:2],
            *to[2:],
            *options,
            "--backend",
            "torch",
            "--top-k",
            20,
            "--json",
            "-",
        )
        return [hit["id"] for hit in json.loads(invoke(*command, check=0).stdout)["results"][0]["hits"]]

    assert set(found("--query", "CONNECT", "--search", "bm25")) == {"d0", "d4", "d8"}
    assert len(found("--query", "walking river", "--search", "rrf", "--where", "n > 1")) == 10
    assert found("--query", "of the", "--search", "bm25") == []
    swapped = [{"text": row["text"], "n": row["n"], "id": row["id"]} for row in rows]
    assert index(swapped, "--update")["unchanged"] == 12
    swapped.insert(1, {"id": "new", "n": 1, "text": texts[0]})
    done = index(swapped[:8], "--update")
    assert (done["written"], done["unchanged"], done["rows"]) == (1, 7, 8)
    assert set(found("--query", "connect", "--search", "bm25")) == {"d0", "new", "d4"}
    record, there = contents(to)
    assert record["format"] == 1 and len(there) == 8
    assert index(swapped, "--overwrite")["written"] == 13
    assert contents(to)[0]["format"] == 2
    assert found("--query", "connect", "--search", "bm25") == ["d0", "new", "d4", "d8"]


def test_a_collection_is_checked_by_its_own_record(to, index, invoke, tiny_bert, tiny_roberta):
    words = ["cat", "dog", "bird", "mat", "tree"]
    texts = [f"the {words[n % 5]} sat on {n} of the {words[n // 5 % 5]}s" for n in range(300)]
    rows = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
    place = to[1:]

    def checked(*options, check=0):
        done = invoke("index", *place, "--check", *options, "--backend", "torch", "--json", "-", check=check)
        return json.loads(done.stdout)["results"], done.stderr

    index(rows)
    found, said = checked()
    assert found["recall"] is None and "compared exactly" in said and found["vectors_of"] == str(tiny_bert)
    index(rows, "--type", "hnsw", "--overwrite")
    found, said = checked("-m", tiny_bert)
    assert found["recall"]["kind"] == "hnsw" and found["recall"]["present"]["recall"] > 0.9 and found["rows"] == 300
    assert found["vectors_of"] == str(tiny_bert) and "16 of its texts are those of" in said
    found, _ = checked("-m", tiny_roberta, check=1)
    assert found["vectors_of"] is None


@pytest.mark.slow
def test_the_index_that_is_there_stays_where_none_is_named(to, index, invoke):
    rows = [{"id": str(number), "text": f"the cat sat on mat {number}"} for number in range(300)]
    index(rows, "--type", "hnsw")
    assert index(rows[:250], "--update", "--dry-run")["gone"] == 50
    found = index([*rows[:250], {"id": "new", "text": "a bird"}], "--update")
    assert (found["kind"], found["kept"], found["new"], found["gone"]) == ("hnsw", 250, 1, 50)
    compares_new_rows_exactly = to[1].startswith("lance:")
    assert found["recall"]["measured_rows"] == (300 if compares_new_rows_exactly else 251)
    checked = invoke("index", *to[1:], "--check", "--backend", "torch", "--json", "-", check=0)
    assert json.loads(checked.stdout)["results"]["recall"]["kind"] == "hnsw"


def test_principal_components_of_an_earlier_version_are_not_written_into_what_is_searched(
    to, tiny_bert, tmp_path, invoke
):
    corpus = tmp_path / "rows.jsonl"
    corpus.write_text("".join(json.dumps({"id": f"d{number}", "text": f"cat {number}"}) + "\n" for number in range(8)))
    made = tmp_path / "made.parquet"
    invoke("encode", corpus, "-o", made, "-m", tiny_bert, "--backend", "torch", check=0)
    table = pq.read_table(made)
    settings = {**json.loads(table.schema.metadata[b"sentcli"]), "pca_sha256": "ab" * 32}
    pq.write_table(table.replace_schema_metadata({"sentcli": json.dumps(settings)}), made)
    for target in (to, ("-o", tmp_path / "directory")):
        assert "principal components" in invoke("index", made, *target, check=2).stderr
    assert not (tmp_path / "directory").exists()


def test_a_check_compares_rows_from_the_whole_collection(to, tiny_bert, tmp_path, invoke):
    corpus = tmp_path / "rows.jsonl"
    rows = [{"id": f"d{number:03}", "text": f"the cat sat on mat {number}"} for number in range(300)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = tmp_path / "made.parquet"
    invoke("encode", corpus, "-o", made, "-m", tiny_bert, "--backend", "torch", check=0)
    table = pq.read_table(made)
    vectors = table["embedding"].to_pylist()
    of_others = vectors[:240] + [[-number for number in vector] for vector in vectors[240:]]
    column = table.schema.get_field_index("embedding")
    pq.write_table(table.set_column(column, table.field(column), pa.array(of_others, table.field(column).type)), made)
    invoke("index", made, *to, check=0)
    checked = invoke("index", *to[1:], "--check", "--backend", "torch", "--json", "-", check=1)
    assert json.loads(checked.stdout)["results"]["vectors_of"] is None
