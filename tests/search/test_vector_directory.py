"""Tables with several columns of vectors, data sets as they are, and indexes of given vectors that grow."""

import json

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentcli import SentenceEncoder
from sentcli.search.vector_file import open_stored
from tests.model import folders

TEXTS = [f"the {thing} sat near the {place}" for thing in ("cat", "dog", "bird") for place in ("house", "river")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return folders.make(tmp_path_factory.mktemp("given") / "model", "normalize")


@pytest.fixture(scope="module")
def vectors(model):
    return SentenceEncoder.load(str(model)).encode(TEXTS)


@pytest.fixture(scope="module")
def others(vectors):
    return np.random.default_rng(0).normal(size=vectors.shape).astype(np.float32)


def column(vectors):
    return pa.array(vectors.tolist(), pa.list_(pa.float32(), vectors.shape[1]))


def write(path, **columns):
    rows = {"id": [f"d{n}" for n in range(len(TEXTS))], "text": TEXTS}
    pq.write_table(pa.table({**rows, **{name: column(values) for name, values in columns.items()}}), path)
    return path


def stored(folder):
    return np.load(folder / "vectors-00000.npy")


def test_index_leaves_out_the_vectors_that_are_not_taken(vectors, others, tmp_path, invoke):
    path = write(tmp_path / "t.parquet", embedding=others, mine=vectors)
    call = ["index", path, "-o", tmp_path / "out", "--type", "flat", "--vector-field"]
    invoke(*call, "mine", check=0)
    np.testing.assert_array_equal(stored(tmp_path / "out"), vectors)
    assert pq.read_schema(tmp_path / "out" / "rows-00000.parquet").names == ["id", "text"]
    assert "mine" in invoke(*call, "embedding", check=2).stderr  # and not "0 rows added"


def test_what_encode_says_of_its_vectors_is_not_said_of_another_column(model, others, tmp_path, invoke):
    source = write(tmp_path / "t.parquet")
    invoke("encode", source, "-o", tmp_path / "v.parquet", "-m", model, "--id-field", "id", check=0)
    table = pq.read_table(tmp_path / "v.parquet").append_column("mine", column(others))
    pq.write_table(table, tmp_path / "w.parquet")
    call = ["retrieve", "--corpus", tmp_path / "w.parquet", "--query", "the cat"]
    assert "which model made" in invoke(*call, "--vector-field", "mine", check=2).stderr
    invoke(*call, check=0)


def test_vectors_that_changed_beside_the_same_texts_are_refused(vectors, tmp_path, invoke):
    (tmp_path / "v.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    np.save(tmp_path / "v.npy", vectors)
    call = ["index", tmp_path / "v.npy", "-o", tmp_path / "out", "--type", "flat"]
    invoke(*call, check=0)
    invoke(*call, check=0)
    np.save(tmp_path / "v.npy", vectors[::-1])
    assert "--overwrite" in invoke(*call, check=2).stderr
    invoke(*call, "--overwrite", check=0)
    np.testing.assert_array_equal(stored(tmp_path / "out"), vectors[::-1])


def test_vectors_of_another_dimension_are_not_appended(vectors, tmp_path, invoke):
    """The manifest has one dimension, so that the directory would be damaged."""
    first, second = write(tmp_path / "a.parquet", v=vectors), write(tmp_path / "b.parquet", v=vectors[:, :8])
    invoke("index", first, "-o", tmp_path / "out", "--type", "flat", check=0)
    said = invoke("index", second, "-o", tmp_path / "out", "--type", "flat", "--append", check=2).stderr
    assert "dimension" in said and "32" in said and "8" in said
    invoke("encode", "--check", tmp_path / "out", check=0)


def test_a_collection_does_not_take_the_vectors_of_another_model(model, others, tmp_path, invoke):
    pytest.importorskip("pymilvus")
    path = write(tmp_path / "t.parquet", v=others)
    call = ["index", path, "--to", f"milvus:{tmp_path / 'm.db'}", "--collection", "c", "-m", model]
    assert "cosine" in invoke(*call, check=2).stderr
    said = invoke("index", path, path, *call[2:], "--vector-field", "v", check=2).stderr
    assert "single table" in said


def save(folder):
    data = datasets.Dataset.from_dict({"id": [f"d{n}" for n in range(len(TEXTS))], "text": TEXTS})
    data.save_to_disk(str(folder))
    return folder


def test_a_data_set_of_texts_is_searched_like_a_file_of_texts(model, tmp_path, invoke):
    call = ["retrieve", "-m", model, "--corpus", save(tmp_path / "saved"), "--query", TEXTS[3], "--json", "-"]
    hits = json.loads(invoke(*call, check=0).stdout)["results"][0]["hits"]
    assert hits[0]["id"] == "d3"


def test_rows_that_a_data_set_names_by_number_are_not_ignored(tmp_path, invoke):
    folder = save(tmp_path / "saved")
    folders.edit(folder, "state.json", _indices_data_files=[{"filename": "indices.arrow"}])
    assert "later" in invoke("encode", folder, "-o", tmp_path / "v.npy", "-m", "x", check=2).stderr


def test_a_missing_file_of_a_data_set_is_named(tmp_path, invoke):
    folder = save(tmp_path / "saved")
    next(folder.glob("*.arrow")).unlink()
    assert "data-00000-of-00001.arrow" in invoke("encode", folder, "-o", tmp_path / "v.npy", "-m", "x", check=2).stderr


def test_each_part_of_a_table_may_have_words_of_its_own(vectors, tmp_path):
    """Arrow's files hold one dictionary for a column, and its streams several."""
    lance = pytest.importorskip("lance")
    tags = [pa.array(words).dictionary_encode() for words in (list("abc"), list("xyz"))]
    table = pq.read_table(write(tmp_path / "t.parquet", v=vectors))
    parts = [table.slice(3 * n, 3).append_column("tag", tag) for n, tag in enumerate(tags)]
    lance.write_dataset(pa.concat_tables(parts), str(tmp_path / "t.lance"), max_rows_per_file=3, max_rows_per_group=3)
    found = open_stored(str(tmp_path / "t.lance"), None, None, field="v")
    assert [row.columns["tag"] for row in found.rows.take(range(6))] == list("abcxyz")
