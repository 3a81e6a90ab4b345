"""What the tests of tables of PostgreSQL share: a connection, a corpus, and commands that write and search."""

import json

import psycopg
import pytest

from tests.tolerance import Near
from tests.verbs.test_retrieve_corpus import ROWS


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [
        {**row, "rating": number % 5, "unit price": number / 2, "added": f"2024-01-{number + 1:02d}"}
        for number, row in enumerate(ROWS)
    ]
    return rows_of(path, rows)


def rows_of(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def ask(postgres):
    """A function that returns what a statement returns."""

    def call(statement, *values):
        with psycopg.connect(postgres, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else None

    return call


@pytest.fixture
def write(invoke, postgres):
    """A function that writes a corpus into a table and returns the results, or the message of an error."""

    def call(corpus, *options, check=0, to=None):
        done = invoke("index", corpus, "--to", to or postgres, *options, "--json", "-", check=check)
        if check == 0:
            return json.loads(done.stdout)["results"]
        assert "Traceback" not in done.stderr
        return done.stderr

    return call


@pytest.fixture
def find(invoke, postgres, tiny_bert):
    """A function that searches a corpus, the table unless another is named, and returns ids and scores."""

    def call(*options, corpus=None, queries=("the cat",), model=True):
        asked = [part for query in queries for part in ("--query", query)]
        asked += ["-m", tiny_bert] if model else []
        done = invoke("retrieve", "--corpus", corpus or postgres, *asked, *options, "--json", "-", check=0)
        results = json.loads(done.stdout)["results"]
        return [[(hit["id"], Near(hit["score"])) for hit in result["hits"]] for result in results]

    return call
