"""A condition is met in PostgreSQL by the rows that meet it in Arrow."""

import datetime

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.errors import InputError
from sentcli.io.writers import arrow_column
from sentcli.search.condition_reader import parse_condition
from sentcli.stores.postgres.client import TableName, connect
from sentcli.stores.postgres.table import Fields, PostgresTable
from sentcli.stores.record import CollectionRecord, fields_of
from tests.examples import examples
from tests.search.test_conditions import CONDITIONS, TYPES, VALUES

KINDS = {"n": "int", "x": "float", "t": "text", "ok": "bool", "day": "date", "at": "timestamp", "utc": "timestamp-utc"}


@pytest.fixture(scope="module")
def many(postgres_server):
    """A table of rows with all kinds of values, and the same rows as a table of Arrow."""
    random, rows = np.random.default_rng(0), 300
    hours = [datetime.datetime(2024, 1, 1, hour, 0, 0, hour) for hour in range(6)]
    values = {
        "n": [None, *range(-3, 4), 2**24 + 1, 2**53 + 1, 1 - 2**63],
        "x": [None, -1.5, -0.0, 0.0, 0.5, 2.0, 1e18, float("nan")], "ok": [None, True, False],
        "t": [
            None, "", "a", "b", "A", "ab", "it's", "é", "a\nb", "a.+ #b", "x\\", '"', "a\tb", "日本", "%", "_", "\x01",
        ],
        "day": [None, *(datetime.date(*day) for day in ((2023, 12, 31), (2024, 1, 1), (2024, 2, 29), (1066, 10, 14)))],
        "at": [None, *hours], "utc": [None, *(hour.replace(tzinfo=datetime.UTC) for hour in hours)],
    }  # fmt: skip
    columns = {name: [of[i] for i in random.integers(0, len(of), rows)] for name, of in values.items()}
    record = CollectionRecord(settings={"model": "m"}, dimension=4, similarity="cosine", columns=fields_of(KINDS))
    keys = [f"r{i:03d}" for i in range(rows)]
    types = {**TYPES, "at": pa.timestamp("us"), "utc": pa.timestamp("us", "UTC")}
    arrays = {name: arrow_column(columns[name], types[name]) for name in KINDS}
    _, address = postgres_server
    with connect(address("postgres"), to_write=True) as connection:
        types_there = "n int8, x float8, t text, ok bool, day date, at timestamp, utc timestamptz"
        connection.execute(f"CREATE TABLE many (id text, text text, {types_there})")
        with connection.cursor().copy("COPY many (id, n, x, t, ok, day, at, utc) FROM STDIN") as copy:
            for row in zip(keys, *(columns[name] for name in KINDS), strict=True):
                copy.write_row(row)
        yield (
            PostgresTable(connection, address("postgres"), TableName(None, "many"), record, Fields.of(record)),
            pa.table({"id": keys, **arrays}),
            types,
        )
        connection.execute("DROP TABLE many")


@examples(200)
@given(
    condition=CONDITIONS
    | st.sampled_from(
        [
            "t = '\"'", "t = 'x\\'", "t like '%日%'", "t = '%'", "t in ('a\tb', '_')", "id is null", "id like 'r00%'",
            "id is not null and ok", "at >= '2024-01-01 03:00:00.000003'", "utc < '2024-01-01T05:00+01:00'",
            "not (utc = '2024-01-01 01:00:00.000001' or at is null)", "n in (3.5)", "n not in (3.5)", "x > 1000000000",
            "day < '1100-01-01'", "n not in (0) or n not in (1)", "x is null", "not (x is null)", "x not in (0)",
            "n = -9223372036854775807", "t not like '%'", "x < 0", "x >= -0.0", "t < 'b'", "t >= 'a'", "x in (0, 2.0)",
            "not (t = 'a' and x > 0) or day in ('2024-01-01')", "utc in ('2024-01-01T02:00:00.000002Z')",
        ]
    )
)  # fmt: skip
def test_a_condition_means_the_same_in_postgresql_and_in_arrow(many, condition):
    collection, table, types = many
    parsed = parse_condition(condition, {"id": pa.string(), **types}, "c")
    met = set(np.array(table["id"].to_pylist())[parsed.matches(table)].tolist())
    written = collection.condition_of(parsed.tree)
    found = [key for (keys,) in collection.scan([collection.id_text], written) for key in keys]
    assert sorted(found) == sorted(met), written.as_string(collection.connection)
    assert collection.count(written) == len(met)
    assert set(VALUES) <= set(collection.record.columns)


@pytest.mark.parametrize("levels", [1, 30])
def test_a_condition_may_be_long_and_deep(many, levels):
    collection, table, types = many
    tests = " or ".join(f"n = {number}" for number in range(1000))
    condition = "(" * levels + tests + ")" * levels + " and ".join(["", *["(ok or n > 5)"] * 100])
    parsed = parse_condition(condition, {"id": pa.string(), **types}, "c")
    assert collection.count(collection.condition_of(parsed.tree)) == parsed.matches(table).sum()


def test_a_nul_character_is_refused_by_name(many):
    collection, _, types = many
    for condition in ("t = 'a\0b'", "t in ('\0')", "t like '%\0'"):
        parsed = parse_condition(condition, types, "c")
        with pytest.raises(InputError, match="NUL"):
            collection.condition_of(parsed.tree)


def test_names_are_quoted(postgres, invoke, tmp_path, tiny_bert):
    import json

    names = {'a"b': 1, "Üß": 2, "select": 3, "x; drop table t": 4, "%s": 5}
    corpus = tmp_path / "rows.jsonl"
    corpus.write_text("".join(json.dumps({"id": f"r{n}", "text": "a", **names, "n": n}) + "\n" for n in range(3)))
    place = (postgres, "--collection", 'Sche"ma.My Rows')
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "Sche""ma"')
    invoke("index", corpus, "--to", *place, "-m", tiny_bert, check=0)
    invoke("index", corpus, "--to", *place, "-m", tiny_bert, "--overwrite", check=0)
    for name, value in names.items():
        quoted = name.replace('"', '""')
        asked = ("retrieve", "--corpus", *place, "--where", f'"{quoted}" = {value} and n <> 1', "--count-by", name)
        counts = json.loads(invoke(*asked, "--json", "-", check=0).stdout)["counts"]
        assert counts["values"] == [{"value": value, "rows": 2}]
