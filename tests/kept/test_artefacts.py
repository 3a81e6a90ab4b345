"""What earlier versions wrote is opened: directories, indexes, files, exports, runs, sweeps, baselines, collections.

`make.py` wrote the folders, one for each minor version whose formats are promised (docs/compatibility.md).
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.tolerance import VECTORS, Near

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

VERSIONS = sorted(path.name for path in Path(__file__).parent.iterdir() if path.name[0].isdigit())
TORCH = ("-m", "model", "--backend", "torch")


@pytest.fixture(params=VERSIONS)
def kept(request, tmp_path, monkeypatch):
    """A copy of what a version wrote, which is the working folder: its files name each other without a place."""
    folder = tmp_path / "kept"
    shutil.copytree(Path(__file__).parent / request.param, folder)
    monkeypatch.chdir(folder)
    return folder


def hits(invoke, *options):
    ask = ("retrieve", *TORCH, "--query", "the cat ran", "--top-k", 5, "--json", "-", *options)
    found = json.loads(invoke(*ask, check=0).stdout)["results"][0]["hits"]
    return [(hit["id"], Near(hit["score"])) for hit in found]


def expected_hits():
    found = json.loads(Path("hits.json").read_text())["results"][0]["hits"]
    return [(hit["id"], hit["score"]) for hit in found]


def changes(invoke, *options):
    done = invoke("index", "rows.jsonl", *options, *TORCH, "--update", "--json", "-", check=0)
    results = json.loads(done.stdout)["results"]
    return {key: results[key] for key in ("kept", "changed", "new", "gone", "encoded")}


SAME = {"kept": 40, "changed": 0, "new": 0, "gone": 0, "encoded": 0}


def test_a_directory_is_searched_checked_updated_and_added_to(kept, invoke):
    directory = ("--corpus", "directory")
    for index in ("flat", "hnsw"):
        assert hits(invoke, *directory, "--index", index) == expected_hits()
    invoke("retrieve", *directory, "--query", "river", "--search", "bm25", check=0)
    assert hits(invoke, *directory, "--least", "0.01p", "--where", "year >= 2000") == expected_hits()
    invoke("index", "directory", "--check", check=0)
    assert changes(invoke, "-o", "directory") == SAME
    invoke("encode", "judged.csv", "-o", "directory", *TORCH, "--text-field", "text_a", "--append", check=2)
    lines = Path("rows.jsonl").read_text().splitlines()
    more = [{**json.loads(line), "id": f"more{number}"} for number, line in enumerate(lines)]
    Path("more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in more))
    invoke("index", "more.jsonl", "-o", "directory", *TORCH, "--type", "hnsw", "--append", check=0)
    assert len(hits(invoke, *directory, "--index", "hnsw")) == 5


def test_a_directory_of_which_one_machine_wrote_its_half_is_finished(kept, invoke):
    invoke("encode", "rows.jsonl", "-o", "half", *TORCH, "--shard-rows", 20, "--shard", "2/2", check=0)
    assert hits(invoke, "--corpus", "half") == expected_hits()


def test_passages_are_searched_and_come_up_to_date(kept, invoke):
    assert hits(invoke, "--corpus", "passages")
    cut = ("--passages", "--passage-tokens", 8, "--context", "title")
    done = invoke("encode", "rows.jsonl", "-o", "passages", *TORCH, *cut, "--update", "--json", "-", check=0)
    results = json.loads(done.stdout)["results"]
    assert (results["changed"], results["new"], results["gone"]) == (0, 0, 0)


@pytest.mark.parametrize("end", [".npy", ".parquet", ".safetensors", ".jsonl"])
def test_a_file_of_vectors_is_searched(kept, invoke, end):
    options = {".parquet": (), ".jsonl": ("--vector-field", "embedding")}.get(end, ("--texts", "rows.jsonl"))
    assert hits(invoke, "--corpus", f"vectors{end}", *options) == expected_hits()


def test_an_export_gives_the_vectors_of_its_model(kept, invoke):
    pytest.importorskip("onnxruntime", reason="exports run with the extra sentcli[cpu]")
    invoke("encode", "rows.jsonl", "-o", "now.npy", "-m", "export", check=0)
    unit = np.load("vectors.npy")
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    now = np.load("now.npy")
    now /= np.linalg.norm(now, axis=1, keepdims=True)
    np.testing.assert_allclose(now, unit, atol=VECTORS)


def test_a_run_is_loaded_and_resumed(kept, invoke):
    invoke("encode", "rows.jsonl", "-o", "now.npy", "-m", "run", "--backend", "torch", check=0)
    expected = np.load("run.npy")
    np.testing.assert_allclose(np.load("now.npy"), expected, atol=VECTORS * np.linalg.norm(expected, axis=1).max())
    train = ("train", "--method", "simcse", "-m", "model", "--data", "rows.jsonl", "--batch-size", 8)
    invoke(*train, "-o", "run", "--max-steps", 4, "--resume", check=0)
    invoke(*train, "-o", "sweep", "--max-steps", 2, "--seeds", "1,2", "--resume", check=0)


def test_a_sweep_is_scored_as_one_model(kept, invoke):
    done = invoke("evaluate", "judged.csv", "-m", "sweep", "--backend", "torch", "--json", "-", check=0)
    assert "sweep" in done.stdout


def test_a_baseline_is_compared_with(kept, invoke):
    invoke("evaluate", "judged.csv", *TORCH, "--baseline", "baseline.json", check=0)


def test_a_made_set_is_searched(kept, invoke):
    done = invoke("retrieve", "--beir", "set", *TORCH, "--json", "-", check=0)
    assert json.loads(done.stdout)["results"]


@pytest.mark.parametrize("place", ["lance:lance", "milvus:milvus.db"])
def test_a_collection_is_searched_and_comes_up_to_date(kept, invoke, place):
    needs = {"lance": "lancedb", "milvus": "milvus_lite"}[place.split(":")[0]]
    pytest.importorskip(needs, reason="a database is an extra")
    collection = ("--collection", "rows")
    assert hits(invoke, "--corpus", place, *collection) == expected_hits()
    assert changes(invoke, "--to", place, *collection) == SAME


@pytest.mark.slow
def test_a_table_of_postgresql_is_searched_and_comes_up_to_date(kept, invoke, postgres):
    import psycopg

    dump = json.loads(Path("postgres.json").read_text())
    table, *others = dump["statements"]
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(table)
        with connection.cursor().copy("COPY rows FROM STDIN") as copy:
            copy.write(dump["rows"])
        for statement in others:
            connection.execute(statement)
    assert hits(invoke, "--corpus", postgres, "--collection", "rows") == expected_hits()
    assert changes(invoke, "--to", postgres, "--collection", "rows") == SAME


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("directory/manifest.json", ("retrieve", "--corpus", "directory", *TORCH, "--query", "cat")),
        ("directory/indexes/hnsw/index.json", ("retrieve", "--corpus", "directory", *TORCH, "--query", "cat")),
        ("export/export.json", ("encode", "rows.jsonl", "-o", "now.npy", "-m", "export")),
        ("baseline.json", ("evaluate", "judged.csv", *TORCH, "--baseline", "baseline.json")),
        ("set/set.json", ("retrieve", "--beir", "set", *TORCH)),
    ],
)
def test_a_format_of_a_later_version_is_refused_by_name(kept, invoke, file, command):
    path = Path(file)
    content = json.loads(path.read_text())
    content["format"] += 98
    path.write_text(json.dumps(content))
    said = invoke(*command, check=2).stderr
    assert path.name in said and "format" in said
