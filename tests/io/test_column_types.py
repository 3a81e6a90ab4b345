"""The columns of CSV files have the types of all their values, as other tools need them to filter."""

import datetime
import json
import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentcli.errors import DataError, InputError
from sentcli.io import column_types
from sentcli.io.blocks import blocks, survey
from sentcli.io.column_types import parse_types
from sentcli.io.readers import ReadOptions
from sentcli.io.sources import open_source


def read(path, columns, **types):
    """Write columns into a CSV file; return the types and the values that are read."""
    names = list(columns)
    lines = [",".join(["text", *names])]
    lines += [",".join(["the cat", *row]) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(lines) + "\n")
    source, options = open_source(str(path)), ReadOptions(types=types)
    found = survey([source], options)
    rows = [block.columns for block in blocks([source], options, columns=names, casts=found.casts)]
    return {name: str(kind) for name, kind in found.column_types.items()}, rows[0], found


DAY, TIME = datetime.date(2024, 1, 5), datetime.datetime(2024, 1, 5, 10, 30)
UTC = TIME.replace(tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("values", "kind", "read_as"),
    [
        (["1", "-20", "3"], "int64", [1, -20, 3]),
        (["1", "", "3"], "int64", [1, None, 3]),
        (["1", "2.5", "-1e3"], "double", [1.0, 2.5, -1000.0]),
        (["true", "False", "TRUE"], "bool", [True, False, True]),
        (["2024-01-05", ""], "date32[day]", [DAY, None]),
        (["2024-01-05", "2024-01-05 10:30"], "timestamp[us]", [datetime.datetime(2024, 1, 5), TIME]),
        (["2024-01-05T10:30:00Z"], "timestamp[us, tz=UTC]", [UTC]),
        (["00123", "00456"], "string", ["00123", "00456"]),
        (["0", "0.5"], "double", [0.0, 0.5]),
        (["+491234", "+495678"], "string", ["+491234", "+495678"]),
        (["12345678901234567890", "1"], "string", ["12345678901234567890", "1"]),
        (["9007199254740993", "0.5"], "string", ["9007199254740993", "0.5"]),
        (["nan", "inf"], "string", ["nan", "inf"]),
        (["0x1f", "7"], "string", ["0x1f", "7"]),
        (["1", "true"], "string", ["1", "true"]),
        (["", ""], "string", ["", ""]),
        (["2024-02-30", "2024-01-05"], "string", ["2024-02-30", "2024-01-05"]),
    ],
)
def test_a_column_has_the_type_of_all_its_values(tmp_path, values, kind, read_as):
    kinds, columns, _ = read(tmp_path / "a.csv", {"x": values, "y": values})
    assert kinds == {"x": kind, "y": kind}
    assert columns["x"] == read_as
    assert [type(value) for value in columns["x"]] == [type(value) for value in read_as]


@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_the_last_value_of_a_long_column_counts_as_much_as_the_first(tmp_path, monkeypatch, size):
    monkeypatch.setattr(column_types, "BATCH_VALUES", size)
    numbers = [str(number) for number in range(50)]
    kinds, _, found = read(tmp_path / "a.csv", {"a": numbers, "b": [*numbers[:-1], "0.5"], "c": [*numbers[:-1], "n/a"]})
    assert kinds == {"a": "int64", "b": "double", "c": "string"}
    assert found.mixed == {"c": f"'n/a' ({tmp_path / 'a.csv'}, line 51)"}


def test_a_column_of_texts_with_some_numbers_is_not_called_mixed(tmp_path):
    _, _, found = read(tmp_path / "a.csv", {"title": ["1984", "Emma", "Ulysses"]})
    assert found.mixed == {}


def test_types_may_be_given(tmp_path):
    values = {"year": ["2023", "2024"], "zip": ["12345", "67890"], "on": ["0", "1"]}
    kinds, columns, _ = read(tmp_path / "a.csv", values, zip="text", on="bool", year="float")
    assert kinds == {"year": "double", "zip": "string", "on": "bool"}
    assert columns == {"year": [2023.0, 2024.0], "zip": ["12345", "67890"], "on": [False, True]}
    with pytest.raises(DataError, match=r"a\.csv.*line 3.*'year'.*'soon'"):
        read(tmp_path / "a.csv", {"year": ["2023", "soon"]}, year="int")
    (tmp_path / "a.jsonl").write_text('{"text": "x", "year": 2023}\n{"text": "x", "year": 2023.5}\n')
    with pytest.raises(DataError, match=r"a\.jsonl.*line 2.*'year'.*2023.*5"):
        survey([open_source(str(tmp_path / "a.jsonl"))], ReadOptions(types={"year": "int"}))


def test_given_types_are_read_from_the_command_line():
    assert parse_types(["a=int,b = text", "c=d=float"]) == {"a": "int", "b": "text", "c=d": "float"}
    for wrong in ("a", "a=", "=int", "a=number"):
        with pytest.raises(InputError, match=f"--types {wrong}: .*COLUMN=TYPE.*int, float, bool"):
            parse_types([wrong])


def test_tables_of_several_formats_agree_on_a_type(tmp_path):
    (tmp_path / "a.csv").write_text("text,n,m,k\nx,1,1,a\n")
    (tmp_path / "b.jsonl").write_text('{"text": "y", "n": 0.5, "m": "two", "k": 3}\n')
    sources = [open_source(str(tmp_path / name)) for name in ("a.csv", "b.jsonl")]
    found = survey(sources, ReadOptions())
    assert [str(found.column_types[name]) for name in "nmk"] == ["double", "string", "string"]
    (block,) = blocks(sources, ReadOptions(), columns=["n", "m", "k"], casts=found.casts)
    assert block.columns == {"n": [1.0, 0.5], "m": ["1", "two"], "k": ["a", 3]}


@pytest.mark.slow
def test_encode_keeps_types_says_them_and_keeps_to_them_when_it_goes_on(invoke, tiny_bert, tmp_path):
    table, more = tmp_path / "a.csv", tmp_path / "b.csv"
    table.write_text("id,text,rating,code,price\n1,the cat,4,007,1\n2,a dog,,008,free\n3,a bird,5,009,2\n")
    call = ("encode", table, "-m", tiny_bert, "-o")
    done = invoke(*call, tmp_path / "v.parquet", check=0)
    assert re.search("rating int, code text, price text .*--types", done.stderr)
    assert re.search(f"'price'.*'free'.*{table}, line 3", done.stderr.replace("\n", " "))
    read_back = pq.read_table(tmp_path / "v.parquet")
    assert read_back["rating"].to_pylist() == [4, None, 5]
    assert read_back["code"].to_pylist() == ["007", "008", "009"]
    invoke(*call, tmp_path / "v.jsonl", "--types", "rating=text,code=int", check=0)
    assert json.loads((tmp_path / "v.jsonl").read_text().splitlines()[0])["code"] == 7
    failed = invoke(*call, tmp_path / "w.parquet", "--types", "price=int,code=date", check=2)
    assert re.search(r"'code' is '007' \(line 2\), '008' \(line 3\).*; 'price' is 'free' \(line 3\)", failed.stderr)
    invoke(*call, tmp_path / "n.parquet", "--null", "free", "--null", "4", check=0)
    nulled = pq.read_table(tmp_path / "n.parquet")
    assert nulled["price"].to_pylist() == [1, None, 2] and nulled["rating"].to_pylist() == [None, None, 5]
    failed = invoke(*call, tmp_path / "w.parquet", "--types", "ratings=int", check=2)
    assert re.search("--types ratings: .*'rating'", failed.stderr)
    invoke(*call, tmp_path / "d", "--types", "rating=float", check=0)
    more.write_text("id,text,rating,code,price\n4,a fish,1,10,3\n")
    invoke("encode", more, "-m", tiny_bert, "-o", tmp_path / "d", "--append", check=0)
    added = pq.read_table(tmp_path / "d" / "rows-00001.parquet")
    assert added.to_pylist() == [{"id": "4", "text": "a fish", "rating": 1.0, "code": "10", "price": "3"}]
    more.write_text("id,text,rating,code,price\n4,a fish,none,10,3\n")
    failed = invoke("encode", more, "-m", tiny_bert, "-o", tmp_path / "d", "--append", check=2)
    assert re.search(f"{more}, line 2: 'rating' .*'none'.*float", failed.stderr)


def typed(path, **options):
    """Return the types that are found in a file, and its columns after conversion."""
    source, options = open_source(str(path)), ReadOptions(**options)
    found = survey([source], options)
    names = list(found.column_types)
    (block,) = blocks([source], options, columns=names, casts=found.casts)
    return {name: str(kind) for name, kind in found.column_types.items()}, block.columns, found


MOMENTS = ["2024-01-05T10:00:00Z", "2024-01-05T23:30:00-05:00", "2024-01-06T00:00:00.250+02:00"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([*MOMENTS, ""], "timestamp[us, tz=UTC]"),
        (["2024-01-05", "2024-01-06T10:00", ""], "timestamp[us]"),
        (["2024-01-05", "", "2024-01-06"], "date32[day]"),
        (["2024-01-05T10:00:00Z", "2024-01-05T10:00:00"], "string"),
    ],
)
def test_times_are_the_same_in_json_lines_and_in_csv(tmp_path, values, kind):
    rows = [{"text": "the cat", "at": value or None} for value in values]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    kinds, columns, _ = typed(tmp_path / "a.jsonl")
    assert kinds == {"at": kind}
    if kind != "string":
        assert (kinds, columns) == read(tmp_path / "a.csv", {"at": values})[:2]


def test_json_has_numbers_of_its_own_and_an_empty_text_is_one(tmp_path):
    rows = [{"text": "x", "code": "7", "yes": "true", "at": "2024-01-05"}, {"text": "x", "at": ""}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    kinds, columns, found = typed(tmp_path / "a.jsonl")
    assert set(kinds.values()) == {"string"} and columns["at"] == ["2024-01-05", ""]
    assert found.mixed == {"at": f"'' ({tmp_path / 'a.jsonl'}, line 2)"}
    assert typed(tmp_path / "a.jsonl", nulls=("",))[0]["at"] == "date32[day]"


@pytest.mark.parametrize(
    ("values", "line"),
    [([1, 2, "soon"], 3), (["soon", 1, 2], 1), ([1, True], 2), (["2024-01-05", 3], 1), ([2.5, 2**60], 2)],
)
def test_the_first_value_that_makes_text_of_a_column_is_named(tmp_path, values, line):
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": "x", "at": value}) + "\n" for value in values))
    _, _, found = typed(file)
    assert found.mixed == {"at": f"{values[line - 1]!r} ({file}, line {line})"}


@pytest.mark.parametrize("values", [["a", "b"], [[1], [2]], [{"a": 1}, None], ["a", "b", 3], [2**70, 2**71]])
def test_a_column_of_texts_or_lists_is_not_mixed(tmp_path, values):
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": "x", "at": value}) + "\n" for value in values))
    assert typed(file)[2].mixed == {}


def test_decimals_are_numbers(tmp_path):
    prices = [Decimal("10.00"), Decimal("2.50"), None]
    counts = pa.array([Decimal(3), None, Decimal(10**12)], pa.decimal128(38, 0))
    table = pa.table({"text": ["a", "b", "c"], "price": prices, "count": counts})
    pq.write_table(table, tmp_path / "a.parquet")
    kinds, columns, _ = typed(tmp_path / "a.parquet")
    assert kinds == {"price": "double", "count": "int64"}
    assert columns == {"price": [10.0, 2.5, None], "count": [3, None, 10**12]}
    assert typed(tmp_path / "a.parquet", types={"count": "float"})[1]["count"] == [3.0, None, 1e12]
    with pytest.raises(DataError, match=r" 1: 'price' is .*10\.00.*no int"):
        typed(tmp_path / "a.parquet", types={"price": "int"})


def test_a_spreadsheet_has_days_midnights_and_times_with_a_zone_as_csv_has(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine", reason="needs the extra sentcli[sheets]")
    midnight = datetime.datetime(2024, 1, 5)
    book = openpyxl.Workbook()
    book.active.append(["text", "day", "at", "moment"])
    book.active.append(["a", DAY, midnight, "2024-01-05T10:30:00Z"])
    book.active.append(["b", "2024-01-05", TIME, "2024-01-05 12:30:00+02:00"])
    book.save(tmp_path / "a.xlsx")
    kinds, columns, _ = typed(tmp_path / "a.xlsx")
    assert kinds == {"day": "date32[day]", "at": "timestamp[us]", "moment": "timestamp[us, tz=UTC]"}
    assert columns == {"day": [DAY, DAY], "at": [midnight, TIME], "moment": [UTC, UTC]}


@pytest.mark.parametrize("end", ["jsonl", "csv"])
def test_conditions_compare_times_as_times(invoke, tiny_bert, tmp_path, end):
    pytest.importorskip("faiss")
    rows = [
        ("a", "2024-01-05T10:00:00Z"),
        ("c", "2024-01-05T23:30:00-05:00"),
        ("d", ""),
        ("e", "2024-01-06T00:00+02:00"),
    ]
    file = tmp_path / f"t.{end}"
    lines = [json.dumps({"id": key, "text": f"note {key}", "at": at or None}) for key, at in rows]
    if end == "csv":
        lines = ["id,text,at", *(f"{key},note {key},{at}" for key, at in rows)]
    file.write_text("\n".join(lines) + "\n")
    ask = ("--query", "note", "--where", "at < '2024-01-06'", "--json", "-")
    done = invoke("retrieve", "--corpus", file, "-m", tiny_bert, *ask, check=0)
    assert {hit["id"] for hit in json.loads(done.stdout)["results"][0]["hits"]} == {"a", "e"}


def test_index_takes_types_and_missing_values_as_encode_does(invoke, tiny_bert, tmp_path):
    pytest.importorskip("faiss")
    table = tmp_path / "a.csv"
    table.write_text("id,text,code,price\n1,the cat,7,4\n2,a dog,8,free\n")
    call = ("index", table, "-m", tiny_bert, "-o", tmp_path / "i", "--type", "flat")
    done = invoke(*call, "--types", "code=text", "--null", "free", check=0)
    assert re.search(r"price int .*--types", done.stderr)
    rows = pq.read_table(tmp_path / "i" / "rows-00000.parquet")
    assert rows["code"].to_pylist() == ["7", "8"] and rows["price"].to_pylist() == [4, None]
    assert "--types codes" in invoke(*call, "--types", "codes=text", "--overwrite", check=2).stderr
    failed = invoke("index", tmp_path / "i", "--types", "code=int", check=2)
    assert "--types" in failed.stderr
