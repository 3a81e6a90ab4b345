"""A table of PostgreSQL that another program has made is searched, and its index and its vectors are checked."""

import json

import numpy as np
import psycopg
import pytest
from pgvector.psycopg import register_vector

from sentcli import SentenceEncoder
from tests.search.conftest import clustered
from tests.tolerance import Near

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

NOUNS = "cat dog bird fish tree house river mat man woman child".split()
TEXTS = [f"a {NOUNS[n % 11]} and a {NOUNS[n * 3 % 11]} ran on the river {n}" for n in range(60)]
FIELDS = ("--collection", "notes", "--vector-field", "vec", "--text-field", "body", "--id-field", "note_id")


@pytest.fixture
def notes(postgres, tiny_bert):
    """A table of notes, with more rows without a vector or a text."""
    vectors = SentenceEncoder.load(tiny_bert, backend="torch").encode(TEXTS)
    with psycopg.connect(postgres, autocommit=True) as connection:
        register_vector(connection)
        connection.execute(
            "CREATE TABLE notes (note_id bigint PRIMARY KEY, body text, vec vector, n int, tags text[], price numeric, "
            "made timestamptz DEFAULT '2024-01-01 10:00+02', other vector(3), raw bytea, \"it's\" boolean, text uuid)"
        )
        for number, (text, vector) in enumerate(zip(TEXTS, vectors, strict=True)):
            values = [1000 - number, text, vector, number % 5, ["a", f"b{number % 2}"], number / 4]
            connection.execute(
                "INSERT INTO notes (note_id, body, vec, n, tags, price) VALUES (%s, %s, %s, %s, %s, %s)", values
            )
        connection.execute("INSERT INTO notes (note_id, body) VALUES (1, 'without a vector')")
        yield connection


@pytest.fixture
def find(invoke, postgres, tiny_bert):
    def call(*options, model=tiny_bert, fields=FIELDS, check=0):
        asked = ("retrieve", "--corpus", postgres, *fields, "--backend", "torch", *options)
        asked += ("-m", model) if model else ()
        done = invoke(*asked, "--json", "-", check=check)
        return json.loads(done.stdout) if check == 0 else done.stderr

    return call


def hits(found):
    return [(hit["id"], hit["text"], Near(hit["score"])) for hit in found["results"][0]["hits"]]


@pytest.mark.slow
def test_it_is_searched_like_a_file_of_its_texts(notes, find, invoke, tiny_bert, tmp_path):
    rows = [{"id": str(1000 - n), "text": text, "n": n % 5} for n, text in enumerate(TEXTS)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for options in (("--query", TEXTS[3]), ("--query", "dog", "--where", "n = 2"), ("--like", "990")):
        asked = ("retrieve", "--corpus", tmp_path / "rows.jsonl", "-m", tiny_bert, "--backend", "torch", *options)
        assert hits(find(*options)) == hits(json.loads(invoke(*asked, "--json", "-", check=0).stdout))
    assert len(hits(find("--query", "fish tree", "--search", "rrf"))) == 10
    first = find("--query", TEXTS[3])["results"][0]["hits"][0]
    assert first["columns"] == {
        "n": 3, "tags": "{a,b1}", "price": 0.75, "made": "2024-01-01 08:00:00+00:00", "it's": None,
    }  # fmt: skip
    where = ("--where", "price >= 2.5 and made < '2024-01-01 08:00:01Z' and tags like '%b1%'", "--count-by", "n")
    assert sum(entry["rows"] for entry in find(*where, model=None)["counts"]["values"]) == 25
    assert "no row with this id" in find("--like", "7", check=2)
    assert "invalid input syntax" in find("--like", "x", check=2)


def test_the_model_has_to_be_the_one_that_made_the_vectors(notes, find, tiny_roberta, tiny_bert, tmp_path):
    assert "give that model with -m" in find("--query", "x", model=None, check=2)
    find("--query", "x", model=tiny_roberta, check=2)
    notes.execute(
        "UPDATE notes SET vec = (SELECT array_agg(random())::vector FROM generate_series(1, vector_dims(vec)))"
    )
    assert "another model, pooling or prompt" in find("--query", "x", check=2)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (("--vector-field", "vecs"), "did you mean 'vec'"),
        (("--vector-field", "n"), "is integer, and vectors are"),
        (("--vector-field", "other"), "no row with a vector"),
        (("--vector-field", "vec", "--id-field", "note_id", "--text-field", "nothing"), "no field nothing"),
        ((), "was not made by sentcli index"),
    ],
)
def test_fields_that_do_not_fit_are_named(notes, find, fields, said):
    default = () if "--id-field" in fields or not fields else ("--id-field", "note_id", "--text-field", "body")
    assert said in find("--query", "x", fields=("--collection", "notes", *default, *fields), check=2)


@pytest.fixture
def check(invoke, postgres):
    def call(*options, fields=FIELDS, check=0):
        done = invoke("index", postgres, *fields, "--check", *options, "--json", "-", check=check)
        return json.loads(done.stdout)["results"] if done.stdout else done.stderr, done.stderr

    return call


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hnsw", "ivfflat"])
def test_an_index_is_measured_as_it_is(notes, check, method, tiny_bert):
    notes.execute("TRUNCATE notes; ALTER TABLE notes ALTER vec TYPE vector(16)")
    with notes.cursor() as cursor:
        values = [(n, f"t {n}", vector) for n, vector in enumerate(clustered(3000, 16))]
        cursor.executemany("INSERT INTO notes (note_id, body, vec) VALUES (%s, %s, %s)", values)
    settings = "lists = 50" if method == "ivfflat" else "m = 4, ef_construction = 8"
    notes.execute(f"CREATE INDEX ON notes USING {method} (vec vector_cosine_ops) WITH ({settings})")
    found, said = check()
    recall = found["recall"]
    assert (recall["kind"], recall["present"]["effort"]) == {"hnsw": ("hnsw", 40), "ivfflat": ("ivf", 1)}[method]
    assert recall["present"]["recall"] < recall["points"][-1]["recall"] and found["rows"] == 3000
    assert "as it is now" in said and "aimed at" in said
    assert found["vectors_of"] is None and "-m compares" in said
    assert notes.execute("SELECT count(*) FROM notes").fetchone() == (3000,)


def test_the_vectors_are_compared_with_a_model(notes, check, tiny_bert, tiny_roberta):
    model = ("-m", tiny_bert, "--backend", "torch")
    found, said = check(*model)
    assert found["vectors_of"] == str(tiny_bert) and found["recall"] is None and "compared exactly" in said
    notes.execute("UPDATE notes SET vec = vec * array_fill(-1, ARRAY[vector_dims(vec)])::vector WHERE n IS NOT NULL")
    found, said = check(*model, check=1)
    assert found["vectors_of"] is None and "another model" in said
    notes.execute("CREATE TABLE l2 AS SELECT note_id, body, vec::vector(32) FROM notes WHERE vec IS NOT NULL")
    assert np.array(notes.execute("SELECT vector_dims(vec) FROM l2 LIMIT 1").fetchone()) == 32
    notes.execute("CREATE INDEX ON l2 USING hnsw (vec vector_l2_ops)")
    _, said = check(fields=("--collection", "l2", *FIELDS[2:]))
    assert "vector_l2_ops" in said


def test_a_table_of_sentcli_is_checked_by_its_own_record(invoke, check, postgres, tiny_bert, tmp_path):
    (tmp_path / "rows.txt").write_text("".join(f"{text}\n" for text in TEXTS * 10))
    made_with = ("-m", tiny_bert, "--backend", "torch")
    invoke("index", tmp_path / "rows.txt", "--to", postgres, *made_with, "--type", "hnsw", check=0)
    found, said = check(fields=())
    assert found["recall"]["present"]["recall"] > 0.9 and found["vectors_of"] == str(tiny_bert)
    assert "16 of its texts are those of" in said


def test_a_file_of_text_is_no_collection_to_check(invoke, tmp_path):
    (tmp_path / "rows.txt").write_text("a cat\n")
    assert "--collection" in invoke("index", tmp_path / "rows.txt", "--check", "--collection", "x", check=2).stderr
