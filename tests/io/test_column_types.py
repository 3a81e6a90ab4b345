"""The columns of CSV files have the types of all their values, as other tools need them to filter."""

import datetime
import json
import re

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
