"""Columns of vectors are read from tables of any format, also compressed ones."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentcli.io.sources import open_source
from sentcli.io.vector_columns import read_vectors, vector_column

VECTORS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
TABLE = pa.table({"text": ["a", "b", "c"], "embedding": pa.array(VECTORS, pa.list_(pa.float32(), 2))})


def as_arrow():
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_file(buffer, TABLE.schema) as writer:
        writer.write_table(TABLE)
    return buffer.getvalue().to_pybytes()


def as_parquet():
    buffer = pa.BufferOutputStream()
    pq.write_table(TABLE, buffer)
    return buffer.getvalue().to_pybytes()


@pytest.mark.parametrize(("suffix", "content"), [("arrow", as_arrow()), ("parquet", as_parquet())])
@pytest.mark.parametrize("end", ["", ".gz", ".zst"])
def test_vectors_of_compressed_tables(tmp_path, suffix, content, end):
    """A reader that begins at the end of a file has to have a compressed one in memory."""
    compress = {"": bytes, ".gz": gzip.compress, ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True)}
    path = tmp_path / f"t.{suffix}{end}"
    path.write_bytes(compress[end](content))
    source = open_source(str(path))
    assert vector_column(source) == "embedding"
    np.testing.assert_array_equal(np.concatenate(read_vectors(source, "embedding")), np.float32(VECTORS))


def test_a_number_that_no_float_holds_is_named_with_its_line(tmp_path, invoke):
    table = tmp_path / "v.jsonl"
    table.write_text('{"text": "a", "vec": [1, 2]}\n{"text": "b", "vec": [1' + "0" * 400 + ", 1]}\n")
    failed = invoke("index", table, "-o", tmp_path / "i", "--vector-field", "vec", check=2)
    assert "v.jsonl, line 2" in failed.stderr and "'vec'" in failed.stderr and "defect" not in failed.stderr
