"""Vectors go out complete, in order and bit for bit, and unfinished directories continue only where they fit."""

import datetime
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sentcli.errors import InputError
from sentcli.io.atomic import replacing
from sentcli.io.blocks import Block
from sentcli.io.forms import write_json
from sentcli.io.writers import OutputPlan, open_writer, output_format
from tests.examples import examples

FORMATS = (".npy", ".safetensors", ".parquet", ".jsonl")
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = hnp.arrays(np.float32, st.tuples(st.integers(1, 20), st.integers(1, 9)), elements=FLOATS)
many = examples(40)


def as_blocks(vectors, size, columns=None):
    """Return (block, vectors) pairs of `size` rows."""
    columns = columns or {}
    for start in range(0, len(vectors), size):
        rows = range(len(vectors))[start : start + size]
        kept = {name: [values[i] for i in rows] for name, values in columns.items()}
        yield Block([f"id{i}" for i in rows], [f"text {i}" for i in rows], kept), vectors[rows.start : rows.stop]


def write(path, vectors, size=4, columns=None, types=None, settings=None):
    with open_writer(str(path), OutputPlan(*vectors.shape, types or {}, settings or {})) as append:
        for block, part in as_blocks(vectors, size, columns):
            append(block, part)
    return path


def read_back(path):
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    if path.suffix == ".safetensors":
        return safetensors.numpy.load_file(path)["embeddings"]
    if path.suffix == ".parquet":
        return np.array(pq.read_table(path)["embedding"].to_pylist(), np.float32)
    lines = path.read_text("utf-8").splitlines()
    return np.array([json.loads(line)["embedding"] for line in lines], np.float64).astype(np.float32)


def numbered(rows, dimension):
    return np.arange(rows * dimension, dtype=np.float32).reshape(rows, dimension)


# Files


@many
@given(vectors=VECTORS, size=st.integers(1, 25))
@pytest.mark.parametrize("suffix", FORMATS)
def test_vectors_read_back_bit_for_bit(tmp_path, suffix, vectors, size):
    found = read_back(write(tmp_path / f"v{suffix}", vectors, size))
    assert found.dtype == np.float32
    assert found.shape == vectors.shape
    assert found.tobytes() == vectors.tobytes()


@pytest.mark.parametrize("suffix", FORMATS)
def test_vectors_that_lie_otherwise_in_memory_come_out_in_order(tmp_path, suffix):
    vectors = np.asfortranarray(numbered(6, 4)[:, ::-1])
    assert np.array_equal(read_back(write(tmp_path / f"v{suffix}", vectors)), vectors)


def test_a_safetensors_file_carries_its_settings(tmp_path):
    path = write(tmp_path / "v.safetensors", numbered(3, 2), settings={"model": "é"})
    with safetensors.safe_open(path, "numpy") as handle:
        assert json.loads(handle.metadata()["settings"]) == {"model": "é"}
        assert list(handle.keys()) == ["embeddings"]


def test_parquet_has_the_columns_of_the_contract(tmp_path):
    types = {"n": pa.int64(), "ok": pa.bool_(), "tags": pa.string()}
    columns = {"n": [1, None], "ok": [True, False], "tags": [["a", "é"], {"b": 1}]}
    path = write(tmp_path / "v.parquet", numbered(2, 3), columns=columns, types=types, settings={"model": "m"})
    table = pq.read_table(path)
    wanted = {"id": pa.string(), "text": pa.string(), **types, "embedding": pa.list_(pa.float32(), 3)}
    assert {field.name: field.type for field in table.schema} == wanted
    assert list(wanted) == table.column_names
    assert json.loads(table.schema.metadata[b"sentcli"]) == {"model": "m"}
    assert table.select(["id", "text", "n", "ok", "tags"]).to_pylist() == [
        {"id": "id0", "text": "text 0", "n": 1, "ok": True, "tags": '["a", "é"]'},
        {"id": "id1", "text": "text 1", "n": None, "ok": False, "tags": '{"b": 1}'},
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a", "a"), (None, None), (2**70, str(2**70)), (True, "true"), (datetime.date(2020, 1, 2), "2020-01-02")],
)
def test_values_of_mixed_types_become_text_in_parquet(tmp_path, value, expected):
    path = write(tmp_path / "v.parquet", numbered(1, 2), columns={"n": [value]}, types={"n": pa.string()})
    assert pq.read_table(path)["n"].to_pylist() == [expected]


def test_jsonl_rows_are_one_object_each(tmp_path):
    columns = {"n": [1, None], "day": [datetime.date(2020, 1, 2), "b\nc"]}
    path = write(tmp_path / "v.jsonl", numbered(2, 2), columns=columns)
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == [
        {"id": "id0", "text": "text 0", "n": 1, "day": "2020-01-02", "embedding": [0, 1]},
        {"id": "id1", "text": "text 1", "n": None, "day": "b\nc", "embedding": [2, 3]},
    ]


def test_numbers_that_json_does_not_have_become_null(tmp_path):
    columns = {"n": [float("nan"), 1.5, float("inf")], "deep": [[1, float("nan")], None, "NaN"]}
    lines = write(tmp_path / "v.jsonl", numbered(3, 2), columns=columns).read_text("utf-8").splitlines()
    rows = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [(row["n"], row["deep"]) for row in rows] == [(None, [1, None]), (1.5, None), (None, "NaN")]


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_error_leaves_the_old_file_and_nothing_beside_it(tmp_path, suffix):
    path = tmp_path / f"v{suffix}"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), open_writer(str(path), OutputPlan(4, 2)) as append:
        append(Block(["0"], ["a"]), numbered(1, 2))
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("target", "hint"),
    [("v.parqet", "'.parqet'.*'.parquet'"), ("v.json", "'.json'.*'.jsonl'"), ("v.pkl", "'.pkl'")],
)
def test_an_unknown_suffix_names_the_formats(target, hint):
    with pytest.raises(InputError, match=rf"^{target}: .*{hint}.*\.npy, \.parquet, \.jsonl, \.safetensors"):
        output_format(target)


def test_output_formats():
    targets = ("-", "a/b", "a.d/b", "v.NPY", "v.x.parquet")
    assert [output_format(t).name for t in targets] == ["stdout", "directory", "directory", ".npy", ".parquet"]


# Replacing


def test_replacing_a_folder_puts_the_new_one_in_its_place(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "old").touch()
    with replacing(folder) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert [p.name for p in folder.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_replacing_a_folder_keeps_the_old_one_on_an_error(tmp_path, error):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "old").touch()
    with pytest.raises(error), replacing(folder) as temporary:
        temporary.mkdir()
        raise error
    assert [p.name for p in folder.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [folder]


def test_write_json_refuses_what_json_does_not_have_and_keeps_the_old(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": "é"})
    with pytest.raises(ValueError, match="nan"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text("utf-8")) == {"a": "é"}
    assert list(tmp_path.iterdir()) == [path]
