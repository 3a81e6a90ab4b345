"""Any texts, cut into blocks and shards of any size and run by any engine, get the vectors of the library."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sentcli.io.readers import ReadOptions
from sentcli.model.options import LoadOptions
from sentcli.stores import row_vectors
from sentcli.stores.engine import open_processes, open_thread
from sentcli.stores.inputs import read_inputs
from sentcli.stores.options import WriteSettings
from sentcli.stores.row_vectors import EncodedVectors
from sentcli.stores.writing import write_rows
from tests.examples import examples
from tests.stores.outputs import rows_of, vectors_of
from tests.tolerance import VECTORS

CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXT = st.one_of(
    st.sampled_from(["", " ", "the cat", "a dog", "the " * 60, "the " * 30, "🙂"]),
    st.text(CHARACTERS, max_size=40),
    st.lists(st.sampled_from(["the", "cat", "sat", "on", "mat", "x1"]), max_size=50).map(" ".join),
)
TEXTS = st.lists(TEXT, min_size=1, max_size=40)
many = examples(120)


@pytest.fixture(scope="module")
def processes(tiny_bert):
    """Two processes that stay for all examples."""
    load = LoadOptions(backend="onnx", precision="fp32")
    with open_processes(str(tiny_bert), load, ["cpu", "cpu"], {}, lambda added: None) as engine:
        yield engine


@pytest.fixture
def thread(encoder):
    with open_thread(encoder.encode_distinct, {}, lambda added: None) as engine:
        yield engine


@pytest.fixture
def engine(request, monkeypatch):
    """Let `write_rows` run texts on an engine that is there already."""
    engine = request.getfixturevalue(request.param)
    monkeypatch.setattr(row_vectors, "open_thread", lambda *_: nullcontext(engine))
    return engine


@pytest.mark.parametrize("engine", ["thread", "processes"], indirect=True)
@many
@given(texts=TEXTS, block_rows=st.integers(1, 12), shard_rows=st.integers(1, 50), directory=st.booleans())
@example(texts=["cat", "", "cat", "the " * 60] * 5, block_rows=3, shard_rows=7, directory=True)
def test_vectors_are_those_of_the_library(
    engine, encoder, tmp_path_factory, monkeypatch, texts, block_rows, shard_rows, directory
):
    monkeypatch.setattr(row_vectors, "BLOCK_ROWS", block_rows)
    folder = tmp_path_factory.mktemp("any")
    source = folder / "a.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = folder / ("v" if directory else "v.npy")
    inputs = read_inputs([str(source)], ReadOptions())
    summary = write_rows(inputs, EncodedVectors(encoder), str(out), WriteSettings(shard_rows))
    expected, stats = encoder.encode_counted(texts)
    np.testing.assert_allclose(vectors_of(out), expected, atol=VECTORS)
    assert summary.rows == summary.counts.rows == len(texts)
    assert summary.counts.empty == sum(not text.strip() for text in texts)
    if shard_rows >= len(texts):
        assert summary.counts.duplicates == len(texts) - stats.distinct
        assert summary.counts.tokens == stats.tokens
    if directory:
        assert [row["text"] for row in rows_of(out, "text")] == texts
