"""``evaluate --variants`` tries the ways of reading long documents: cut, in pieces, in passages."""

import json

import pytest

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

from tests.evaluation.conftest import write_set

ANIMALS = ["cat", "dog", "bird", "fish"]
PLACES = ["mat", "house", "river"]


@pytest.fixture
def long_documents(tmp_path):
    """A set whose queries ask for the ends of documents, which a model of 32 tokens does not read."""
    corpus, queries, qrels = [], [], "query-id\tcorpus-id\tscore\n"
    for animal in ANIMALS:
        for place in PLACES:
            key = f"{animal}-{place}"
            text = "the old man sat on a tree. " * 12 + f"the {animal} swam under the {place}."
            corpus.append({"_id": key, "title": "", "text": text})
            queries.append({"_id": f"q-{key}", "text": f"the {animal} swam under the {place}."})
            qrels += f"q-{key}\t{key}\t1\n"
    return write_set(tmp_path / "long", corpus, queries, qrels)


def test_passages_find_what_stands_at_the_end(long_documents, tiny_bert, tmp_path, invoke):
    grid = tmp_path / "grid.toml"
    grid.write_text('dimensions = []\ntypes = ["float32"]\nindexes = []\nlengths = []\nprecisions = []\n')
    out = tmp_path / "out.json"
    model = ("-m", tiny_bert, "--backend", "torch")
    result = invoke("evaluate", long_documents, *model, "--variants", grid, "--json", out, check=0)
    ways = {row["name"]: row for row in json.loads(out.read_text())["results"]["long"]["variants"]}
    cut, mean, passages = ways["float32 x 32"], ways["chunk-mean, float32 x 32"], ways["passages, float32 x 32"]
    assert passages["value"] > 0.9 > cut["value"] + 0.3
    assert mean["value"] != cut["value"]
    assert passages["bytes_per_vector"] > 2 * cut["bytes_per_vector"] == 2 * mean["bytes_per_vector"]
    assert "--passages" in passages["command"]
    assert "--on-long chunk-mean" in mean["command"]
    assert "passages" in result.stderr


def test_a_grid_names_the_readings(long_documents, tiny_bert, tmp_path, invoke):
    grid = tmp_path / "grid.toml"
    few = 'dimensions = []\ntypes = ["float32"]\nindexes = []\nlengths = []\nprecisions = []\n'
    grid.write_text(few + 'readings = ["cut"]\n')
    out = tmp_path / "out.json"
    command = ("evaluate", long_documents, "-m", tiny_bert, "--backend", "torch", "--variants", grid, "--json", out)
    invoke(*command, check=0)
    assert len(json.loads(out.read_text())["results"]["long"]["variants"]) == 1
    grid.write_text(few + 'readings = ["whole"]\n')
    assert "readings" in invoke(*command, check=2).stderr
