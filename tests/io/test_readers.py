"""Rows come in as they stand in the file, or with a message that names the file and the line."""

import csv
import gzip
import io
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.errors import DataError, InputError
from sentcli.io import arrow_tables, formats, text_lines
from sentcli.io.blocks import blocks, survey
from sentcli.io.readers import ReadOptions
from sentcli.io.sources import open_source
from sentcli.io.text_inputs import text_sources
from tests.examples import examples
from tests.io.test_sheets import xlsx

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), min_size=1, max_size=30)
many = examples(60)


def as_csv(rows, columns, delimiter=","):
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(columns)
    writer.writerows([row.get(column, "") for column in columns] for row in rows)
    return out.getvalue().encode()


def as_jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_parquet(rows, schema=None):
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), out)
    return out.getvalue()


@pytest.fixture
def file(tmp_path):
    """Write a file (str as UTF-8; gzipped if its name says so) and return its Source."""

    def write(name, content, file_format=None):
        content = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return open_source(str(path), file_format)

    return write


def read(*sources, columns=(), block_rows=8192, shard_rows=None, wanted=None, **options):
    """Return ids, texts and the other columns over all blocks."""
    kinds = {"block_rows": block_rows, "shard_rows": shard_rows, "shards": wanted, "columns": columns}
    found = list(blocks(sources, ReadOptions(**options), **kinds))
    extras = {name: [value for block in found for value in block.columns[name]] for name in columns}
    return [i for block in found for i in block.ids], [t for block in found for t in block.texts], extras


def problem(*sources, **options):
    """Return the message with which a survey refuses the sources."""
    with pytest.raises(InputError) as caught:
        survey(sources, ReadOptions(**options))
    return str(caught.value)


# What is read


@pytest.mark.parametrize("gz", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b'one\ntwo, "2"\nthree\t3\n'),
        ("a.unknown", b'one\ntwo, "2"\nthree\t3'),
        ("a.csv", b'text\none\n"two, ""2"""\nthree\t3\n'),
        ("a.CSV", b'text\none\n"two, ""2"""\nthree\t3\n'),
        ("a.tsv", b'n\ttext\n1\tone\n2\ttwo, "2"\n'),
        ("a.jsonl", b'{"text": "one"}\n{"text": "two, \\"2\\""}\n\n{"text": "three\\t3"}'),
        ("a.ndjson", b'{"text": "one"}\n{"text": "two, \\"2\\""}\n{"text": "three\\t3"}\n'),
        ("a.parquet", as_parquet([{"text": "one"}, {"text": 'two, "2"'}, {"text": "three\t3"}])),
    ],
)
def test_every_format_gives_its_texts(file, name, content, gz):
    expected = ["one", 'two, "2"', "three\t3"][: 2 if name == "a.tsv" else 3]
    assert read(file(name + gz, content))[1] == expected


@pytest.mark.parametrize(("name", "start"), [("a.txt", ""), ("a.csv", "text\n"), ("a.jsonl", "")])
def test_a_byte_order_mark_is_not_part_of_the_first_field(file, name, start):
    line = '{"text": "x"}' if name == "a.jsonl" else "x"
    assert read(file(name, f"\ufeff{start}{line}\n"))[1] == ["x"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"one\r\ntwo\r\n"),
        ("a.csv", b"text\r\none\r\ntwo\r\n"),
        ("a.tsv", b"id\ttext\r\n1\tone\r\n2\ttwo\r\n"),
    ],
)
def test_windows_line_ends_are_not_part_of_a_text(file, name, content):
    assert read(file(name, content))[1] == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\n\nb\n", ["a", "", "b"]),
        ("\n", [""]),
        ("a\n\n", ["a", ""]),
        ("a", ["a"]),
        ("\r\n a \r\n", ["", " a "]),
    ],
)
def test_in_plain_text_every_line_is_a_row(file, content, expected):
    assert read(file("a.txt", content))[1] == expected


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_only_line_feeds_split_lines(file, separator):
    text = f"a{separator}b"
    sources = [file("a.txt", text), file("a.csv", f"text\n{text}\n"), file("a.jsonl", as_jsonl([{"text": text}]))]
    assert read(*sources)[1] == [text] * 3


def test_csv_fields_may_hold_newlines_and_be_long(file):
    rows = [{"text": "two\nlines"}, {"text": "dos\r\nlines"}, {"text": "x" * 200_000}, {"text": ""}]
    assert read(file("a.csv", as_csv(rows, ["text"])))[1] == [row["text"] for row in rows]


def test_tsv_has_no_quoting(file):
    assert read(file("a.tsv", 'id\ttext\n1\t"open\n2\t5" disk\n'))[1] == ['"open', '5" disk']


def test_several_inputs_are_one_sequence(file):
    sources = [file("a.txt", "a\nb\n"), file("b.jsonl", '{"text": "c"}\n'), file("c.csv.gz", "text\nd\n")]
    assert read(*sources)[:2] == (["0", "1", "2", "3"], ["a", "b", "c", "d"])


def test_standard_input_is_read_twice_and_then_removed(monkeypatch):
    from sentcli.io.scratch import remove_scratch

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    source = open_source("-")
    assert survey([source], ReadOptions()).rows == 2
    assert read(source)[1] == ["a", "b"]
    remove_scratch()
    assert not source.path.exists()


def test_a_given_format_goes_before_the_suffix(file):
    assert read(file("a.json", '{"text": "x"}\n', "jsonl"))[1] == ["x"]
    assert read(file("a.csv", "text\nx\n", "txt"))[1] == ["text", "x"]


def test_a_lone_surrogate_becomes_the_replacement_character(file):
    source = file("a.jsonl", '{"id": "\\udc00", "text": "a\\ud800b \\ud83d\\ude42", "n": ["\\udfff"]}\n')
    assert read(source, columns=["n"]) == (["\ufffd"], ["a\ufffdb 🙂"], {"n": [["\ufffd"]]})


# Ids and other columns


@pytest.mark.parametrize(
    ("record", "options", "expected"),
    [
        ({"id": "a", "_id": "b"}, {}, "a"),
        ({"_id": "b"}, {}, "b"),
        ({"id": "a", "key": "c"}, {"id_field": "key"}, "c"),
        ({"other": "a"}, {}, "0"),
        ({"id": ""}, {}, ""),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_ids_come_from_id_then_beirs_then_the_row_number(file, kind, record, options, expected):
    row = {**record, "text": "x"}
    content = {"csv": as_csv([row], list(row)), "jsonl": as_jsonl([row]), "parquet": as_parquet([row])}[kind]
    assert read(file(f"a.{kind}", content), **options)[0] == [expected]


def test_ids_are_text(file):
    assert read(file("a.jsonl", '{"id": 7, "text": "x"}\n{"id": 1.5, "text": "y"}\n'))[0] == ["7", "1.5"]


def test_row_numbers_count_the_rows_that_are_skipped(file):
    source = file("a.jsonl", '{"text": "x"}\n{"text": null}\n{"text": "z"}\n')
    assert read(source, on_null="skip")[:2] == (["0", "2"], ["x", "z"])


def test_other_columns_keep_their_values_and_are_null_where_missing(file):
    source = file("a.jsonl", '{"text": "x", "n": 1}\n{"text": "y", "tags": ["a"]}\n')
    assert read(source, columns=["n", "tags"])[2] == {"n": [1, None], "tags": [None, ["a"]]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, None, False], pa.bool_()),
        ([1, None, -5], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([2**62], pa.int64()),
        ([2**70], pa.string()),
        ([2**60 + 1, 0.5], pa.string()),
        ([True, 1], pa.string()),
        (["a", 1], pa.string()),
        ([[1], {"a": 2}], pa.string()),
        ([None], pa.string()),
    ],
)
def test_the_type_of_a_column_is_the_narrowest_that_holds_it(file, values, expected):
    source = file("a.jsonl", as_jsonl([{"text": "x", "n": value} for value in values]))
    assert survey([source], ReadOptions()).column_types == {"n": expected}


def test_a_column_that_looks_like_numbers_stays_text_in_csv(file):
    assert survey([file("a.csv", "text,zip\nx,01234\n")], ReadOptions()).column_types == {"zip": pa.string()}


def test_the_type_of_a_column_is_found_over_all_inputs(file):
    sources = [file("a.jsonl", '{"text": "x", "n": 1}\n'), file("b.jsonl", '{"text": "x", "n": 0.5, "m": "a"}\n')]
    found = survey(sources, ReadOptions())
    assert (found.rows, found.column_types) == (2, {"n": pa.float64(), "m": pa.string()})


# Nulls

NULLS = {
    "a.jsonl": ('{"text": "x"}\n{"text": null}\n{"n": 1}\n{"text": ""}\n', "line 2"),
    "a.csv": ('id,text\n1,x\n2\n3\n4,""\n', "line 3"),
    "a.parquet": (as_parquet([{"text": t} for t in ("x", None, None, "")]), "row 2"),
}


@pytest.mark.parametrize("name", NULLS)
def test_a_null_text_is_an_error_that_names_the_row_unless_accepted(file, name):
    content, place = NULLS[name]
    source = file(name, content)
    assert problem(source).startswith(f"{source.name}, {place}: 'text' ")
    assert problem(source, null_hint="; try again").endswith("; try again")
    assert read(source, on_null="empty")[1] == ["x", "", "", ""]
    assert read(source, on_null="skip")[1] == ["x", ""]
    found = survey([source], ReadOptions(on_null="skip"))
    assert (found.rows, found.nulls) == (2, 2)


# Blocks


def test_blocks_end_with_their_shard(file):
    source = file("a.txt", "x\n" * 23)
    found = list(blocks([source], ReadOptions(), block_rows=4, shard_rows=10))
    assert [len(b) for b in found] == [4, 4, 2, 4, 4, 2, 3]
    assert [b.shard for b in found] == [0, 0, 0, 1, 1, 1, 2]
    assert [b.first_row for b in found] == [0, 4, 8, 10, 14, 18, 20]


@many
@given(
    texts=st.lists(st.one_of(st.none(), st.text("ab", max_size=2)), min_size=1, max_size=40),
    block_rows=st.integers(1, 9),
    shard_rows=st.integers(1, 9),
    wanted=st.sets(st.integers(0, 9)),
)
def test_some_shards_are_read_as_they_are_among_all(file, texts, block_rows, shard_rows, wanted):
    source = file("a.jsonl", as_jsonl([{"text": text} for text in texts]))
    kinds = {"block_rows": block_rows, "shard_rows": shard_rows}
    _, kept, _ = read(source, on_null="skip", **kinds)
    assert kept == [text for text in texts if text is not None]
    whole = list(blocks([source], ReadOptions(on_null="skip"), **kinds))
    some = list(blocks([source], ReadOptions(on_null="skip"), shards=wanted, **kinds))
    assert some == [block for block in whole if block.shard in wanted]


# Round trips


@pytest.mark.slow
@many
@given(texts=TEXTS)
@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "jsonl.gz", "csv.gz", "parquet.gz"])
def test_any_texts_read_back_equal(file, kind, texts):
    rows = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    contents = {"jsonl": as_jsonl, "parquet": as_parquet, "csv": lambda r: as_csv(r, ["id", "text"])}
    source = file(f"a.{kind}", contents[kind.removesuffix(".gz")](rows))
    assert read(source)[:2] == ([row["id"] for row in rows], texts)


@many
@given(texts=st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"])), min_size=1))
def test_any_lines_read_back_equal(file, texts):
    source = file("a.txt", "first\n" + "".join(f"{text}\n" for text in texts))
    assert read(source)[1] == ["first", *texts]


# Errors


def test_a_missing_file_names_the_nearest(tmp_path):
    (tmp_path / "sentences.txt").touch()
    with pytest.raises(InputError, match=r"/sentence\.txt .*'sentences\.txt'"):
        open_source(str(tmp_path / "sentence.txt"))
    with pytest.raises(InputError, match=r"nowhere/a\.txt$"):
        open_source(str(tmp_path / "nowhere" / "a.txt"))


def test_a_directory_is_refused_with_a_way_out(tmp_path):
    with pytest.raises(InputError, match=rf"{tmp_path} .*'{tmp_path}/\*\.jsonl'"):
        open_source(str(tmp_path))


@pytest.mark.parametrize("name", ["a.json", "a.JSON", "a.json.gz"])
def test_a_json_document_is_not_rows(file, name):
    with pytest.raises(InputError, match=rf"{re.escape(name)}: .*\.jsonl"):
        file(name, "[]")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", ""),
        ("a.csv", ""),
        ("a.csv", "text\n"),
        ("a.jsonl", "\n\n"),
        ("a.txt.gz", ""),
        ("a.parquet", as_parquet([], pa.schema({"text": pa.string()}))),
    ],
)
def test_an_empty_file_is_refused(file, name, content):
    source = file(name, content)
    assert problem(file("full.txt", "x\n"), source).startswith(f"{source.name}: ")


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.txt", "good\nstra\xdfe\n".encode("latin1"), 2),
        ("a.txt.gz", "good\nstra\xdfe\n".encode("latin1"), 2),
        ("a.csv", "text\ngood\nstra\xdfe\n".encode("latin1"), 3),
        ("a.jsonl", '{"text": "x"}\n{"text": "stra\xdfe"}\n'.encode("latin1"), 2),
    ],
)
def test_bytes_that_are_not_utf8_are_named_with_their_line(file, name, content, line):
    source = file(name, content)
    assert re.match(f"{source.name}, line {line}: .*0xdf .*iconv -f cp1252", problem(source))


@pytest.mark.parametrize(
    ("name", "content", "place", "words"),
    [
        ("a.csv", "id,body\n1,x\n", "line 2", ["'text'", "id, body", "--text-field"]),
        ("a.jsonl", '{"body": "x"}\n', "line 1", ["'text'", "body", "--text-field"]),
        ("a.parquet", as_parquet([{"body": "x"}]), "row 1", ["'text'", "body", "--text-field"]),
        ("a.csv", "id,text\n1,x\n2,y,z\n", "line 3", ["3 ", " 2"]),
        ("a.tsv", "id\ttext\n1\tx\t\n", "line 2", ["3 ", " 2"]),
        ("a.csv", 'text\n"two\nlines"\nx,y\n', "line 4", ["2 ", " 1"]),
        ("a.csv", "text,text\nx,y\n", "line 1", ["text, text"]),
        ("a.csv", 'text\nx\n"open\n', "line 3", ["csv"]),
        ("a.csv", "text\none\rtwo\n", "line 2", ["csv"]),
        ("a.jsonl", '{"text": "x"}\n{"text": "y"\n', "line 2", ["JSON"]),
        ("a.jsonl", '\n{"text": "x"}\nx\n', "line 3", ["JSON"]),
        ("a.jsonl", "[" * 100_000, "line 1", ["JSON"]),
        ("a.jsonl", '{"text": "x", "n": ' + "9" * 5000 + "}", "line 1", ["JSON"]),
        ("a.jsonl", '{"text": "x"}\n["x"]\n', "line 2", ["list"]),
        ("a.jsonl", '"x"\n', "line 1", ["string"]),
        ("a.jsonl", "null\n", "line 1", ["null"]),
        ("a.jsonl", '{"text": "x"}\n{"text": 5}\n', "line 2", ["'text'", "number"]),
        ("a.jsonl", '{"text": {"a": 1}}\n', "line 1", ["'text'", "object"]),
        ("a.parquet", as_parquet([{"text": 5}]), "row 1", ["'text'", "number"]),
        ("a.jsonl", '{"id": 1, "text": "x"}\n{"text": "y"}\n', "line 2", ["'id'"]),
        ("a.csv", "text\nx\n", None, ["'key'", ": text"]),
    ],
)
def test_a_bad_row_is_named_with_file_and_line(file, name, content, place, words):
    source = file(name, content)
    message = problem(source, id_field="key" if place is None else None)
    assert message.startswith(f"{source.name}, {place}: " if place else f"{source.name}: ")
    for word in words:
        assert word in message


def test_a_bad_row_of_the_last_file_is_found_before_any_work(file):
    bad = file("b.jsonl", '{"text": "x"}\n{\n')
    assert problem(file("a.txt", "x\n" * 100), bad).startswith(f"{bad.name}, line 2: ")


@pytest.mark.parametrize(
    "damage",
    [
        lambda packed: b"not gzip",
        lambda packed: packed[:-9],
        lambda packed: packed[:-6] + bytes(6),
        lambda packed: packed[:12] + b"\xff\xff\xff" + packed[15:],
    ],
    ids=["another format", "cut off", "checksum", "garbage inside"],
)
@pytest.mark.parametrize("kind", ["txt", "csv", "jsonl"])
def test_a_damaged_gzip_file_is_named(tmp_path, damage, kind):
    rows = [{"text": f"row {i}"} for i in range(1000)]
    path = tmp_path / f"a.{kind}.gz"
    path.write_bytes(damage(gzip.compress(as_jsonl(rows) if kind == "jsonl" else as_csv(rows, ["text"]))))
    assert problem(open_source(str(path))).startswith(f"{path}: damaged gzip")


TABLE = as_parquet([{"text": "a\x01"}] * 500)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PAR1junkPAR1",
        TABLE[: len(TABLE) // 2],
        TABLE[:6] + b"\xff" * 12 + TABLE[18:],
        TABLE.replace(b"a\x01", b"\xff\x01"),
    ],
    ids=["empty", "garbage", "cut off", "page header", "not UTF-8"],
)
@pytest.mark.parametrize("gz", ["", ".gz"])
def test_a_damaged_parquet_file_is_named(file, content, gz):
    source = file(f"a.parquet{gz}", content)
    assert problem(source).startswith(f"{source.name}: ")


def test_data_errors_are_input_errors():
    assert issubclass(DataError, InputError)
    assert str(DataError("f.csv", "bad", line=3)) == "f.csv, line 3: bad"


def test_dates_and_durations_beyond_pythons_are_text(tmp_path):
    table = pa.table(
        {
            "text": ["a", "b"],
            "when": pa.array([9 * 10**18, 0]).cast(pa.timestamp("us")),
            "took": pa.array([9 * 10**18, 1]).cast(pa.duration("ms")),
            "day": pa.array([2**30, 1], pa.int32()).cast(pa.date32()),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    sources = [open_source(str(tmp_path / "rows.parquet"))]
    assert survey(sources, ReadOptions()).column_types == dict.fromkeys(("when", "took", "day"), pa.string())
    (block,) = blocks(sources, ReadOptions(), columns=("when", "took", "day"))
    assert block.texts == ["a", "b"]
    assert all(isinstance(values[0], str) for values in block.columns.values())
    assert block.columns["day"][1].isoformat() == "1970-01-02"


@pytest.mark.drawn
@pytest.mark.parametrize("null", ["error", "skip"])
@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".tsv", ".parquet", ".jsonl.gz", ".csv.gz", ".xlsx"])
def test_reading_begins_at_any_mark(tmp_path, monkeypatch, suffix, null):
    """What a worker reads of its shard are the rows that are there when everything is read."""
    import gzip

    import pandas as pd

    monkeypatch.setattr("sentcli.io.blocks.BLOCK_ROWS", 7)
    monkeypatch.setattr(formats, "BATCH_ROWS", 3)
    monkeypatch.setattr(arrow_tables, "BATCH_ROWS", 3)
    monkeypatch.setattr(text_lines, "FIRST_BYTES", 70)
    monkeypatch.setattr(text_lines, "CHUNK_BYTES", 70)
    rows = [{"text": f'text {i}, "äö"' + ("\nwith a line end" if i % 5 == 0 else ""), "n": i % 3} for i in range(40)]
    if null == "skip" and suffix in (".jsonl", ".parquet", ".jsonl.gz"):
        rows[9]["text"] = rows[30]["text"] = None
    names = []
    for part, some in enumerate((rows[:23], rows[23:])):
        path, frame = tmp_path / f"{part}{suffix}", pd.DataFrame(some)
        if suffix == ".txt":
            data = "".join(f"{row['text']}\n".replace("\nwith", " with") for row in some).encode("utf-8-sig")
        elif suffix.startswith(".jsonl"):
            data = "".join(json.dumps(row, ensure_ascii=part == 0) + "\n" * (1 + part) for row in some).encode()
        elif suffix == ".tsv":
            data = "".join(["text\tn\n", *(f"{' '.join(row['text'].split())}\t{row['n']}\n" for row in some)]).encode()
        elif suffix.startswith(".csv"):
            data = frame.to_csv(index=False, sep=";" if part else ",").encode("utf-8-sig")
        elif suffix == ".parquet":
            frame.to_parquet(path, row_group_size=5)
            data = path.read_bytes()
        else:
            xlsx(path, [["text", "n"], *([row["text"].replace("\n", " "), row["n"]] for row in some)])
            data = path.read_bytes()
        path.write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
        names.append(str(path))
    sources, options = text_sources(names), ReadOptions(on_null=null)
    surveyed = survey(sources, options)
    assert 4 <= len(surveyed.positions) <= 2 + surveyed.rows // 7
    reading = {"block_rows": 3, "shard_rows": 10, "columns": list(surveyed.column_types), "casts": surveyed.casts}
    whole = list(blocks(sources, options, **reading))
    for shard in range(4):
        start = surveyed.position_before(shard * 10)
        assert start.rows <= shard * 10 < start.rows + 10
        begun = list(blocks(sources, options, shards=[shard], start=start, **reading))
        assert begun == [block for block in whole if block.shard == shard]
