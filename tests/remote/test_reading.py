"""Directories of vectors and models that are read from a store: a copy in the cache that is brought up to date."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from sentcli.errors import InputError
from sentcli.io import object_stores
from sentcli.io.copies import FolderCopy
from tests.remote.conftest import files

OUT = "s3://corpora/out"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of this test alone."""
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "remote"


@pytest.fixture
def hits(invoke, tiny_bert):
    """The hits of two queries in a corpus."""

    def call(corpus, *arguments, check=0):
        queries = ("--query", "the cat", "--query", "a storm")
        done = invoke("retrieve", "--corpus", corpus, *queries, "-m", tiny_bert, "--backend", "torch",
                      "--top-k", 4, "--json", "-", *arguments, check=check)  # fmt: skip
        return json.loads(done.stdout)["results"] if check == 0 else done.stderr

    return call


@pytest.fixture
def directory(store, encode, rows, tmp_path):
    """The same directory in the store and on this machine."""
    for place in (OUT, tmp_path / "local"):
        encode(rows, "-o", place, "--shard-rows", 40)
    return tmp_path / "local"


@pytest.mark.slow
def test_a_search_in_a_store_finds_what_one_on_this_machine_finds(store, directory, hits):
    assert hits(OUT) == hits(directory)


@pytest.mark.slow
def test_what_has_not_changed_is_not_copied_again_and_what_has_is(store, directory, encode, hits, tmp_path):
    hits(OUT)
    store.requests.clear()
    hits(OUT)
    assert not [path for method, path in store.requests if method == "GET" and path.startswith("/corpora/out/")]
    more = tmp_path / "more.jsonl"
    more.write_text('{"id": "new", "text": "the cat", "n": 1}\n')
    for place in (OUT, directory):
        encode(more, "-o", place, "--shard-rows", 40, "--append")
    found = hits(OUT)
    assert found == hits(directory) and found[0]["hits"][0]["id"] == "new"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hnsw", "bm25"])
def test_an_index_is_built_in_the_store_and_used_elsewhere(store, directory, invoke, hits, cache, kind):
    pytest.importorskip("faiss")
    pytest.importorskip("bm25s")
    invoke("index", OUT, "--type", kind, check=0)
    invoke("index", directory, "--type", kind, check=0)
    built = sorted(path.name for path in (directory / "indexes" / kind).iterdir())
    assert [name.rpartition("/")[2] for name in store.names("out/indexes")] == built
    if kind == "hnsw":
        assert store.uploads("out/indexes")[-1] == "hnsw/index.json"
    shutil.rmtree(cache)  # another machine
    search = ("--search", "rrf") if kind == "bm25" else ("--index", "hnsw")
    assert hits(OUT, *search) == hits(directory, *search)
    invoke("index", OUT, "--check", check=0)


def test_an_index_that_another_machine_has_built_meanwhile_stays(store, directory, invoke, monkeypatch):
    pytest.importorskip("faiss")
    opened = FolderCopy.open

    def then_another(address):
        copy = opened(address)
        store.put("out/indexes/bm25/rows.json", b"{}")
        return copy

    monkeypatch.setattr(FolderCopy, "open", then_another)
    invoke("index", OUT, "--type", "hnsw", check=0)
    assert "bm25/rows.json" in store.names("out/indexes")
    assert "hnsw/index.json" in store.names("out/indexes")


def test_what_is_made_for_a_store_is_not_replaced_by_what_is_there(store, directory):
    store.put("out/indexes/hnsw/index.json", b"old")
    copy = FolderCopy.open(OUT)
    with copy.making("indexes"):
        (copy.path / "indexes" / "hnsw" / "index.json").write_bytes(b"newer")
        store.put("out/indexes/sq8/index.json", b"of another machine")
        searched = FolderCopy.open(OUT)  # a search meanwhile
        assert searched.path == copy.path
        assert (copy.path / "indexes" / "hnsw" / "index.json").read_bytes() == b"newer"
        copy.upload("indexes", last=("index.json",))
    assert store.get("out/indexes/hnsw/index.json") == b"newer"
    FolderCopy.open(OUT)
    assert (copy.path / "indexes" / "sq8" / "index.json").read_bytes() == b"of another machine"


def test_a_shard_that_does_not_fit_the_manifest_is_an_error(store, directory, hits):
    vectors = bytearray(store.get("out/vectors-00001.npy"))
    vectors[-1] ^= 1
    store.put("out/vectors-00001.npy", bytes(vectors))
    for _ in range(2):  # a bad copy is not kept
        failed = hits(OUT, check=1)
        assert re.search(r"s3://corpora/out: vectors-00001\.npy .*SHA-256", failed)


@pytest.mark.slow
def test_an_unfinished_directory_and_one_that_is_not_there_are_named(store, directory, hits):
    manifest = json.loads(store.get("out/manifest.json"))
    manifest["shards"].pop()
    manifest["rows_done"] = 80
    store.put("out/manifest.json", json.dumps(manifest).encode())
    assert re.search("s3://corpora/out .*80 of 90 .*--resume", hits(OUT, check=2))
    assert "s3://corpora/none" in hits("s3://corpora/none", check=2)


@pytest.mark.slow
def test_a_pattern_is_a_corpus_of_texts(store, hits, rows):
    lines = rows.read_bytes().splitlines(keepends=True)
    store.put("texts/a.jsonl", b"".join(lines[:50]))
    store.put("texts/b.jsonl", b"".join(lines[50:]))
    assert hits("s3://corpora/texts/*.jsonl") == hits(rows)


@pytest.mark.slow
def test_a_file_of_vectors_in_a_store_is_searched(store, encode, rows, hits, tmp_path):
    encode(rows, "-o", tmp_path / "v.parquet")
    store.put("v.parquet", (tmp_path / "v.parquet").read_bytes())
    assert hits("s3://corpora/v.parquet") == hits(tmp_path / "v.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["parquet", "npy", "safetensors"])
def test_a_damaged_file_is_named_as_it_lies_in_the_store(store, hits, suffix):
    store.put(f"v.{suffix}", b"PAR1 and nothing else")
    failed = hits(f"s3://corpora/v.{suffix}", check=2)
    assert f"error: s3://corpora/v.{suffix}: " in failed and "/tmp" not in failed


@pytest.mark.slow
def test_a_damaged_manifest_is_named_as_it_lies_in_the_store(store, directory, encode, rows, hits):
    store.put("out/manifest.json", b'{"format": 1}')
    failed = encode(rows, "-o", OUT, "--shard-rows", 40, "--resume", check=2)
    assert re.search("s3://corpora/out/manifest.json .*dimension.*--overwrite", failed.stderr)
    assert re.search("s3://corpora/out/manifest.json .*dimension", hits(OUT, check=2))


@pytest.mark.slow
def test_an_error_about_a_file_in_a_copy_tells_the_address(store, encode, rows, tiny_bert, tmp_path):
    for path in Path(tiny_bert).rglob("*"):
        if path.is_file():
            store.put(f"models/tiny/{path.relative_to(tiny_bert)}", path.read_bytes())
    store.put("models/tiny/config.json", b"{")
    failed = encode(rows, "-o", tmp_path / "a.npy", model="s3://corpora/models/tiny", check=2)
    assert "s3-corpora-models-tiny" in failed.stderr.replace("\n", "")


def test_a_name_that_leads_out_of_the_folder_is_refused(monkeypatch):
    class Listing:
        def _strip_protocol(self, address):
            return address.removeprefix("s3://")

        def find(self, address, detail):
            return {"corpora/out/../../escaped": {"size": 1}}

    monkeypatch.setattr(object_stores, "_filesystem", lambda scheme: Listing())
    with pytest.raises(InputError, match=r"s3://corpora/out .*'\.\./\.\./escaped'"):
        object_stores.listing(OUT)


@pytest.mark.slow
def test_a_model_in_a_store_makes_the_vectors_of_the_same_model_here(store, encode, rows, tiny_bert, tmp_path):
    for path in Path(tiny_bert).rglob("*"):
        if path.is_file():
            store.put(f"models/tiny/{path.relative_to(tiny_bert)}", path.read_bytes())
    encode(rows, "-o", tmp_path / "here.npy")
    encode(rows, "-o", tmp_path / "there.npy", model="s3://corpora/models/tiny")
    assert np.array_equal(np.load(tmp_path / "here.npy"), np.load(tmp_path / "there.npy"))
    store.requests.clear()
    encode(rows, "-o", tmp_path / "again.npy", model="s3://corpora/models/tiny")
    assert not [path for method, path in store.requests if method == "GET" and path.endswith(".safetensors")]
    encode(rows, "-o", tmp_path / "out", "--shard-rows", 40, model="s3://corpora/models/tiny")
    manifest = json.loads(files(tmp_path / "out")["manifest.json"])
    assert manifest["settings"]["model"] == "s3://corpora/models/tiny"


@pytest.mark.slow
def test_a_search_takes_the_model_in_a_store_that_made_the_vectors(store, encode, invoke, rows, tiny_bert):
    for path in Path(tiny_bert).rglob("*"):
        if path.is_file():
            store.put(f"models/tiny/{path.relative_to(tiny_bert)}", path.read_bytes())
    encode(rows, "-o", OUT, "--shard-rows", 40, model="s3://corpora/models/tiny")
    call = ["retrieve", "--corpus", OUT, "--query", "the cat", "--backend", "torch", "--json", "-"]
    alone, given = (invoke(*call, *model, check=0).stdout for model in ([], ["-m", tiny_bert]))
    assert json.loads(alone)["results"] == json.loads(given)["results"]


def test_a_model_that_is_not_there_is_named(store, encode, rows, tmp_path):
    failed = encode(rows, "-o", tmp_path / "a.npy", model="s3://corpora/models/none", check=2)
    assert "s3://corpora/models/none" in failed.stderr
    failed = encode(rows, "-o", tmp_path / "a.npy", model="https://127.0.0.1/models/none", check=2)
    assert re.search("https://127.0.0.1/models/none: .*s3://, gs://, az://", failed.stderr)
