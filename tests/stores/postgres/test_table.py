"""`retrieve --corpus postgresql://`: the hits of a directory, in a table of PostgreSQL."""

import json

import numpy as np
import psycopg
import pytest

from sentcli.stores.postgres.client import TableName, connect
from sentcli.stores.postgres.table import PostgresTable
from tests.search.conftest import clustered, write_directory
from tests.stores.postgres.conftest import rows_of

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")


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
    write(path, *model, "--similarity", similarity)
    for way in ("dense", "bm25", "rrf", "weighted"):
        how = ("--top-k", 4, "--search", way)
        how += () if way == "bm25" else ("--similarity", similarity)
        asked = {"queries": ("the cat", "red fish", "the blue dog", "a bird", "late"), "model": way != "bm25"}
        approximately(find(*how, **asked), find(*how, corpus=corpus, **asked))


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 9])
def test_equal_rows_stand_in_the_order_in_which_they_came(write, find, tiny_bert, tmp_path, count):
    rows = [{"id": f"e{number:02d}", "text": "the cat sat", "n": number} for number in range(60)]
    write(rows_of(tmp_path / "equal.jsonl", rows), "-m", tiny_bert)
    expected = [f"e{number:02d}" for number in range(60)]
    assert [key for key, _ in find("--top-k", 7, queries=("the cat",) * count)[0]] == expected[:7]
    rows[2]["n"] = 99
    write(rows_of(tmp_path / "equal.jsonl", rows), "-m", tiny_bert)
    for way in ("dense", "bm25", "rrf"):
        assert [key for key, _ in find("--top-k", 40, "--search", way, model=way != "bm25")[0]] == expected[:40]


@pytest.mark.slow
def test_vectors_that_were_cut_are_searched_by_cut_queries(invoke, write, find, corpus, tiny_bert, tmp_path):
    invoke("encode", corpus, "-o", tmp_path / "cut", "-m", tiny_bert, "--truncate-dim", 8, check=0)
    write(tmp_path / "cut")
    approximately(find("--top-k", 4), find("--top-k", 4, corpus=tmp_path / "cut"))


def test_the_record_stands_in_the_comment_and_the_types_are_those_of_postgresql(write, corpus, tiny_bert, ask):
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    times = {"at": "2024-01-01T10:00:00+02:00", "when": "2024-01-01T10:00:00", "ok": True}
    write(rows_of(corpus, [{**row, **times} for row in rows]), "-m", tiny_bert)
    ((comment,),) = ask("SELECT obj_description('corpus'::regclass)")
    assert json.loads(comment)["sentcli"]["settings"]["model"] == str(tiny_bert)
    types = dict(ask("SELECT column_name, udt_name FROM information_schema.columns WHERE table_name = 'corpus'"))
    assert types == {
        "id": "text", "text": "text", "embedding": "vector", "sentcli_hash": "text", "sentcli_order": "int8",
        "rating": "int8", "unit_price": "float8", "added": "date", "at": "timestamptz", "when": "timestamp",
        "ok": "bool",
    }  # fmt: skip
    assert ask("SELECT DISTINCT at = '2024-01-01 08:00:00+00', ok FROM corpus") == [(True, True)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
@pytest.mark.parametrize("similarity", ["cosine", pytest.param("dot", marks=pytest.mark.deep)])
def test_an_index_is_measured_and_finds_ten_rows_where_ten_meet_a_condition(
    write, postgres, tmp_path, kind, similarity, ask
):
    vectors = clustered(3000, 16)
    write_directory(tmp_path / "d", vectors)
    results = write(tmp_path / "d", "--type", kind, "--similarity", similarity)
    recall = results["recall"]
    assert recall["k"] == 10 and recall["queries"] == 1000 and recall["measured_rows"] == 3000
    assert 0.9 < recall["chosen"]["recall"] <= 1
    ((index,),) = ask("SELECT indexdef FROM pg_indexes WHERE indexdef LIKE '%%embedding%%'")
    assert {"ivf": "ivfflat", "hnsw": "hnsw"}[kind] in index
    again = write(tmp_path / "d", "--type", kind, "--similarity", similarity)
    assert again["written"] == 0 and again["recall"] == recall, "it is not measured again"
    write_directory(tmp_path / "d", clustered(50, 16, seed=3), append=True)
    recall = write(tmp_path / "d", "--type", kind, "--similarity", similarity)["recall"]
    assert recall["measured_rows"] == 3050
    with connect(postgres) as connection:
        connection.execute("SET hnsw.max_scan_tuples = 1")
        connection.execute("SET enable_seqscan = off")
        table = PostgresTable.open(connection, postgres, TableName(None, "corpus"))
        assert table.record.efforts == {recall["parameter"]: recall["chosen"]["effort"]}
        condition = psycopg.sql.SQL("id like 'first%7'")
        of_query = table.nearest(vectors[:2], 10, condition)
        for query, hits in zip(vectors, of_query, strict=False):
            assert len(hits.keys) == 10
            assert all(key.endswith("7") for key in hits.keys)
            assert list(hits.scores) == sorted(hits.scores, reverse=True)
            ends = np.arange(7, 3000, 10)
            exact = vectors[ends] @ query
            if similarity == "cosine":
                exact /= np.linalg.norm(vectors[ends], axis=1) * np.linalg.norm(query)
            is_found = np.isclose(hits.scores[:, None], np.sort(exact)[::-1][:10], rtol=1e-4).any(axis=0)
            assert is_found.sum() >= 7


def test_long_vectors_are_of_half_precision_where_an_index_is_wanted(write, tmp_path, ask, postgres):
    write_directory(tmp_path / "d", clustered(60, 2100))
    write(tmp_path / "d", "--type", "hnsw", "--collection", "half")
    write(tmp_path / "d", "--collection", "whole")
    types = ask("SELECT table_name, udt_name FROM information_schema.columns WHERE column_name = 'embedding'")
    assert dict(types) == {"half": "halfvec", "whole": "vector"}
    write_directory(tmp_path / "longer", clustered(3, 4100))
    assert "4,000" in write(tmp_path / "longer", "--type", "hnsw", "--collection", "c", check=2)
    with connect(postgres) as connection:
        for count in (1, 5):
            for hits in PostgresTable.open(connection, postgres, TableName(None, "half")).nearest(
                clustered(60, 2100)[:count], 3
            ):
                assert hits.scores[0] == pytest.approx(1, abs=1e-3) and len(hits.keys) == 3


@pytest.mark.parametrize("kind", ["ivfpq", "sq8", "hnws"])
def test_a_kind_of_index_that_pgvector_lacks_is_refused(write, corpus, tiny_bert, kind, ask):
    said = write(corpus, "-m", tiny_bert, "--type", kind, check=2)
    assert kind in said and "hnsw" in said
    assert ask("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
