"""Tables of labelled text: their kinds, columns and values, and what is said of those that are damaged."""

import gzip
import json

import pytest

from sentcli.errors import DataError, InputError
from sentcli.io.labelled import range_of, read_table
from sentcli.io.labelled_kinds import kinds_of
from sentcli.io.labelled_records import columns_of
from sentcli.io.sources import open_source


def write(folder, name, columns, *rows):
    """Write a table in the format of its suffix."""
    path = folder / name
    records = [dict(zip(columns, row, strict=False)) for row in rows]
    if ".parquet" in name:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(records), path)
        return str(path)
    if ".jsonl" in name:
        text = "".join(json.dumps(record) + "\n" for record in records)
    else:
        mark = "\t" if ".tsv" in name else ","
        text = "".join(mark.join(map(str, row)) + "\n" for row in (columns, *rows))
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "csv.gz", "jsonl.gz"])
@pytest.mark.parametrize(
    ("columns", "row", "kind", "values"),
    [
        (["sentence1", "sentence2", "score"], ["a", "b", 0.5], "scored", [0.5]),
        (["sentence_1", "sentence_2", "regression_label"], ["a", "b", 1], "scored", [1]),
        (["sentence1", "sentence2", "label"], ["a", "b", 1], "binary", [1]),
        (["anchor", "positive"], ["a", "b"], "pairs", None),
        (["id", "anchor", "positive", "negative"], [7, "a", "b", "c"], "triplets", None),
        (["text", "label"], ["a", "good"], "labels", ["good"]),
    ],
)
def test_the_kind_is_told_from_the_columns_in_every_format(tmp_path, suffix, columns, row, kind, values):
    table = read_table(write(tmp_path, f"t.{suffix}", columns, row))
    texts = [value for value in row if isinstance(value, str)][: len(table.texts)]
    assert (table.kind, table.values, [column[0] for column in table.texts]) == (kind, values, texts)
    assert table.unit == ("row" if suffix == "parquet" else "line")
    assert table.lines == [2 if "sv" in suffix else 1]


def test_negatives_are_read_in_the_order_of_their_numbers(tmp_path):
    columns = ["negative_10", "anchor", "negative_2", "positive", "negative"]
    table = read_table(write(tmp_path, "t.tsv", columns, ["n10", "a", "n2", "p", "n"]))
    assert table.columns == ("anchor", "positive", "negative", "negative_2", "negative_10")
    assert [column[0] for column in table.texts] == ["a", "p", "n", "n2", "n10"]
    pairs = read_table(write(tmp_path, "t.tsv", columns, ["n10", "a", "n2", "p", "n"]), kind="pairs")
    assert pairs.columns == ("anchor", "positive")


@pytest.mark.parametrize(
    ("fields", "values", "kind"),
    [
        ("q,a", ["x", "x"], "pairs"),
        ("q, a,v", ["a text", "one more"], "triplets"),
        ("q,a,v", ["1", "0"], "binary"),
        ("q,a,v", ["1", "0.5"], "scored"),
        ("q,a,v,w", ["a text", "one more"], "triplets"),
    ],
)
def test_named_columns_are_of_the_kind_that_the_third_holds(tmp_path, fields, values, kind):
    rows = [["q", "a", value, f"other {value}"] for value in values]
    assert read_table(write(tmp_path, "t.csv", ["q", "a", "v", "w"], *rows), fields=fields).kind == kind


def test_a_name_for_every_column_of_a_kind(tmp_path):
    file = write(tmp_path, "t.jsonl", ["body", "class"], ["a", 3], ["b", True])
    assert read_table(file, kind="labels", fields="body,class").values == ["3", "True"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["q", "a"], r"t\.csv: .* q, a "),
        (["sentence1", "sentence2"], r"--kind scored\|binary\|.*pairs\|triplets\|labels .*--pair-fields"),
        (["sentence1", "sentence2", "score", "label"], r"t\.csv: .*--kind scored\|binary"),
        (["anchor", "positive", "negative", "text", "label"], r"t\.csv: .*--kind triplets\|labels "),
    ],
)
def test_a_table_of_two_kinds_or_none_asks(tmp_path, columns, words):
    with pytest.raises(DataError, match=words):
        read_table(write(tmp_path, "t.csv", columns, columns))


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("pairs", "a,b,c", "--pair-fields a,b,c .*--kind pairs: .*ANCHOR,POSITIVE"),
        ("triplets", "a,b", "--pair-fields a,b .*--kind triplets: .*ANCHOR,POSITIVE,NEGATIVE"),
        ("scored", "a,b", "--pair-fields a,b .*--kind scored: .*A,B,SCORE"),
        ("labels", "a", "--pair-fields a .*--kind labels: .*TEXT,LABEL"),
        (None, "a", "--pair-fields a: "),
        (None, "a,a", "--pair-fields a,a: "),
        (None, "a,,b", "--pair-fields a,,b: "),
        ("retrieval", None, r"retrieval.*corpus\.jsonl, queries\.jsonl, qrels/"),
        (None, "a,x", r"t\.csv, line 2: .*'x'.*a, b, c.*--pair-fields"),
        ("pairs", None, r"t\.csv, line 2: .*'anchor'"),
    ],
)
def test_columns_that_do_not_fit_the_kind_are_told(tmp_path, kind, fields, words):
    with pytest.raises(InputError, match=words):
        read_table(write(tmp_path, "t.csv", ["a", "b", "c"], ["1", "2", "3"]), kind=kind, fields=fields)


@pytest.mark.parametrize(
    ("name", "columns", "row", "words"),
    [
        ("t.csv", ["sentence1", "sentence2", "score"], ["a", "b", "high"], "line 3: .*'high'"),
        ("t.csv", ["sentence1", "sentence2", "score"], ["a", "b", "nan"], "line 3: .*'nan'"),
        ("t.csv", ["sentence1", "sentence2", "label"], ["a", "b", "2"], "line 3: .*'2'.*--kind scored"),
        ("t.csv", ["anchor", "positive", "negative"], ["a", "b"], "line 3: .*'negative'.*2.*3"),
        ("t.jsonl", ["anchor", "positive"], ["a", None], "line 2: positive .*null"),
        ("t.jsonl", ["anchor", "positive"], ["a", ["b"]], r"line 2: positive .*\['b'\]"),
        ("t.jsonl", ["text", "label"], ["a", [1]], "line 2: label .*list"),
        ("t.parquet", ["anchor", "positive"], ["a", None], "row 2: positive .*null"),
    ],
)
def test_a_broken_row_is_named(tmp_path, name, columns, row, words):
    good = ["a", "b", "1"][: len(columns)]
    with pytest.raises(DataError, match=f"{name}, {words}"):
        read_table(write(tmp_path, name, columns, good, row))


def test_what_is_no_table_is_told(tmp_path):
    with pytest.raises(InputError, match=r"t\.txt: .*\.csv, \.tsv, \.jsonl"):
        read_table(write(tmp_path, "t.txt", ["a"], ["b"]))
    with pytest.raises(DataError, match=r"t\.csv: "):
        read_table(write(tmp_path, "t.csv", ["anchor", "positive"]))


def test_kinds_of_columns():
    assert kinds_of(["positive", "anchor", "x"]) == ["pairs"]
    assert kinds_of(["anchor", "positive", "negative_3"]) == ["triplets"]
    assert kinds_of(["text"]) == []


def test_the_range_of_scores():
    assert range_of([0, 0.5]) == (0, 1)
    assert range_of([1, 4.2]) == (0, 5)
    assert range_of([-3, 7]) == (-3, 7)


def test_an_error_names_the_line_of_a_row(tmp_path):
    table = read_table(write(tmp_path, "t.csv", ["anchor", "positive"], ["a", "b"], ["c", "d"]))
    assert str(table.error(1, "wrong")) == f"{open_source(str(tmp_path / 't.csv')).name}, line 3: wrong"


def test_columns_of_plain_text_are_refused_with_the_option_that_names_them(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a cat\n")
    with pytest.raises(InputError, match=r"a\.txt.*--pair-fields one,two"):
        columns_of(open_source(str(path)), "one,two")
