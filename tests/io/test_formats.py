"""Values, names and containers that other programs write are read as what they are, or refused with their place."""

import bz2
import datetime
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import sys

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from sentcli.errors import DataError, InputError
from sentcli.io import text_lines
from sentcli.io.blocks import blocks, survey
from sentcli.io.formats import records
from sentcli.io.in_memory import in_files
from sentcli.io.labelled import read_table
from sentcli.io.readers import ReadOptions
from sentcli.io.sources import open_source
from sentcli.io.word_vectors import read_word_vectors
from sentcli.testset.reading import read_documents

WHEN = datetime.datetime(2024, 1, 5, 1, 2, 3)


def read(path, **options):
    """Return ids, texts, columns and the types of the columns."""
    sources, options = [open_source(str(path))], ReadOptions(**options)
    found = survey(sources, options)
    (block,) = blocks(sources, options, columns=list(found.column_types), casts=found.casts)
    return block.ids, block.texts, block.columns, {name: str(kind) for name, kind in found.column_types.items()}


@pytest.fixture
def parquet(tmp_path):
    def write(**columns):
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        return tmp_path / "t.parquet"

    return write


# Ids and columns


def test_bytes_are_their_text_in_utf8(parquet):
    path = parquet(id=[b"a", "ß".encode()], text=["x", "y"], tag=[b"t", None], more=[[b"u"], []])
    ids, _, columns, types = read(path)
    assert ids == ["a", "ß"] and columns == {"tag": ["t", None], "more": [["u"], []]} and types["tag"] == "string"
    documents = read_documents([str(path)])
    assert documents.ids == ["a", "ß"]


@pytest.mark.parametrize("column", ["id", "tag"])
def test_bytes_that_are_no_text_are_named_with_row_and_column(parquet, column):
    values = {"id": [b"a", b"b"], "text": ["x", "y"], "tag": [b"a", b"b"], column: [b"a", b"\xff\xfe"]}
    with pytest.raises(DataError, match=rf"t\.parquet, row 2: '{column}' is bytes .*UTF-8"):
        read(parquet(**values))


def test_a_text_that_is_bytes_is_named_as_such(parquet):
    with pytest.raises(DataError, match=r"row 1: 'text' is bytes"):
        read(parquet(id=["a"], text=[b"x"]))
    with pytest.raises(DataError, match=r"row 1: positive is bytes"):
        read_table(str(parquet(anchor=["a"], positive=[b"x"])), kind="pairs")


@pytest.mark.parametrize(("value", "word"), [(1.0, r"1\.0"), (float("nan"), "NaN"), (float("inf"), "inf")])
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "frame"])
def test_whole_floats_and_nan_are_no_ids(tmp_path, parquet, kind, value, word):
    if kind == "frame":
        import pandas as pd

        path = in_files(pd.DataFrame({"id": [2.5, value], "text": ["x", "y"]}), "data", is_list=True)
        word = "missing or null" if value != value else word  # pandas has no other missing number
    elif kind == "jsonl":
        path = tmp_path / "t.jsonl"
        path.write_text("".join(json.dumps({"id": number, "text": "x"}) + "\n" for number in (2.5, value)))
    else:
        path = parquet(id=[2.5, value], text=["x", "y"])
    with pytest.raises(DataError, match=rf"(row|line) 2: 'id' is {word}"):
        read(path)


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.table([["a"], ["x"], [1], [2]], names=["id", "text", "n", "n"])
    pq.write_table(table, tmp_path / "t.parquet")
    feather.write_feather(table, str(tmp_path / "t.feather"))
    (tmp_path / "t.jsonl").write_text('{"id": "a", "text": "x", "n": 1, "n": 2}\n')
    for name in ("t.parquet", "t.feather", "t.jsonl"):
        with pytest.raises(DataError, match=rf"{name}.*'n'"):
            read(tmp_path / name)
    with pytest.raises(InputError, match="data has several columns called 'n'"):
        in_files(table, "data", is_list=True)


# Times


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("pandas", [True, False])
def test_the_type_of_a_time_is_the_same_with_and_without_pandas(parquet, monkeypatch, unit, pandas):
    columns = {
        "when": pa.array([WHEN, None], pa.timestamp(unit)),
        "zone": pa.array([WHEN, None], pa.timestamp(unit, "UTC")),
        "in": pa.array([[WHEN], []], pa.list_(pa.timestamp(unit))),
    }
    path = parquet(text=["x", "y"], **columns)
    if not pandas:
        monkeypatch.setitem(sys.modules, "pandas", None)
    _, _, found, types = read(path)
    assert types == {"when": "timestamp[us]", "zone": "timestamp[us, tz=UTC]", "in": "string"}
    assert found["when"] == [WHEN, None] and type(found["when"][0]) is datetime.datetime
    assert found["zone"][0].replace(tzinfo=None) == WHEN and found["in"] == [[WHEN], []]


def test_nanoseconds_that_python_cannot_hold_are_text(parquet):
    _, _, found, types = read(parquet(text=["x", "y"], when=pa.array([1, 1000], pa.timestamp("ns"))))
    assert types == {"when": "string"} and found["when"][0] == "1970-01-01 00:00:00.000000001"


# Missing texts


def test_nan_is_a_missing_text(tmp_path, parquet):
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": 1, "text": "the cat"}\n{"id": 2, "text": NaN}\n')
    with pytest.raises(DataError, match=r"t\.jsonl, line 2: 'text' is NaN"):
        read(path)
    assert read(path, on_null="skip")[:2] == (["1"], ["the cat"])
    assert read(path, on_null="empty")[1] == ["the cat", ""]
    path.write_text('{"anchor": "a", "positive": "b"}\n{"anchor": "c", "positive": NaN}\n')
    assert read_table(str(path), on_empty="skip").skipped == 1


def test_true_is_no_score(tmp_path):
    rows = [{"sentence1": f"a {i}", "sentence2": f"b {i}", "score": i / 5} for i in range(9)]
    rows[7]["score"] = True
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"line 8: the score True is not a number"):
        read_table(str(path))


# Compressed files, Arrow and Feather


def zstd(data, frames=1):
    out = b""
    for start in range(0, len(data), -(-len(data) // frames)):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data[start : start + -(-len(data) // frames)])
        out += sink.getvalue().to_pybytes()
    return out


PACK = {".zst": zstd, ".bz2": bz2.compress, ".xz": lzma.compress}
LINES = "".join(json.dumps({"id": i, "text": f"the cat {i}"}) + "\n" for i in range(10_000)).encode()


@pytest.mark.parametrize("end", PACK)
def test_compressed_files_are_read_from_any_mark(tmp_path, end, monkeypatch):
    monkeypatch.setattr(text_lines, "CHUNK_BYTES", 2**16)
    (tmp_path / f"t.jsonl{end}").write_bytes(PACK[end](LINES))
    sources, options = [open_source(str(tmp_path / f"t.jsonl{end}"))], ReadOptions()
    found = survey(sources, options)
    assert found.rows == 10_000 and len(found.positions) >= 2
    position = found.positions[1]
    assert 0 < position.rows < 10_000
    last = list(blocks(sources, options, start=position))
    assert last[0].ids[0] == str(position.rows) and last[-1].texts[-1] == "the cat 9999"
    assert sum(map(len, last)) == 10_000 - position.rows
    table = io.BytesIO()
    pq.write_table(pa.table({"text": ["x"]}), table)
    (tmp_path / f"t.parquet{end}").write_bytes(PACK[end](table.getvalue()))
    assert read(tmp_path / f"t.parquet{end}")[1] == ["x"]


@pytest.mark.slow
@pytest.mark.parametrize("end", [*PACK, ".gz"])
def test_compressed_standard_input_is_told_by_its_bytes(monkeypatch, end):
    packed = {**PACK, ".gz": gzip.compress}[end](LINES)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    assert survey([open_source("-", "jsonl")], ReadOptions()).rows == 10_000


@pytest.mark.parametrize("end", PACK)
def test_a_damaged_compressed_file_is_named(tmp_path, end):
    path = tmp_path / f"t.jsonl{end}"
    path.write_bytes(PACK[end](LINES)[:-40])
    with pytest.raises(DataError, match=rf"t\.jsonl\{end}.*damaged (zstd|bzip2|xz) file"):
        read(path)
    path.write_bytes(b"no such thing")
    with pytest.raises(DataError, match="damaged"):
        read(path)


def test_parts_of_zstandard_follow_on_each_other(tmp_path):
    (tmp_path / "t.jsonl.zst").write_bytes(zstd(LINES, frames=3))
    assert survey([open_source(str(tmp_path / "t.jsonl.zst"))], ReadOptions()).rows == 10_000


@pytest.mark.parametrize("form", ["file", "stream", "feather", "old feather"])
def test_tables_of_arrow_are_read(tmp_path, form):
    table = pa.table({"id": ["a", "b"], "text": ["x", "y"], "when": [WHEN, None]})
    path = tmp_path / ("t.feather" if "feather" in form else "t.arrow")
    if "feather" in form:
        feather.write_feather(table, str(path), version=1 if "old" in form else 2)
    else:
        new = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as handle, new(handle, table.schema) as writer:
            writer.write_table(table, max_chunksize=1)
    sources = [open_source(str(path))]
    found = next(blocks(sources, ReadOptions(), columns=["when"]))
    assert (found.ids, found.texts, found.columns["when"]) == (["a", "b"], ["x", "y"], [WHEN, None])
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(DataError, match=r"t\.(arrow|feather)"):
        read(path)


# What is no table is named


def database(path):
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (text)")


@pytest.mark.parametrize("suffix", ["", ".jsonl", ".txt", ".csv", ".db"])
@pytest.mark.parametrize(
    ("write", "word"),
    [
        (database, "SQLite"),
        (lambda path: path.write_bytes(pickle.dumps(["a", "b"])), "pickle"),
        (lambda path: path.write_bytes(zstd(b"a\n")), r"\.zst"),
        (lambda path: path.write_bytes(bz2.compress(b"a\n")), r"\.bz2"),
        (lambda path: path.write_bytes(lzma.compress(b"a\n")), r"\.xz"),
        (lambda path: feather.write_feather(pa.table({"a": [1]}), str(path)), "Arrow"),
    ],
    ids=["sqlite", "pickle", "zst", "bz2", "xz", "arrow"],
)
def test_other_files_are_called_what_they_are(tmp_path, suffix, write, word):
    path = tmp_path / f"t{suffix}"
    write(path)
    with pytest.raises(InputError, match=word) as caught:
        read(path)
    assert "utf-16" not in str(caught.value)


def test_a_text_may_begin_as_other_formats_do(tmp_path):
    for name, text in (("a.txt", "PAR1 is a gene"), ("b.txt", "BZh is short"), ("c.csv", "text\nORC")):
        (tmp_path / name).write_text(text + "\n")
        assert read(tmp_path / name)[1] == [text.removeprefix("text\n")]


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 133466304\n"


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet", "t.txt", "t", "t.csv.gz", "t.xlsx", "t.arrow"])
def test_a_pointer_of_git_lfs_is_named_where_data_is_read(tmp_path, name):
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(InputError, match=r"pointer of git-lfs.*git lfs pull"):
        read(tmp_path / name)


# Word vectors


@pytest.mark.parametrize("text", ["the 0.1 0.2\ncat 0.3 0.4\n", "2 2\nthe 0.1 0.2\ncat 0.3 0.4\n"])
@pytest.mark.parametrize("end", ["", *PACK])
def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path, text, end):
    path = tmp_path / f"w.txt{end}"
    path.write_bytes(PACK.get(end, bytes)(b"\xef\xbb\xbf" + text.encode()))
    words, vectors = read_word_vectors(path)
    assert words == ["the", "cat"] and vectors.shape == (2, 2)


def test_superscripts_are_no_counts_of_word_vectors(tmp_path):
    (tmp_path / "w.txt").write_text("² ³\nthe 0.1 0.2\n")
    with pytest.raises(InputError, match=r"w\.txt is a file"):
        read_word_vectors(tmp_path / "w.txt")


# Quotation marks in TSV


@pytest.mark.parametrize("quoted", ['"the cat\nsat"', '"a ""b"" c"', '"a\tb"'])
def test_texts_that_a_program_quoted_in_tsv_are_said(tmp_path, capsys, quoted):
    path = tmp_path / "t.tsv"
    path.write_text(f"text\tn\n{quoted}\t1\nplain\t2\n" if "\t" not in quoted else f"n\ttext\tmore\n1\t{quoted}\n")
    survey([open_source(str(path))], ReadOptions())
    survey([open_source(str(path))], ReadOptions())
    assert capsys.readouterr().err.count("t.tsv: a text begins with a quotation mark") == 1
    plain = tmp_path / "plain.tsv"
    plain.write_text('text\n"To be"\nhe said "no"\n5" wide\n""\n')
    assert read(plain)[1] == ['"To be"', 'he said "no"', '5" wide', '""'] and capsys.readouterr().err == ""


def test_utf_16_without_a_mark_is_no_text(tmp_path, invoke, tiny_bert):
    (tmp_path / "t.txt").write_bytes("one line\nand another one\n".encode("utf-16-le"))
    refused = invoke("encode", tmp_path / "t.txt", "-m", tiny_bert, "-o", tmp_path / "v.npy", check=2)
    assert "utf-16" in refused.stderr and "line 1" in refused.stderr


@pytest.mark.parametrize(("name", "separator"), [("t.csv", ","), ("t.tsv", "\t")])
def test_lines_that_end_with_carriage_returns_alone_are_named_as_such(tmp_path, name, separator):
    path = tmp_path / name
    path.write_bytes(f"text{separator}id\rthe cat{separator}1\ra dog{separator}2\r".encode())
    with pytest.raises(DataError, match=r"line 1: .*carriage return.* tr ") as caught:
        list(records(open_source(str(path))))
    assert "universal" not in str(caught.value)


def test_a_row_of_several_lines_has_the_number_of_its_first_one(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'text,id\r\n"a\nb\n\nc",1\n\nd,2\n"e\nf",3,4\ng,5\n')
    with pytest.raises(DataError, match=r"t\.csv, line 8: 3 fields"):
        list(records(open_source(str(path))))
    path.write_bytes(b'text,id\na,1\n"b\nc,2\nd,3\n')
    with pytest.raises(DataError, match=r"t\.csv, line 3: broken csv"):
        list(records(open_source(str(path))))
    path.write_bytes(b'text,id\n"a\nb",1\n\nd,2\n')
    assert [line for line, _ in records(open_source(str(path)))] == [2, 5]
