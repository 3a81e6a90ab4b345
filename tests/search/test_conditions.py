"""`retrieve --where` and `--count-by`: the same rows as SQL, in every corpus that can be searched."""

import datetime
import json
import re
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.errors import InputError
from sentcli.search import searcher as searching
from sentcli.search.condition_reader import parse_condition
from sentcli.search.faiss_index import FaissIndex
from tests.examples import examples
from tests.search.conftest import clustered
from tests.tolerance import rounding

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
pytest.importorskip("sqlglot", reason="conditions come with the extra sentcli[cpu]")
DAY = datetime.date(2024, 1, 1)
TYPES = {
    "n": pa.int64(), "x": pa.float64(), "t": pa.string(), "ok": pa.bool_(), "day": pa.date32(),
    "at": pa.timestamp("us"), "utc": pa.timestamp("us", "UTC"), "two words": pa.string(),
}  # fmt: skip


# What a condition means: SQLite says


def rows_of_sqlite(condition, rows):
    """The numbers of the rows that meet a condition in SQLite, whose dates are text."""
    base = sqlite3.connect(":memory:")
    base.execute("pragma case_sensitive_like = on")
    base.execute("create table c (i integer, n integer, x real, t text, ok integer, day text)")
    base.executemany("insert into c values (?, ?, ?, ?, ?, ?)", [(i, *row) for i, row in enumerate(rows)])
    return [i for (i,) in base.execute(f"select i from c where {condition} order by i")]


LITERALS = {
    "n": st.integers(-3, 3).map(str)
    | st.sampled_from(["0.5", "-1.5", "1e0", "16777216.5", "16777217", "9007199254740993"]),
    "x": st.sampled_from(["-1.5", "0", "-0", "-0.0", "0.5", "2"]),
    "t": st.sampled_from(["''", "'a'", "'b'", "'A'", "'ab'", "'it''s'", "'é'"]),
    "day": st.sampled_from(["'2023-12-31'", "'2024-01-01'", "'2024-02-29'"]),
}
VALUES = {
    "n": st.none() | st.integers(-3, 3) | st.sampled_from([2**24, 2**24 + 1, 2**53 + 1]),
    "x": st.none() | st.sampled_from([-1.5, -0.0, 0.0, 0.5, 2.0, float("nan")]),
    "t": st.none() | st.sampled_from(["", "a", "b", "A", "ab", "it's", "é", "a\nb", "a.+ #b", "x\\"]),
    "ok": st.none() | st.booleans(),
    "day": st.none() | st.sampled_from([datetime.date(2023, 12, 31), DAY, datetime.date(2024, 2, 29)]),
}

PATTERNS = ["'%'", "'a%'", "'_'", "'%b'", "'a_b'", "'%é%'", "''", "'_t''s'", "'%.+ #%'", "'(a|b)'"]


@st.composite
def leaves(draw):
    column = draw(st.sampled_from([*LITERALS, "ok"]))
    negation = draw(st.sampled_from(["", "not "]))
    if column == "ok":
        return draw(st.sampled_from(["ok", "ok = true", "ok <> true", "false = ok", f"ok is {negation}null"]))
    literal = LITERALS[column]
    kinds = ["compare", "mirrored", "between", "in", "null", *(["like"] if column == "t" else [])]
    match draw(st.sampled_from(kinds)):
        case "compare":
            return f"{column} {draw(st.sampled_from(['=', '<>', '!=', '<', '<=', '>', '>=']))} {draw(literal)}"
        case "mirrored":
            return f"{draw(literal)} {draw(st.sampled_from(['=', '<>', '<', '>=']))} {column}"
        case "between":
            return f"{column} {negation}between {draw(literal)} and {draw(literal)}"
        case "in":
            return f"{column} {negation}in ({', '.join(draw(st.lists(literal, min_size=1, max_size=3)))})"
        case "like":
            return f"t {negation}like {draw(st.sampled_from(PATTERNS))}"
    return f"{column} is {negation}null"


CONDITIONS = st.recursive(
    leaves(),
    lambda part: st.one_of(
        part.map(lambda a: f"not ({a})"),
        st.tuples(part, st.sampled_from(["and", "or"]), part).map(lambda three: "({} {} {})".format(*three)),
    ),
    max_leaves=5,
)


@pytest.mark.slow
@examples(300)
@given(condition=CONDITIONS, rows=st.lists(st.tuples(*VALUES.values()), max_size=8))
def test_a_condition_means_what_it_means_in_sql(condition, rows):
    columns = zip(*rows, strict=True) if rows else [()] * len(VALUES)
    table = pa.table({name: pa.array(column, TYPES[name]) for name, column in zip(VALUES, columns, strict=True)})
    met = parse_condition(condition, TYPES, "corpus").matches(table)
    plain = [tuple(str(v) if isinstance(v, datetime.date) else v for v in row) for row in rows]
    assert np.flatnonzero(met).tolist() == rows_of_sqlite(condition, plain)


@pytest.mark.parametrize(
    ("condition", "met"),
    [
        ("at >= '2024-01-01 02:00'", [2, 3]),
        ("at < '2024-01-02'", [0, 1, 2, 3]),
        ("utc = '2024-01-01T02:00+01:00'", [1]),
        ("utc = '2024-01-01 01:00'", [1]),
        ("x is null", [1, 2]),
        ("not x <> 7", []),
        ("\"two words\" like 'b%'", [1]),
        ("n in (" + ", ".join(map(str, range(3, 3000))) + ")", [3]),
    ],
)
def test_times_nan_names_and_long_lists(condition, met):
    hours = [datetime.datetime(2024, 1, 1, hour) for hour in range(4)]
    columns = {"n": range(4), "x": [1.0, float("nan"), None, 2.0], "at": hours, "utc": hours, "two words": "abcd"}
    table = pa.table({name: pa.array(list(values), TYPES[name]) for name, values in columns.items()})
    assert np.flatnonzero(parse_condition(condition, TYPES, "c").matches(table)).tolist() == met


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("m = 1", "--where: corpus .*'m'.*n (int), x (float), t (text)"),
        ("n = 'one'", "'one' .* 5 .*n.*int"),
        ("t > 3", ": 3 .* 5 .*t.*text"),
        ("day > 'yesterday'", "'yesterday' .* 7 .*date.*day.*'2024-01-31'"),
        ("at > '2024-01-01T00:00+02:00'", ": '2024-01-01T00:00.02:00' .* 6 .*UTC"),
        ("ok > true", ": ok > TRUE .* 1 "),
        ("n like '1%'", ": n LIKE '1%' .* 1 .*n.*int"),
        ("t like 'a\\%'", "LIKE .* 1 .*%.*_"),
        ("t = NULL", "t = NULL .* 1 .*IS NULL"),
        ("t = n", ": t = n .* 1 "),
        ('t = "a"', ': t = "a" .* 1 '),
        ("n >", " 3, '>'"),
        ("n = 1 n = 2", " 9, '='"),
        ("", "--where ''"),
        ("n = 1; drop table c", "--where .n = 1; drop table c."),
        ("length(t) > 3", ": LENGTH(t) .* 1 "),
        ("n in (select 1)", ": n IN (SELECT 1) .* 1 "),
        ("n in ()", ": n IN () .* 1 "),
        ("t ilike 'A'", ": t ILIKE 'A' .* 1 "),
        ("t like 'a' escape '!'", ": t LIKE 'a' ESCAPE '!' .* 1 "),
        ("t", ": t .* 1 "),
        ("n = 1 union select 2", ": n = 1 UNION SELECT 2 .* 1 "),
        ("case when ok then ok end", ": CASE WHEN ok THEN ok END .* 11 "),
        ("n + 1 = 2", r": n \+ 1 .* 1 "),
        ("n = 9223372036854775808", ": 9223372036854775808 .* 5 "),
        ("c.n = 1", ": c.n .* 1 "),
        ("not " * 5000 + "ok", "^--where: "),
        ("n = 1 and (n = 2 or (" * 150 + "ok" + "))" * 150, "^--where: "),
        ("t = 'a\udcff'", "^--where: .* 7 .*UTF-8"),
    ],
)  # fmt: skip
def test_what_is_no_condition_is_refused_with_the_place(condition, message):
    pattern = message.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(InputError, match=pattern):
        parse_condition(condition, TYPES, "corpus")


# Search among the rows that are left


def shared(found, exact):
    """The share of the exact neighbours that were found."""
    pairs = zip(found.positions.tolist(), exact.positions.tolist(), strict=True)
    return np.mean([len(set(some) & set(best)) / len(best) for some, best in pairs])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf", "ivfpq", "sq8", "OPQ4,IVF16,PQ4x4,RFlat", "PCA8,Flat"])
def test_the_best_of_the_rows_that_are_left_are_found(kind, monkeypatch):
    monkeypatch.setattr(searching, "EXACT_ROWS", 100)
    vectors, queries = clustered(4000, 16), clustered(40, 16, seed=1)
    search, exact = searching.searcher_over(kind, vectors), searching.searcher_over("flat", vectors)
    of_all = shared(search.search(queries, 10), exact.search(queries, 10))
    for share in (0.0, 0.001, 0.3, 0.9):
        mask = np.random.default_rng(0).random(len(vectors)) < share
        found = search.search(queries, 10, mask)
        left = np.flatnonzero(mask)
        assert found.positions.shape == (40, min(10, len(left)))
        assert mask[found.positions].all()
        if not len(left):
            continue
        recall = shared(found, exact.search(queries, 10, mask))
        assert recall == 1 if share < 0.1 else recall >= of_all - 0.1
        among = searching.searcher_over("flat", vectors[mask]).search(queries, 10).positions
        assert np.array_equal(exact.search(queries, 10, mask).positions, left[among])


def test_the_nearest_rows_may_all_be_left_out():
    vectors, queries = clustered(4000, 16), clustered(5, 16, seed=1)
    search = searching.searcher_over("flat", vectors)
    mask = np.ones(len(vectors), bool)
    mask[search.search(queries[:1], 1500).positions] = False
    found = search.search(queries, 10, mask)
    among = searching.searcher_over("flat", vectors[mask]).search(queries, 10)
    assert np.array_equal(found.positions, np.flatnonzero(mask)[among.positions])
    np.testing.assert_allclose(found.scores, among.scores, atol=rounding(16))  # float32 sums in another order


def test_an_index_that_reaches_too_few_rows_is_helped_out(monkeypatch):
    monkeypatch.setattr(searching, "EXACT_ROWS", 0)
    monkeypatch.setattr(searching, "EXACT_SHARE", 0)
    vectors = clustered(4000, 16)
    search = searching.searcher_over("hnsw", vectors)
    search.set({"efSearch": 16})
    mask = np.zeros(len(vectors), bool)
    mask[::200] = True
    found = search.search(clustered(20, 16, seed=1), 15, mask)
    assert (found.positions >= 0).all() and mask[found.positions].all()
    assert all(len(set(row)) == 15 for row in found.positions.tolist())


@pytest.mark.parametrize("lacking", [slice(None), slice(0, 7)], ids=["all", "some"])
def test_queries_whose_rows_an_index_does_not_find_are_searched_exactly(lacking, monkeypatch):
    monkeypatch.setattr(searching, "EXACT_ROWS", 0)
    search = searching.searcher_over("hnsw", clustered(4000, 16))
    queries = clustered(20, 16, seed=1)
    mask = np.arange(4000) % 3 == 0
    original = FaissIndex.search

    def finds_two(index, *arguments):
        hits = original(index, *arguments)
        hits.positions[lacking, 2:] = -1
        return hits

    monkeypatch.setattr(FaissIndex, "search", finds_two)
    found = search.search(queries, 10, mask)
    exact = search.exactly().search(queries, 10, mask)
    assert np.array_equal(found.positions[lacking], exact.positions[lacking])
    assert (found.positions >= 0).all() and mask[found.positions].all()


# The commands

ROWS = [
    {"id": f"d{i}", "text": f"the {noun} is {colour}", "rating": rating, "lang": lang, "date": date}
    for i, (noun, colour, rating, lang, date) in enumerate(
        [
            ("cat", "red", 1, "en", "2024-01-03"), ("dog", "red", 5, "en", "2023-05-03"),
            ("cat", "blue", 2, "de", None), ("fish", "red", None, "en", "2024-03-01"),
            ("bird", "green", 4, None, "2024-02-01"), ("cow", "red", 4, "fr", "2022-01-01"),
        ]
    )
]  # fmt: skip
CONDITION = "rating >= 4 and lang <> 'de' or date > '2024-02-15'"
MET = {"d1", "d3", "d5"}


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "reviews.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def found(done):
    return {hit["id"] for hit in json.loads(done.stdout)["results"][0]["hits"]}


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("name", ["reviews.jsonl", "vectors", "vectors.parquet", "reviews.npy", "reviews.safetensors"])
@pytest.mark.parametrize("way", ["dense", "bm25", "rrf", "weighted"])
def test_every_corpus_and_way_takes_a_condition(invoke, corpus, tiny_bert, name, way):
    path = corpus.parent / name
    if path != corpus:  # the texts of vectors alone lie beside them
        invoke("encode", corpus, "-o", path, "-m", tiny_bert, check=0)
    model = () if way == "bm25" else ("-m", tiny_bert)
    words = ("--corpus", path, "--query", "red green blue", "--search", way, "--json", "-", *model)
    condition = CONDITION.replace("2024-02-15", "2024-02-15")
    done = invoke("retrieve", *words, "--where", condition, check=0)
    assert found(done) == MET
    protocol = json.loads(done.stdout)["protocol"]
    assert protocol["where"] == condition and protocol["rows_searched"] == len(MET)


def test_no_row_may_meet_a_condition_and_missing_values_count_as_one(invoke, tmp_path):
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"text": list("abcd"), "n": [1.0, float("nan"), None, float("nan")]}), path)
    nothing = invoke("retrieve", "--corpus", path, "--count-by", "n", "--where", "n > 9007199254740993", check=0)
    assert "0 of 4 rows meet the condition" in nothing.stderr
    done = invoke("retrieve", "--corpus", path, "--count-by", "n", "--json", "-", check=0)
    counted = json.loads(done.stdout)["counts"]["values"]
    assert counted == [{"value": None, "rows": 3}, {"value": 1.0, "rows": 1}]


def test_a_time_before_the_first_is_refused():
    with pytest.raises(InputError, match=r"'0001-01-01T00:00:00.05:00' .* 5 "):
        parse_condition("t > '0001-01-01T00:00:00+05:00'", {"t": pa.timestamp("us", "UTC")}, "rows")


def test_an_index_takes_a_condition(invoke, corpus, tiny_bert):
    invoke("index", corpus, "-o", corpus.parent / "v", "-m", tiny_bert, "--type", "hnsw", check=0)
    done = invoke("retrieve", "--corpus", corpus.parent / "v", "--query", "red", "--where", CONDITION, "--json", "-")
    assert found(done) == MET


def test_dates_of_a_csv_file_are_dates(invoke, tmp_path, tiny_bert):
    table = tmp_path / "t.csv"
    table.write_text("id,text,date,rating\na,the cat,2024-01-03,1\nb,the dog,2023-01-03,\n")
    words = ("--query", "cat", "--json", "-", "-m", tiny_bert, "--where")
    assert found(invoke("retrieve", "--corpus", table, *words, "date < '2023-06-01'", check=0)) == {"b"}
    assert found(invoke("retrieve", "--corpus", table, *words, "rating is null", check=0)) == {"b"}


def test_a_condition_that_no_row_meets_gives_no_hits(invoke, corpus, tiny_bert):
    done = invoke(
        "retrieve", "--corpus", corpus, "--query", "x", "--where", "rating > 9", "-m", tiny_bert, "--json", "-"
    )
    assert done.exit_code == 0 and found(done) == set()
    assert "0 of 6 rows meet the condition" in done.stderr


def test_a_bad_condition_is_refused_before_anything_is_encoded(invoke, corpus, tmp_path):
    failed = invoke(
        "retrieve", "--corpus", corpus, "--query", "x", "--where", "ratng > 3", "-m", tmp_path / "no", check=2
    )
    assert re.search(r"--where: .*'ratng'.*'rating'.*id \(text\), text \(text\), rating \(int\)", failed.stderr)
    failed = invoke("retrieve", "--beir", tmp_path, "--where", "a = 1", check=2)
    assert re.search("--where.*--corpus", failed.stderr)


def test_rows_are_counted_by_a_column(invoke, corpus):
    done = invoke(
        "retrieve", "--corpus", corpus, "--count-by", "lang", "--where", "rating is not null", "--json", "-", check=0
    )
    counts = json.loads(done.stdout)["counts"]
    assert counts["column"] == "lang"
    assert [(each["value"], each["rows"]) for each in counts["values"]] == [("en", 2), ("de", 1), ("fr", 1), (None, 1)]
    assert "rows by lang" in invoke("retrieve", "--corpus", corpus, "--count-by", "lang", check=0).stdout
    assert "'x'" in invoke("retrieve", "--corpus", corpus, "--count-by", "x", check=2).stderr


def test_an_empty_cell_of_a_csv_file_is_an_empty_text(invoke, tmp_path):
    (tmp_path / "c.csv").write_text("id,text,lang,n\na,one dog,en,1\nb,two cats,,\n")
    counted = {}
    for condition in ("lang is null", "lang = ''", "n is null"):
        call = ["retrieve", "--corpus", tmp_path / "c.csv", "--count-by", "id", "--where", condition, "--json", "-"]
        done = invoke(*call, check=0)
        counted[condition] = [row["value"] for row in json.loads(done.stdout)["counts"]["values"]]
        assert ("COLUMN = ''" in done.stderr) == (condition == "lang is null")
    assert counted == {"lang is null": [], "lang = ''": ["b"], "n is null": ["b"]}


@pytest.mark.slow
def test_thousands_of_tests_joined_by_or_are_answered_or_refused_with_the_option():
    table = pa.table({"n": [3, 2**24 + 1, None]})
    many = " or ".join(f"n = {i}" for i in range(9000))
    assert parse_condition(many, TYPES, "c").matches(table).tolist() == [True, False, False]
    with pytest.raises(InputError, match=r"--where: 21,000.* IN "):
        parse_condition(" or ".join(["n = 1"] * 21_000), TYPES, "c")


def test_a_fraction_is_compared_with_whole_numbers_as_it_is():
    table = pa.table({"n": [-4, -3, 3, 4, 2**53 + 1, None]})
    for condition, met in {
        "n >= 3.5": [3, 4], "n > 3.5": [3, 4], "n < 3.5": [0, 1, 2], "n <= -3.5": [0], "n < -3.5": [0],
        "n = 3.5": [], "n <> 3.5": [0, 1, 2, 3, 4], "not n = 3.5": [0, 1, 2, 3, 4], "n in (3.5, 4)": [3],
        "n not in (3.5)": [0, 1, 2, 3, 4], "n between 2.5 and 3.5": [2], "3.5 < n": [3, 4],
    }.items():  # fmt: skip
        assert np.flatnonzero(parse_condition(condition, TYPES, "c").matches(table)).tolist() == met, condition
