"""Vectors that other programs wrote: tables with a column of any name, Lance, data sets on disk, npy beside a table."""

import json

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from sentcli import SentenceEncoder
from sentcli.io.dataset import read_manifest
from sentcli.io.places import Place
from tests.tolerance import Near

TEXTS = [
    f"the {thing} sat near the {place}" for thing in ("cat", "dog", "bird") for place in ("house", "river", "tree")
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from tests.model import folders

    return folders.make(tmp_path_factory.mktemp("foreign") / "model", "normalize")


@pytest.fixture(scope="module")
def vectors(model):
    return SentenceEncoder.load(str(model)).encode(TEXTS)


def table(vectors, name="vector", *, fixed=True, extra=True):
    """A table as Lance and Chroma write it, with a tag and a list of tokens beside."""
    kind = pa.list_(pa.float32(), vectors.shape[1]) if fixed else pa.list_(pa.float32())
    columns = {
        "id": [f"d{n}" for n in range(len(vectors))],
        "text": TEXTS,
        name: pa.array(vectors.tolist(), kind),
    }
    if extra:
        columns["tag"] = ["a", "b", "c"] * (len(vectors) // 3)
    return pa.table(columns)


def write_lance(data, folder):
    lance = pytest.importorskip("lance")
    lance.write_dataset(data, str(folder))


WRITERS = {
    "parquet": (lambda data, path: pq.write_table(data, path), "t.parquet"),
    "feather": (lambda data, path: feather.write_feather(data, path), "t.feather"),
    "datasets": (lambda data, path: datasets.Dataset(data).save_to_disk(str(path)), "saved"),
    "lance": (write_lance, "t.lance"),
}


@pytest.fixture
def hits(invoke, model):
    """The ids and scores of the hits of a query, and what was said."""

    def find(corpus, *options, check=0):
        call = ["retrieve", "-m", model, "--corpus", corpus, "--query", TEXTS[4], "--top-k", 3, "--json", "-"]
        result = invoke(*call, *options, check=check)
        if check:
            return result.stderr
        found = json.loads(result.stdout)["results"][0]["hits"]
        return [(hit["id"], Near(hit["score"])) for hit in found], result.stderr, found

    return find


@pytest.fixture
def wanted(hits, tmp_path):
    """What the same texts give when they are encoded."""
    path = tmp_path / "texts.jsonl"
    rows = [{"id": f"d{n}", "text": text} for n, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return hits(path)[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITERS)
def test_a_column_of_fixed_size_is_taken_and_said(kind, vectors, tmp_path, hits, wanted):
    write, name = WRITERS[kind]
    turned = vectors + 0.02 * np.roll(vectors, 1, axis=0)  # near enough to be the model's, and not what it makes
    write(table(turned), tmp_path / name)
    found, said, lines = hits(tmp_path / name)
    cosines = turned @ vectors[4] / np.linalg.norm(turned, axis=1)
    best = np.argsort(-cosines, kind="stable")[:3]
    assert found == [(f"d{row}", Near(cosines[row])) for row in best.tolist()]
    assert found != wanted
    assert "'vector'" in said
    assert set(lines[0]["columns"]) == {"tag"}  # and no numbers of vectors


@pytest.mark.parametrize("fixed", [True, False])
def test_the_column_that_is_named_is_taken(fixed, vectors, tmp_path, hits, wanted):
    data = table(np.roll(vectors, 1, axis=0), "other").append_column("mine", table(vectors, fixed=fixed)["vector"])
    pq.write_table(data, tmp_path / "t.parquet")
    assert hits(tmp_path / "t.parquet", "--vector-field", "mine")[0] == wanted
    said = hits(tmp_path / "t.parquet", "--vector-field", "tag", check=2)
    assert "mine" in said and "other" in said


def test_lists_of_any_length_are_not_guessed(vectors, tmp_path, hits, wanted):
    pq.write_table(table(vectors[::-1], "tokens", fixed=False), tmp_path / "t.parquet")
    found, said, _ = hits(tmp_path / "t.parquet")
    assert found == wanted  # of the texts, encoded
    assert "--vector-field tokens" in said


def test_json_lines_by_name(vectors, tmp_path, hits, wanted):
    lines = [{"id": f"d{n}", "text": TEXTS[n], "vector": vector.tolist()} for n, vector in enumerate(vectors)]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert hits(path, "--vector-field", "vector")[0] == wanted
    path.write_text(path.read_text() + json.dumps({"id": "x", "text": "y", "vector": [1.0]}) + "\n")
    assert "line 10" in hits(path, "--vector-field", "vector", check=2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITERS)
def test_index_takes_such_a_table_as_it_is(kind, vectors, tmp_path, invoke, hits, wanted):
    write, name = WRITERS[kind]
    write(table(vectors), tmp_path / name)
    invoke("index", tmp_path / name, "-o", tmp_path / "out", "--type", "hnsw", check=0)
    assert hits(tmp_path / "out")[0] == wanted
    manifest = read_manifest(Place.of(tmp_path / "out"))
    assert manifest.rows_done == len(TEXTS) and set(manifest.columns) == {"tag"}
    assert "model_fingerprint" not in manifest.settings


def test_index_keeps_the_model_that_is_named_if_it_makes_the_same_vectors(vectors, model, tmp_path, invoke):
    from tests.model import folders

    pq.write_table(table(vectors), tmp_path / "t.parquet")
    invoke("index", tmp_path / "t.parquet", "-o", tmp_path / "out", "-m", model, "--type", "hnsw", check=0)
    result = invoke("retrieve", "--corpus", tmp_path / "out", "--query", "a cat", "--json", "-", check=0)
    assert json.loads(result.stdout)["model"] == str(model)
    other = folders.make(tmp_path / "other", "max")
    call = ["index", tmp_path / "t.parquet", "-o", tmp_path / "out2", "-m", other, "--type", "hnsw"]
    assert "cosine" in invoke(*call, check=2).stderr
    assert not (tmp_path / "out2" / "manifest.json").exists()


def test_index_takes_npy_with_a_table_beside(vectors, tmp_path, invoke, hits, wanted):
    np.save(tmp_path / "t.npy", vectors)
    pq.write_table(table(vectors).drop_columns(["vector"]), tmp_path / "t.parquet")
    assert hits(tmp_path / "t.npy")[0] == wanted
    invoke("index", tmp_path / "t.npy", "-o", tmp_path / "out", "--type", "hnsw", check=0)
    assert hits(tmp_path / "out")[0] == wanted


def test_a_column_called_embedding_is_taken_by_index(vectors, tmp_path, invoke, hits, wanted):
    pq.write_table(table(vectors, "embedding"), tmp_path / "t.parquet")
    invoke("index", tmp_path / "t.parquet", "-o", tmp_path / "out", "--type", "hnsw", check=0)
    assert hits(tmp_path / "out")[0] == wanted


def test_a_saved_data_set_is_read_like_a_file(tmp_path, model, invoke):
    data = datasets.Dataset.from_dict({"id": ["a", "b"], "text": TEXTS[:2]})
    data.save_to_disk(str(tmp_path / "saved"))
    invoke("encode", tmp_path / "saved", "-o", tmp_path / "v.parquet", "-m", model, check=0)
    assert pq.read_table(tmp_path / "v.parquet")["id"].to_pylist() == ["a", "b"]
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(str(tmp_path / "both"))
    said = invoke("encode", tmp_path / "both", "-o", tmp_path / "w.npy", "-m", model, check=2).stderr
    assert "both/train" in said and "both/test" in said


def test_a_row_without_a_vector_is_named(vectors, tmp_path, hits):
    rows = vectors.tolist()
    rows[3] = None
    data = table(vectors).set_column(2, "vector", pa.array(rows, pa.list_(pa.float32(), vectors.shape[1])))
    pq.write_table(data, tmp_path / "t.parquet")
    assert "row 4" in hits(tmp_path / "t.parquet", check=2)


@pytest.mark.parametrize("factory", ["Flat", "HNSW8", "IVF1,Flat", "SQ8", "IDMap,Flat"])
def test_an_index_of_faiss_is_named_as_one(factory, vectors, tmp_path, hits):
    import faiss

    index = faiss.index_factory(vectors.shape[1], factory)
    index.train(vectors)
    index.add_with_ids(vectors, np.arange(len(vectors))) if "IDMap" in factory else index.add(vectors)
    faiss.write_index(index, str(tmp_path / "my.index"))
    assert "faiss" in hits(tmp_path / "my.index", check=2)


def test_vectors_of_several_tables_are_not_joined_in_silence(vectors, model, tmp_path, invoke):
    for name in ("a.parquet", "b.parquet"):
        pq.write_table(table(vectors, extra=False), tmp_path / name)
    call = ["index", tmp_path / "a.parquet", tmp_path / "b.parquet", "-o", tmp_path / "out", "-m", model]
    assert "a.parquet are encoded again" in " ".join(invoke(*call, "--type", "hnsw", check=0).stderr.split())
