"""Tables of all types of columns, as other programs write them, are the same rows in a directory and in databases.

Conditions give the rows that DuckDB gives on the same file, or are refused by the column's name, in all places alike;
counts and what hits say of their columns are equal in all of them.
"""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.drawn_tables import WRITERS, written_tables
from tests.examples import examples

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
pytest.importorskip("sqlglot")
pytest.importorskip("lancedb", reason="needs the extra sentcli[lance]")
pytest.importorskip("milvus_lite", reason="needs the extra sentcli[milvus]")


@pytest.fixture(scope="module")
def milvus(tmp_path_factory, soon_indexed):
    """The options of a collection of Milvus that is made anew for each table."""
    return (f"milvus:{tmp_path_factory.mktemp('milvus') / 'rows.db'}", "--collection", "rows")


@pytest.fixture(scope="module")
def postgres_place(postgres_server):
    """The address of a table of PostgreSQL that is made anew for each table."""
    _, address = postgres_server
    return (address("postgres"), "--collection", "rows")


def asked(invoke, corpus, *options):
    """Return the result of a command that asks a corpus, or what it says where it refuses."""
    done = invoke("retrieve", "--corpus", *corpus, "--json", "-", *options)
    if done.exit_code == 0:
        return json.loads(done.stdout)
    assert done.exit_code == 2, done.output
    return done.stderr


def ids_of(answer):
    """Return the ids of the rows that an answer counts, in order; None where it is a refusal."""
    if isinstance(answer, str):
        return None
    return sorted(entry["value"] for entry in answer["counts"]["values"])


def counts_of(invoke, corpus, column):
    """Return how many rows have each value of a column."""
    answer = asked(invoke, corpus, "--count-by", column)
    return sorted((str(entry["value"]), entry["rows"]) for entry in answer["counts"]["values"])


def columns_of(invoke, corpus, rows):
    """Return the columns of all rows by id, as hits say them."""
    done = invoke(
        *("retrieve", "--corpus", *corpus, "--search", "bm25", "--query", "text", "--top-k", rows, "--hits", "-"),
        check=0,
    )
    return {hit["id"]: hit["columns"] for hit in json.loads(done.stdout)["hits"]}


IN_CI = ("duckdb.csv", "pyarrow.parquet")
"""The others before a release."""
MARKS = {name: pytest.mark.slow if name in IN_CI else pytest.mark.deep for name in WRITERS}


@pytest.mark.parametrize("writer", [pytest.param(name, marks=MARKS[name]) for name in WRITERS])
@examples(8)
@given(drawn=st.data())
def test_all_places_have_the_same_rows(writer, drawn, milvus, postgres_place, tiny_bert, invoke):
    table = drawn.draw(written_tables(writer))
    with tempfile.TemporaryDirectory() as folder:
        path, ask = table.write(writer, folder)
        # an empty cell of CSV is a missing value to DuckDB and an empty text here, unless that is said
        nulls = ("--null", "") if path.suffix == ".csv" else ()
        model = ("-m", tiny_bert, "--backend", "torch")
        directory = Path(folder) / "vectors"
        invoke("encode", path, "-o", directory, *model, *nulls, check=0)
        again = invoke("encode", path, "-o", directory, *model, *nulls, "--update", "--json", "-", check=0)
        changes = json.loads(again.stdout)["results"]
        assert (changes["kept"], changes["changed"], changes["encoded"]) == (changes["rows"], 0, 0)
        lance = (f"lance:{folder}/tables",)
        invoke("index", path, "--to", *lance, *model, *nulls, check=0)
        invoke("index", directory, "--to", *milvus, "--overwrite", check=0)
        invoke("index", path, "--to", *postgres_place, *model, *nulls, "--overwrite", check=0)
        places = {"directory": (directory,), "lance": lance, "milvus": milvus, "postgres": postgres_place}
        for condition in table.conditions:
            expected = ask(f"SELECT id FROM {{source}} WHERE {condition} ORDER BY id")
            answers = {
                name: asked(invoke, place, "--where", condition, "--count-by", "id") for name, place in places.items()
            }
            found = ids_of(answers["directory"])
            assert found is None or found == [key for (key,) in expected], condition
            event("refused" if found is None else "equal")
            for name, answer in answers.items():
                assert ids_of(answer) == found, (condition, name, answer)
                assert found is not None or condition.split('"')[1] in answer, (condition, name, answer)
        first, *others = places.values()
        for name in table.kinds:
            counts = counts_of(invoke, first, name)
            assert sum(rows for _, rows in counts) == len(table.rows)
            for place in others:
                assert counts_of(invoke, place, name) == counts, (name, place)
        columns = columns_of(invoke, first, len(table.rows))
        assert len(columns) == len(table.rows)
        for place in others:
            assert columns_of(invoke, place, len(table.rows)) == columns, place
        # the same file again, into the collection that was made of the directory and the other way round
        again = json.loads(invoke("index", path, "--to", *milvus, *model, *nulls, "--json", "-", check=0).stdout)
        assert again["results"]["unchanged"] == len(table.rows)
        for place in (lance, postgres_place):
            again = json.loads(invoke("index", directory, "--to", *place, "--json", "-", check=0).stdout)
            assert again["results"]["unchanged"] == len(table.rows)
